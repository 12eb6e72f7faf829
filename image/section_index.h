// SectionIndex: disjoint rectangles of address x time, each with the section that is mapped there.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/timeline.h"

namespace ptd {

/// [first_address, last_address] x live is covered by `section`; kNoSection: known to be unmapped.
struct SectionRect {
  uint64_t first_address = 0;
  uint64_t last_address = 0;  ///< inclusive, so that the end of the address space can be covered
  Interval live;
  SectionId section = kNoSection;
};

/// A mapping or unmapping, as recorded.
struct SectionChange {
  uint64_t first_address = 0;
  uint64_t last_address = 0;
  Interval live;  ///< an unmapping lasts until something else is mapped
  SectionId section = kNoSection;
};

/// Immutable once built. A centred interval tree over addresses: rectangles that share an address are disjoint in time,
/// so each node's list is ordered by time, and a lookup costs log(n) steps of log(n).
class SectionIndex {
 public:
  SectionIndex() = default;
  /// Applies the changes in time order (equal times: in the given order). An unmapped range also becomes a rectangle: it hides
  /// the parent space's content and ends code that only edits created.
  explicit SectionIndex(std::vector<SectionChange> changes);

  /// Appends the rectangles that contain `address` at some time within `when`, in time order.
  void find(uint64_t address, Interval when, std::vector<SectionRect>& out) const;
  /// Returns the rectangle that contains `address` at `t`; if none does, kNoSection with an interval around `t` in which none does.
  struct Found {
    SectionId section = kNoSection;
    bool covered = false;  ///< inside a rectangle, which may be one of kNoSection
    Interval live;
  };
  [[nodiscard]] Found at(uint64_t address, TimeNs t) const;
  /// Returns the largest range around `address` in which every address has the same rectangles.
  struct Span {
    uint64_t first = 0, last = 0;
  };
  [[nodiscard]] Span uniform_span(uint64_t address) const;
  /// Returns whether any rectangle begins or ends after the start of time.
  [[nodiscard]] bool changes() const;
  [[nodiscard]] bool empty() const { return rects_.empty(); }
  [[nodiscard]] size_t size() const { return rects_.size(); }
  /// Returns all rectangles, in no order.
  [[nodiscard]] const std::vector<SectionRect>& rects() const { return rects_; }

 private:
  struct Node {
    uint64_t centre = 0;
    uint32_t first = 0, count = 0;  // run of rects_, in order of time
    uint32_t left = 0, right = 0;   // 0: none (the root is never a child)
  };
  uint32_t build(std::vector<SectionRect>& rects, size_t first, size_t last);

  std::vector<Node> nodes_;
  std::vector<SectionRect> rects_;
  std::vector<uint64_t> boundaries_;  // sorted addresses at which a rectangle begins, or that follow its end
};

}  // namespace ptd
