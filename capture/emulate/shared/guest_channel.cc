// GuestChannel: frames of a kind, a length and a payload.
#include "capture/emulate/shared/guest_channel.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace ptd::emulate {

std::string number_bytes(uint32_t value) {
  std::string bytes;
  for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<char>(value >> shift & 0xff));
  return bytes;
}

uint32_t number_in(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < std::min<size_t>(bytes.size(), 4); ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

bool GuestChannel::write_all(std::string_view bytes) const {
  while (!bytes.empty()) {
    const ssize_t got = ::write(fd_, bytes.data(), bytes.size());
    if (got > 0) {
      bytes.remove_prefix(static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && errno == EAGAIN) {
      pollfd room{fd_, POLLOUT, 0};
      (void)::poll(&room, 1, -1);
    } else if (got >= 0 || errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool GuestChannel::send(GuestFrame kind, std::string_view payload) {
  const std::lock_guard hold(sending_);
  do {
    const std::string_view part = payload.substr(0, kMostPayload);
    std::string frame(1, static_cast<char>(kind));
    frame += number_bytes(static_cast<uint32_t>(part.size()));
    frame += part;
    if (!write_all(frame)) return false;
    payload.remove_prefix(part.size());
  } while (!payload.empty());
  return true;
}

bool GuestChannel::take(const std::function<void(GuestFrame, std::string_view)>& on_frame) {
  char buffer[size_t{16} << 10];
  const ssize_t got = ::read(fd_, buffer, sizeof(buffer));
  if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) return false;
  if (got > 0) pending_.append(buffer, static_cast<size_t>(got));
  size_t at = 0;
  while (pending_.size() - at >= kHeadBytes) {
    const size_t size = number_in(std::string_view(pending_).substr(at + 1, 4));
    if (size > kMostPayload) return false;
    if (pending_.size() - at < kHeadBytes + size) break;
    on_frame(static_cast<GuestFrame>(pending_[at]), std::string_view(pending_).substr(at + kHeadBytes, size));
    at += kHeadBytes + size;
  }
  pending_.erase(0, at);
  return true;
}

}  // namespace ptd::emulate
