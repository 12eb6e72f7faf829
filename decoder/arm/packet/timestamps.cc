// Timestamps: one pass over the packets of a segment, and a second look if a timestamp is not in order.
#include "decoder/arm/packet/timestamps.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "decoder/arm/packet/walk_packets.h"

namespace ptd::arm {
namespace {

constexpr unsigned kGroupBits = 7, kMostGroups = 9;  // bytes of a packet; the last one has eight bits
constexpr size_t kMostSuspects = 64;                 // a clock that jumps more often is not checked further
constexpr uint64_t kReach = 8;                       // times the segment's usual length: as far from the others a timestamp can be
constexpr size_t kNone = ~size_t{0};

constexpr uint64_t group_mask(unsigned group) {
  return (group + 1 == kMostGroups ? uint64_t{0xff} : uint64_t{0x7f}) << (kGroupBits * group);
}
constexpr uint64_t with_group(uint64_t value, unsigned group, uint64_t bits) {
  return (value & ~group_mask(group)) | bits << (kGroupBits * group);
}
constexpr uint64_t group_values(unsigned group) { return group + 1 == kMostGroups ? 256 : 128; }

/// Calls `found` with the offset and value of each timestamp until it returns false.
template <typename Found>
void walk(Bytes bytes, const TraceConfig& config, const Found& found) {
  struct {
    const Found& found;
    void on_atoms() {}
    bool on_bad(uint64_t) { return true; }
    bool on_packet(const Packet& packet, uint64_t at) { return packet.kind != PacketKind::timestamp || found(at, packet.value); }
  } visitor{found};
  PacketReader reader(bytes, config);
  walk_packets(reader, bytes, visitor);
}

/// Returns the number of bytes of the timestamp at `offset`.
unsigned groups_at(Bytes bytes, uint64_t offset) {
  unsigned groups = 1;
  while (groups < kMostGroups && (bytes[offset + groups] & std::byte{0x80}) != std::byte{0}) ++groups;
  return groups;
}

struct Stamp {
  uint64_t offset_bytes = 0;
  uint64_t value = 0;   ///< with the corrections made so far
  uint64_t before = 0;  ///< the last timestamp before it that is not wrong
  unsigned groups = 0;
  bool is_dropped = false;
};

/// Decides which timestamps of a segment are wrong.
class Judge {
 public:
  Judge(std::vector<Stamp> stamps, TickRange bounds) : stamps_(std::move(stamps)), bounds_(bounds), before_(bounds.first) {
    writers_.fill(kNone);
    std::vector<uint64_t> steps;
    for (size_t i = 1; i < stamps_.size(); ++i)
      steps.push_back(std::max(stamps_[i].value, stamps_[i - 1].value) - std::min(stamps_[i].value, stamps_[i - 1].value));
    if (steps.empty()) return;
    const auto middle = steps.begin() + static_cast<std::ptrdiff_t>(steps.size() / 2);
    std::nth_element(steps.begin(), middle, steps.end());
    reach_ = std::min(*middle, ~uint64_t{0} / kReach / steps.size()) * kReach * steps.size();
  }

  std::vector<TimestampRepair> run(bool first_is_known) {
    const bool may_be_right = first_is_known;
    size_t suspects = 0, jumps = 0;
    while (at_ < stamps_.size()) {
      Stamp& stamp = stamps_[at_];
      stamp.before = before_;
      const bool is_wrong = at_ == 0 && !std::exchange(first_is_known, true);
      const bool is_odd = stamp.value < before_ || stamp.value > bounds_.last;
      if (is_wrong || (is_odd && stamp.value != 0)) {  // 0: the trace unit has no timestamp
        if (++suspects > kMostSuspects) break;
        if (is_wrong ? settle_first() : stamp.value < before_ ? settle_back() : settle(at_, ways_of(at_))) continue;
        ++jumps;
        if (stamp.value > bounds_.last) bounds_.last = ~uint64_t{0};  // the bound is wrong, or of another clock
      }
      before_ = stamp.value;
      std::fill_n(writers_.begin(), stamp.groups, at_++);
    }
    if (may_be_right && 2 * jumps > suspects) return {};  // the clock jumps
    std::sort(repairs_.begin(), repairs_.end(), [](const auto& a, const auto& b) { return a.offset_bytes < b.offset_bytes; });
    return std::move(repairs_);
  }

  /// Returns the last timestamp that is not wrong.
  [[nodiscard]] uint64_t last() const { return before_; }

 private:
  /// Other values of one byte of a packet that fit the timestamps around it.
  struct Ways {
    size_t count = 0;
    unsigned group = 0;
    uint64_t bits = 0;
    size_t end = 0;  ///< the first stamp for which they do not matter
  };

  /// Returns the first stamp after `i` whose packet has this group.
  [[nodiscard]] size_t rewritten(size_t i, unsigned group) const {
    do ++i;
    while (i < stamps_.size() && stamps_[i].groups <= group);
    return i;
  }

  void add_ways(size_t i, unsigned group, Ways& ways) const {
    const size_t end = rewritten(i, group);
    const uint64_t before = stamps_[i].before;
    uint64_t most = end < stamps_.size() ? stamps_[end].value : bounds_.last;
    if (most > bounds_.last) return;
    if (most == ~uint64_t{0}) most = before + std::min(reach_, ~before);
    const uint64_t least = before == 0 ? most - std::min(most, reach_) : before;
    const uint64_t value = stamps_[i].value, last = stamps_[end - 1].value;
    for (uint64_t bits = 0; bits < group_values(group); ++bits) {
      const uint64_t other = with_group(value, group, bits);
      if (other == value || other < least || with_group(last, group, bits) > most) continue;
      ++ways.count;
      ways.group = group;
      ways.bits = bits;
      ways.end = std::max(ways.end, end);
    }
  }
  [[nodiscard]] Ways ways_of(size_t i) const {
    Ways ways;
    for (unsigned group = 0; group < stamps_[i].groups; ++group) add_ways(i, group, ways);
    return ways;
  }

  /// Repairs stamp `i`, at or before the current one. Returns false if there is no way.
  bool settle(size_t i, const Ways& ways) {
    if (ways.count > 1) drop(i, ways.end);
    if (ways.count != 1) return ways.count != 0;
    const uint64_t wrong = stamps_[i].value;
    for (size_t k = i; k < ways.end; ++k) stamps_[k].value = with_group(stamps_[k].value, ways.group, ways.bits);
    repairs_.push_back({stamps_[i].offset_bytes, wrong - stamps_[i].value, true});
    if (i == at_) return true;
    size_t last = at_ - 1;
    while (stamps_[last].is_dropped) --last;  // not before `i`, which is not dropped
    before_ = stamps_[last].value;
    return true;
  }
  /// Same for the first stamp, which is wrong even if there is no way.
  bool settle_first() {
    if (!settle(0, ways_of(0))) drop(0, rewritten(0, stamps_[0].groups - 1));
    return true;
  }
  /// Repairs the current stamp, which is less than the one before, or an earlier one. Returns false if neither can be wrong.
  bool settle_back() {
    Ways ways;
    size_t earliest = at_;
    for (auto group = static_cast<unsigned>(std::bit_width(before_ ^ stamps_[at_].value) - 1) / kGroupBits; group < stamps_[at_].groups;
         ++group) {
      const size_t earlier = writers_[group], count = ways.count;
      if (earlier == kNone || stamps_[earlier].is_dropped) continue;
      add_ways(earlier, group, ways);
      if (ways.count != count) earliest = std::min(earliest, earlier);
    }
    const Ways own = ways_of(at_);
    if (ways.count == 1 && own.count == 0) return settle(earliest, ways);
    if (ways.count == 0) return settle(at_, own);
    drop(earliest, at_);
    if (own.count != 0) drop(at_, own.end);
    return true;
  }

  /// Moves past the stamps [first, end), which are not used.
  void drop(size_t first, size_t end) {
    before_ = stamps_[first].before;
    for (size_t k = first; k < end; ++k) {
      repairs_.push_back({stamps_[k].offset_bytes, 0, false});
      stamps_[k].is_dropped = true;
    }
    at_ = std::max(at_, end);
  }

  std::vector<Stamp> stamps_;
  std::vector<TimestampRepair> repairs_;
  TickRange bounds_;
  uint64_t reach_ = 0;                         ///< where there is no bound
  size_t at_ = 0;                              ///< the current stamp
  uint64_t before_ = 0;                        ///< the last one before it that is not wrong
  std::array<size_t, kMostGroups> writers_{};  ///< the last stamp that wrote each group
};

/// Whether user code is left at the packet, or may have been before it.
bool leaves_user(const Packet& packet) {
  switch (packet.kind) {
    case PacketKind::except:
    case PacketKind::pe_reset:
    case PacketKind::trace_on:
    case PacketKind::overflow:
    case PacketKind::discard:
      return true;
    default:
      return packet.context.present && packet.context.level != 0;
  }
}

}  // namespace

bool is_one_byte_off(uint64_t value, uint64_t least, uint64_t most) {
  for (unsigned group = 0; group < kMostGroups; ++group) {
    for (uint64_t bits = 0; bits < group_values(group); ++bits) {
      const uint64_t other = with_group(value, group, bits);
      if (other >= least && other <= most) return true;
    }
  }
  return false;
}

void visit_timestamps(Bytes bytes, const TraceConfig& config, const std::function<void(uint64_t offset, uint64_t value)>& visit) {
  walk(bytes, config, [&](uint64_t offset, uint64_t value) {
    visit(offset, value);
    return true;
  });
}

void TimestampIndex::begin(Bytes bytes, const TraceConfig& config, std::span<const TimestampRepair> repairs) {
  bytes_ = bytes;
  config_ = config;
  repairs_ = repairs;
  known_.clear();
  is_read_ = false;
}

void TimestampIndex::read() {
  struct {
    std::vector<Known>& known;
    uint64_t left_bytes = 0;
    void on_atoms() {}
    bool on_bad(uint64_t at) {
      left_bytes = at;
      return true;
    }
    bool on_packet(const Packet& packet, uint64_t at) {
      if (leaves_user(packet)) left_bytes = at;
      if (packet.kind == PacketKind::timestamp && (packet.flags & kFlagNoTime) == 0 && packet.value != 0)
        known.push_back({at, packet.value, left_bytes});
      return true;
    }
  } visitor{known_};
  PacketReader reader(bytes_, config_);
  reader.set_repairs(repairs_);
  walk_packets(reader, bytes_, visitor);
}

uint64_t TimestampIndex::after(uint64_t offset) {
  if (!std::exchange(is_read_, true)) read();
  const auto next = std::ranges::upper_bound(known_, offset, {}, &Known::offset_bytes);
  return next == known_.end() ? 0 : next->value;
}

uint64_t TimestampIndex::last_of_user(uint64_t offset) {
  if (!std::exchange(is_read_, true)) read();
  const auto next = std::ranges::upper_bound(known_, offset, {}, &Known::offset_bytes);
  const auto end = std::partition_point(next, known_.end(), [&](const Known& known) { return known.left_bytes < offset; });
  return end == next ? 0 : std::prev(end)->value;
}

TimestampCheck check_timestamps(Bytes bytes, const TraceConfig& config, TickRange bounds, bool first_is_known) {
  TimestampCheck check;
  if (!config.has_timestamps()) return check;
  bool in_order = first_is_known;
  uint64_t before = bounds.first;
  const auto compare = [&](uint64_t, uint64_t value) {
    in_order = in_order && (value == 0 || (value >= before && value <= bounds.last));
    before = value;
    return in_order;
  };
  if (in_order) walk(bytes, config, compare);
  check.last = before;
  if (in_order) return check;
  std::vector<Stamp> stamps;
  walk(bytes, config, [&](uint64_t offset, uint64_t value) {
    stamps.push_back({offset, value, 0, groups_at(bytes, offset), false});
    return true;
  });
  if (stamps.empty()) return check;
  const uint64_t first = stamps.front().offset_bytes;
  Judge judge(std::move(stamps), bounds);
  check.repairs = judge.run(first_is_known);
  check.last = judge.last();
  check.first_is_wrong = !check.repairs.empty() && check.repairs.front().offset_bytes == first;
  return check;
}

}  // namespace ptd::arm
