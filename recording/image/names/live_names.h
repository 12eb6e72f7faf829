// LiveNames: names of code, each until other code replaces its bytes. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "recording/image/image_build.h"
#include "recording/image/names/address_ranges.h"

namespace ptd {

/// What is in the place of a name.
enum class NamedPlace : uint8_t {
  code,
  unknown,  ///< code whose bytes nothing tells, so none of it is decoded
  nothing   ///< no code any more
};

/// Places where code was and none can be decoded now.
class EmptyPlaces {
 public:
  void add(uint64_t first, uint64_t last, TimeNs since) {
    remove(first, last);
    places_[first] = {last, since};
  }
  void remove(uint64_t first, uint64_t last) {
    for (auto at = first_in(first); at != places_.end() && at->first <= last;) {
      const auto [begin, place] = *at;
      at = places_.erase(at);
      if (begin < first) places_[begin] = {first - 1, place.since};
      if (place.last > last) at = places_.insert_or_assign(last + 1, place).first;
    }
  }
  /// Returns since when nothing could be decoded in the range; kTimeMax if that is not so of all of it. `may_be_code(first, size)`: of a
  /// part of it that was never added, or was removed.
  template <typename MayBeCode>
  [[nodiscard]] TimeNs empty_since(uint64_t first, uint64_t last, const MayBeCode& may_be_code) const {
    TimeNs since = kTimeMin;
    for (auto at = first_in(first); at != places_.end() && at->first <= last; ++at) {
      if (at->first > first && may_be_code(first, at->first - first)) return kTimeMax;
      since = std::max(since, at->second.since);
      if (at->second.last >= last) return since;
      first = at->second.last + 1;
    }
    return may_be_code(first, last - first + 1) ? kTimeMax : since;
  }

 private:
  struct Place {
    uint64_t last = 0;
    TimeNs since;
  };
  using Places = std::map<uint64_t, Place>;
  template <typename Map>
  static auto first_in(Map& places, uint64_t address) {
    auto at = places.upper_bound(address);
    if (at != places.begin() && std::prev(at)->second.last >= address) --at;
    return at;
  }
  Places::iterator first_in(uint64_t address) { return first_in(places_, address); }
  [[nodiscard]] Places::const_iterator first_in(uint64_t address) const { return first_in(places_, address); }
  Places places_;  // by first address; disjoint
};

/// At one moment, the range with the highest start is the latest code at an address, as Symbolizer::find() searches. Code that replaces the
/// middle of other code therefore covers it, also without a name, and the rest keeps its name and its start. Of code whose start is
/// replaced, the rest keeps the name and begins after the new code.
///
///   before  | f                          |      | f             |
///   new          | g    |                  | g      |
///   after   | f  | g    | f              | | g      | f         |
///
/// Memory: at most three ranges for each code, because what is left of several ranges does not overlap.
class LiveNames {
 public:
  /// `early`: where nothing was before, a name counts from the start: a first call may be dated, by the packet before it, earlier than the
  /// compiler logged the code.
  explicit LiveNames(bool early = false) : early_(early) {}

  /// Adds code that is live from range.live.first on. Its name may be empty: code without a name, or none. Must be called in the order in
  /// which code replaces other code. `inherits`: the space may have names of its parent's in the same place.
  ///
  /// A call may be dated earlier than the announcement of its code. So where nothing could be decoded before, a name counts from when that
  /// began.
  void add(NamedRange range, bool inherits = false, NamedPlace place = NamedPlace::code) {
    Space& space = spaces_[range.space.value];
    const uint64_t first = range.ip.value, last = last_of(range);
    if (place == NamedPlace::code) {
      const auto may_be_code = [&](uint64_t at, uint64_t size_bytes) { return inherits || space.ever.overlap(at, size_bytes); };
      const TimeNs since = space.empty.empty_since(first, last, may_be_code);
      if (since != kTimeMin) range.live.first = std::min(range.live.first, since);
      space.empty.remove(first, last);
    } else {
      space.empty.add(first, last, range.live.first);
    }
    const TimeNs from = range.live.first;
    std::vector<size_t> cut;
    auto at = space.open.lower_bound(first);
    while (at != space.open.end() && at->first <= last) {
      NamedRange& old = names_[at->second];
      old.live = old.live.first < from ? Interval{old.live.first, TimeNs{from.value - 1}} : kNever;
      if (last_of(old) > last) cut.push_back(at->second);
      at = space.open.erase(at);
    }
    const bool covers = covers_open(space, at, range);
    const bool is_first = !space.ever.overlap(first, range.size_bytes);
    space.ever.add(first, range.size_bytes);
    range.live = {early_ && is_first && !inherits ? kTimeMin : from, kTimeMax};
    if (!range.name.empty() || covers || inherits) put(space.open, std::move(range));
    for (; !cut.empty(); cut.pop_back()) add_rest(space.open, names_[cut.back()], last, from);
  }

  /// Returns whether part of the range had code at some time, as far as it was added.
  [[nodiscard]] bool had_code(SpaceId space, Ip ip, uint64_t size_bytes) const {
    const auto known = spaces_.find(space.value);
    return known != spaces_.end() && known->second.ever.overlap(ip.value, size_bytes);
  }

  void add_to(ImageBuild& image) {
    for (NamedRange& range : names_) {
      if (range.live != kNever) image.add_range(std::move(range));
    }
  }

 private:
  using Open = std::map<uint64_t, size_t>;  // start -> index in names_
  struct Space {
    Open open;
    AddressRanges ever;  ///< where code was at some time
    EmptyPlaces empty;
    AddressRanges nested;  ///< open ranges with others within them, or more
  };
  static constexpr Interval kNever{kTimeMax, kTimeMin};

  static uint64_t last_of(const NamedRange& range) { return range.ip.value + (range.size_bytes - 1); }

  /// Returns whether part of `range` is within an open range that begins before it. `after`: the first open range after it.
  bool covers_open(Space& space, Open::iterator after, const NamedRange& range) {
    if (after == space.open.begin()) return false;
    const NamedRange& before = names_[std::prev(after)->second];
    if (last_of(before) < range.ip.value) return space.nested.overlap(range.ip.value, range.size_bytes);
    space.nested.add(before.ip.value, before.size_bytes);
    return true;
  }

  void put(Open& open, NamedRange range) {
    open[range.ip.value] = names_.size();
    names_.push_back(std::move(range));
  }

  /// What is left of code after `end`, where no later code begins.
  void add_rest(Open& open, NamedRange rest, uint64_t end, TimeNs from) {
    const uint64_t last = last_of(rest);
    for (auto at = open.find(end + 1); at != open.end(); at = open.find(end + 1)) {
      end = last_of(names_[at->second]);
      if (end >= last) return;
    }
    rest.ip = Ip{end + 1};
    rest.size_bytes = last - end;
    rest.live = {from, kTimeMax};
    rest.lines = nullptr;  // they have offsets from the start
    put(open, std::move(rest));
  }

  bool early_;
  std::map<uint32_t, Space> spaces_;
  std::vector<NamedRange> names_;
};

}  // namespace ptd
