// GivenNames: names of code that a program gives, each until other code replaces its bytes. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "recording/image/image_build.h"

namespace ptd {

/// At one moment, the range with the highest start is the latest code at an address, as Symbolizer::find() searches. Code that replaces the
/// middle of other code therefore covers it, also without a name, and the rest keeps its name and its start. Of code whose start is replaced,
/// the rest keeps the name and begins after the new code.
///
///   before  | f                          |      | f             |
///   new          | g    |                  | g      |
///   after   | f  | g    | f              | | g      | f         |
///
/// Memory: at most three ranges for each code, because what is left of several ranges does not overlap.
class GivenNames {
 public:
  /// Adds code that is live from range.live.first on. Its name may be empty. Must be called in order of time.
  void add(NamedRange range) {
    std::map<uint64_t, size_t>& open = open_[range.space.value];
    const uint64_t first = range.ip.value, last = last_of(range);
    const TimeNs from = range.live.first;
    std::vector<size_t> cut;
    auto at = open.lower_bound(first);
    while (at != open.end() && at->first <= last) {
      NamedRange& old = names_[at->second];
      old.live = old.live.first < from ? Interval{old.live.first, TimeNs{from.value - 1}} : kNever;
      if (last_of(old) > last) cut.push_back(at->second);
      at = open.erase(at);
    }
    range.live.last = kTimeMax;
    if (!range.name.empty() || open.begin() != at) put(open, std::move(range));
    for (; !cut.empty(); cut.pop_back()) add_rest(open, names_[cut.back()], last, from);
  }

  void add_to(ImageBuild& image) {
    for (NamedRange& range : names_) {
      if (range.live != kNever) image.add_range(std::move(range));
    }
  }

 private:
  static constexpr Interval kNever{kTimeMax, kTimeMin};

  static uint64_t last_of(const NamedRange& range) { return range.ip.value + (range.size_bytes - 1); }

  void put(std::map<uint64_t, size_t>& open, NamedRange range) {
    open[range.ip.value] = names_.size();
    names_.push_back(std::move(range));
  }

  /// What is left of code after `end`, where no later code begins.
  void add_rest(std::map<uint64_t, size_t>& open, NamedRange rest, uint64_t end, TimeNs from) {
    const uint64_t last = last_of(rest);
    for (auto at = open.find(end + 1); at != open.end(); at = open.find(end + 1)) {
      end = last_of(names_[at->second]);
      if (end >= last) return;
    }
    rest.ip = Ip{end + 1};
    rest.size_bytes = last - end;
    rest.live = {from, kTimeMax};
    put(open, std::move(rest));
  }

  std::map<uint32_t, std::map<uint64_t, size_t>> open_;  // space -> start -> index in names_
  std::vector<NamedRange> names_;
};

}  // namespace ptd
