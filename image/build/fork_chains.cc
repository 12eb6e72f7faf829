// Replays the mappings of each space that has descendants beyond the maximum depth, and takes the snapshots that its children start with.
#include "image/build/fork_chains.h"

#include <algorithm>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

namespace ptd {
namespace {

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
    depth[id] = depth[spaces[id].parent.value] + 1;
    if (depth[id] <= kMaxForkDepth) continue;
    depth[id] = 0;
    cut[id] = true;
    for (SpaceId up = spaces[id].parent; up != kNoSpace && !replayed[up.value]; up = spaces[up.value].parent) replayed[up.value] = true;
  }
  std::vector<std::vector<uint32_t>> children(spaces.size());
  std::vector<uint64_t> edges;
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    if (spaces[id].parent != kNoSpace && (cut[id] || replayed[id])) children[spaces[id].parent.value].push_back(id);
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
