// The protocol between a session and its clients: one request packet, one reply packet, over a SOCK_SEQPACKET socket.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "capture/live/session/session.h"
#include "ptdecode/error.h"

namespace ptd::live {

enum class SessionRequest : uint32_t { status = 1, snapshot = 2, stop = 3 };

inline constexpr uint32_t kSessionMagic = 0x53445450;  // "PTDS"
inline constexpr size_t kMaxReplyBytes = 4096;

/// magic, request.
struct RequestPacket {
  uint32_t magic = kSessionMagic;
  SessionRequest request = SessionRequest::status;
};

/// The reply: an error message, or the status; for a snapshot also the descriptor of a memory file.
struct SessionReply {
  std::string error;
  SessionStatus status;
};
[[nodiscard]] std::vector<std::byte> encode_reply(const SessionReply& reply);
/// Returns false for malformed bytes.
[[nodiscard]] bool decode_reply(Bytes bytes, SessionReply& reply);

/// Sends a packet, with a descriptor if `passed_fd` is not -1; waits at most for the socket's timeout. Returns false with errno.
bool send_packet(int fd, Bytes bytes, int passed_fd, bool wait);
/// Receives one packet of at most `bytes` and at most one descriptor (-1: none). Returns its length; 0 at the end; -1 with errno, which is
/// EBADMSG for a packet with several descriptors. These are closed.
long receive_packet(int fd, std::vector<std::byte>& bytes, int& passed_fd, bool wait);

}  // namespace ptd::live
