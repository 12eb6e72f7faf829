// Plans as input: see plan_input.h.
#include "cli/fleet/plan_input.h"

#include <fmt/format.h>

#include <filesystem>
#include <utility>

#include "ptdecode/bundle.h"
#include "recording/bundle/plan.h"

namespace ptd::cli {

Result<std::unique_ptr<Recording>> open_plan(const std::string& path, const std::vector<std::string>& traces, bool without_trace) {
  OpenRequest request;
  request.path = path;
  request.trace_files = traces;
  request.without_trace = without_trace;
  request.unit_by_unit = true;
  auto opened =
      looks_like_bundle(path) ? open_recording(request) : Result<std::unique_ptr<Recording>>(Error{ErrorCode::invalid_argument, {}, 0});
  if (!opened && !opened.error().message.empty()) return opened;
  if (!opened || !is_plan(**opened))
    return Error{ErrorCode::invalid_argument, path + ": not a plan; make one with 'ptdecode plan RECORDING -o FILE'", 0};
  return opened;
}

ResultFolder::ResultFolder(std::string path) : path_(std::move(path)) {
  std::error_code error;
  made_ = !std::filesystem::exists(path_, error);
  std::filesystem::create_directories(path_, error);  // a file in it cannot be written, if this failed
}

ResultFolder::~ResultFolder() {
  std::error_code error;
  if (made_) std::filesystem::remove(path_, error);  // not one with files
}

std::string unit_file(const std::string& folder, uint32_t unit, std::string_view name) {
  return fmt::format("{}{}unit-{:05}.{}", folder, folder.ends_with('/') ? "" : "/", unit, name);
}

}  // namespace ptd::cli
