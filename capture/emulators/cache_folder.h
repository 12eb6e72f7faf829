// The folder of this user's emulators: created with safe permissions, and changed by one process at a time.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/error.h"

namespace ptd::emulators {

/// Creates the folder, or checks the existing one. Errors: untrusted_file if another user can change it; not_found for ""; write_failed.
[[nodiscard]] Status make_cache_folder(const std::string& folder);

/// Returns the folder within it in which a build or a download works.
[[nodiscard]] std::string work_folder(const std::string& folder);
/// Creates work_folder() anew; whoever calls holds the lock. Errors: write_failed; no_space if less than `needed_bytes` of disk space are
/// free.
[[nodiscard]] Result<std::string> make_work_folder(const std::string& folder, uint64_t needed_bytes);

/// Holds the folder for one process at a time.
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Errors: busy if another process holds it; write_failed.
  [[nodiscard]] Status status(const std::string& folder) const;

 private:
  int fd_, number_ = 0;
  bool held_ = false;
};

/// Whether PATH has a program of this name.
[[nodiscard]] bool in_path(const std::string& program);

}  // namespace ptd::emulators
