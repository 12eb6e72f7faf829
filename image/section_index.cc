// SectionIndex: applies mappings in time order, then indexes the resulting rectangles.
#include "image/section_index.h"

#include <algorithm>
#include <map>
#include <utility>

namespace ptd {
namespace {

/// The current mappings, by first address.
class LiveMap {
 public:
  explicit LiveMap(std::vector<SectionRect>& closed) : closed_(closed) {}

  void apply(const SectionChange& change) {
    clear(change);
    live_[change.first_address] = {change.last_address, change.live, change.section};
  }

  void close_all() {
    for (const auto& [first, piece] : live_) closed_.push_back({first, piece.last_address, piece.live, piece.section});
    live_.clear();
  }

 private:
  struct Piece {
    uint64_t last_address;
    Interval live;
    SectionId section;
  };

  void clear(const SectionChange& change) {
    auto at = live_.upper_bound(change.first_address);
    if (at != live_.begin() && std::prev(at)->second.last_address >= change.first_address) --at;
    while (at != live_.end() && at->first <= change.last_address) {
      const uint64_t first = at->first;
      const Piece piece = at->second;
      at = live_.erase(at);
      const uint64_t cut_first = std::max(first, change.first_address);
      const uint64_t cut_last = std::min(piece.last_address, change.last_address);
      if (first < cut_first) live_.emplace(first, Piece{cut_first - 1, piece.live, piece.section});
      if (cut_last < piece.last_address) at = live_.emplace(cut_last + 1, Piece{piece.last_address, piece.live, piece.section}).first;
      if (piece.live.first < change.live.first) {
        const TimeNs end{change.live.first.value - 1};
        closed_.push_back({cut_first, cut_last, {piece.live.first, std::min(piece.live.last, end)}, piece.section});
      }
    }
  }

  std::map<uint64_t, Piece> live_;
  std::vector<SectionRect>& closed_;
};

}  // namespace

SectionIndex::SectionIndex(std::vector<SectionChange> changes) {
  std::stable_sort(changes.begin(), changes.end(), [](const auto& a, const auto& b) { return a.live.first < b.live.first; });
  std::vector<SectionRect> rects;
  LiveMap live(rects);
  for (const SectionChange& change : changes) {
    if (change.last_address >= change.first_address && !change.live.empty()) live.apply(change);
  }
  live.close_all();
  std::sort(rects.begin(), rects.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first_address, a.live.first) < std::pair(b.first_address, b.live.first);
  });
  for (const SectionRect& rect : rects) {
    boundaries_.push_back(rect.first_address);
    if (rect.last_address != ~uint64_t{0}) boundaries_.push_back(rect.last_address + 1);
  }
  std::sort(boundaries_.begin(), boundaries_.end());
  boundaries_.erase(std::unique(boundaries_.begin(), boundaries_.end()), boundaries_.end());
  rects_.reserve(rects.size());
  if (!rects.empty()) build(rects, 0, rects.size());
}

// `rects` [first, last) is ordered by address. The node takes those that contain the first address of the middle one.
uint32_t SectionIndex::build(std::vector<SectionRect>& rects, size_t first, size_t last) {
  const uint64_t centre = rects[first + (last - first) / 2].first_address;
  const auto begin = rects.begin() + static_cast<ptrdiff_t>(first);
  const auto end = rects.begin() + static_cast<ptrdiff_t>(last);
  const auto taken = std::stable_partition(begin, end, [centre](const SectionRect& r) { return r.last_address < centre; });
  const auto right = std::stable_partition(taken, end, [centre](const SectionRect& r) { return r.first_address <= centre; });
  const auto id = static_cast<uint32_t>(nodes_.size());
  nodes_.push_back({centre, static_cast<uint32_t>(rects_.size()), static_cast<uint32_t>(right - taken), 0, 0});
  std::sort(taken, right, [](const auto& a, const auto& b) { return a.live.first < b.live.first; });
  rects_.insert(rects_.end(), taken, right);
  const auto left_last = static_cast<size_t>(taken - rects.begin());
  const auto right_first = static_cast<size_t>(right - rects.begin());
  if (first < left_last) {
    const uint32_t child = build(rects, first, left_last);
    nodes_[id].left = child;
  }
  if (right_first < last) {
    const uint32_t child = build(rects, right_first, last);
    nodes_[id].right = child;
  }
  return id;
}

bool SectionIndex::changes() const {
  return std::any_of(rects_.begin(), rects_.end(), [](const SectionRect& rect) { return rect.live != Interval{}; });
}

void SectionIndex::find(uint64_t address, Interval when, std::vector<SectionRect>& out) const {
  if (nodes_.empty()) return;
  const size_t found = out.size();
  uint32_t id = 0;
  for (;;) {
    const Node& node = nodes_[id];
    const auto begin = rects_.begin() + node.first;
    const auto end = begin + node.count;
    auto at = std::lower_bound(begin, end, when.first, [](const SectionRect& r, TimeNs t) { return r.live.last < t; });
    for (; at != end && at->live.first <= when.last; ++at) {
      if (at->first_address <= address && address <= at->last_address) out.push_back(*at);
    }
    const uint32_t next = address < node.centre ? node.left : node.right;
    if (address == node.centre || next == 0) break;
    id = next;
  }
  std::sort(out.begin() + static_cast<ptrdiff_t>(found), out.end(),
            [](const auto& a, const auto& b) { return a.live.first < b.live.first; });
}

// All rectangles of a node contain its centre, so they are disjoint in time. The neighbours of `t` among them bound the answer even if
// they do not contain the address.
SectionIndex::Found SectionIndex::at(uint64_t address, TimeNs t) const {
  Found found;
  for (uint32_t id = 0; id < nodes_.size();) {
    const Node& node = nodes_[id];
    const auto begin = rects_.begin() + node.first;
    const auto end = begin + node.count;
    const auto next = std::lower_bound(begin, end, t, [](const SectionRect& r, TimeNs moment) { return r.live.last < moment; });
    if (next != begin) found.live.first = std::max(found.live.first, TimeNs{std::prev(next)->live.last.value + 1});
    if (next != end && next->live.contains(t)) {
      if (next->first_address <= address && address <= next->last_address) return {next->section, true, next->live};
      found.live = intersect(found.live, next->live);
    } else if (next != end) {
      found.live.last = std::min(found.live.last, TimeNs{next->live.first.value - 1});
    }
    id = address < node.centre ? node.left : node.right;
    if (address == node.centre || id == 0) break;
  }
  return found;
}

SectionIndex::Span SectionIndex::uniform_span(uint64_t address) const {
  Span span{0, ~uint64_t{0}};
  const auto above = std::upper_bound(boundaries_.begin(), boundaries_.end(), address);
  if (above != boundaries_.end()) span.last = *above - 1;
  if (above != boundaries_.begin()) span.first = *std::prev(above);
  return span;
}

}  // namespace ptd
