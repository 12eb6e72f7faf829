// RangeIndex: finds the named range at an address. Private to the module.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "image/placed_name.h"
#include "image/symbols/file_symbols.h"
#include "image/symbols/name_rank.h"
#include "image/symbols/source_warnings.h"
#include "ptdecode/symbols.h"

namespace ptd {

/// The ranges of one space, by address. `reach[i]` is the highest end among ranges[0..i] and bounds a search.
struct RangeIndex {
  static constexpr size_t kMaxStepsBack = 4096;
  std::vector<NamedRange> ranges;
  std::vector<uint64_t> reach;

  void prepare(bool kernel) {
    std::stable_sort(ranges.begin(), ranges.end(), [](const NamedRange& a, const NamedRange& b) { return a.ip < b.ip; });
    uint64_t next_start = 0;
    bool has_next = false;
    std::unordered_map<const std::string*, SharedText> readable;  // by the name that ranges share
    for (size_t i = ranges.size(); i-- > 0;) {
      NamedRange& range = ranges[i];
      if (i + 1 < ranges.size() && ranges[i + 1].ip != range.ip) {
        next_start = ranges[i + 1].ip.value;
        has_next = true;
      }
      if (range.size_bytes == 0) range.size_bytes = has_next ? std::min(next_start - range.ip.value, kMaxGuessedBytes) : kMaxGuessedBytes;
      range.size_bytes = std::min(range.size_bytes, ~range.ip.value);
      const std::string_view name = range.name;
      if (!name.starts_with("_Z") && !name.starts_with("_R")) continue;
      const auto [known, is_new] = readable.try_emplace(range.name.shared(), range.name);
      if (is_new) known->second = demangle(std::string(name));
      range.name = known->second;
    }
    reach.resize(ranges.size());
    uint64_t highest = 0;
    for (size_t i = 0; i < ranges.size(); ++i) {
      highest = std::max(highest, ranges[i].ip.value + ranges[i].size_bytes);
      reach[i] = highest;
    }
    if (kernel) set_places();
  }

  // Tells apart functions of one name in one module, such as static functions of two source files. A function and its cold part share a
  // name.
  void set_places() {
    struct Known {
      Ip ip;
      bool several = false;
    };
    std::unordered_map<std::string_view, std::unordered_map<std::string_view, Known>> by_module;
    const auto is_lasting = [](const NamedRange& range) { return range.live == Interval{} && range.place.empty(); };
    for (const NamedRange& range : ranges) {
      if (!is_lasting(range) || whole_function(range.name).size() != std::string_view(range.name).size()) continue;
      const auto [known, is_new] = by_module[range.module].try_emplace(range.name, Known{range.ip});
      known->second.several = known->second.several || known->second.ip != range.ip;
    }
    for (NamedRange& range : ranges) {
      if (!is_lasting(range)) continue;
      const auto& names = by_module[range.module];
      const auto known = names.find(whole_function(range.name));
      if (known != names.end() && known->second.several) range.place = hex_text(range.ip.value);
    }
  }

  // Returns the range with the highest start that contains ip and is live at `when`; of several with the same start, the one added first.
  // kTimeMin means an unknown time: if no range is live then, the latest one is the likeliest.
  // Narrows `valid` to times around `when` at which none of the examined ranges begins or ends. Examines at most `steps` ranges, and
  // subtracts them.
  [[nodiscard]] const NamedRange* find(Ip ip, TimeNs when, Interval& valid, size_t& steps) const {
    size_t i = static_cast<size_t>(
        std::upper_bound(ranges.begin(), ranges.end(), ip, [](Ip value, const NamedRange& range) { return value < range.ip; }) -
        ranges.begin());
    const NamedRange *best = nullptr, *latest = nullptr;
    for (; i > 0 && steps > 0 && reach[i - 1] > ip.value; --steps) {
      const NamedRange& range = ranges[--i];
      if (best != nullptr && range.ip != best->ip) break;
      if (ip - range.ip >= range.size_bytes) continue;
      if (latest == nullptr || latest->live.first < range.live.first) latest = &range;
      if (range.live.contains(when)) {
        best = &range;
        valid = intersect(valid, range.live);
      } else if (range.live.last < when) {
        valid.first = std::max(valid.first, TimeNs{range.live.last.value + 1});
      } else if (when < range.live.first) {
        valid.last = std::min(valid.last, TimeNs{range.live.first.value - 1});
      }
    }
    if (best != nullptr || when != kTimeMin || latest == nullptr) return best;
    valid = {kTimeMin, kTimeMin};  // an unknown time
    return latest;
  }
};

/// Returns the line of generated code at an address: that of the last offset which is not after it.
inline SourcePlace generated_source(const NamedRange& range, Ip ip) {
  const std::vector<GeneratedLines::Line>& lines = range.lines->lines;
  const auto after = std::upper_bound(lines.begin(), lines.end(), ip.value - range.ip.value,
                                      [](uint64_t offset, const GeneratedLines::Line& line) { return offset < line.offset_bytes; });
  if (after == lines.begin()) return {};
  const SourceFrame frame{range.name, range.lines->file, std::prev(after)->line};
  return {{frame}, {}, {frame.file, frame.line, ip.value - range.ip.value - std::prev(after)->offset_bytes, true}};
}

/// Returns the names of the ranges that begin where `best` does and are live at the same time.
inline std::vector<std::string> names_of(const RangeIndex& index, const NamedRange& best, TimeNs when, SourceWarnings& warnings) {
  std::vector<std::string> names{placed_name(best.place, best.name)};
  std::unordered_set<std::string_view> known{best.name};
  const auto first =
      std::lower_bound(index.ranges.begin(), index.ranges.end(), best.ip, [](const NamedRange& range, Ip ip) { return range.ip < ip; });
  for (auto range = first; range != index.ranges.end() && range->ip == best.ip; ++range) {
    if (static_cast<size_t>(range - first) == Symbolizer::kMostNames) {
      warnings.add(names_sentence(best.module, best.ip.value));
      break;
    }
    const bool same = range->live.contains(when) || (when == kTimeMin && range->live == best.live);
    if (same && known.insert(range->name).second) names.push_back(placed_name(range->place, range->name));
  }
  return names;
}

}  // namespace ptd
