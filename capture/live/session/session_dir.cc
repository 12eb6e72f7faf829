// SessionDir: see session_dir.h.
#include "capture/live/session/session_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "capture/announce/unix_address.h"
#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::live {
namespace {

bool is_own_folder(const std::string& path) {
  struct stat info {};
  return lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) && info.st_uid == geteuid();
}

std::string folder_path() {
  const std::string runtime = environment::runtime_dir();
  if (runtime.starts_with('/') && is_own_folder(runtime)) return runtime + "/ptdecode";
  const std::string user = std::to_string(geteuid());
  if (is_own_folder("/run/user/" + user)) return "/run/user/" + user + "/ptdecode";
  return "/tmp/ptdecode-" + user;
}

}  // namespace

Status check_session_name(const std::string& name) {
  constexpr size_t kMost = 64;
  constexpr const char* kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const bool good =
      !name.empty() && name.size() <= kMost && name.find_first_not_of(kLetters) == std::string::npos && name[0] != '.' && name[0] != '-';
  if (good) return {};
  return Error{ErrorCode::bad_option, "'" + name + "' is not a session name: use up to 64 letters, digits, '.', '_' and '-'", 0};
}

Result<SessionDir> SessionDir::open() {
  const std::string path = folder_path();
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) return system_error("cannot make " + path, ErrorCode::write_failed);
  const auto refused = [&](const std::string& why) {
    return Error{ErrorCode::bad_option,
                 path + " " + why + ", so sessions cannot be stored there: remove it, or set XDG_RUNTIME_DIR to a folder of this user", 0};
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  const int error = errno;
  struct stat info {};
  const bool is_known = fd < 0 ? lstat(path.c_str(), &info) == 0 : fstat(fd, &info) == 0;
  if (is_known && S_ISLNK(info.st_mode)) return refused("is a symbolic link");  // Linux says ENOTDIR
  if (is_known && !S_ISDIR(info.st_mode)) return refused("is not a folder");
  const bool is_other = is_known && info.st_uid != geteuid();
  if (fd < 0 && !is_other) {
    errno = error;
    return system_error("cannot open " + path);
  }
  if (is_other || !is_known || (info.st_mode & 077) != 0) {
    if (fd >= 0) close(fd);
    if (is_other) return refused("belongs to the user with the id " + std::to_string(info.st_uid));
    return refused("is accessible to other users (its mode must be 0700)");
  }
  return SessionDir(fd, path);
}

SessionDir::~SessionDir() {
  if (fd_ >= 0) close(fd_);
}
SessionDir::SessionDir(SessionDir&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(std::move(other.path_)) {}
SessionDir& SessionDir::operator=(SessionDir&& other) noexcept {
  std::swap(fd_, other.fd_);
  path_ = std::move(other.path_);
  return *this;
}

std::string SessionDir::socket_path(const std::string& name) const { return "/proc/self/fd/" + std::to_string(fd_) + "/" + name; }

std::vector<std::string> SessionDir::names() const {
  std::vector<std::string> names;
  DIR* folder = opendir(path_.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    if (check_session_name(entry->d_name).ok() && inode(entry->d_name) != 0) names.emplace_back(entry->d_name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

Status SessionDir::lock() const {
  while (flock(fd_, LOCK_EX) != 0) {
    if (errno != EINTR) return system_error("cannot lock " + path_);
  }
  return {};
}

void SessionDir::unlock() const { (void)flock(fd_, LOCK_UN); }

uint64_t SessionDir::inode(const std::string& name) const {
  struct stat info {};
  const bool own = fstatat(fd_, name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(info.st_mode) && info.st_uid == geteuid();
  return own ? info.st_ino : 0;
}

void SessionDir::remove(const std::string& name, uint64_t inode_wanted) const {
  const uint64_t there = inode(name);
  if (there != 0 && (inode_wanted == 0 || there == inode_wanted)) (void)unlinkat(fd_, name.c_str(), 0);
}

int SessionDir::connect_to(const std::string& name, std::chrono::seconds patience) const {
  sockaddr_un address{};
  if (!set_unix_address(socket_path(name), address)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const timeval limit{patience.count(), 0};
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  while (connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    if (errno == EINTR) continue;
    const int number = errno;
    close(fd);
    errno = number;
    return -1;
  }
  return fd;
}

int SessionDir::listen_as(const std::string& name) const {
  constexpr int kBacklog = 16;
  sockaddr_un address{};
  if (!set_unix_address(socket_path(name), address)) {
    errno = ENAMETOOLONG;
    return -1;
  }
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const mode_t before = umask(0177);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  const int number = errno;
  umask(before);
  if (bound && listen(fd, kBacklog) == 0) return fd;
  close(fd);
  errno = number;
  return -1;
}

}  // namespace ptd::live
