// Compares the modes of a segment, of the packets in it and of the next one.
#include "decoder/pt/flow/mode_check.h"

#include "decoder/pt/flow/time_ahead.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd::pt {
namespace {

// Reads a PSB+. Unknown: it has none, or an OVF cuts it short.
ExecMode read_psb_plus(PacketReader& reader) {
  ExecMode mode = ExecMode::unknown;
  for (Packet packet; reader.next(packet) == PacketReader::Status::ok && packet.kind != PacketKind::psbend;) {
    if (packet.kind == PacketKind::ovf) return ExecMode::unknown;
    if (packet.kind == PacketKind::mode_exec) mode = exec_mode_of(packet);
  }
  return mode;
}

}  // namespace

ExecMode exec_mode_of(const Packet& packet) {
  if ((packet.flags & kFlagCsL) != 0) return ExecMode::bits64;
  return (packet.flags & kFlagCsD) != 0 ? ExecMode::bits32 : ExecMode::bits16;
}

bool modes_contradict(const AuxSegment& segment, const Config& config) {
  if (segment.tail_bytes == 0 || segment.tail_bytes > segment.bytes.size() || segment.break_after) return false;
  PacketReader reader(segment.bytes), behind(segment.bytes.last(segment.tail_bytes));
  reader.set_errata(config.errata);
  behind.set_errata(config.errata);
  ExecMode mode = read_psb_plus(reader);
  const ExecMode next = read_psb_plus(behind);
  if (mode == ExecMode::unknown || next == ExecMode::unknown || mode == next) return false;
  const uint64_t end = segment.bytes.size() - segment.tail_bytes;
  for (Packet packet; reader.offset() < end;) {
    reader.seek(skip_plain(segment.bytes, reader.offset(), end));
    if (reader.offset() >= end || reader.next(packet) != PacketReader::Status::ok || packet.kind == PacketKind::ovf) break;
    if (packet.kind == PacketKind::mode_exec) mode = exec_mode_of(packet);
  }
  return reader.offset() >= end && mode != next;
}

}  // namespace ptd::pt
