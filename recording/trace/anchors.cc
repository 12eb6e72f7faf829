// Anchors: scans packets for the traces of kernel patching.
#include "recording/trace/anchors.h"

#include <algorithm>
#include <optional>

#include "decoder/aux_loss.h"
#include "decoder/pt/flow/time_ahead.h"
#include "decoder/pt/packet/overflows.h"
#include "decoder/pt/packet/zero_run.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd {
namespace {

/// A record's timestamp may be this far outside the bounds of the code that wrote it: two clocks, each with its own rounding.
constexpr uint64_t kStampSlackNs = 2'000;
/// Of all records at least this share must have a place; with fewer the match itself is in doubt.
constexpr size_t kMatchedOf8 = 7;

bool holds(const std::vector<Ip>& entries, uint64_t ip) { return std::find(entries.begin(), entries.end(), Ip{ip}) != entries.end(); }

// Returns the offset after the last place at which a TIP to `entry` may begin; 0 if there is none. Every TIP with a payload holds the low
// 16 bits of its target. Reads blocks of a constant size, which the compiler vectorises.
uint64_t last_tip_to(Bytes bytes, Ip entry) {
  constexpr uint64_t kBlock = 64;
  constexpr unsigned kOpcode = 0x0d, kOpcodeMask = 0x1f;  // [SDM] "TIP Packet"
  const auto low = static_cast<std::byte>(entry.value), high = static_cast<std::byte>(entry.value >> 8);
  const auto is_tip = [&](uint64_t at) {
    const auto first = static_cast<unsigned>(bytes[at]);
    return (first & kOpcodeMask) == kOpcode && first >> 5 != 0 && bytes[at + 1] == low && bytes[at + 2] == high;
  };
  uint64_t end = bytes.size() < 3 ? 0 : bytes.size() - 2;  // of the offsets still to be examined
  while (end >= kBlock) {
    const std::byte* block = bytes.data() + end - kBlock;
    unsigned char seen = 0;
    for (uint64_t i = 0; i < kBlock; ++i) {
      seen |=
          static_cast<unsigned char>(static_cast<unsigned char>(block[i + 1] == low) & static_cast<unsigned char>(block[i + 2] == high));
    }
    for (uint64_t i = seen != 0 ? kBlock : 0; i-- > 0;) {
      if (is_tip(end - kBlock + i)) return end - kBlock + i + 1;
    }
    end -= kBlock;
  }
  for (; end > 0; --end) {
    if (is_tip(end - 1)) return end;
  }
  return 0;
}

uint64_t last_tip_to(Bytes bytes, const std::vector<Ip>& entries) {
  uint64_t last = 0;
  for (const Ip entry : entries) last = std::max(last, last_tip_to(bytes, entry));
  return last;
}

// Returns whether a part of the segment is lost, and perhaps rounds with it. `has_rounds`: it may hold some. Limitation: in other segments,
// bytes that are no packet are not found, because all packets would have to be read.
bool has_loss(const AuxSegment& segment, const pt::Config& config, bool has_rounds) {
  const bool breaks = segment.break_before != AuxBreak::none && segment.break_before != AuxBreak::stream_start;
  const uint64_t own_bytes = segment.bytes.size() - segment.tail_bytes;
  return breaks || is_loss(segment.lost_after) || pt::find_zero_run(segment.bytes, 0, own_bytes).first != own_bytes ||
         ((has_rounds || pt::may_overflow(segment.bytes)) && pt::has_overflow(segment.bytes, segment.tail_bytes, config));
}

// Drops what comes after the first loss in any stream, and rounds that were not met in every stream before it. Returns when that is.
TimeNs drop_after_loss(std::vector<AnchorStream>& streams) {
  TimeNs lost = kTimeMax;
  for (const AnchorStream& stream : streams) lost = std::min(lost, stream.lost);
  if (lost == kTimeMax) return lost;
  size_t rounds = ~size_t{0};
  const auto counts = [&](const AnchorPoint& point) { return !point.poke && point.time.last < lost; };
  for (const AnchorStream& stream : streams)
    rounds = std::min(rounds, static_cast<size_t>(std::count_if(stream.points.begin(), stream.points.end(), counts)));
  for (AnchorStream& stream : streams) {
    size_t left = rounds;
    const auto end = std::find_if(stream.points.begin(), stream.points.end(),
                                  [&](const AnchorPoint& point) { return point.time.last >= lost || (!point.poke && left-- == 0); });
    if (end != stream.points.end()) stream.end_offset_bytes = std::min(stream.end_offset_bytes, end->stream_offset_bytes);
    stream.points.erase(end, stream.points.end());
  }
  return lost;
}

// Rounds of one stream: the bounds of each do_sync_core.
std::vector<Interval> rounds_of(const AnchorStream& stream) {
  std::vector<Interval> rounds;
  for (const AnchorPoint& point : stream.points) {
    if (!point.poke) rounds.push_back(point.time);
  }
  return rounds;
}

// True if b, shifted by `shift` rounds against a, respects "a round ends everywhere before the next begins anywhere".
bool rounds_fit(const std::vector<Interval>& a, const std::vector<Interval>& b, int64_t shift) {
  const auto size_a = static_cast<int64_t>(a.size()), size_b = static_cast<int64_t>(b.size());
  const int64_t first = std::max<int64_t>(0, -shift), last = std::min(size_b, size_a - shift);
  if (last - first < std::min(size_a, size_b) * 3 / 4) return false;
  for (int64_t i = first; i < last; ++i) {
    const int64_t k = i + shift;
    if (k + 1 < size_a && b[i].first > a[k + 1].last) return false;
    if (k > 0 && b[i].last < a[k - 1].first) return false;
  }
  return true;
}

// Number to add to b's round numbers to get a's; none if there is no such number or more than one.
std::optional<int64_t> shift_of(const std::vector<Interval>& a, const std::vector<Interval>& b) {
  if (a.size() == b.size() && rounds_fit(a, b, 0)) return 0;
  std::optional<int64_t> found;
  constexpr int64_t kMaxShift = 64;  // streams start and end within this many rounds of each other
  for (int64_t shift = -kMaxShift; shift <= kMaxShift; ++shift) {
    if (!rounds_fit(a, b, shift)) continue;
    if (found) return std::nullopt;
    found = shift;
  }
  return found;
}

// Rounds that the poker had passed when it wrote a record: between `least` and `most`.
struct Passed {
  TimeNs time;
  int64_t least = 0, most = 0;
};

Interval stamps_of(Interval place) {
  place.first.value -= std::min(kStampSlackNs, place.first.value);
  place.last.value += std::min(kStampSlackNs, kTimeMax.value - place.last.value);
  return place;
}

// Matches the records of one cpu with the places in its own stream where records are written. A record without a place (written while the
// cpu was not traced) is left out: the others say nothing of it.
void match_pokes(const AnchorStream& stream, int64_t shift, const std::vector<TimeNs>& records, std::vector<Passed>& out) {
  struct Place {
    Interval stamps;
    int64_t rounds = 0;
  };
  std::vector<Place> places;
  int64_t rounds = shift;
  for (const AnchorPoint& point : stream.points) {
    if (point.poke)
      places.push_back({stamps_of(point.time), rounds});
    else
      ++rounds;
  }
  const size_t each = records.empty() ? 0 : places.size() / records.size();  // one call for each event that wants the record
  bool regular = each > 0 && places.size() == each * records.size();
  for (size_t i = 0; i < places.size() && regular; ++i) regular = places[i].stamps.contains(records[i / each]);
  for (size_t j = 0; j < records.size(); ++j) {
    Passed passed{records[j], INT64_MAX, INT64_MIN};
    const size_t first = regular ? j * each : 0, end = regular ? first + each : places.size();
    for (size_t i = first; i < end; ++i) {
      if (!places[i].stamps.contains(records[j])) continue;
      passed.least = std::min(passed.least, places[i].rounds);
      passed.most = std::max(passed.most, places[i].rounds);
    }
    if (passed.least <= passed.most) out.push_back(passed);
  }
}

std::vector<pt::SyncPoint> spans_of(const AnchorStream& stream, int64_t shift, const std::vector<Passed>& passed) {
  // latest_most[i]: the most rounds that any of records 0..i needs to be sure; earliest_least[i]: the least of i.. . Both are monotone.
  std::vector<int64_t> most(passed.size()), least(passed.size());
  for (size_t i = 0; i < passed.size(); ++i) most[i] = i == 0 ? passed[i].most : std::max(most[i - 1], passed[i].most);
  for (size_t i = passed.size(); i-- > 0;) least[i] = i + 1 == passed.size() ? passed[i].least : std::min(least[i + 1], passed[i].least);
  std::vector<pt::SyncPoint> spans;
  int64_t rounds = shift;
  const auto add = [&](uint64_t offset) {
    pt::SyncPoint span;
    span.stream_offset_bytes = offset;
    const auto sure = std::upper_bound(most.begin(), most.end(), rounds);       // records before it are applied
    const auto not_yet = std::upper_bound(least.begin(), least.end(), rounds);  // records from it on are not
    if (sure != most.begin()) span.time.first = TimeNs{passed[static_cast<size_t>(sure - most.begin()) - 1].time.value + 1};
    if (not_yet != least.end()) span.time.last = TimeNs{passed[static_cast<size_t>(not_yet - least.begin())].time.value - 1};
    spans.push_back(span);
  };
  add(0);
  for (const AnchorPoint& point : stream.points) {
    if (point.poke) continue;
    ++rounds;
    add(point.stream_offset_bytes);
  }
  if (stream.end_offset_bytes != ~uint64_t{0}) spans.push_back({stream.end_offset_bytes, {}});
  return spans;
}

}  // namespace

std::vector<std::vector<pt::SyncPoint>> match_anchors(std::vector<AnchorStream> streams, std::vector<PokeStamp> pokes) {
  if (const TimeNs lost = drop_after_loss(streams); lost != kTimeMax)
    std::erase_if(pokes, [&](const PokeStamp& poke) { return poke.time >= lost; });
  if (streams.empty() || pokes.empty()) return {};
  const std::vector<Interval> reference = rounds_of(streams[0]);
  if (reference.empty()) return {};
  std::vector<int64_t> shifts;
  for (const AnchorStream& stream : streams) {
    const std::optional<int64_t> shift = shift_of(reference, rounds_of(stream));
    if (!shift) return {};
    shifts.push_back(*shift);
  }
  std::sort(pokes.begin(), pokes.end(), [](const PokeStamp& a, const PokeStamp& b) { return a.time < b.time; });
  std::vector<Passed> passed;
  for (size_t i = 0; i < streams.size(); ++i) {
    std::vector<TimeNs> records;
    for (const PokeStamp& poke : pokes) {
      if (poke.cpu == streams[i].cpu) records.push_back(poke.time);
    }
    match_pokes(streams[i], shifts[i], records, passed);
  }
  if (passed.size() * 8 < pokes.size() * kMatchedOf8) return {};
  std::sort(passed.begin(), passed.end(), [](const Passed& a, const Passed& b) { return a.time < b.time; });
  std::vector<std::vector<pt::SyncPoint>> spans;
  for (size_t i = 0; i < streams.size(); ++i) spans.push_back(spans_of(streams[i], shifts[i], passed));
  return spans;
}

void scan_anchors(const AuxSegment& segment, const pt::Config& config, uint64_t slack_ns, const std::vector<Ip>& sync_entries,
                  const std::vector<Ip>& poke_entries, AnchorStream& stream) {
  if (stream.lost != kTimeMax) return;
  const uint64_t last_tip = std::max(last_tip_to(segment.bytes, sync_entries), last_tip_to(segment.bytes, poke_entries));
  if (has_loss(segment, config, last_tip != 0)) {
    stream.lost = segment.time.first;
    stream.end_offset_bytes = segment.stream_offset_bytes;
    return;
  }
  if (last_tip == 0) return;
  pt::PacketReader reader(segment.bytes);
  reader.set_errata(config.errata);
  pt::PtClock clock(config);
  pt::Packet packet;
  uint64_t last_ip = 0;
  bool in_start = true;   // in the segment's PSB+
  bool in_guest = false;  // whose kernel may have the same addresses
  TimeNs now = segment.time.first, before_flow = segment.time.first;
  size_t open = stream.points.size();  // points that wait for the next timing packet
  while ((reader.offset() < last_tip || open < stream.points.size()) && reader.next(packet) == pt::PacketReader::Status::ok) {
    switch (packet.kind) {
      case pt::PacketKind::psbend:
        in_start = false;
        break;
      case pt::PacketKind::tsc:
        if (in_start ? !pt::correct_tsc(packet, segment.tsc) : !pt::correct_tsc_between(packet, segment, config.time)) {
          clock.on_loss();
          break;
        }
        [[fallthrough]];
      case pt::PacketKind::mtc:
      case pt::PacketKind::tma:
      case pt::PacketKind::cyc:
      case pt::PacketKind::cbr: {
        if (!clock.on_packet(packet, reader.offset() - packet.size_bytes) || !clock.known()) break;
        Interval bounds = config.time.to_interval(clock.earliest(), clock.latest());
        bounds.first.value -= std::min(slack_ns, bounds.first.value);
        bounds.last.value += std::min(slack_ns, kTimeMax.value - bounds.last.value);
        now = std::max(now, bounds.first);
        for (; open < stream.points.size(); ++open) stream.points[open].time.last = std::max(bounds.last, stream.points[open].time.first);
        break;
      }
      case pt::PacketKind::pip:
        in_guest = (packet.flags & pt::kFlagNonRoot) != 0;
        break;
      case pt::PacketKind::tip: {
        const bool has_ip = pt::decompress_ip(packet, last_ip) && !in_guest;
        const bool poke = has_ip && holds(poke_entries, last_ip);
        if (poke || (has_ip && holds(sync_entries, last_ip))) {
          stream.points.push_back(
              {segment.stream_offset_bytes + reader.offset() - packet.size_bytes, {before_flow, segment.time.last}, poke});
        }
        before_flow = now;
        break;
      }
      case pt::PacketKind::tip_pge:
      case pt::PacketKind::tip_pgd:
      case pt::PacketKind::fup:
        (void)pt::decompress_ip(packet, last_ip);
        before_flow = now;
        break;
      case pt::PacketKind::tnt_short:
      case pt::PacketKind::tnt_long:
        before_flow = now;
        break;
      default:
        break;
    }
  }
}

}  // namespace ptd
