// Bundles: self-contained recordings. Format: docs/FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/export.h"
#include "ptdecode/recording.h"
#include "ptdecode/types.h"

namespace ptd {

/// Options for writing a bundle.
struct BundleOptions {
  std::string output_path;
  Interval time;                    ///< only the segments that cover it; default: all
  std::vector<OpenOptions> also;    ///< also include the code that decoding with these options reads (frozen, without time); same input
  const RawOptions* raw = nullptr;  ///< set: the input is a raw capture
  bool dry_run = false;             ///< write nothing; only report what the bundle would contain
};

/// The part of a bundle that comes from one file.
struct BundlePart {
  std::string file, why;  ///< `why`: the reason that it may be in the bundle
  uint64_t bytes = 0;     ///< before compression
  uint64_t symbols = 0;   ///< names of functions
};

/// The content of a bundle, in bytes before compression unless stated otherwise.
struct BundleReport {
  uint64_t file_bytes = 0;  ///< of the bundle
  uint64_t aux_bytes = 0, aux_total_bytes = 0;
  uint64_t segments = 0, segments_total = 0;
  uint64_t code_bytes = 0;        ///< code that decoding read or that edits changed
  uint64_t code_total_bytes = 0;  ///< mapped bytes of the files and copies that it comes from
  uint64_t symbols = 0;
  uint64_t instructions = 0;          ///< decoded to determine the code
  std::vector<BundlePart> parts;      ///< its sources: the recording first, then by bytes
  std::vector<MissingImage> missing;  ///< files that the recording names and that are not included: why, and how many gaps that causes
  std::vector<std::string> warnings;  ///< of the recording
  std::string events_trouble;         ///< why the samples of other events are missing; "" if they are included or there are none
};

/// Opens the recording that `options` names, decodes it, and writes the data that decoding needed. From files outside the recording, only
/// code that is proven to have run is included (CodeSourceOptions::share). The output is replaced only on success.
/// Errors: those of Recording::open; the group file_open for the output; bad_output if the output is a file that was read, or a recording,
/// a program, a library or a jitdump; bad_time_window if nothing was traced at that time.
PTD_API Result<BundleReport> write_bundle(const OpenOptions& options, const BundleOptions& bundle);

/// Returns true if the file begins like a bundle.
[[nodiscard]] PTD_API bool looks_like_bundle(const std::string& path);

}  // namespace ptd
