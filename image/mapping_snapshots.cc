// MappingSnapshots: segment trees over the edges of mappings. They are taken by replaying the mappings of each space that has descendants
// beyond the maximum depth.
#include "image/mapping_snapshots.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "image/timeline_data.h"

namespace ptd {

MappingSnapshots::MappingSnapshots(std::vector<uint64_t> edges) : edges_(std::move(edges)) {
  edges_.push_back(0);
  std::sort(edges_.begin(), edges_.end());
  edges_.erase(std::unique(edges_.begin(), edges_.end()), edges_.end());
}

MappingSnapshots::Id MappingSnapshots::overlay(Id onto, Id from, const SectionRect& rect) {
  const auto index = [this](uint64_t address) {
    return static_cast<size_t>(std::upper_bound(edges_.begin(), edges_.end(), address) - edges_.begin()) - 1;
  };
  return overlay(onto, from, {index(rect.first_address), index(rect.last_address)}, {0, edges_.size() - 1});
}

MappingSnapshots::Id MappingSnapshots::overlay(Id onto, Id from, Range part, Range whole) {
  if (onto == from || whole.last < part.first || part.last < whole.first) return onto;
  if (part.first <= whole.first && whole.last <= part.last) return from;
  const size_t middle = whole.first + (whole.last - whole.first) / 2;
  const Node old = children(onto), other = children(from);
  const Id left = overlay(old.left, other.left, part, {whole.first, middle});
  const Id right = overlay(old.right, other.right, part, {middle + 1, whole.last});
  if (left == old.left && right == old.right) return onto;
  if (left == right && (left & kLeaf) != 0) return left;
  if (nodes_.size() >= kMostNodes) return kLeaf | kNoSection;  // a gap in the flow, not code of another mapping
  nodes_.push_back({left, right});
  return static_cast<Id>(nodes_.size() - 1);
}

MappingSnapshots::Place MappingSnapshots::at(Id snapshot, uint64_t address) const {
  if (snapshot == kNothing) return {};
  Range here{0, edges_.size() - 1};
  while ((snapshot & kLeaf) == 0) {
    const size_t middle = here.first + (here.last - here.first) / 2;
    const Node node = nodes_[snapshot];
    if (address < edges_[middle + 1]) {
      here.last = middle;
      snapshot = node.left;
    } else {
      here.first = middle + 1;
      snapshot = node.right;
    }
  }
  Place place{edges_[here.first], here.last + 1 < edges_.size() ? edges_[here.last + 1] - 1 : ~uint64_t{0}, kNoSection};
  if (snapshot != kNothing && snapshot != (kLeaf | kNoSection)) place.section = snapshot & ~kLeaf;
  return place;
}

namespace {

constexpr uint32_t kMaxForkDepth = 16;  // maximum length of a chain of forks

/// A rectangle that begins or ends.
struct MapEvent {
  TimeNs time;
  bool begins = false;  // at equal times, what ends comes first
  SectionRect rect;
};

std::vector<MapEvent> events_of(const SectionIndex& sections) {
  std::vector<MapEvent> events;
  for (const SectionRect& rect : sections.rects()) {
    events.push_back({rect.live.first, true, rect});
    if (rect.live.last != kTimeMax) events.push_back({after(rect.live.last), false, rect});
  }
  std::sort(events.begin(), events.end(),
            [](const MapEvent& a, const MapEvent& b) { return std::tie(a.time, a.begins) < std::tie(b.time, b.begins); });
  return events;
}

/// Sets the snapshots with which the children of a space start.
void replay(TimelineData& data, uint32_t id, std::vector<uint32_t>& children, std::vector<MappingSnapshots::Id>& starts) {
  std::sort(children.begin(), children.end(), [&](uint32_t a, uint32_t b) { return data.spaces[a].forked < data.spaces[b].forked; });
  const std::vector<MapEvent> events = events_of(data.spaces[id].sections);
  MappingSnapshots::Id now = starts[id];
  size_t next = 0;
  for (const uint32_t child : children) {
    for (; next < events.size() && events[next].time <= data.spaces[child].forked; ++next) {
      const MapEvent& event = events[next];
      now = event.begins ? data.snapshots.map(now, event.rect) : data.snapshots.overlay(now, starts[id], event.rect);
    }
    starts[child] = now;
  }
}

}  // namespace

void cut_fork_chains(TimelineData& data) {
  std::vector<SpaceData>& spaces = data.spaces;
  std::vector<uint32_t> depth(spaces.size());
  std::vector<bool> cut(spaces.size()), replayed(spaces.size());
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    if (spaces[id].parent == kNoSpace) continue;
    depth[id] = depth[data.index_of(spaces[id].parent)] + 1;
    if (depth[id] <= kMaxForkDepth) continue;
    depth[id] = 0;
    cut[id] = true;
    for (SpaceId up = spaces[id].parent; up != kNoSpace && !replayed[data.index_of(up)]; up = spaces[data.index_of(up)].parent) replayed[data.index_of(up)] = true;
  }
  std::vector<std::vector<uint32_t>> children(spaces.size());
  std::vector<uint64_t> edges;
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    if (spaces[id].parent != kNoSpace && (cut[id] || replayed[id])) children[data.index_of(spaces[id].parent)].push_back(id);
    if (!replayed[id]) continue;
    for (const SectionRect& rect : spaces[id].sections.rects()) {
      edges.push_back(rect.first_address);
      if (rect.last_address != ~uint64_t{0}) edges.push_back(rect.last_address + 1);
    }
  }
  if (edges.empty()) return;
  data.snapshots = MappingSnapshots(std::move(edges));
  std::vector<MappingSnapshots::Id> starts(spaces.size(), MappingSnapshots::kNothing);
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    if (replayed[id]) replay(data, id, children[id], starts);
    if (!cut[id]) continue;
    spaces[id].parent = kNoSpace;
    spaces[id].start = starts[id];
  }
}

}  // namespace ptd
