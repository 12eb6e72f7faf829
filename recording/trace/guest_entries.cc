// Finds a VM entry in a stream.
#include "recording/trace/guest_entries.h"

#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

// Reads up to the first packet that is damaged: the next PSB begins another segment.
bool enters_guest(const AuxSegment& segment, const pt::Config& config) {
  pt::PacketReader reader(segment.bytes);
  reader.set_errata(config.errata);
  pt::Packet packet;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::pip && (packet.flags & pt::kFlagNonRoot) != 0) return true;
  }
  return false;
}

}  // namespace

bool runs_guests(const SegmentIndex& index, const SegmentTiming& timing, const pt::Config& config, size_t stretches,
                 const std::function<void()>& check) {
  std::vector<std::byte> scratch;
  const auto enters = [&](const PsbEntry& entry) {
    if (check) check();
    return enters_guest(index.segment(entry, timing, scratch), config);
  };
  bool found = false;
  if (stretches != SIZE_MAX) {
    index.sample(
        stretches, [&](const PsbEntry& entry) { found = found || enters(entry); }, nullptr);
    return found;
  }
  for (auto entry = index.next(0); entry && !found; entry = index.next(entry->offset_bytes + 1)) found = enters(*entry);
  return found;
}

}  // namespace ptd
