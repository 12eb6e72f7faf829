// Overlaps of ranges of memory.
#include "image/source/kernel/extents.h"

#include <algorithm>

namespace ptd {

Extents remove_overlaps(std::vector<MemoryRange>& ranges) {
  constexpr uint64_t kPageBytes = 4096, kMostCompared = uint64_t{1} << 30;
  uint64_t compared = 0;
  std::ranges::stable_sort(ranges, {}, &MemoryRange::ip);
  Extents contradicted;
  const MemoryRange* last = nullptr;  // the one that ends last
  for (MemoryRange& range : ranges) {
    const uint64_t known = last == nullptr ? 0 : last->ip.value + last->code.bytes.size();
    if (range.ip.value < known) {
      const uint64_t end = std::min(known, range.ip.value + range.code.bytes.size());
      for (uint64_t at = range.ip.value; at < end;) {
        const uint64_t next = compared < kMostCompared ? std::min(end, at / kPageBytes * kPageBytes + kPageBytes) : end;
        const Bytes one = last->code.bytes.subspan(at - last->ip.value, next - at),
                    other = range.code.bytes.subspan(at - range.ip.value, next - at);
        if (compared >= kMostCompared || !std::ranges::equal(one, other)) contradicted.emplace_back(at, next);
        compared += next - at;
        at = next;
      }
      range = {Ip{end}, {range.code.owner, range.code.bytes.subspan(end - range.ip.value)}};
    }
    if (!range.code.bytes.empty()) last = &range;
  }
  std::erase_if(ranges, [](const MemoryRange& range) { return range.code.bytes.empty(); });
  std::ranges::sort(contradicted);
  return contradicted;
}

std::vector<MemoryRange> without(const std::vector<MemoryRange>& ranges, Extents extents) {
  std::ranges::sort(extents);
  Extents apart;
  for (const auto& [begin, end] : extents) {
    if (apart.empty() || begin > apart.back().second) apart.emplace_back(begin, end);
    apart.back().second = std::max(apart.back().second, end);
  }
  std::vector<MemoryRange> left;
  for (const MemoryRange& range : ranges) {
    const uint64_t first = range.ip.value, end = first + range.code.bytes.size();
    uint64_t from = first;
    const auto add = [&](uint64_t to) {
      if (from < to) left.push_back({Ip{from}, {range.code.owner, range.code.bytes.subspan(from - first, to - from)}});
    };
    for (auto at = std::ranges::upper_bound(apart, first, {}, &Extents::value_type::second); at != apart.end() && at->first < end; ++at) {
      add(at->first);
      from = std::min(at->second, end);
    }
    add(end);
  }
  return left;
}

}  // namespace ptd
