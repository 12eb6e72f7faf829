// Pre-reads timing packets.
#include "decoder/pt/packet/pt_time_scan.h"

namespace ptd::pt {

bool TimeCursor::Run::next(Bytes bytes, TimeBound& point) {
  Packet packet;
  for (;;) {
    const uint64_t at = reader.offset();
    const PacketReader::Status status = reader.next(packet);
    if (status == PacketReader::Status::bad_packet) {
      clock.reset();
      reader.seek(find_psb(bytes, at + 1));
      continue;
    }
    if (status != PacketReader::Status::ok) return false;
    if (packet.kind < PacketKind::cbr || !clock.on_packet(packet, at) || !clock.known()) continue;
    point = {at, clock.earliest(), clock.latest()};
    return true;
  }
}

TimeCursor::TimeCursor(Bytes segment, const PtClock& start, uint64_t offset_bytes)
    : bytes_(segment), run_{PacketReader(segment, offset_bytes), start}, before_(start.known() ? start.earliest() : Tsc{0}) {
  has_point_ = run_.next(bytes_, point_);
}

void TimeCursor::advance(uint64_t offset_bytes) {
  while (has_point_ && point_.offset_bytes < offset_bytes) {
    before_ = point_.earliest;
    has_point_ = run_.next(bytes_, point_);
  }
}

Tsc TimeCursor::earliest_before(uint64_t offset_bytes) {
  advance(offset_bytes);
  return before_;
}

Tsc TimeCursor::latest_after(uint64_t offset_bytes) {
  advance(offset_bytes);
  if (!has_point_) return kTscMax;
  if (point_.latest < kTscMax) return point_.latest;
  if (!bound_valid_ || (has_bound_ && bound_.offset_bytes < offset_bytes)) {
    ahead_ = run_;
    do {
      has_bound_ = ahead_.next(bytes_, bound_);
    } while (has_bound_ && bound_.latest == kTscMax);
    bound_valid_ = true;
  }
  return has_bound_ ? bound_.latest : kTscMax;
}

std::vector<TimeBound> scan_times(Bytes segment, PtClock start) {
  std::vector<TimeBound> points;
  PacketReader reader(segment);
  Packet packet;
  for (;;) {
    const uint64_t at = reader.offset();
    const PacketReader::Status status = reader.next(packet);
    if (status == PacketReader::Status::bad_packet) {
      start.reset();
      reader.seek(find_psb(segment, at + 1));
    } else if (status != PacketReader::Status::ok) {
      return points;
    } else if (start.on_packet(packet, at) && start.known()) {
      points.push_back({at, start.earliest(), start.latest()});
    }
  }
}

}  // namespace ptd::pt
