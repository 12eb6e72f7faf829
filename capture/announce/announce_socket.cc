// AnnounceSocket: see announce_socket.h.
#include "capture/announce/announce_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "image/base/environment.h"
#include "image/base/system_error.h"

namespace ptd::announce {
namespace {

constexpr int kMostOffers = 1024;  // in one round

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
  std::string folder = environment::temporary_folder() + "/ptdecode-announce-XXXXXX";
  const auto fail = [] { return system_error("cannot make a socket for announcements", ErrorCode::open_failed); };
  if (mkdtemp(folder.data()) == nullptr) return fail();
  made->folder_ = folder;
  made->path_ = folder + "/socket";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  made->socket_ = Fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (made->path_.size() >= sizeof address.sun_path || !made->socket_.ok()) return fail();
  std::copy(made->path_.begin(), made->path_.end(), address.sun_path);
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
