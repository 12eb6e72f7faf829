// MappingSnapshots: what is mapped in an address space at one moment, for the children that are forked then.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "image/section_index.h"

namespace ptd {

/// Persistent search trees over addresses. Snapshots share the subtrees in which they are equal, so a change costs log(n) nodes, and a
/// chain of forks costs no more than its mappings. Immutable once built.
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

/// A fork: the space that forked, and when.
struct Fork {
  SpaceId parent = kNoSpace;
  TimeNs when;
};

/// Finds the fork by which a space descends from an ancestor, in a time that grows with the logarithm of their distance. Immutable once
/// built.
class ForkTree {
 public:
  /// `forks`: of each space, by index. Each parent comes before its children.
  void build(std::vector<Fork> forks, std::span<const uint32_t> parents);
  [[nodiscard]] bool empty() const { return forks_.empty(); }
  /// Returns the fork from `ancestor`, by which space `index` or an ancestor of it was made.
  [[nodiscard]] Fork fork_from(uint32_t ancestor, uint32_t index) const;

 private:
  std::vector<Fork> forks_;
  // By index; jumps: an ancestor further up. The oldest space of a chain is its own parent.
  std::vector<uint32_t> parents_, jumps_, depths_;
};

class TimelineData;

/// Addresses that edits of a space change.
struct EditedRange {
  uint32_t space = 0;  ///< index
  uint64_t first_address = 0, last_address = 0;
};

/// Bounds the number of ancestors that a look-up visits: a space with more starts with snapshots of what its ancestors mapped and edited.
/// Returns whether there is one. Call once the sections of all spaces are known. Each parent comes before its children. `edited`: in order.
bool cut_fork_chains(TimelineData& data, std::span<const EditedRange> edited = {});

}  // namespace ptd
