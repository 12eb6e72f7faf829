// The packets that the fast path reads itself: TNT, TIP and PAD, as bytes.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "decoder/pt/packet/packet_table.h"
#include "ptdecode/flow.h"

namespace ptd::pt {

constexpr bool is_short_tnt(unsigned byte) { return (byte & 1) == 0 && byte > 2; }
inline constexpr uint64_t kLongTntBytes = 8;
inline constexpr unsigned kTipOpcode = 0x0d, kTipPgeOpcode = 0x11, kTipPgdOpcode = 0x01, kFupOpcode = 0x1d, kIpOpcodeMask = 0x1f;
inline constexpr uint64_t kWidestIp = 9;                                     ///< bytes of the longest TIP
inline constexpr std::array<uint8_t, 8> kIpSize = {0, 2, 4, 6, 6, 0, 8, 0};  ///< by IPBytes; 0: suppressed or reserved

constexpr uint64_t low_bits(uint64_t value, uint32_t count) { return value & ((uint64_t{1} << count) - 1); }

/// Returns the payload of the long TNT at `data`, with its stop bit; 0 if there is none or it has no branch. Reads kLongTntBytes.
inline uint64_t long_tnt(const std::byte* data) {
  uint64_t packet = 0;
  std::memcpy(&packet, data, sizeof packet);
  const uint64_t payload = packet >> 16;
  return (packet & 0xffff) == 0xa302 && payload > 1 ? payload : 0;
}

/// Returns the target of the TIP at `data`, of a form with payload; reads nine bytes.
inline uint64_t ip_of_tip(const std::byte* data, uint64_t last_ip) {
  const unsigned form = static_cast<unsigned>(*data) >> 5;
  uint64_t payload = 0;
  std::memcpy(&payload, data + 1, sizeof payload);
  payload &= kIpMask[form];
  constexpr unsigned kSext48 = 3;  // IpBytes::sext48
  return form == kSext48 ? static_cast<uint64_t>(static_cast<int64_t>(payload << 16) >> 16) : (last_ip & ~kIpMask[form]) | payload;
}

/// The least difference between the target of a TIP and the ip before it, by IPBytes. Processors write 32 bits only where 16 are not
/// enough, so a smaller difference shows that a packet with an ip is missing before the TIP.
inline constexpr std::array<uint64_t, 8> kLeastIpChange = {0, 0, uint64_t{1} << 16, 0, 0, 0, 0, 0};
/// Returns whether the TIP of this form is longer than a processor writes it after `last_ip`.
constexpr bool is_long_tip(unsigned form, uint64_t ip, uint64_t last_ip) { return (ip ^ last_ip) < kLeastIpChange[form]; }

/// Copies at least sixteen blocks, eight at a time; data read and written after `count` is ignored. Sixteen are nearly always enough, so
/// the loop branch is predicted.
inline void copy_blocks(Block* to, const Block* from, uint32_t count) {
  std::memcpy(static_cast<void*>(to), from, 16 * sizeof(Block));
  for (uint32_t i = 16; i < count; i += 8) std::memcpy(static_cast<void*>(to + i), from + i, 8 * sizeof(Block));
}

}  // namespace ptd::pt
