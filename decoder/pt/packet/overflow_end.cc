// Whether packets end with an OVF: see overflow_end.h.
#include "decoder/pt/packet/overflow_end.h"

#include "ptdecode/pt/packet_reader.h"

namespace ptd::pt {

// OVF is 02 f3, which may also be the end of another packet.
bool may_end_in_overflow(Bytes bytes) {
  constexpr std::byte kExtended{0x02}, kOvf{0xf3}, kPad{0};
  size_t end = bytes.size();
  while (end != 0 && bytes[end - 1] == kPad) --end;
  return end >= 2 && bytes[end - 2] == kExtended && bytes[end - 1] == kOvf;
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

}  // namespace ptd::pt
