// JitNames: names of generated code, with their times. Private to recording.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "recording/image/image_build.h"
#include "recording/image/live_ranges.h"

namespace ptd {

/// A set of addresses.
class AddressRanges {
 public:
  void add(uint64_t address, uint64_t size_bytes) {
    uint64_t end = address + size_bytes;
    auto at = ends_.upper_bound(address);
    if (at != ends_.begin() && std::prev(at)->second >= address) --at;
    while (at != ends_.end() && at->first <= end) {
      address = std::min(address, at->first);
      end = std::max(end, at->second);
      at = ends_.erase(at);
    }
    ends_[address] = end;
  }
  [[nodiscard]] bool overlap(uint64_t address, uint64_t size_bytes) const {
    const auto after = ends_.lower_bound(address + size_bytes);
    return after != ends_.begin() && std::prev(after)->second > address;
  }

 private:
  std::map<uint64_t, uint64_t> ends_;  // by first address; disjoint
};

/// Gives each name the time in which it is its code's; no two overlap at one moment. Where nothing was named before, the name counts from
/// the start: a first call may be dated, by the packet before it, earlier than the compiler logged the code.
class JitNames {
 public:
  void open(NamedRange range, TimeNs from) {
    const bool fresh = !ever_.overlap(range.ip.value, range.size_bytes);
    ever_.add(range.ip.value, range.size_bytes);
    lives_.open(range.ip, range.size_bytes, fresh ? kTimeMin : from);
    names_.push_back(std::move(range));
  }
  void close(Ip ip, TimeNs when) { lives_.close(ip, when); }
  /// Something else than named code is in [ip, ip + size) from `from` on.
  void replace(Ip ip, uint64_t size_bytes, TimeNs from) {
    ever_.add(ip.value, size_bytes);
    lives_.end(ip, size_bytes, from);
  }
  /// Returns how many names have code at some time.
  uint64_t add_to(ImageBuild& image) {
    uint64_t added = 0;
    for (size_t i = 0; i < names_.size(); ++i) {
      names_[i].live = lives_.live(i);
      const Interval live = names_[i].live;
      if (names_[i].name.empty() || live.empty() || live.first == live.last) continue;
      image.add_range(std::move(names_[i]));
      ++added;
    }
    return added;
  }

 private:
  LiveRanges lives_;
  AddressRanges ever_;
  std::vector<NamedRange> names_;
};

}  // namespace ptd
