// Compares the modes of a segment, of the packets in it and of the next one.
#include "decoder/pt/flow/mode_check.h"

#include "decoder/pt/flow/time_ahead.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd::pt {
ExecMode exec_mode_of(const Packet& packet) {
  if ((packet.flags & kFlagCsL) != 0) return ExecMode::bits64;
  return (packet.flags & kFlagCsD) != 0 ? ExecMode::bits32 : ExecMode::bits16;
}

bool modes_contradict(const AuxSegment& segment, const Config& config, ExecMode mode) {
  if (mode == ExecMode::unknown || segment.tail_bytes == 0 || segment.tail_bytes > segment.bytes.size() || segment.break_after)
    return false;
  const uint64_t end = segment.bytes.size() - segment.tail_bytes;
  ExecMode next = ExecMode::unknown;
  PacketReader reader(segment.bytes, end);
  reader.set_errata(config.errata);
  Packet packet;
  while (reader.next(packet) == PacketReader::Status::ok && packet.kind != PacketKind::psbend) {
    if (packet.kind == PacketKind::ovf) return false;  // it cuts the PSB+ short
    if (packet.kind == PacketKind::mode_exec) next = exec_mode_of(packet);
  }
  if (next == ExecMode::unknown || mode == next) return false;
  for (reader.seek(0); reader.offset() < end;) {
    reader.seek(skip_plain(segment.bytes, reader.offset(), end));
    if (reader.offset() >= end || reader.next(packet) != PacketReader::Status::ok || packet.kind == PacketKind::ovf) break;
    if (packet.kind == PacketKind::mode_exec) mode = exec_mode_of(packet);
  }
  return reader.offset() >= end && mode != next;
}

}  // namespace ptd::pt
