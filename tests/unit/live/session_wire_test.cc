// Packets of a session's socket: descriptors that the protocol has no use for do not stay open.
#include "capture/live/session/session_wire.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace ptd::live {
namespace {

size_t open_descriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

void send_with(int fd, const std::vector<int>& passed) {
  std::byte packet{1};
  iovec part{&packet, 1};
  alignas(cmsghdr) char control[256] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!passed.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(passed.size() * sizeof(int));
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(passed.size() * sizeof(int));
    std::memcpy(CMSG_DATA(head), passed.data(), passed.size() * sizeof(int));
  }
  ASSERT_EQ(sendmsg(fd, &message, 0), 1);
}

TEST(SessionWire, PacketsWithSeveralDescriptorsAreRefusedAndNoneStaysOpen) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const size_t before = open_descriptors();
  for (size_t count = 0; count < 5; ++count) {
    send_with(ends[0], std::vector<int>(count, ends[0]));
    std::vector<std::byte> bytes(8);
    int passed = -1;
    errno = 0;
    const long got = receive_packet(ends[1], bytes, passed, false);
    EXPECT_EQ(got, count < 2 ? 1 : -1) << count;
    EXPECT_EQ(errno, count < 2 ? 0 : EBADMSG) << count;
    EXPECT_EQ(passed >= 0, count == 1) << count;
    if (passed >= 0) close(passed);
    EXPECT_EQ(open_descriptors(), before) << count;
  }
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace ptd::live
