// AnnounceSocket: see announce_socket.h.
#include "capture/announce/announce_socket.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "capture/announce/unix_address.h"
#include "image/base/directory.h"
#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::announce {
namespace {

constexpr int kMostOffers = 1024;  // in one round

constexpr std::string_view kFolderStart = "ptdecode-announce-";
constexpr const char* kSocketName = "socket";
constexpr size_t kMostNames = 1U << 16;  // of a temporary folder that is searched for stale ones
constexpr time_t kLeastAgeS = 60;        // a younger folder may be one whose socket is not bound yet

/// Returns whether the sockets in a folder can only be those of this machine, where connect() tells whether one is in use.
bool is_local(int folder) {
  constexpr std::array<long, 6> kLocal = {EXT4_SUPER_MAGIC,  TMPFS_MAGIC,           XFS_SUPER_MAGIC,
                                          BTRFS_SUPER_MAGIC, OVERLAYFS_SUPER_MAGIC, F2FS_SUPER_MAGIC};
  struct statfs info {};
  return fstatfs(folder, &info) == 0 && std::find(kLocal.begin(), kLocal.end(), static_cast<long>(info.f_type)) != kLocal.end();
}

/// Returns whether a folder is private to this user, and whether it is old enough not to be in the making.
bool is_old_and_ours(int folder) {
  struct stat info {};
  return fstat(folder, &info) == 0 && info.st_uid == geteuid() && (info.st_mode & 077) == 0 &&
         time(nullptr) - info.st_mtim.tv_sec >= kLeastAgeS;
}

/// Removes the socket in a folder if no process has it open. Returns false if one has, or if it is something else.
bool remove_dead_socket(int folder) {
  struct stat info {};
  if (fstatat(folder, kSocketName, &info, AT_SYMLINK_NOFOLLOW) != 0) return errno == ENOENT;
  sockaddr_un address{};
  const Fd trial(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!S_ISSOCK(info.st_mode) || info.st_uid != geteuid() || !trial.ok()) return false;
  if (!set_unix_address("/proc/self/fd/" + std::to_string(folder) + "/" + kSocketName, address)) return false;
  if (connect(trial.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 || errno != ECONNREFUSED) return false;
  return unlinkat(folder, kSocketName, 0) == 0;
}

/// Removes the folders of this user's recorders that were killed. Nothing is followed: every step is relative to an open folder.
void remove_stale_folders(const std::string& parent) {
  const Fd top(open(parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!top.ok() || !is_local(top.get())) return;
  for (const DirectoryEntry& entry : entries_of(parent, kMostNames)) {
    if (!entry.is_folder || !entry.name.starts_with(kFolderStart)) continue;
    const Fd folder(openat(top.get(), entry.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder.ok() || !is_old_and_ours(folder.get()) || !remove_dead_socket(folder.get())) continue;
    (void)unlinkat(top.get(), entry.name.c_str(), AT_REMOVEDIR);  // keeps a folder that has anything else in it
  }
}

// Keeps the first descriptor of a message and closes the others.
Fd take_file(const cmsghdr& part) {
  Fd first;
  const size_t count = (part.cmsg_len - CMSG_LEN(0)) / sizeof(int);
  for (size_t i = 0; i < count; ++i) {
    int number = -1;
    std::memcpy(&number, CMSG_DATA(&part) + i * sizeof number, sizeof number);
    Fd file(number);
    if (!first.ok()) first = std::move(file);
  }
  return first;
}

}  // namespace

Result<std::unique_ptr<AnnounceSocket>> AnnounceSocket::create() {
  std::unique_ptr<AnnounceSocket> made(new AnnounceSocket);
  remove_stale_folders(environment::temporary_folder());
  std::string folder = environment::temporary_folder() + "/" + std::string(kFolderStart) + "XXXXXX";
  const auto fail = [] { return system_error("cannot make a socket for announcements", ErrorCode::open_failed); };
  if (mkdtemp(folder.data()) == nullptr) return fail();
  made->folder_ = folder;
  made->path_ = folder + "/" + kSocketName;
  sockaddr_un address{};
  made->socket_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!set_unix_address(made->path_, address) || !made->socket_.ok()) return fail();
  if (setsockopt(made->socket_.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0 ||
      bind(made->socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail();
  return made;
}

AnnounceSocket::~AnnounceSocket() {
  if (path_.empty() || !owned_) return;
  (void)unlink(path_.c_str());
  (void)rmdir(folder_.c_str());
}

void AnnounceSocket::take(const std::function<void(Offer offer)>& on_offer) {
  for (int i = 0; i < kMostOffers; ++i) {
    std::array<char, 64> data{};
    alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(ucred)) + CMSG_SPACE(8 * sizeof(int))> control{};
    iovec part{data.data(), data.size()};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    if (recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC) < 0) return;
    Offer offer;
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
      if (at->cmsg_level != SOL_SOCKET) continue;
      if (at->cmsg_type == SCM_RIGHTS) offer.file = take_file(*at);
      if (at->cmsg_type != SCM_CREDENTIALS) continue;
      ucred who{};
      std::memcpy(&who, CMSG_DATA(at), sizeof who);
      offer.pid = who.pid;
      offer.uid = who.uid;
    }
    if (offer.pid > 0 && offer.file.ok()) on_offer(std::move(offer));
  }
}

}  // namespace ptd::announce
