// Finds OVF packets: see overflows.h.
#include "decoder/pt/packet/overflows.h"

#include <cstring>

#include "ptdecode/pt/packet_reader.h"

namespace ptd::pt {
namespace {

// [SDM] "Overflow Packet": 02 f3. Other packets may contain these bytes.
constexpr std::byte kOvfFirst{0x02}, kOvfSecond{0xf3};

}  // namespace

bool may_overflow(Bytes bytes) {
  const std::byte *at = bytes.data(), *const end = at + bytes.size();
  while (at != end &&
         (at = static_cast<const std::byte*>(std::memchr(at, static_cast<int>(kOvfSecond), static_cast<size_t>(end - at)))) != nullptr) {
    if (at != bytes.data() && at[-1] == kOvfFirst) return true;
    ++at;
  }
  return false;
}

bool may_end_in_overflow(Bytes bytes) {
  constexpr std::byte kPad{0};
  size_t end = bytes.size();
  while (end != 0 && bytes[end - 1] == kPad) --end;
  return end >= 2 && bytes[end - 2] == kOvfFirst && bytes[end - 1] == kOvfSecond;
}

bool ends_in_overflow(Bytes packets) {
  if (!may_end_in_overflow(packets)) return false;
  PacketReader reader(packets);
  Packet packet;
  bool overflow = false;
  for (PacketReader::Status status = reader.next(packet); status != PacketReader::Status::end; status = reader.next(packet)) {
    if (status != PacketReader::Status::ok) return false;
    if (packet.kind != PacketKind::pad) overflow = packet.kind == PacketKind::ovf;
  }
  return overflow;
}

bool has_overflow(Bytes bytes, uint64_t tail_bytes, const Config& config) {
  const uint64_t end = bytes.size() - tail_bytes;
  PacketReader reader(bytes);
  reader.set_errata(config.errata);
  Packet packet;
  PacketReader::Status status = PacketReader::Status::ok;
  while (reader.offset() < end && (status = reader.next(packet)) == PacketReader::Status::ok) {
    if (packet.kind == PacketKind::ovf) return true;
  }
  const bool is_cut = tail_bytes == 0 && status == PacketReader::Status::cut;  // where the trace ends
  return reader.offset() != end && !is_cut;
}

}  // namespace ptd::pt
