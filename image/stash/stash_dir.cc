// Directories and files of the stash.
#include "image/stash/stash_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <memory>

#include "image/base/system_error.h"

namespace ptd::stash {
namespace {

constexpr int kMaxDepth = 8;  // maximum depth of a directory that is removed with its content
constexpr mode_t kOthersWrite = S_IWGRP | S_IWOTH;

bool is_ours(const struct stat& info, bool owner_root) { return info.st_uid == ::geteuid() || (owner_root && info.st_uid == 0); }

Status check_directory(int fd, const std::string& path, bool owner_root) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return system_error(path);
  if (!is_ours(info, owner_root)) return Error{ErrorCode::untrusted_file, path + " belongs to another user and is not used", 0};
  if ((info.st_mode & kOthersWrite) != 0)
    return Error{ErrorCode::untrusted_file,
                 path +
                     ": other users may write to it, so it is not used "
                     "(chmod go-w)",
                 0};
  return {};
}

// Creates the parent directories, like mkdir -p. Only the last directory is checked for other users' write access.
void make_parents(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1))
    (void)::mkdir(path.substr(0, slash).c_str(), 0700);
}

std::string temporary_name() {
  static std::atomic<uint64_t> count = 0;
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return "tmp." + std::to_string(::getpid()) + "." + std::to_string(now.tv_nsec) + "." + std::to_string(++count);
}

bool is_simple(const std::string& name) { return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos; }

std::string own_path(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

/// Returns an error if a name is a link or a file of another kind, which errno does not tell apart. A name that does not exist is fine.
Status check_kind(int parent, const std::string& name, const std::string& path, bool directory) {
  struct stat info {};
  if (::fstatat(parent, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return {};
  if (S_ISLNK(info.st_mode)) return Error{ErrorCode::not_regular_file, path + " is a link and is not followed", 0};
  if (directory && !S_ISDIR(info.st_mode)) return Error{ErrorCode::not_regular_file, path + ": not a directory", 0};
  if (!directory && !S_ISREG(info.st_mode)) return Error{ErrorCode::not_regular_file, path + ": not a regular file", 0};
  return {};
}

/// Returns the error of a name that could not be opened.
Error open_error(int parent, const std::string& name, const std::string& path, bool directory) {
  const int number = errno;
  const Status kind = check_kind(parent, name, path, directory);
  return kind ? system_error(path, ErrorCode::open_failed, number) : kind.error();
}

bool remove_at(int parent, const char* name, int depth) {
  if (::unlinkat(parent, name, 0) == 0 || errno == ENOENT) return true;
  if (depth >= kMaxDepth) return false;
  const int fd = ::openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR* list = fd < 0 ? nullptr : ::fdopendir(fd);
  if (list == nullptr) {
    if (fd >= 0) ::close(fd);
    return false;
  }
  while (const dirent* entry = ::readdir(list)) {  // NOLINT: its own directory stream
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) (void)remove_at(fd, entry->d_name, depth + 1);
  }
  ::closedir(list);
  return ::unlinkat(parent, name, AT_REMOVEDIR) == 0;
}

}  // namespace

Result<Dir> Dir::open_top(const std::string& path, unsigned create_mode, bool owner_root) {
  if (create_mode != 0) {
    make_parents(path);
    if (::mkdir(path.c_str(), static_cast<mode_t>(create_mode)) != 0 && errno != EEXIST) return system_error(path);
  }
  // A link, such as to a larger disk, is allowed if it is the user's own.
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) return system_error(path);
  if (S_ISLNK(info.st_mode) && !is_ours(info, owner_root))
    return Error{ErrorCode::untrusted_file, path + " is a link of another user and is not used", 0};
  const int no_follow = S_ISLNK(info.st_mode) ? 0 : O_NOFOLLOW;
  Dir dir(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | no_follow), path);
  if (!dir.ok()) return system_error(path);
  if (Status status = check_directory(dir.fd(), path, owner_root); !status) return status.error();
  return dir;
}

Result<Dir> Dir::sub(const std::string& name, bool create) const {
  const std::string path = path_ + "/" + name;
  if (!is_simple(name)) return system_error(path, ErrorCode::open_failed, EINVAL);
  struct stat own {};
  if (create && ::fstat(fd_.get(), &own) == 0 && ::mkdirat(fd_.get(), name.c_str(), own.st_mode & 0777) != 0 && errno != EEXIST)
    return system_error(path);
  Dir dir(::openat(fd_.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), path);
  if (!dir.ok()) return open_error(fd_.get(), name, path, true);
  if (Status status = check_directory(dir.fd(), path, true); !status) return status.error();
  return dir;
}

std::vector<std::string> Dir::names(size_t limit) const {
  std::vector<std::string> names;
  const int fd = ::openat(fd_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* list = fd < 0 ? nullptr : ::fdopendir(fd);
  if (list == nullptr) {
    if (fd >= 0) ::close(fd);
    return names;
  }
  while (const dirent* entry = names.size() < limit ? ::readdir(list) : nullptr) {  // NOLINT: its own directory stream
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) names.emplace_back(entry->d_name);
  }
  ::closedir(list);
  std::sort(names.begin(), names.end());
  return names;
}

bool Dir::stat(const std::string& name, struct stat& info) const {
  return is_simple(name) && ::fstatat(fd_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
}

Status Dir::check_file(const std::string& name) const { return check_kind(fd_.get(), name, path_ + "/" + name, false); }

Result<Fd> Dir::open_file(const std::string& name) const {
  const std::string path = path_ + "/" + name;
  if (!is_simple(name)) return system_error(path, ErrorCode::open_failed, EINVAL);
  Fd fd(::openat(fd_.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  if (!fd.ok()) return open_error(fd_.get(), name, path, false);
  if (::fstat(fd.get(), &info) != 0) return system_error(path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorCode::not_regular_file, path + ": not a regular file", 0};
  if (!is_ours(info, true) || (info.st_mode & kOthersWrite) != 0)
    return Error{ErrorCode::untrusted_file, path + ": another user may have written it, so it is not used", 0};
  return fd;
}

Result<std::string> Dir::read_file(const std::string& name, uint64_t limit_bytes) const {
  Result<Fd> fd = open_file(name);
  if (!fd) return fd.error();
  std::string text;
  std::array<char, 1U << 14> buffer{};
  while (true) {
    const ssize_t got = ::read(fd->get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return system_error(path_ + "/" + name);
    if (got == 0) return text;
    text.append(buffer.data(), static_cast<size_t>(got));
    if (text.size() > limit_bytes) return Error{ErrorCode::bad_format, path_ + "/" + name + ": too long", 0};
  }
}

Status Dir::publish(const std::string& name, unsigned mode, bool replace, const std::function<Status(int fd)>& write) const {
  const std::string path = path_ + "/" + name;
  if (!is_simple(name)) return system_error(path, ErrorCode::open_failed, EINVAL);
  // A file without a name disappears if this process dies. Not all file systems support it.
  std::string temporary;
  Fd fd(replace ? -1 : ::openat(fd_.get(), ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (!fd.ok()) {
    temporary = temporary_name();
    fd = Fd(::openat(fd_.get(), temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!fd.ok()) return system_error(path_ + "/" + temporary);
  }
  Status status = write(fd.get());
  if (status.ok() && (::fchmod(fd.get(), static_cast<mode_t>(mode)) != 0 || ::fsync(fd.get()) != 0)) status = system_error(path);
  if (status.ok()) {
    int done = 0;
    if (temporary.empty()) {
      done = ::linkat(AT_FDCWD, own_path(fd.get()).c_str(), fd_.get(), name.c_str(), AT_SYMLINK_FOLLOW);
    } else if (replace) {
      done = ::renameat(fd_.get(), temporary.c_str(), fd_.get(), name.c_str());
    } else {
      done = ::linkat(fd_.get(), temporary.c_str(), fd_.get(), name.c_str(), 0);
    }
    if (done != 0 && errno != EEXIST) status = system_error(path);
  }
  if (!temporary.empty()) (void)::unlinkat(fd_.get(), temporary.c_str(), 0);
  return status;
}

Status Dir::publish(const std::string& name, unsigned mode, bool replace, Bytes content) const {
  return publish(name, mode, replace, [content](int fd) { return write_all(fd, content); });
}

Status Dir::link(const std::string& name, const Dir& to, const std::string& new_name) const {
  if (!is_simple(name) || !is_simple(new_name)) return system_error(path_ + "/" + name, ErrorCode::open_failed, EINVAL);
  if (::linkat(fd_.get(), name.c_str(), to.fd_.get(), new_name.c_str(), 0) == 0 || errno == EEXIST || errno == EMLINK) return {};
  return system_error(path_ + "/" + name);
}

bool Dir::remove(const std::string& name) const { return is_simple(name) && remove_at(fd_.get(), name.c_str(), 0); }

void Dir::sync() const { (void)::fsync(fd_.get()); }

Status write_all(int fd, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd, bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return system_error("writing to the stash", ErrorCode::write_failed, done < 0 ? errno : EIO);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
  return {};
}

Lock::Lock(int fd, bool exclusive, uint32_t wait_ms) {
  constexpr uint32_t kStepMs = 10;
  // Open the file again: a lock belongs to the open file description, not to the descriptor.
  const int own = ::open(own_path(fd).c_str(), O_RDONLY | O_CLOEXEC);
  for (uint32_t waited = 0; own >= 0; waited += kStepMs) {
    if (::flock(own, (exclusive ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0) {
      fd_ = own;
      return;
    }
    if (waited >= wait_ms) break;
    const timespec pause{0, kStepMs * 1'000'000L};
    ::nanosleep(&pause, nullptr);
  }
  if (own >= 0) ::close(own);
}

Lock::~Lock() {
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace ptd::stash
