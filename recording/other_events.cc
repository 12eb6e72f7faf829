// Samples of other events, by the form of the recording.
#include "recording/data/other_events.h"

#include <filesystem>

#include "ptdecode/bundle.h"
#include "recording/bundle/bundle_events.h"
#include "recording/perf/perf_samples.h"

namespace ptd {

bool is_read_once(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return path == "-" || (fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status));
}

Result<OtherEvents> read_other_events(const std::string& path, const std::vector<Interval>& times, size_t most, uint64_t most_bytes) {
  if (path.empty()) return OtherEvents{};
  if (looks_like_bundle(path)) return read_bundled_events(path, times, most);
  if (path.ends_with(".json") || path.ends_with(".ini")) return OtherEvents{};
  std::error_code ignored;
  const bool folder = std::filesystem::is_directory(path, ignored);
  if (folder && !std::filesystem::exists(path + "/data", ignored)) return OtherEvents{};
  return read_perf_samples(path, times, most, most_bytes);
}

}  // namespace ptd
