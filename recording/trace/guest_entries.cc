// Finds the first VM entry of a stream.
#include "recording/trace/guest_entries.h"

#include "ptdecode/pt/packet_reader.h"

namespace ptd {

bool runs_guests(const SegmentIndex& index, const SegmentTiming& timing, const pt::Config& config, const std::function<void()>& check) {
  std::vector<std::byte> scratch;
  for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
    if (check) check();
    const AuxSegment segment = index.segment(*entry, timing, scratch);
    pt::PacketReader reader(segment.bytes);
    reader.set_errata(config.errata);
    pt::Packet packet;
    while (reader.next(packet) == pt::PacketReader::Status::ok) {
      if (packet.kind == pt::PacketKind::pip && (packet.flags & pt::kFlagNonRoot) != 0) return true;
    }
  }
  return false;
}

}  // namespace ptd
