// Packets of sessions: see session_wire.h.
#include "capture/live/session/session_wire.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "perfio/format/byte_writer.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

/// The numbers of a status, in the order in which they go.
template <class Status, class Visit>
void each_number(Status& status, Visit visit) {
  visit(status.started_s);
  visit(status.snapshots);
  visit(status.records);
  visit(status.lost_records);
  visit(status.log_used_bytes);
  visit(status.log_folds);
  visit(status.forgotten);
  visit(status.aux_bytes);
  visit(status.takeovers);
  visit(status.trace_stop_ns);
  visit(status.trigger_hits);
  visit(status.triggered);
  visit(status.trigger_failures);
}

std::string take_text(perfio::Cursor& in) {
  const Bytes bytes = in.take(in.u32());
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Takes the descriptor of a message. Returns false after closing all of them if there are several.
bool take_descriptor(msghdr& message, int& passed_fd) {
  bool several = (message.msg_flags & MSG_CTRUNC) != 0;  // the kernel has closed those that the buffer does not hold
  for (cmsghdr* head = CMSG_FIRSTHDR(&message); head != nullptr; head = CMSG_NXTHDR(&message, head)) {
    if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = CMSG_LEN(0); at + sizeof(int) <= head->cmsg_len; at += sizeof(int)) {
      several = several || passed_fd >= 0;
      if (passed_fd >= 0) close(passed_fd);
      std::memcpy(&passed_fd, reinterpret_cast<const char*>(head) + at, sizeof(int));
    }
  }
  if (several && passed_fd >= 0) close(std::exchange(passed_fd, -1));
  return !several;
}

}  // namespace

std::vector<std::byte> encode_reply(const SessionReply& reply) {
  std::vector<std::byte> bytes;
  perfio::ByteWriter out(bytes);
  out.u32(kSessionMagic);
  for (const std::string* text : {&reply.error, &reply.status.name, &reply.status.what}) {
    const std::string cut = text->substr(0, kMaxReplyBytes / 4);
    out.u32(static_cast<uint32_t>(cut.size())).bytes(std::as_bytes(std::span(cut)));
  }
  out.i32(reply.status.keeper_pid).i32(reply.status.backup_pid).u32(reply.status.target_ended ? 1 : 0);
  each_number(reply.status, [&](uint64_t value) { out.u64(value); });
  return bytes;
}

bool decode_reply(Bytes bytes, SessionReply& reply) {
  perfio::Cursor in(bytes);
  if (in.u32() != kSessionMagic) return false;
  for (std::string* text : {&reply.error, &reply.status.name, &reply.status.what}) *text = take_text(in);
  reply.status.keeper_pid = in.i32();
  reply.status.backup_pid = in.i32();
  reply.status.target_ended = in.u32() != 0;
  each_number(reply.status, [&](uint64_t& value) { value = in.u64(); });
  reply.status.alive = in.ok();
  return in.ok();
}

bool send_packet(int fd, Bytes bytes, int passed_fd, bool wait) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* head = CMSG_FIRSTHDR(&message);
    head->cmsg_level = SOL_SOCKET;
    head->cmsg_type = SCM_RIGHTS;
    head->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(head), &passed_fd, sizeof(int));
  }
  ssize_t got = 0;
  do {
    got = sendmsg(fd, &message, MSG_NOSIGNAL | (wait ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(bytes.size());
}

long receive_packet(int fd, std::vector<std::byte>& bytes, int& passed_fd, bool wait) {
  passed_fd = -1;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t got = 0;
  do {
    got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return -1;
  if (!take_descriptor(message, passed_fd)) {
    errno = EBADMSG;
    return -1;
  }
  bytes.resize(static_cast<size_t>(got));
  return got;
}

}  // namespace ptd::live
