// The folder of this user's emulators.
#include "capture/emulators/cache_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::emulators {

namespace fs = std::filesystem;

FolderLock::FolderLock(const std::string& folder) : fd_(::open((folder + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)) {
  held_ = fd_ >= 0 && ::flock(fd_, LOCK_EX | LOCK_NB) == 0;
  number_ = errno;
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) ::close(fd_);
}

Status FolderLock::status(const std::string& folder) const {
  if (held_) return {};
  if (number_ == EWOULDBLOCK) return Error{ErrorCode::busy, folder + ": another 'ptdecode emulator' is at work there", 0};
  return system_error("cannot open " + folder + "/lock", ErrorCode::write_failed, number_);
}

bool in_path(const std::string& program) {
  const std::string places = environment::search_path();
  for (size_t at = 0; at <= places.size();) {
    const size_t end = std::min(places.find(':', at), places.size());
    if (::access((places.substr(at, end - at) + "/" + program).c_str(), X_OK) == 0) return true;
    at = end + 1;
  }
  return false;
}

Status make_cache_folder(const std::string& folder) {
  if (folder.empty()) return Error{ErrorCode::not_found, "neither XDG_CACHE_HOME nor HOME is set: no place for the build", 0};
  std::error_code error;
  fs::create_directories(fs::path(folder).parent_path(), error);
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot create " + folder, ErrorCode::write_failed);
  struct stat info {};
  if (::stat(folder.c_str(), &info) != 0 || info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Error{ErrorCode::untrusted_file, folder + " belongs to another user, or others can write to it", 0};
  return {};
}

std::string work_folder(const std::string& folder) { return folder + "/.work"; }

Result<std::string> make_work_folder(const std::string& folder, uint64_t needed_bytes) {
  std::error_code error;
  std::string work = work_folder(folder);
  fs::remove_all(work, error);
  if (!fs::create_directory(work, error)) return system_error("cannot create " + work, ErrorCode::write_failed, error.value());
  const fs::space_info space = fs::space(work, error);
  if (error || space.available >= needed_bytes) return work;
  fs::remove_all(work, error);
  return Error{ErrorCode::no_space,
               folder + ": this needs " + std::to_string(needed_bytes >> 20) + " MiB of free disk space, and " +
                   std::to_string(space.available >> 20) + " MiB are free",
               0};
}

}  // namespace ptd::emulators
