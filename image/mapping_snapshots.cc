// MappingSnapshots: segment trees over the edges of mappings.
#include "image/mapping_snapshots.h"

#include <algorithm>
#include <utility>

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

}  // namespace ptd
