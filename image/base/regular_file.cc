// Regular files: checked through O_PATH descriptors before they are opened.
#include "image/base/regular_file.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>

#include "image/base/read_files.h"
#include "image/base/system_error.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

constexpr int kLook = O_PATH | O_CLOEXEC;

int resolve_at(int folder, const std::string& path, uint64_t resolve) {
  constexpr int kTries = 8;  // EAGAIN: something was renamed concurrently
  open_how how{};
  how.flags = kLook;
  how.resolve = resolve;
  long fd = -1;
  for (int i = 0; i < kTries; ++i) {
    fd = ::syscall(SYS_openat2, folder, path.c_str(), &how, sizeof how);
    if (fd >= 0 || errno != EAGAIN) break;
  }
  return static_cast<int>(fd);
}

// Returns whether openat2 is unavailable: before Linux 5.6, or if a sandbox refuses the call.
bool lacks_openat2(int error) { return error == ENOSYS || error == EPERM; }

// Replaces openat2: one component at a time, and no links.
int walk_beneath(int folder, const fs::path& name) {
  Fd at(::dup(folder));
  for (const fs::path& part : name) {
    if (part.empty() || part == ".") continue;
    Fd next(::openat(at.get(), part.c_str(), kLook | O_NOFOLLOW));
    struct stat info {};
    if (!next.ok() || ::fstat(next.get(), &info) != 0) return -1;
    if (S_ISLNK(info.st_mode)) {
      errno = EXDEV;
      return -1;
    }
    at = std::move(next);
  }
  return at.release();
}

bool is_same_file(const struct stat& a, const struct stat& b) { return a.st_dev == b.st_dev && a.st_ino == b.st_ino; }

/// Opens the file at `place`, which was found as `name` in `folder`.
RegularFile open_looked_at(Fd place, int folder, const std::string& name) {
  constexpr int kRead = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
  RegularFile file;
  struct stat info {
  }, opened{};
  if (!place.ok() || ::fstat(place.get(), &info) != 0) {
    file.error = errno;
    return file;
  }
  if (!S_ISREG(info.st_mode)) {
    file.error = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    return file;
  }
  const std::string path = "/proc/self/fd/" + std::to_string(place.get());
  file.fd = Fd(::open(path.c_str(), kRead));
  if (!file.fd.ok()) file.error = errno;
  if (!file.fd.ok() && file.error == ENOENT) {  // /proc is not mounted: by name, if that still leads to the same file
    file.fd = Fd(::openat(folder, name.c_str(), kRead));
    file.error = file.fd.ok() ? 0 : errno;
    if (file.fd.ok() && (::fstat(file.fd.get(), &opened) != 0 || !is_same_file(info, opened))) file.fd = Fd(), file.error = ENOENT;
  }
  if (file.fd.ok()) note_read_file(file.fd.get());
  return file;
}

// The files of read_files.h.
struct Noted {
  std::mutex mutex;
  size_t scopes = 0;
  std::set<std::pair<uint64_t, uint64_t>> files;
};

/// Never destroyed: files are read until the process ends.
Noted& noted() {
  static auto* const all = new Noted();
  return *all;
}

void note(const struct stat& info) {
  if (!S_ISREG(info.st_mode)) return;
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  if (all.scopes != 0) all.files.emplace(info.st_dev, info.st_ino);
}

}  // namespace

ErrorCode RegularFile::code() const {
  return outside ? ErrorCode::outside_folder : error == EINVAL ? ErrorCode::not_regular_file : code_of_errno(error);
}

std::string RegularFile::why() const {
  return outside ? kOutsideReason : error == EINVAL || error == EISDIR ? "not a regular file" : std::strerror(error);
}

RegularFile open_regular(const std::string& path) { return open_looked_at(Fd(::open(path.c_str(), kLook)), AT_FDCWD, path); }

RegularFile open_recorded(const std::string& path) {
  Fd place(resolve_at(AT_FDCWD, path, RESOLVE_NO_MAGICLINKS));
  if (!place.ok() && lacks_openat2(errno)) return open_regular(path);
  return open_looked_at(std::move(place), AT_FDCWD, path);
}

std::string name_below(const std::string& folder, const std::string& path) {
  std::string prefix = folder;
  while (prefix.size() > 1 && prefix.ends_with('/')) prefix.pop_back();
  if (!prefix.ends_with('/')) prefix += '/';
  return path.size() > prefix.size() && path.starts_with(prefix) ? path.substr(prefix.size()) : std::string();
}

RegularFile open_beneath(const std::string& folder, const std::string& name) {
  RegularFile refused;
  refused.outside = true;
  refused.error = EXDEV;
  std::string relative = name;
  if (name.starts_with('/')) {
    std::error_code error;
    relative = name_below(folder, name);
    if (relative.empty()) relative = name_below(fs::canonical(folder, error).string(), name);
    if (relative.empty()) return refused;
  }
  const Fd root(::open(folder.c_str(), kLook | O_DIRECTORY));
  if (!root.ok()) {
    refused.error = errno;
    refused.outside = false;
    return refused;
  }
  Fd place(resolve_at(root.get(), relative, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS));
  if (!place.ok() && lacks_openat2(errno)) {
    const fs::path normal = fs::path(relative).lexically_normal();
    if (normal.begin() != normal.end() && *normal.begin() == "..") return refused;
    place = Fd(walk_beneath(root.get(), normal));
  }
  if (!place.ok() && (errno == EXDEV || errno == ELOOP)) return refused;
  return open_looked_at(std::move(place), root.get(), relative);
}

ReadFilesScope::ReadFilesScope() {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  ++all.scopes;
}

ReadFilesScope::~ReadFilesScope() {
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  if (--all.scopes == 0) all.files.clear();
}

void note_read_file(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) == 0) note(info);
}

void note_read_file(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) note(info);
}

bool was_read(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return false;
  Noted& all = noted();
  const std::lock_guard lock(all.mutex);
  return all.files.contains({info.st_dev, info.st_ino});
}

}  // namespace ptd
