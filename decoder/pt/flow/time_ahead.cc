// TimeAhead: a second, fast pass over a segment's packets that stops at packets with a time.
#include "decoder/pt/flow/time_ahead.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "decoder/pt/flow/plain_packets.h"
#include "decoder/pt/packet/fast_counter.h"
#include "decoder/time_offset.h"

namespace ptd::pt {
namespace {

constexpr unsigned kPacketsBetween = 8;     // after so many packets without a time there are probably many TNTs
constexpr uint64_t kOutsideNs = 1'000'000;  // tolerance for a TSC outside its segment's bounds
constexpr uint64_t kTscMask = (uint64_t{1} << 56) - 1;
constexpr std::byte kMtc{0x59};
constexpr uint64_t kMtcWindow = 256;            // periods until an MTC has the same payload again
constexpr uint64_t kSlack = 4;                  // periods by which the clock may be wrong
constexpr unsigned kCycMask = 3, kCycMore = 4;  // [SDM] "CYC Packet": the low bits, and whether a second byte follows

/// Sizes of the packets that skip_plain() skips, by their first byte; 0: not skipped, or needs a closer look.
constexpr std::array<uint8_t, 256> kPlainSizes = [] {
  std::array<uint8_t, 256> sizes{};
  for (unsigned byte = 0; byte < 256; ++byte) {
    const auto ip_size = kIpSize[byte >> 5];
    const bool reserved = ip_size == 0 && byte >> 5 != 0;
    if (byte == 0 || is_short_tnt(byte)) sizes[byte] = 1;
    const unsigned opcode = byte & kIpOpcodeMask;
    const bool has_ip = opcode == kTipOpcode || opcode == kTipPgeOpcode || opcode == kTipPgdOpcode || opcode == kFupOpcode;
    if (has_ip && !reserved) sizes[byte] = static_cast<uint8_t>(1 + ip_size);
  }
  return sizes;
}();

TimeNs earlier(TimeNs a, TimeNs b) { return TimeNs{std::min(a.value, b.value)}; }
TimeNs later(TimeNs a, TimeNs b) { return TimeNs{std::max(a.value, b.value)}; }

/// Returns a mask with bit 8k+7 set for each of the eight bytes that is not a short TNT: odd, 00 or 02.
uint64_t other_bytes(uint64_t word) {
  constexpr uint64_t kHigh = 0x8080808080808080ULL;
  const uint64_t odd = word << 7;                                           // bit 0 of each byte
  const uint64_t large = ((word & ~kHigh) + 0x7d7d7d7d7d7d7d7dULL) | word;  // bit 7: the byte is 3 or more
  return (odd | ~large) & kHigh;
}

/// Sets both in one store: a load of both would wait for two.
void set_at_once(Moment& moment, TimeNs about, uint64_t cycles) {
  using Both [[gnu::vector_size(sizeof(Moment))]] = uint64_t;
  const Both both = {about.value, cycles};
  std::memcpy(static_cast<void*>(&moment), &both, sizeof both);
}

/// Returns whether a packet shows that the TSC may be that of a VMX guest.
bool is_of_guest(const Packet& packet) {
  return packet.kind == PacketKind::vmcs || (packet.kind == PacketKind::pip && (packet.flags & kFlagNonRoot) != 0);
}

/// Returns whether whole() adds only bits above those of `small`, and by the same for all times that have the same bits there.
bool keeps_small(const TimeConversion& time, uint64_t small) {
  return !time.cap_user_time_short || ((time.time_cycles & small) == 0 && (time.time_mask & small) == small);
}

}  // namespace

uint64_t skip_plain(Bytes bytes, uint64_t at, uint64_t end) {
  const std::byte* data = bytes.data();
  // Where timing packets are dense, there are few packets between two.
  for (unsigned packets = 0; packets < kPacketsBetween && at < end; ++packets) {
    const uint64_t size = kPlainSizes[static_cast<unsigned>(data[at])];
    if (size == 0) break;
    if (end - at < size) return at;
    at += size;
  }
  while (at < end) {
    uint64_t size = kPlainSizes[static_cast<unsigned>(data[at])];
    if (size == 1 && end - at >= 8 && kPlainSizes[static_cast<unsigned>(data[at + 1])] == 1) {  // probably many TNTs
      uint64_t word;
      std::memcpy(&word, data + at, 8);
      const uint64_t other = other_bytes(word);
      size = other == 0 ? 8 : std::max<uint64_t>(static_cast<uint64_t>(std::countr_zero(other)) / 8, 1);
    } else if (size == 0) {
      if (data[at] != std::byte{0x02} || end - at < kLongTntBytes || long_tnt(data + at) == 0) return at;
      size = kLongTntBytes;
    }
    if (end - at < size) return at;
    at += size;
  }
  return at;
}

bool correct_tsc(Packet& packet, const TscCheck& check) {
  packet.value = (packet.value - check.late_by) & kTscMask;
  return check.use;
}

bool correct_tsc_between(Packet& packet, const AuxSegment& segment, const TimeConversion& time) {
  if (!time.valid()) return segment.tsc.use && segment.tsc.late_by == 0;
  const Interval around{minus(segment.time.first, kOutsideNs), plus(segment.time.last, kOutsideNs)};
  const auto is_inside = [&](uint64_t tsc) { return time.to_interval(Tsc{tsc}, Tsc{tsc}).overlaps(around); };
  const uint64_t corrected = (packet.value - segment.tsc.late_by) & kTscMask;
  if (corrected == packet.value) return is_inside(packet.value);
  const bool is_corrected_inside = is_inside(corrected);
  if (is_inside(packet.value) == is_corrected_inside) return false;
  if (is_corrected_inside) packet.value = corrected;
  return true;
}

void TimeAhead::begin(const AuxSegment& segment, const Config& config, uint64_t slack_ns) {
  segment_ = segment;
  config_ = config;
  slack_ns_ = slack_ns;
  begin_ns_of();
  reader_ = PacketReader(segment.bytes);
  reader_.set_errata(config.errata);
  clock_ = PtClock(config);
  own_bytes_ = segment.bytes.size() - std::min<uint64_t>(segment.tail_bytes, segment.bytes.size());
  zeros_ = find_zero_run(segment.bytes, 0, own_bytes_);
  window_ = 0;
  const bool is_known = segment.time.first != kTimeMin && slack_ns != kTimeMax.value;
  bounds_ = {segment.time.first, segment.time.last,
             is_known ? earlier(plus(segment.time.first, slack_ns), segment.time.last) : segment.time.first};
  end_ = segment.time.last;
  limit_ = segment.tail_bytes != 0 ? segment.time.last : kTimeMax;
  counted_to_ = complete_to_ = repeats_to_ = tsc_at_ = 0;
  contradicted_at_ = kNoOffset;
  passed_end_ = miscounts_ = in_guest_ = false;
  head_ = bound_ = count_ = 0;
  in_start_ = true;
  done_ = false;
}

// Sets the bounds after a timing packet that the clock has processed.
[[gnu::always_inline]] inline void TimeAhead::update_bounds() {
  const uint64_t limit = limit_.value, end = segment_.time.last.value, slack = slack_ns_;
  const Interval told = ns_of(clock_.earliest(), clock_.latest());
  const bool untimed = slack == kTimeMax.value, slackens = slack != 0 && !untimed && told.first.value != 0;  // 0 would be no time
  const TimeNs counted = minus(told.first, slackens ? std::min(slack, told.first.value - 1) : slack);
  passed_end_ |= limit < counted.value;
  const TimeNs first = later(bounds_.first, earlier(counted, TimeNs{limit}));  // it is initially the segment's lower bound
  const TimeNs last = later(earlier(plus(told.last, slack), TimeNs{end}), first);
  // Without CYC the bounds are a tick or two apart. Slack does not move the likeliest time.
  const TimeNs about = clock_.cycles() == 0 ? (untimed ? first : told.first) : ns_of(clock_.now(), clock_.now()).first;
  bounds_ = {first, last, earlier(later(about, later(bounds_.about, first)), last)};
}

// Sets the point of a packet that the clock has processed.
[[gnu::always_inline]] inline void TimeAhead::date_here(TimePoint& point, uint64_t offset, uint64_t end, bool bounds) {
  if (bounds) {
    update_bounds();
    window_ = end;
  }
  point.offset_bytes = offset;
  point.end_bytes = end;
  point.first = bounds_.first;
  point.last = bounds_.last;
  set_at_once(point.moment, bounds_.about, clock_.cycles());
  point.bounds = bounds;
}
void TimeAhead::date(TimePoint& point, uint64_t offset, uint64_t end, bool bounds) { date_here(point, offset, end, bounds); }

// Reads the expected MTC at `at`. MTCs that directly follow each other, as while the processor waits, make one point: the first gives its
// upper bound and the last its lower bound. Returns false if there is no expected MTC.
[[gnu::always_inline]] inline bool TimeAhead::read_mtcs(uint64_t at, uint64_t end, TimePoint& point) {
  const std::byte* data = segment_.bytes.data();
  if (end - at < 2 || data[at] != kMtc || !clock_.on_due_mtc(static_cast<uint8_t>(data[at + 1]), at)) return false;
  date_here(point, at, at + 2, true);
  if (end - at >= 4 && data[at + 2] == kMtc) [[unlikely]]
    add_mtcs(point, end);
  return true;
}

// Adds the MTCs that directly follow a point.
[[gnu::noinline]] void TimeAhead::add_mtcs(TimePoint& point, uint64_t end) {
  const uint64_t after = clock_.step_due_mtcs(segment_.bytes, point.end_bytes, end);
  if (after == point.end_bytes) return;
  const TimeNs last = point.last;
  date(point, point.offset_bytes, after, true);
  point.last = last;
}

// Reads a CYC of one or two bytes at `at`. Returns false if there is none.
inline bool TimeAhead::read_cyc(uint64_t at, uint64_t end, TimePoint& point) {
  const std::byte* data = segment_.bytes.data();
  if (end - at < 2) return false;
  const auto byte = static_cast<unsigned>(data[at]), second = static_cast<unsigned>(data[at + 1]);
  const bool is_long = (byte & kCycMore) != 0;
  if ((byte & kCycMask) != kCycMask || (is_long && ((second & 1) != 0 || config_.errata.skd007))) return false;
  const uint64_t after = at + (is_long ? 2 : 1);
  const bool told = clock_.on_cyc_at(byte >> 3 | (is_long ? second >> 1 << 5 : 0), after);
  date_here(point, at, after, told);
  return true;
}

const TimePoint* TimeAhead::read_at(uint64_t offset) {
  const uint64_t end = plain_end();
  if (!read_mtcs(offset, end, here_) && !read_cyc(offset, end, here_)) return nullptr;
  reader_.seek(here_.end_bytes);
  return &here_;
}

// Same as TimeConversion::to_interval(). Times whose large part is that of the last ones, as nearly all are, share its multiplication.
[[gnu::always_inline]] inline Interval TimeAhead::ns_of(Tsc first, Tsc last) {
  const auto& near = near_;
  if (first.value >> near.large_shift != near.large || last.value >> near.large_shift != near.large) return ns_of_far(first, last);
  const uint64_t end = near.base + ((last.value & near.mask) * near.mult >> near.shift);
  return {TimeNs{near.base + ((first.value & near.mask) * near.mult >> near.shift)},
          TimeNs{end + (end < kTimeMax.value ? near.round_up : 0U)}};
}

[[gnu::noinline]] Interval TimeAhead::ns_of_far(Tsc first, Tsc last) {
  const TimeConversion& time = config_.time;
  if (near_.shares) {
    near_.large = first.value >> near_.large_shift;
    near_.base = time.time_zero + (time.whole(first).value >> near_.large_shift) * time.time_mult;
    if (near_.large == kTscMax.value >> near_.large_shift) near_.large = kNotLarge;  // kTscMax is no time
  }
  return time.to_interval(first, last);
}

void TimeAhead::begin_ns_of() {
  const TimeConversion& time = config_.time;
  near_ = {};
  if (!time.valid()) {
    near_.large = 0;
  } else if (const uint64_t small = (uint64_t{1} << (time.time_shift & 63U)) - 1;
             time.time_shift != 0 && time.time_shift <= 32 && keeps_small(time, small)) {
    near_.mask = small;
    near_.mult = time.time_mult;
    near_.shift = near_.large_shift = time.time_shift;
    near_.round_up = 1;
    near_.shares = true;
  }
}

// Scans up to the next point. Returns false if there is none. The points are the same from wherever skip_to() begins a scan.
bool TimeAhead::scan() {
  if (head_ == count_) head_ = bound_ = count_ = 0;
  const size_t before = count_;
  while (!done_ && count_ == before) {
    if (reader_.block_items() == 0 && !in_start_) scan_plain();
    if (count_ != before) break;
    if (reader_.offset() < skip_limit() && !scan_packet()) done_ = true;
    if (reader_.offset() >= skip_limit()) {
      window_ = reader_.offset();
      date(append(), window_, window_, false);
      points_[count_ - 1].bounds = true;
      points_[count_ - 1].last = std::max(end_, bounds_.first);
    }
  }
  return count_ != before;
}

// Skips packets without a time and reads one of the most frequent timing packets. Stops before any other packet.
void TimeAhead::scan_plain() {
  const uint64_t end = plain_end();
  uint64_t at = skip_plain(segment_.bytes, reader_.offset(), std::max(std::min(end, skip_limit()), reader_.offset()));
  if (at < skip_limit() && end - at >= 2) {
    TimePoint& point = append();
    if (read_mtcs(at, end, point) || read_cyc(at, end, point)) {
      at = point.end_bytes;
    } else {
      --count_;
    }
  }
  reader_.seek(at);
}

// Reads one packet. Returns false at the end.
bool TimeAhead::scan_packet() {
  const uint64_t offset = reader_.offset();
  if (offset >= own_bytes_) {
    scan_tail();
    return false;
  }
  Packet packet;
  const PacketReader::Status status = reader_.next(packet);
  if (zeros_.cuts(offset, reader_.offset())) {
    pass_zeros();
    return true;
  }
  if (status != PacketReader::Status::ok) return false;
  in_guest_ = in_guest_ || is_of_guest(packet);
  switch (packet.kind) {
    case PacketKind::psb:
      if (in_start_ && offset == 0) return true;
      reader_.seek(offset);
      scan_tail();
      return false;
    case PacketKind::cbr:
      clock_.on_packet(packet, offset);
      return true;
    case PacketKind::tsc:
      if (in_start_ ? !correct_tsc(packet, segment_.tsc) : !correct_tsc_between(packet, segment_, config_.time)) {
        clock_.on_loss();
        return true;
      }
      add(offset, reader_.offset(), read_tsc(packet, offset));
      return true;
    case PacketKind::tma:
      if (!is_fast_counter(packet.aux, config_.tsc_ctc_ratio_n, config_.tsc_ctc_ratio_d))
        contradicted_at_ = std::min(contradicted_at_, offset);
      [[fallthrough]];
    case PacketKind::cyc: {
      const bool told = clock_.on_packet(packet, offset) && clock_.known();
      add(offset, reader_.offset(), told);
      return true;
    }
    case PacketKind::mtc:
      add(offset, reader_.offset(), read_mtc(packet, offset));
      return true;
    case PacketKind::ovf:  // [SDM] "Overflow": an OVF inside a PSB+ ends the PSB+
      if (!in_start_) pass_overflow();
      in_start_ = false;
      return true;
    case PacketKind::pad:
    case PacketKind::fup:
    case PacketKind::mode_exec:
    case PacketKind::mode_tsx:
    case PacketKind::pip:
    case PacketKind::vmcs:
      return true;
    default:
      in_start_ = false;
      return true;
  }
}

// Reads a TSC that was corrected. Returns whether it gave a time.
bool TimeAhead::read_tsc(const Packet& packet, uint64_t offset) {
  if (count_at(packet, offset, in_guest_, clock_) == Count::too_high) contradicted_at_ = std::min(contradicted_at_, tsc_at_);
  miscounts_ = false;
  tsc_at_ = in_start_ ? 0 : offset;
  return clock_.known();
}

// Passes an OVF, which was read.
void TimeAhead::pass_overflow() {
  clock_.on_short_loss();
  if (reader_.offset() > complete_to_) {
    is_complete_ = config_.has_mtc && clock_.known() && !ends_in_guest() && count_to_tsc(complete_to_) == Count::complete;
  }
  if (!is_complete_) clock_.on_loss();
}

// Returns whether whole windows of MTCs seem to be missing before a TSC that is `ahead` ticks later than they count to. If the core slept,
// which stops the MTCs, the TSC comes at any moment of a window, else soon after an MTC.
bool TimeAhead::misses_windows(uint64_t ahead) const {
  const uint64_t period = period_ticks();
  if (period == 0) return true;
  const uint64_t after = (ahead / period + kSlack) % kMtcWindow;
  return ahead / period + kSlack >= kMtcWindow && after <= 2 * kSlack;
}

// Gives a TSC to `clock`. Returns how the packets before it, and `more_ticks`, have counted. A TSC that is earlier by more than 2^32 ticks
// comes from another clock.
TimeAhead::Count TimeAhead::count_at(const Packet& tsc, uint64_t offset, bool in_guest, PtClock& clock, uint64_t more_ticks) const {
  constexpr uint64_t kMostBack = uint64_t{1} << 32, kSkew = uint64_t{1} << 14;
  const uint64_t least_back = period_ticks() + (segment_.cpu < 0 ? kSkew : 0);  // processors' TSCs may differ a little
  const bool counts = config_.has_mtc && clock.known() && !in_guest;
  const uint64_t counted = clock.earliest().value + more_ticks;
  clock.on_packet(tsc, offset);
  const uint64_t now = clock.now().value, back = counted - std::min(counted, now), ahead = now - std::min(counted, now);
  if (!counts || back >= kMostBack || misses_windows(ahead)) return Count::unknown;
  if (back <= least_back) return Count::complete;
  return ends_in_guest() ? Count::unknown : Count::too_high;
}

// Whether the next PSB+ is of a VMX guest.
bool TimeAhead::ends_in_guest() const {
  PacketReader reader(segment_.bytes, own_bytes_);
  Packet packet;
  while (reader.next(packet) == PacketReader::Status::ok && packet.kind != PacketKind::psbend) {
    if (is_of_guest(packet)) return true;
  }
  return false;
}

// Reads an MTC. Returns whether it gave a time.
bool TimeAhead::read_mtc(const Packet& packet, uint64_t offset) {
  if (miscounts_) return false;
  const PtClock before = clock_;
  const bool told = clock_.on_packet(packet, offset) && clock_.known();
  // Of two MTCs with one payload, which are 256 periods apart, the clock does not know which time has passed.
  const bool repeats = before.expects_mtcs() && !clock_.expects_mtcs() && clock_.holes() == before.holes();
  if (repeats && is_damaged_repeat(offset)) {
    clock_ = before;
    contradicted_at_ = std::min(contradicted_at_, offset);
    return false;
  }
  const bool is_due = before.expects_mtcs() && PtClock(before).step_due_mtc(static_cast<uint8_t>(packet.value));
  if (is_due || clock_.holes() == before.holes() || offset < counted_to_ || count_to_tsc(counted_to_) != Count::too_high) return told;
  clock_ = before;
  clock_.on_loss();
  miscounts_ = passed_end_ = true;
  contradicted_at_ = std::min(contradicted_at_, offset);
  return false;
}

// Whether the next TSC comes before 256 more periods have passed. If it does for one packet, it does for those after it too.
bool TimeAhead::is_damaged_repeat(uint64_t offset) {
  if (offset < repeats_to_) return true;
  uint64_t compared_to = 0;
  const bool contradicted = count_to_tsc(compared_to, kMtcWindow * period_ticks()) == Count::too_high;
  if (contradicted) repeats_to_ = compared_to;
  return contradicted;
}

// Returns how the packets from here on, and `more_ticks`, count up to the next TSC, or in the last segment up to the time of the last AUX
// record. `compared_to` is where that TSC is, or the packets end.
TimeAhead::Count TimeAhead::count_to_tsc(uint64_t& compared_to, uint64_t more_ticks) const {
  PacketReader reader = reader_;
  PtClock clock = clock_;
  Packet packet;
  bool in_guest = in_guest_, in_tail = false;
  for (;;) {
    if (!in_tail && reader.block_items() == 0) reader.seek(skip_plain(segment_.bytes, reader.offset(), plain_end()));
    const uint64_t offset = compared_to = reader.offset();
    if (!in_tail && reader.block_items() == 0 && offset + 2 <= plain_end() && segment_.bytes[offset] == kMtc &&
        clock.on_due_mtc(static_cast<uint8_t>(segment_.bytes[offset + 1]), offset)) {
      reader.seek(offset + 2);
      continue;
    }
    const PacketReader::Status status = reader.next(packet);
    if (status != PacketReader::Status::ok || (!in_tail && zeros_.cuts(offset, reader.offset()))) break;
    in_guest = in_guest || is_of_guest(packet);
    if (packet.kind == PacketKind::psb && offset != 0) in_tail = true;
    if (packet.kind == PacketKind::psbend && in_tail) return Count::unknown;
    if (packet.kind == PacketKind::tsc) {
      if (in_tail ? correct_tsc(packet, segment_.tail_tsc) : correct_tsc_between(packet, segment_, config_.time))
        return count_at(packet, offset, in_guest, clock, more_ticks);
      clock.on_loss();
    } else {
      clock.on_packet(packet, offset);
    }
  }
  const Interval& time = segment_.time;
  if (segment_.tail_bytes != 0 || in_guest || !config_.time.valid() || time.first >= time.last || time.last == kTimeMax)
    return Count::unknown;
  const Tsc counted{clock.earliest().value + more_ticks}, window{counted.value + (kMtcWindow - kSlack) * period_ticks()};
  if (plus(time.last, kOutsideNs) < config_.time.to_ns(counted)) return Count::too_high;
  return time.last < config_.time.to_ns(window) ? Count::complete : Count::unknown;
}

// Skips PADs, or a packet that reaches into zeroed trace. Their times are lost.
void TimeAhead::pass_zeros() {
  clock_.on_loss();
  reader_.seek(find_packet(segment_.bytes, zeros_.last, own_bytes_, config_.errata));
  zeros_ = find_zero_run(segment_.bytes, zeros_.last, own_bytes_);
  in_start_ = false;
}

// Reads the next segment's PSB+, whose TSC bounds the times before it.
void TimeAhead::scan_tail() {
  Packet packet;
  if (reader_.next(packet) != PacketReader::Status::ok || packet.kind != PacketKind::psb) return;
  for (;;) {
    const uint64_t offset = reader_.offset();
    if (reader_.next(packet) != PacketReader::Status::ok || packet.kind == PacketKind::psbend || packet.kind == PacketKind::ovf) return;
    if (packet.kind == PacketKind::tsc && correct_tsc(packet, segment_.tail_tsc)) add(offset, reader_.offset(), read_tsc(packet, offset));
  }
}

}  // namespace ptd::pt
