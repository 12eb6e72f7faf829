// Bundles: recordings that need nothing but themselves. Format: docs/FORMAT.md.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/export.h"
#include "ptdecode/recording.h"
#include "ptdecode/types.h"

namespace ptd {

/// What to keep.
struct BundleOptions {
  std::string output_path;
  Interval time;                    ///< only the segments that cover it; default: all
  std::vector<OpenOptions> also;    ///< keep also what decoding with these looks at (frozen, timeless); same input
  const RawOptions* raw = nullptr;  ///< set: the input is a raw capture
  bool dry_run = false;             ///< write nothing: only say what would be in it
};

/// What one file gives to a bundle.
struct BundlePart {
  std::string file, why;  ///< `why`: the reason that it may be in the bundle
  uint64_t bytes = 0;     ///< before compression
  uint64_t symbols = 0;   ///< names of functions
};

/// What was kept, in bytes before compression where not said otherwise.
struct BundleReport {
  uint64_t file_bytes = 0;  ///< of the bundle
  uint64_t aux_bytes = 0, aux_total_bytes = 0;
  uint64_t segments = 0, segments_total = 0;
  uint64_t code_bytes = 0;        ///< code that was looked at or that edits touch
  uint64_t code_total_bytes = 0;  ///< of the files and copies that it was taken from, as far as mapped
  uint64_t symbols = 0;
  uint64_t instructions = 0;   ///< decoded to find out
  std::vector<BundlePart> parts;      ///< what it is made of: the recording first, then by bytes
  std::vector<MissingImage> missing;  ///< files that the recording names, and why nothing of them is in it
  std::vector<std::string> warnings;  ///< of the recording
  std::string events_trouble;         ///< why the samples of other events are not in it, "" if they are or there are none
};

/// Opens the recording that `options` names, decodes it, and writes what that needed. Of files outside of the recording only code that is
/// proven to be what ran goes into it (CodeSourceOptions::share). The output is replaced only if all went well.
/// Errors: those of Recording::open; the group file_open for the output; bad_output if the output is the input; bad_time_window if nothing
/// was traced at that time.
PTD_API Result<BundleReport> write_bundle(const OpenOptions& options, const BundleOptions& bundle);

/// True if the file begins as a bundle does.
[[nodiscard]] PTD_API bool looks_like_bundle(const std::string& path);

}  // namespace ptd
