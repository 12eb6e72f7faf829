// Index of sync points.
#include "recording/segments.h"

#include <algorithm>
#include <array>

#include "decoder/arm/packet_reader.h"
#include "decoder/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kPsbBytes = 16;
constexpr uint64_t kMaxPsbPlusBytes = 256;  // PSB+ holds at most a dozen packets ([SDM] "PSB+")
constexpr uint64_t kStretchBytes = 16ULL << 20;

// Reads the PSB+ at `offset`: its TSC and its length.
PsbEntry read_psb_plus(const AuxStream& stream, uint64_t offset) {
  std::vector<std::byte> scratch;
  const Seam* seam = stream.seam_after(offset);
  const uint64_t end = std::min(offset + kMaxPsbPlusBytes, seam != nullptr ? seam->offset_bytes : stream.end_offset());
  const Bytes bytes = stream.read(offset, end, scratch);
  PsbEntry entry;
  entry.offset_bytes = offset;
  pt::PacketReader reader(bytes);
  pt::Packet packet;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::tsc && !entry.has_tsc) {
      entry.tsc = packet.value;
      entry.has_tsc = true;
    }
    if (packet.kind == pt::PacketKind::pip && (packet.flags & pt::kFlagNonRoot) == 0) entry.in_root = true;
    if (packet.kind == pt::PacketKind::psbend || packet.kind == pt::PacketKind::ovf) break;
  }
  entry.tail_bytes = static_cast<uint32_t>(std::max<uint64_t>(reader.offset(), std::min<uint64_t>(kPsbBytes, bytes.size())));
  return entry;
}

// Reads what follows an A-Sync. tail_bytes is not 0 if the flow needs nothing from before: nothing speculative is in flight, and address
// and context come before the first instruction.
PsbEntry read_sync(const AuxStream& stream, uint64_t offset, const arm::TraceConfig& config) {
  std::vector<std::byte> scratch;
  const Seam* seam = stream.seam_after(offset);
  const uint64_t end = std::min(offset + kMaxPsbPlusBytes, seam != nullptr ? seam->offset_bytes : stream.end_offset());
  arm::PacketReader reader(stream.read(offset, end, scratch), config);
  PsbEntry entry;
  entry.offset_bytes = offset;
  arm::Packet packet;
  bool info = false, address = false, context = false;
  while (reader.next(packet) == arm::PacketReader::Status::ok) {
    using enum arm::PacketKind;
    if (packet.kind == trace_info) {
      if (packet.extra != 0 || (packet.value & 0x40) != 0) return entry;
      info = true;
    } else if (packet.kind == timestamp) {
      entry.tsc = packet.value;
      entry.has_tsc = true;
    } else if (arm::is_address(packet.kind) || packet.kind == ctxt) {
      address |= packet.kind != ctxt;
      context |= packet.context.present;
    } else if (packet.kind != async && packet.kind != trace_on && packet.kind != ignore && packet.kind != event) {
      return entry;
    }
    if (!info && packet.kind != async) return entry;
    if (address && context) {
      entry.tail_bytes = static_cast<uint32_t>(reader.offset());
      return entry;
    }
  }
  return entry;
}

Interval widen(Interval interval, uint64_t slack_ns) {
  if (interval.first != kTimeMin) interval.first.value = interval.first.value > slack_ns ? interval.first.value - slack_ns : 0;
  if (interval.last != kTimeMax)
    interval.last.value = interval.last.value > kTimeMax.value - slack_ns ? kTimeMax.value : interval.last.value + slack_ns;
  return interval;
}

}  // namespace

// Finds sync patterns that begin in chunk `chunk_index`, those that end in the next one included.
void SegmentIndex::scan_chunk(const AuxStream& stream, size_t chunk_index, Finder find, uint64_t pattern_bytes,
                              std::vector<uint64_t>& found, const Passed& passed) const {
  const AuxChunk& chunk = stream.chunks()[chunk_index];
  uint64_t next = 0;  // behind the last pattern
  for (uint64_t first = 0; first < chunk.bytes.size(); first += kStretchBytes) {
    const uint64_t last = std::min<uint64_t>(chunk.bytes.size(), first + kStretchBytes);
    const Bytes stretch = chunk.bytes.first(std::min<uint64_t>(chunk.bytes.size(), last + pattern_bytes - 1));
    for (uint64_t at = find(stretch, std::max(next, first)); at + pattern_bytes <= stretch.size(); at = find(stretch, next)) {
      found.push_back(chunk.offset_bytes + at);
      next = at + pattern_bytes;
    }
    if (passed) passed(chunk.offset_bytes + first, chunk.offset_bytes + last);
  }
  if (chunk_index + 1 >= stream.chunks().size() || stream.chunks()[chunk_index + 1].offset_bytes != chunk.end()) return;
  std::vector<std::byte> window;
  const uint64_t first = chunk.end() - std::min<uint64_t>(chunk.bytes.size(), pattern_bytes - 1);
  const uint64_t last = std::min(chunk.end() + pattern_bytes - 1, stream.end_offset());
  const Bytes joined = stream.read(first, last, window);
  const uint64_t at = find(joined, 0);
  if (at + pattern_bytes <= joined.size()) found.push_back(first + at);
}

void SegmentIndex::scan(const AuxStream& stream, Finder find, uint64_t pattern_bytes, const Passed& passed,
                        std::vector<uint64_t>& found) const {
  for (size_t i = 0; i < stream.chunks().size(); ++i) scan_chunk(stream, i, find, pattern_bytes, found, passed);
  std::sort(found.begin(), found.end());
  // A pattern cut by a seam is none, and one cannot start inside the previous one.
  uint64_t end = 0;
  std::erase_if(found, [&](uint64_t offset) {
    const Seam* seam = stream.seam_after(offset);
    const bool cut = seam != nullptr && seam->offset_bytes - offset < pattern_bytes;
    if (cut || (end != 0 && offset < end)) return true;
    end = offset + pattern_bytes;
    return false;
  });
}

void SegmentIndex::count_skipped(const AuxStream& stream) {
  uint64_t covered = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const uint64_t next = i + 1 < entries_.size() ? entries_[i + 1].offset_bytes : stream.end_offset();
    const Seam* seam = stream.seam_after(entries_[i].offset_bytes);
    covered += std::min(next, seam != nullptr ? seam->offset_bytes : next) - entries_[i].offset_bytes;
  }
  skipped_bytes_ = stream.size_bytes() > covered ? stream.size_bytes() - covered : 0;
}

void SegmentIndex::build(const AuxStream& stream, const Passed& passed) {
  std::vector<uint64_t> offsets;
  scan(stream, pt::find_psb, kPsbBytes, passed, offsets);
  for (const uint64_t offset : offsets) entries_.push_back(read_psb_plus(stream, offset));
  entries_.shrink_to_fit();
  count_skipped(stream);
}

void SegmentIndex::build_arm(const AuxStream& stream, const arm::TraceConfig& config, const Passed& passed) {
  if (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) {
    build_whole(stream, passed);
    return;
  }
  std::vector<uint64_t> offsets;
  scan(stream, arm::find_async, arm::kAsyncBytes, passed, offsets);
  for (const uint64_t offset : offsets) {
    const Seam* seam = entries_.empty() ? nullptr : stream.seam_after(entries_.back().offset_bytes);
    const bool first = entries_.empty() || (seam != nullptr && seam->offset_bytes <= offset);
    PsbEntry entry = read_sync(stream, offset, config);
    if (!first && entry.tail_bytes == 0) continue;
    entry.tail_bytes = 0;
    entries_.push_back(entry);
  }
  entries_.shrink_to_fit();
  count_skipped(stream);
}

// Protocols whose flow is followed without a cut: a segment for what stands between seams.
void SegmentIndex::build_whole(const AuxStream& stream, const Passed& passed) {
  for (const AuxChunk& chunk : stream.chunks()) {
    uint64_t at = chunk.offset_bytes;
    const bool joins = !entries_.empty() && chunk.offset_bytes == (&chunk)[-1].end() && stream.seam_between(at - 1, at) == nullptr;
    while (at < chunk.end()) {
      if (at != chunk.offset_bytes || !joins) {
        PsbEntry entry;
        entry.offset_bytes = at;
        entries_.push_back(entry);
      }
      const Seam* seam = stream.seam_after(at);
      at = seam == nullptr ? chunk.end() : std::min(seam->offset_bytes, chunk.end());
    }
    if (passed) passed(chunk.offset_bytes, chunk.end());
  }
}

Interval SegmentIndex::time_of(const AuxStream& stream, size_t index, const SegmentTiming& timing) const {
  constexpr size_t kMaxSearch = 64;  // neighbours without a TSC
  Interval time;
  if (!timing.use_time) return time;
  bool has_first = false, has_last = false;
  Tsc first, last;
  for (size_t i = index + 1, steps = 0; i-- > 0 && steps < kMaxSearch && !has_first; ++steps) {
    has_first = entries_[i].has_tsc;
    first = Tsc{entries_[i].tsc};
  }
  for (size_t i = index + 1, steps = 0; i < entries_.size() && steps < kMaxSearch && !has_last; ++i, ++steps) {
    has_last = entries_[i].has_tsc;
    last = Tsc{entries_[i].tsc};
  }
  // A TSC that runs backwards (a guest's, [SDM] "TSC Packet", VMX) bounds nothing.
  if (has_first && has_last && last < first) has_first = has_last = false;
  if (has_first) time.first = timing.time.to_interval(first, first).first;
  if (has_last) {
    time.last = timing.time.to_interval(last, last).last;
  } else if (timing.time.valid()) {
    const uint64_t end = index + 1 < entries_.size() ? entries_[index + 1].offset_bytes : stream.end_offset();
    time.last = std::max(time.first, stream.written_by(end));
  }
  return widen(time, timing.slack_ns);
}

AuxSegment SegmentIndex::segment(const AuxStream& stream, size_t index, const SegmentTiming& timing,
                                 std::vector<std::byte>& scratch) const {
  AuxSegment segment;
  if (index >= entries_.size()) return segment;
  const PsbEntry& entry = entries_[index];
  const bool is_last = index + 1 >= entries_.size();
  const uint64_t next = is_last ? stream.end_offset() : entries_[index + 1].offset_bytes;
  const Seam* seam = stream.seam_after(entry.offset_bytes);
  const bool cut_by_seam = seam != nullptr && seam->offset_bytes <= next;
  const uint64_t own_end = cut_by_seam ? seam->offset_bytes : next;
  const uint64_t tail = is_last || cut_by_seam ? 0 : entries_[index + 1].tail_bytes;
  segment.bytes = stream.read(entry.offset_bytes, own_end + tail, scratch);
  const uint64_t own_size = own_end - entry.offset_bytes;
  segment.tail_bytes = segment.bytes.size() > own_size ? segment.bytes.size() - own_size : 0;
  segment.break_after = is_last || cut_by_seam || segment.bytes.size() < own_size;
  segment.stream_offset_bytes = entry.offset_bytes;
  segment.cpu = stream.cpu;
  segment.tid = stream.tid;
  segment.time = time_of(stream, index, timing);
  const uint64_t floor = index == 0 ? stream.begin_offset() : entries_[index - 1].offset_bytes;
  const Seam* before = stream.seam_between(floor, entry.offset_bytes);
  if (index == 0) {
    segment.break_before = AuxBreak::stream_start;
  } else if (before != nullptr && before->offset_bytes > floor) {
    segment.break_before = before->why;
  }
  return segment;
}

size_t SegmentIndex::at(const AuxStream& stream, TimeNs t, const SegmentTiming& timing) const {
  if (!timing.use_time) return 0;
  size_t low = 0, high = entries_.size();
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    if (time_of(stream, middle, timing).last < t) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace ptd
