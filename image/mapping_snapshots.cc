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

void ForkTree::build(std::vector<Fork> forks, std::span<const uint32_t> parents) {
  forks_ = std::move(forks);
  parents_.assign(parents.begin(), parents.end());
  jumps_.resize(parents_.size());
  depths_.assign(parents_.size(), 0);
  for (uint32_t id = 0; id < parents_.size(); ++id) {
    const uint32_t up = parents_[id];
    jumps_[id] = up;
    if (up == id) continue;
    depths_[id] = depths_[up] + 1;
    const uint32_t far = jumps_[up];
    if (depths_[up] - depths_[far] == depths_[far] - depths_[jumps_[far]]) jumps_[id] = jumps_[far];
  }
}

Fork ForkTree::fork_from(uint32_t ancestor, uint32_t index) const {
  while (depths_[index] > depths_[ancestor] + 1) index = depths_[jumps_[index]] > depths_[ancestor] ? jumps_[index] : parents_[index];
  return forks_[index];
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

/// What a space starts with. `edited` has the indices of the spaces whose edits made code, and nothing where a mapping made it.
struct Start {
  MappingSnapshots::Id mapped = MappingSnapshots::kNothing, edited = MappingSnapshots::kNothing;
};

SectionRect rect_of(const EditedRange& range) { return {range.first_address, range.last_address, {}, range.space}; }

/// Sets what the children of a space start with. `edited`: the space's own edits, which stay where something else is mapped.
void replay(TimelineData& data, uint32_t id, std::vector<uint32_t>& children, std::vector<Start>& starts,
            std::span<const EditedRange> edited) {
  MappingSnapshots& snapshots = data.snapshots;
  std::sort(children.begin(), children.end(), [&](uint32_t a, uint32_t b) { return data.spaces[a].forked < data.spaces[b].forked; });
  const std::vector<MapEvent> events = events_of(data.spaces[id].sections);
  Start begin = starts[id];
  for (const EditedRange& range : edited) begin.edited = snapshots.map(begin.edited, rect_of(range));
  Start now = begin;
  const auto apply = [&](const MapEvent& event) {
    if (!event.begins) {
      now.mapped = snapshots.overlay(now.mapped, begin.mapped, event.rect);
      now.edited = snapshots.overlay(now.edited, begin.edited, event.rect);
      return;
    }
    now.mapped = snapshots.map(now.mapped, event.rect);
    now.edited = snapshots.overlay(now.edited, MappingSnapshots::kNothing, event.rect);
    auto own = std::partition_point(edited.begin(), edited.end(),
                                    [&](const EditedRange& range) { return range.last_address < event.rect.first_address; });
    for (; own != edited.end() && own->first_address <= event.rect.last_address; ++own)
      now.edited = snapshots.map(now.edited, rect_of(*own));
  };
  size_t next = 0;
  for (const uint32_t child : children) {
    for (; next < events.size() && events[next].time <= data.spaces[child].forked; ++next) apply(events[next]);
    starts[child] = now;
  }
}

/// The chains of forks, and which spaces begin anew in the middle of one.
struct Chains {
  std::vector<uint32_t> parents;  // by index; without a parent: itself
  std::vector<bool> cut, replayed;
  bool any_cut = false;
};

Chains chains_of(const TimelineData& data) {
  const std::vector<SpaceData>& spaces = data.spaces;
  Chains chains{std::vector<uint32_t>(spaces.size()), std::vector<bool>(spaces.size()), std::vector<bool>(spaces.size()), false};
  std::vector<uint32_t> depth(spaces.size());
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    chains.parents[id] = id;
    if (spaces[id].parent == kNoSpace) continue;
    chains.parents[id] = data.index_of(spaces[id].parent);
    depth[id] = depth[chains.parents[id]] + 1;
    if (depth[id] <= kMaxForkDepth) continue;
    depth[id] = 0;
    chains.cut[id] = chains.any_cut = true;
    for (uint32_t up = id; chains.parents[up] != up && !chains.replayed[chains.parents[up]]; up = chains.parents[up])
      chains.replayed[chains.parents[up]] = true;
  }
  return chains;
}

std::span<const EditedRange> of_space(std::span<const EditedRange> edited, uint32_t id) {
  const auto first = std::ranges::lower_bound(edited, id, {}, &EditedRange::space),
             last = std::ranges::upper_bound(edited, id, {}, &EditedRange::space);
  return {first, last};
}

}  // namespace

bool cut_fork_chains(TimelineData& data, std::span<const EditedRange> edited) {
  std::vector<SpaceData>& spaces = data.spaces;
  const Chains chains = chains_of(data);
  if (!chains.any_cut) return false;
  std::vector<std::vector<uint32_t>> children(spaces.size());
  std::vector<uint64_t> edges;
  const auto add_edges = [&edges](uint64_t first, uint64_t last) {
    edges.push_back(first);
    if (last != ~uint64_t{0}) edges.push_back(last + 1);
  };
  std::vector<Fork> forks;
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    forks.push_back({spaces[id].parent, spaces[id].forked});
    if (chains.parents[id] != id && (chains.cut[id] || chains.replayed[id])) children[chains.parents[id]].push_back(id);
    if (!chains.replayed[id]) continue;
    for (const SectionRect& rect : spaces[id].sections.rects()) add_edges(rect.first_address, rect.last_address);
    for (const EditedRange& range : of_space(edited, id)) add_edges(range.first_address, range.last_address);
  }
  data.forks.build(std::move(forks), chains.parents);
  data.snapshots = MappingSnapshots(std::move(edges));
  std::vector<Start> starts(spaces.size());
  for (uint32_t id = 0; id < spaces.size(); ++id) {
    if (chains.replayed[id]) replay(data, id, children[id], starts, of_space(edited, id));
    if (!chains.cut[id]) continue;
    spaces[id].parent = kNoSpace;
    spaces[id].start = starts[id].mapped;
    spaces[id].edited = starts[id].edited;
  }
  return true;
}

}  // namespace ptd
