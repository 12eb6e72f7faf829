// ItmReader. The comments are the bit patterns of the headers.
#include "decoder/arm/packet/itm_reader.h"

namespace ptd::arm {
namespace {

constexpr unsigned kSyncZeros = 5;  // bytes, before 80

}  // namespace

const char* name(ItmKind kind) {
  constexpr const char* kNames[] = {"not_sync",  "async",    "overflow",    "swit",        "dwt",
                                    "extension", "ts_local", "ts_global_1", "ts_global_2", "bad"};
  return kNames[static_cast<uint8_t>(kind)];
}

/// Zeros, then 80. All zeros of a longer run belong to the packet.
bool ItmReader::sync_at(uint64_t offset, uint64_t& end) const {
  uint64_t at = offset;
  while (at < bytes_.size() && bytes_[at] == std::byte{0}) ++at;
  if (at == bytes_.size() || at - offset < kSyncZeros || bytes_[at] != std::byte{0x80}) return false;
  end = at + 1;
  return true;
}

/// Reads seven bits per byte while bit 7 is set.
bool ItmReader::read_number(unsigned most_bytes, ItmPacket& packet) {
  for (unsigned i = 0; i < most_bytes; ++i) {
    if (at_ >= bytes_.size()) return false;
    const auto part = static_cast<uint8_t>(bytes_[at_++]);
    packet.value |= static_cast<uint64_t>(part & 0x7f) << (7 * i);
    if ((part & 0x80) == 0) break;
  }
  return true;
}

bool ItmReader::next(ItmPacket& packet) {
  packet = {};
  if (offset_ >= bytes_.size()) return false;
  uint64_t end = 0;
  if (sync_at(offset_, end)) {
    packet.kind = ItmKind::sync;
    packet.size_bytes = static_cast<uint8_t>(end - offset_ < 255 ? end - offset_ : 255);
    offset_ = end;
    synced_ = true;
    page_ = 0;
    return true;
  }
  if (!synced_) {
    packet.kind = ItmKind::not_sync;
    packet.size_bytes = 1;
    ++offset_;
    return true;
  }
  const auto header = static_cast<uint8_t>(bytes_[offset_]);
  at_ = offset_ + 1;
  if (!((header & 3) != 0 ? read_source(header, packet) : read_other(header, packet))) return false;
  if (packet.kind == ItmKind::bad) synced_ = false;  // packet boundaries are unknown up to the next synchronisation
  packet.size_bytes = static_cast<uint8_t>(at_ - offset_);
  offset_ = at_;
  return true;
}

// aaaaahss: a = stimulus port or packet type, h = 1: DWT, s = 1, 2, 3: 1, 2, 4 bytes
bool ItmReader::read_source(uint8_t header, ItmPacket& packet) {
  packet.payload_bytes = static_cast<uint8_t>(1U << ((header & 3) - 1));
  if (bytes_.size() - at_ < packet.payload_bytes) return false;
  for (unsigned i = 0; i < packet.payload_bytes; ++i) packet.value |= static_cast<uint64_t>(bytes_[at_++]) << (8 * i);
  const bool hardware = (header & 4) != 0;
  packet.kind = hardware ? ItmKind::hardware : ItmKind::software;
  packet.source = header >> 3;
  if (!hardware) packet.source += 32 * page_;
  return true;
}

bool ItmReader::read_other(uint8_t header, ItmPacket& packet) {
  if (header == 0x70) {  // 01110000
    packet.kind = ItmKind::overflow;
    return true;
  }
  if ((header & 0xcf) == 0xc0) {  // 11cc0000: up to four bytes follow
    packet.kind = ItmKind::local_time;
    packet.control = (header >> 4) & 3;
    return read_number(4, packet);
  }
  if ((header & 0x8f) == 0 && header != 0) {  // 0ttt0000, t = 1 to 6
    packet.kind = ItmKind::local_time;
    packet.value = header >> 4;
    return true;
  }
  if (header == 0x94) {  // 10010100: bits 25:0, then wrap and clock change in bits 6 and 5 of the fourth byte
    packet.kind = ItmKind::global_time_low;
    if (!read_number(4, packet)) return false;
    packet.control = static_cast<uint8_t>(packet.value >> 26 & 3);
    packet.value &= 0x3ffffff;
    return true;
  }
  if (header == 0xb4) {  // 10110100: bits 47:26 or 63:26
    packet.kind = ItmKind::global_time_high;
    if (!read_number(6, packet)) return false;
    packet.value <<= 26;
    return true;
  }
  if ((header & 0x0b) == 0x08) {  // cnnn1s00: s = 1: DWT, n = its low bits, c = more bytes follow
    packet.kind = ItmKind::extension;
    packet.source = (header >> 2) & 1;
    if ((header & 0x80) != 0) {
      if (!read_number(4, packet)) return false;
      packet.value <<= 3;
    }
    packet.value |= (header >> 4) & 7U;
    if (packet.source == 0) page_ = static_cast<uint32_t>(packet.value & 7);
    return true;
  }
  packet.kind = ItmKind::bad;
  return true;
}

}  // namespace ptd::arm
