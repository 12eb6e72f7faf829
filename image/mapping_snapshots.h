// MappingSnapshots: what is mapped in an address space at one moment, for the children that are forked then.
#pragma once

#include <cstdint>
#include <vector>

#include "image/section_index.h"

namespace ptd {

/// Persistent search trees over addresses. Snapshots share the subtrees in which they are equal, so a change costs log(n) nodes, and a chain
/// of forks costs no more than its mappings. Immutable once built.
class MappingSnapshots {
 public:
  using Id = uint32_t;
  static constexpr Id kNothing = 0xfffffffeU;  ///< the snapshot in which no address was ever mapped

  MappingSnapshots() = default;
  /// `edges`: every address at which a rectangle that overlay() gets begins, or that follows its end.
  explicit MappingSnapshots(std::vector<uint64_t> edges);

  /// Returns `onto` with the addresses of `rect` mapped to its section.
  [[nodiscard]] Id map(Id onto, const SectionRect& rect) { return overlay(onto, kLeaf | rect.section, rect); }
  /// Returns `onto` with the content that `from` has at the addresses of `rect`.
  [[nodiscard]] Id overlay(Id onto, Id from, const SectionRect& rect);

  /// The addresses around one that have the same content.
  struct Place {
    uint64_t first = 0, last = ~uint64_t{0};
    SectionId section = kNoSection;
  };
  [[nodiscard]] Place at(Id snapshot, uint64_t address) const;
  [[nodiscard]] size_t node_count() const { return nodes_.size(); }

 private:
  static constexpr Id kLeaf = 0x80000000U;  // a tree of one leaf is the number of its section with this bit; kNoSection: unmapped
  static constexpr size_t kMostNodes = kLeaf;
  struct Node {
    Id left = kNothing, right = kNothing;
  };
  struct Range {
    size_t first = 0, last = 0;  // indices of edges_, inclusive
  };
  [[nodiscard]] Node children(Id id) const { return (id & kLeaf) != 0 ? Node{id, id} : nodes_[id]; }
  Id overlay(Id onto, Id from, Range part, Range whole);

  std::vector<uint64_t> edges_{0};
  std::vector<Node> nodes_;
};

class TimelineData;

/// Bounds the number of ancestors that a look-up visits: a space with more starts with a snapshot of its parent's mappings (without its edits).
/// Call once the sections of all spaces are known. Each parent comes before its children.
void cut_fork_chains(TimelineData& data);

}  // namespace ptd
