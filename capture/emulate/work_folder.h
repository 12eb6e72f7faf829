// WorkFolder: contains the plugin's logs until they become a recording.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::emulate {

/// A folder that only its owner can enter. It outlives the processes that use it: whoever makes the recording removes it.
class WorkFolder {
 public:
  /// Makes OUTPUT.work-XXXXXX, or a folder in TMPDIR if that folder or its file system does not allow it; in `parent` if that is given.
  /// Errors: file_open.
  static Result<WorkFolder> create(const std::string& output, const std::string& parent);
  /// The folder of a recorder that was killed. Errors: file_open if there is none; unsupported while a recorder or an emulated program
  /// still uses it.
  static Result<WorkFolder> adopt(const std::string& path);
  ~WorkFolder();
  WorkFolder(WorkFolder&& other) noexcept;
  WorkFolder& operator=(WorkFolder&&) = delete;

  /// Absolute; where the folder was created or adopted.
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the absolute path that the folder has now, which differs from path() after a rename; "" if it was removed.
  [[nodiscard]] std::string current_path() const;
  void remove() const;

 private:
  explicit WorkFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
  int lock_ = -1;  ///< held by the recorder and the processes that it forks, until the last of them ends
};

/// Processes that have files of the folder mapped.
[[nodiscard]] std::vector<pid_t> users_of(const std::string& folder);

}  // namespace ptd::emulate
