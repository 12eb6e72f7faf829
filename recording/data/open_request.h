// OpenRequest: OpenOptions, plus options for internal use. Private to the project.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "ptdecode/timeline.h"

namespace ptd {

class ImageLog;

/// Code that no file has, at one address from one moment on.
struct GivenCode {
  int32_t pid = -1;  ///< -1: of the kernel
  Ip ip;
  CodeBytes code;
  TimeNs from;
  std::string name;  ///< of the function; may be empty
};

/// Records that the recorder did not give, of any kind.
struct LostInput {
  TimeNs from;       ///< until the end
  std::string what;  ///< one sentence
};

/// The loaders of recording/ take this instead of OpenOptions.
struct OpenRequest : OpenOptions {
  OpenRequest() = default;
  explicit OpenRequest(const OpenOptions& options) : OpenOptions(options) {}

  std::optional<RawOptions> raw;        ///< set: a raw capture, in place of `path`
  uint32_t drop_nth_poke = 0;           ///< tests: leaves out every n-th TEXT_POKE record, as if it had been lost (0: none)
  uint32_t drop_poke_seed = 0;          ///< tests: which of the n residues, or a shuffled choice if >= n
  std::shared_ptr<ImageLog> image_log;  ///< records what the image is made of, for a bundle; may be null
  /// Of a plan: where its trace files are, in its order; empty, or an empty one: at the recorded path.
  std::vector<std::string> trace_files;
  bool use_written = false;    ///< SegmentTiming::use_written
  bool without_trace = false;  ///< of a plan: its trace files are not opened, and their bytes read as zero
  /// Of a plan: its trace may be there in part. check_unit() is called where a unit is decoded, not here for all units.
  bool unit_by_unit = false;
  std::vector<GivenCode> given_code;
  std::vector<LostInput> lost_input;
  std::function<void()> check;  ///< called now and then while opening; may throw to end it. May be empty
};

/// Returns the file with the trace.
[[nodiscard]] inline const std::string& trace_path(const RawOptions& raw) {
  return raw.winipt_path.empty() ? raw.pt_path : raw.winipt_path;
}

/// As Recording::open() and Recording::open_raw().
[[nodiscard]] Result<std::unique_ptr<Recording>> open_recording(const OpenRequest& request);
[[nodiscard]] Result<std::unique_ptr<Recording>> open_raw_recording(const RawOptions& raw, const OpenRequest& request);

}  // namespace ptd
