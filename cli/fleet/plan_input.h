// Opening plans and naming the files of their units.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ptdecode/recording.h"
#include "recording/data/open_request.h"

namespace ptd::cli {

/// Opens a plan. `traces`: OpenRequest::trace_files; without_trace as there. Errors: those of opening a bundle; invalid_argument if it is a
/// recording and no plan.
[[nodiscard]] Result<std::unique_ptr<Recording>> open_plan(const std::string& path, const std::vector<std::string>& traces,
                                                           bool without_trace = false);
/// A folder for results. Made with the object, unless it exists; removed with it if it was made so and has no files.
class ResultFolder {
 public:
  explicit ResultFolder(std::string path);
  ~ResultFolder();
  ResultFolder(const ResultFolder&) = delete;
  ResultFolder& operator=(const ResultFolder&) = delete;

 private:
  std::string path_;
  bool made_ = false;
};

/// "FOLDER/unit-00012.NAME"
[[nodiscard]] std::string unit_file(const std::string& folder, uint32_t unit, std::string_view name);

}  // namespace ptd::cli
