// WorkFolder: a folder, a lock, and the processes that map its files.
#include "capture/emulate/work_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <utility>

#include "capture/emulate/shared/mapped_log.h"
#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;

constexpr const char* kLockFile = "lock";

// Not every file system lets processes share memory by a file.
bool can_map_files(const std::string& folder) {
  MappedLog trial;
  const std::string path = folder + "/trial";
  const bool can = trial.open(path);
  const int number = errno;
  trial.close();
  (void)unlink(path.c_str());
  errno = number;
  return can;
}

}  // namespace

Result<WorkFolder> WorkFolder::create(const std::string& output, const std::string& parent) {
  std::error_code error;
  int number = 0;
  std::vector<std::string> names = {output + ".work-XXXXXX", environment::temporary_folder() + "/ptdecode-XXXXXX"};
  if (!parent.empty()) names = {parent + "/ptdecode-XXXXXX"};
  for (const std::string& name : names) {
    std::string path = fs::absolute(name, error).string();
    if (mkdtemp(path.data()) == nullptr) {
      number = errno;
      continue;
    }
    path = fs::canonical(path, error).string();  // as the kernel names the files in it, which are not the program's
    WorkFolder folder(path);
    folder.lock_ = open((path + "/" + kLockFile).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (folder.lock_ >= 0 && flock(folder.lock_, LOCK_EX | LOCK_NB) == 0 && can_map_files(path)) return folder;
    number = errno;
    folder.remove();
  }
  return Error{code_of_errno(number, ErrorCode::write_failed),
               "a working folder cannot be created, neither next to " + output + " nor in " + environment::temporary_folder() +
                   " (TMPDIR): "
                   "" +
                   std::strerror(number) + (number == EFBIG ? ": the file size limit is too small; raise it with ulimit -f" : ""),
               0};
}

Result<WorkFolder> WorkFolder::adopt(const std::string& path) {
  std::error_code error;
  WorkFolder folder(fs::canonical(path, error).string());
  folder.lock_ = open((folder.path_ + "/" + kLockFile).c_str(), O_RDWR | O_CLOEXEC);
  if (error || folder.lock_ < 0) return Error{ErrorCode::not_found, path + " is not the working folder of 'ptdecode record --emulate'", 0};
  if (flock(folder.lock_, LOCK_EX | LOCK_NB) != 0)
    return Error{ErrorCode::busy, path + ": its recorder still runs and will complete the recording itself", 0};
  const std::vector<pid_t> users = users_of(folder.path_);
  if (!users.empty()) {
    return Error{ErrorCode::busy,
                 path + ": the emulated program is still running as process " + std::to_string(users.front()) +
                     ": end it first, or "
                     "wait",
                 0};
  }
  return folder;
}

WorkFolder::~WorkFolder() {
  if (lock_ >= 0) close(lock_);
}

WorkFolder::WorkFolder(WorkFolder&& other) noexcept : path_(std::move(other.path_)), lock_(std::exchange(other.lock_, -1)) {}

std::string WorkFolder::current_path() const {
  struct stat ours {
  }, named{};
  if (lock_ < 0 || fstat(lock_, &ours) != 0) return {};
  const auto holds_lock = [&](const std::string& folder) {
    return stat((folder + "/" + kLockFile).c_str(), &named) == 0 && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino;
  };
  if (holds_lock(path_)) return path_;
  std::error_code error;
  const std::string moved = fs::read_symlink("/proc/self/fd/" + std::to_string(lock_), error).parent_path().string();
  return !error && holds_lock(moved) ? moved : std::string();
}

void WorkFolder::remove() const {
  const std::string now = current_path();
  std::error_code error;
  fs::remove_all(now.empty() ? path_ : now, error);
}

std::vector<pid_t> users_of(const std::string& folder) {
  std::vector<pid_t> users;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::ifstream maps(entry.path().string() + "/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.find(' ' + folder + '/') == std::string::npos) continue;
      users.push_back(static_cast<pid_t>(std::strtol(name.c_str(), nullptr, 10)));
      break;
    }
  }
  return users;
}

}  // namespace ptd::emulate
