// SegmentIndex: indexes sync points part by part.
#include "recording/trace/segments.h"

#include <algorithm>

#include "decoder/pt/packet/overflows.h"
#include "decoder/pt/packet/packet_table.h"
#include "decoder/pt/packet/zero_run.h"
#include "ptdecode/arm/packet_reader.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd {
namespace {

constexpr uint64_t kMaxPsbPlusBytes = 256;  // PSB+ holds at most a dozen packets ([SDM] "PSB+")
constexpr uint64_t kSegmentStretchBytes = 256U << 10;
constexpr uint64_t kLongestRunBytes = 4096;  // of PSB patterns in a row that is taken as one run across the end of a stretch

// Reads the PSB+ at `offset`, up to zeroed trace: its TSC and its length.
PsbEntry read_psb_plus(const AuxStream& stream, uint64_t offset) {
  std::vector<std::byte> scratch;
  const Seam* seam = stream.seam_after(offset);
  const uint64_t end = std::min(offset + kMaxPsbPlusBytes, seam != nullptr ? seam->offset_bytes : stream.end_offset());
  const Bytes read = stream.read(offset, end, scratch), bytes = read.first(pt::find_zero_run(read, 0, read.size()).first);
  PsbEntry entry;
  entry.offset_bytes = offset;
  pt::PacketReader reader(bytes);
  pt::Packet packet;
  uint64_t ip = 0;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::tsc && !entry.has_tsc) {
      entry.tsc = packet.value;
      entry.has_tsc = true;
    }
    if (packet.kind == pt::PacketKind::tma && !entry.has_tma) {
      entry.ctc = static_cast<uint16_t>(packet.value);
      entry.fast = static_cast<uint16_t>(packet.aux);
      entry.has_tma = true;
    }
    if (packet.kind == pt::PacketKind::pip) {
      const bool in_root = (packet.flags & pt::kFlagNonRoot) == 0;
      entry.in_root = entry.in_root || in_root;
      entry.in_guest = entry.in_guest || !in_root;
    }
    if (packet.kind == pt::PacketKind::vmcs) entry.in_guest = true;
    if (packet.kind == pt::PacketKind::fup) entry.in_user = pt::decompress_ip(packet, ip) && ip >> 47 == 0;
    if (packet.kind == pt::PacketKind::psbend) entry.lacks_tsc = !entry.has_tsc;
    if (packet.kind == pt::PacketKind::psbend || packet.kind == pt::PacketKind::ovf) break;
  }
  entry.tail_bytes = std::max<uint64_t>(reader.offset(), std::min<uint64_t>(pt::kPsbBytes, bytes.size())) & PsbEntry::kMostTailBytes;
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
      entry.tail_bytes = reader.offset() & PsbEntry::kMostTailBytes;
      return entry;
    }
  }
  return entry;
}

// Returns whether the packets of the segment [first, last) end with an OVF.
bool ends_in_overflow(const AuxStream& stream, uint64_t first, uint64_t last) {
  constexpr uint64_t kEndBytes = 32;
  std::vector<std::byte> scratch;
  if (!pt::may_end_in_overflow(stream.read(std::max(first, last - std::min(last, kEndBytes)), last, scratch))) return false;
  const Bytes packets = stream.read(first, last, scratch);
  return packets.size() == last - first && pt::ends_in_overflow(packets);
}

Interval widen(Interval interval, uint64_t slack_ns) {
  if (interval.first != kTimeMin) interval.first.value = interval.first.value > slack_ns ? interval.first.value - slack_ns : 0;
  if (interval.last != kTimeMax)
    interval.last.value = interval.last.value > kTimeMax.value - slack_ns ? kTimeMax.value : interval.last.value + slack_ns;
  return interval;
}

using Finder = uint64_t (*)(Bytes bytes, uint64_t from);

// Calls `found` with each pattern that begins in [first, last). A pattern cut by a seam is none.
template <typename Found>
void find_patterns(const AuxStream& stream, uint64_t first, uint64_t last, Finder find, uint64_t pattern_bytes, const Found& found) {
  std::vector<std::byte> scratch;
  const std::vector<AuxChunk>& chunks = stream.chunks();
  for (uint64_t from = first; from < last;) {
    const Bytes bytes = stream.read(from, last + kLongestRunBytes, scratch);
    if (bytes.empty()) {
      const auto next =
          std::upper_bound(chunks.begin(), chunks.end(), from, [](uint64_t value, const AuxChunk& c) { return value < c.offset_bytes; });
      if (next == chunks.end()) return;
      from = next->offset_bytes;
      continue;
    }
    for (uint64_t at = find(bytes, 0); at + pattern_bytes <= bytes.size() && from + at < last; at = find(bytes, at + pattern_bytes)) {
      const Seam* seam = stream.seam_after(from + at);
      if (seam == nullptr || seam->offset_bytes - (from + at) >= pattern_bytes) found(from + at);
    }
    from += bytes.size();
  }
}

}  // namespace

const SegmentIndex::Entries* SegmentIndex::Slot::put(std::unique_ptr<const Entries> entries) {
  const Entries* before = nullptr;
  if (!entries_.compare_exchange_strong(before, entries.get(), std::memory_order_acq_rel)) return before;
  return entries.release();
}

SegmentIndex::SegmentIndex(const AuxStream& stream) : stream_(&stream) { divide(); }

SegmentIndex::SegmentIndex(const AuxStream& stream, const arm::TraceConfig& config, const Passed& passed)
    : stream_(&stream), is_arm_(true) {
  divide();
  Entries entries;
  if (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) {
    find_whole(entries, passed);
    keep(entries);
    return;
  }
  for (size_t i = 0; i < starts_.size(); ++i) {
    find_patterns(stream, starts_[i], stretch_end(i), arm::find_async, arm::kAsyncBytes, [&](uint64_t offset) {
      const Seam* seam = entries.empty() ? nullptr : stream.seam_after(entries.back().offset_bytes);
      const bool first = entries.empty() || (seam != nullptr && seam->offset_bytes <= offset);
      PsbEntry entry = read_sync(stream, offset, config);
      if (!first && entry.tail_bytes == 0) return;
      entry.tail_bytes = 0;
      entries.push_back(entry);
    });
    if (passed) passed(starts_[i], stretch_end(i));
  }
  timeless_ = std::none_of(entries.begin(), entries.end(), [](const PsbEntry& entry) { return entry.has_tsc; });
  keep(entries);
}

SegmentIndex::SegmentIndex(const AuxStream& stream, const std::vector<PsbEntry>& entries, StreamClock clock, bool is_arm)
    : stream_(&stream), clock_(std::move(clock)), is_arm_(is_arm) {
  divide();
  timeless_ = is_arm && std::none_of(entries.begin(), entries.end(), [](const PsbEntry& entry) { return entry.has_tsc; });
  keep(entries);
}

std::vector<PsbEntry> SegmentIndex::all_entries(const Passed& passed) const {
  std::vector<PsbEntry> entries;
  for (size_t i = 0; i < starts_.size(); ++i) {
    const Entries& here = entries_of(i);
    entries.insert(entries.end(), here.begin(), here.end());
    if (passed) passed(starts_[i], stretch_end(i));
  }
  return entries;
}

// Stretches are of bytes that are there: a hole of any size makes one more at most.
void SegmentIndex::divide() {
  uint64_t filled = kSegmentStretchBytes, end = 0;
  for (const AuxChunk& chunk : stream_->chunks()) {
    if (chunk.offset_bytes - end > kSegmentStretchBytes) filled = kSegmentStretchBytes;
    for (uint64_t at = chunk.offset_bytes; at < chunk.end();) {
      if (filled >= kSegmentStretchBytes) {
        starts_.push_back(at);
        filled = 0;
      }
      const uint64_t step = std::min(chunk.end() - at, kSegmentStretchBytes - filled);
      at += step;
      filled += step;
    }
    end = chunk.end();
  }
  slots_ = std::make_unique<Slot[]>(starts_.size());
}

void SegmentIndex::keep(const Entries& entries) {
  auto from = entries.begin();
  for (size_t i = 0; i < starts_.size(); ++i) {
    const auto to = std::find_if(from, entries.end(), [&](const PsbEntry& entry) { return entry.offset_bytes >= stretch_end(i); });
    slots_[i].put(std::make_unique<Entries>(from, to));
    from = to;
  }
}

size_t SegmentIndex::stretch_of(uint64_t offset_bytes) const {
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), offset_bytes);
  return after == starts_.begin() ? 0 : static_cast<size_t>(after - starts_.begin()) - 1;
}

uint64_t SegmentIndex::stretch_end(size_t stretch) const {
  return stretch + 1 < starts_.size() ? starts_[stretch + 1] : stream_->end_offset();
}

std::unique_ptr<SegmentIndex::Entries> SegmentIndex::look_through(size_t stretch) const {
  auto entries = std::make_unique<Entries>();
  find_patterns(*stream_, starts_[stretch], stretch_end(stretch), pt::find_psb, pt::kPsbBytes,
                [&](uint64_t offset) { entries->push_back(read_psb_plus(*stream_, offset)); });
  clock_.judge(*entries);
  entries->shrink_to_fit();
  return entries;
}

size_t SegmentIndex::set_clock(StreamClock clock) {
  clock_ = std::move(clock);
  size_t count = 0;
  const auto is_wrong = [](const PsbEntry& entry) { return entry.is_contradicted; };
  if (is_arm_) {
    clock_.of_arm = true;
    Entries entries = all_entries(nullptr);
    clock_.judge(entries);
    count = static_cast<size_t>(std::count_if(entries.begin(), entries.end(), is_wrong));
    auto from = entries.begin();
    for (size_t i = 0; count != 0 && i < starts_.size(); ++i) {
      const auto to = from + static_cast<std::ptrdiff_t>(entries_of(i).size());
      slots_[i].replace(std::make_unique<Entries>(from, to));
      from = to;
    }
    return count;
  }
  for (size_t i = 0; i < starts_.size(); ++i) {
    const Entries* found = slots_[i].get();
    if (found == nullptr) continue;
    auto judged = std::make_unique<Entries>(*found);
    clock_.judge(*judged);
    const auto wrong = std::count_if(judged->begin(), judged->end(), is_wrong);
    count += static_cast<size_t>(wrong);
    if (wrong != 0) slots_[i].replace(std::move(judged));
  }
  return count;
}

const SegmentIndex::Entries& SegmentIndex::entries_of(size_t stretch) const {
  Slot& slot = slots_[stretch];
  if (const Entries* known = slot.get()) return *known;
  return *slot.put(look_through(stretch));
}

std::optional<PsbEntry> SegmentIndex::next(uint64_t offset_bytes) const {
  for (size_t i = stretch_of(offset_bytes); i < starts_.size(); ++i) {
    const Entries& entries = entries_of(i);
    const auto found = std::lower_bound(entries.begin(), entries.end(), offset_bytes,
                                        [](const PsbEntry& entry, uint64_t value) { return entry.offset_bytes < value; });
    if (found != entries.end()) return *found;
  }
  return std::nullopt;
}

std::optional<PsbEntry> SegmentIndex::previous(uint64_t offset_bytes) const {
  for (size_t i = starts_.empty() ? 0 : stretch_of(offset_bytes) + 1; i-- > 0;) {
    const Entries& entries = entries_of(i);
    const auto found = std::lower_bound(entries.begin(), entries.end(), offset_bytes,
                                        [](const PsbEntry& entry, uint64_t value) { return entry.offset_bytes < value; });
    if (found != entries.begin()) return *std::prev(found);
  }
  return std::nullopt;
}

void SegmentIndex::sample(size_t stretches, const std::function<void(const PsbEntry&)>& visit, const Passed& passed) const {
  const size_t count = std::min(stretches, starts_.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t stretch = count == 1 ? 0 : i * (starts_.size() - 1) / (count - 1);  // the first and the last one among them
    for (const PsbEntry& entry : entries_of(stretch)) visit(entry);
    if (passed) passed(starts_[stretch], stretch_end(stretch));
  }
}

// Protocols whose flow is not cut: one segment between two seams.
void SegmentIndex::find_whole(Entries& entries, const Passed& passed) const {
  for (const AuxChunk& chunk : stream_->chunks()) {
    uint64_t at = chunk.offset_bytes;
    const bool joins = !entries.empty() && chunk.offset_bytes == (&chunk)[-1].end() && stream_->seam_between(at - 1, at) == nullptr;
    while (at < chunk.end()) {
      if (at != chunk.offset_bytes || !joins) {
        PsbEntry entry;
        entry.offset_bytes = at;
        entries.push_back(entry);
      }
      const Seam* seam = stream_->seam_after(at);
      at = seam == nullptr ? chunk.end() : std::min(seam->offset_bytes, chunk.end());
    }
    if (passed) passed(chunk.offset_bytes, chunk.end());
  }
}

Interval SegmentIndex::time_of(const PsbEntry& entry, const SegmentTiming& timing) const {
  constexpr size_t kMaxSearch = 64;  // neighbours without a TSC
  Interval time;
  if (!timing.use_time) return time;
  std::optional<PsbEntry> first = entry, last = next(entry.offset_bytes + 1);
  const uint64_t end = last ? last->offset_bytes : stream_->end_offset();
  if (timeless_) first = last = std::nullopt;
  for (size_t steps = 1; steps < kMaxSearch && first && !first->has_tsc; ++steps) first = previous(first->offset_bytes);
  for (size_t steps = 1; steps < kMaxSearch && last && !last->has_tsc; ++steps) last = next(last->offset_bytes + 1);
  if (first && !first->has_tsc) first.reset();
  if (last && !last->has_tsc) last.reset();
  // A TSC that runs backwards (a guest's, [SDM] "TSC Packet", VMX) bounds nothing.
  if (first && last && timing.time.whole(Tsc{last->tsc}) < timing.time.whole(Tsc{first->tsc})) first = last = std::nullopt;
  const auto moment = [&](const PsbEntry& at) { return timing.time.to_interval(Tsc{at.tsc}, Tsc{at.tsc}); };
  if (first) {
    time.first = moment(*first).first;
  } else if (entry.is_contradicted && !entry.lacks_tsc && timing.time.valid()) {  // nothing is earlier than the first TSC
    time.first = stream_->written_from(entry.offset_bytes);
  }
  if (last) {
    time.last = moment(*last).last;
  } else if (timing.time.valid()) {
    time.last = std::max(time.first, stream_->written_by(end));
  }
  // The end of a sample's window is the sample's time, which may be long before the next window.
  const Seam* seam = stream_->seam_after(entry.offset_bytes);
  if (last && timing.time.valid() && seam != nullptr && seam->why == AuxBreak::snapshot && seam->offset_bytes <= end)
    time.last = std::max(time.first, std::min(time.last, stream_->written_by(seam->offset_bytes)));
  return widen(time, timing.slack_ns);
}

AuxSegment SegmentIndex::segment(const PsbEntry& entry, const SegmentTiming& timing, std::vector<std::byte>& scratch) const {
  AuxSegment segment;
  const auto following = next(entry.offset_bytes + 1);
  const uint64_t end = following ? following->offset_bytes : stream_->end_offset();
  const Seam* seam = stream_->seam_after(entry.offset_bytes);
  const bool cut_by_seam = seam != nullptr && seam->offset_bytes <= end;
  const uint64_t own_end = cut_by_seam ? seam->offset_bytes : end;
  const uint64_t tail = !following || cut_by_seam ? 0 : following->tail_bytes;
  segment.bytes = stream_->read(entry.offset_bytes, own_end + tail, scratch);
  const uint64_t own_size = own_end - entry.offset_bytes;
  segment.tail_bytes = segment.bytes.size() > own_size ? segment.bytes.size() - own_size : 0;
  segment.break_after = !following || cut_by_seam || segment.bytes.size() < own_size;
  if (cut_by_seam && (!following || seam->why == AuxBreak::snapshot)) segment.lost_after = seam->why;
  segment.stream_offset_bytes = entry.offset_bytes;
  segment.cpu = stream_->cpu;
  segment.tid = stream_->tid;
  segment.time = time_of(entry, timing);
  segment.tsc = clock_.check_of(entry);
  if (is_arm_ && !timeless_ && timing.use_time) segment.timestamps = timestamps_of(entry, own_end, timing);
  const bool undated = is_arm_ ? timeless_ || !timing.use_time : segment.time.first == kTimeMin;
  if (undated && timing.use_written) segment.written = written_of(entry, own_end, timing);
  if (tail != 0) segment.tail_tsc = clock_.check_of(*following);
  const auto before = previous(entry.offset_bytes);
  const Seam* broken = before ? stream_->seam_between(before->offset_bytes, entry.offset_bytes) : nullptr;
  if (!before) {
    const Seam* start = stream_->seams().empty() ? nullptr : &stream_->seams().front();
    const bool is_cut = start != nullptr && start->offset_bytes == stream_->begin_offset();
    segment.break_before = is_cut ? start->why : AuxBreak::stream_start;
  } else if (broken != nullptr && broken->offset_bytes > before->offset_bytes) {
    segment.break_before = broken->why;
  } else {
    segment.after_overflow = !is_arm_ && ends_in_overflow(*stream_, before->offset_bytes, entry.offset_bytes);
  }
  return segment;
}

// Arm trace starts after the AUX record of the trace before it. Where several buffers have the trace of one unit, their records may be in
// another order.
Interval SegmentIndex::written_of(const PsbEntry& entry, uint64_t end, const SegmentTiming& timing) const {
  const TimeNs from = is_arm_ ? stream_->written_from(entry.offset_bytes, 0) : stream_->written_from(entry.offset_bytes);
  const Interval written{from, stream_->written_by(end)};
  return written.last < written.first ? Interval{} : widen(written, timing.slack_ns);
}

// The timestamps of an Arm segment, which ends at `end`, are between those of the sync points around it. After the last one, they are at
// most 1 ms later than the AUX record, and before the first one as much earlier, if the clock of these records fits the segment's own first
// timestamp.
TickRange SegmentIndex::timestamps_of(const PsbEntry& entry, uint64_t end, const SegmentTiming& timing) const {
  constexpr uint64_t kRecordNs = 1'000'000;
  constexpr size_t kMaxSearch = 16;  // neighbours without a timestamp
  TickRange range;
  auto before = previous(entry.offset_bytes), next = this->next(entry.offset_bytes + 1);
  for (size_t steps = 1; steps < kMaxSearch && before && !before->has_tsc; ++steps) before = previous(before->offset_bytes);
  for (size_t steps = 1; steps < kMaxSearch && next && !next->has_tsc; ++steps) next = this->next(next->offset_bytes + 1);
  if (before && before->has_tsc) {
    range.first = before->tsc;
  } else if (const TimeNs from = timing.time.valid() ? stream_->written_from(entry.offset_bytes) : kTimeMin; from != kTimeMin) {
    const uint64_t least = timing.time.to_tsc(from).value;
    if (!entry.has_tsc || entry.tsc >= least) range.first = least;
  }
  if (next && next->has_tsc) range.last = next->tsc;
  const TimeNs written = timing.time.valid() ? stream_->written_by(end) : kTimeMax;
  if (written.value < kTimeMax.value - kRecordNs) {
    const uint64_t most = timing.time.to_tsc(TimeNs{written.value + kRecordNs}).value;
    if (!entry.has_tsc || entry.tsc <= most) range.last = std::min(range.last, most);
  }
  const uint64_t own = entry.has_tsc ? entry.tsc : range.first;
  return own < range.first || own > range.last || range.last < range.first ? TickRange{} : range;
}

// The first PSB with a TSC in stretches [first, last), of which only some are looked through.
std::optional<PsbEntry> SegmentIndex::timed_psb(size_t first_stretch, size_t last_stretch) const {
  constexpr size_t kMaxStretches = 16;
  for (size_t i = first_stretch; i < std::min(last_stretch, first_stretch + kMaxStretches); ++i) {
    for (const PsbEntry& entry : entries_of(i)) {
      if (entry.has_tsc) return entry;
    }
  }
  return std::nullopt;
}

uint64_t SegmentIndex::at(TimeNs t, const SegmentTiming& timing) const {
  if (!timing.use_time || starts_.empty()) return stream_->begin_offset();
  // What begins before stretch `low` is over before t.
  size_t low = 0, high = starts_.size();
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    const auto psb = timed_psb(middle, high);
    const bool before = psb && widen(timing.time.to_interval(Tsc{psb->tsc}, Tsc{psb->tsc}), timing.slack_ns).last < t;
    (before ? low : high) = middle;
  }
  for (auto entry = next(starts_[low]); entry; entry = next(entry->offset_bytes + 1)) {
    if (!(time_of(*entry, timing).last < t)) return entry->offset_bytes;
  }
  return stream_->end_offset();
}

}  // namespace ptd
