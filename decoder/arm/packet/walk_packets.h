// walk_packets(): the packets of a segment, without the atoms and addresses that need no state. Private to the project.
#pragma once

#include "ptdecode/arm/packet_reader.h"

namespace ptd::arm {

/// Reads from the first A-Sync on. Calls `visitor`: on_atoms() for plain atoms; on_bad(offset), after which reading goes on at the next
/// A-Sync; and on_packet(packet, offset) for others. The last two return false to end.
template <typename Visitor>
void walk_packets(PacketReader& reader, Bytes bytes, Visitor&& visitor) {
  const auto& forms = plain_forms();
  Packet packet;
  for (uint64_t at = find_async(bytes, 0); at < bytes.size();) {
    const PlainForm& form = forms[static_cast<uint8_t>(bytes[at])];
    if (form.count != 0) {
      visitor.on_atoms();
      ++at;
      continue;
    }
    if (form.address != AddressForm::none && bytes.size() - at >= PacketReader::kLongestAddress) {
      PacketReader::Address address;
      at = static_cast<uint64_t>(reader.plain_address(bytes.data() + at, form.address, address) - bytes.data());
      continue;
    }
    reader.seek(at);
    const PacketReader::Status status = form.aside ? reader.next_aside(packet) : reader.next(packet);
    if (status == PacketReader::Status::bad_packet) {
      if (!visitor.on_bad(at)) return;
      at = find_async(bytes, at + 1);
      continue;
    }
    if (status != PacketReader::Status::ok || !visitor.on_packet(packet, at)) return;
    at = reader.offset();
  }
}

}  // namespace ptd::arm
