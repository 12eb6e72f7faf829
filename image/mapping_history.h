// MappingHistory: what a range of addresses with the same mappings shows over time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "image/timeline_data.h"

namespace ptd {

/// Joins the certain intervals of two equal contents: merges adjoining intervals, else returns the one that overlaps `when`.
[[nodiscard]] Interval join_certain(Interval a, Interval b, Interval when);

struct MappingHistory {
  /// A mapping, or (not `mapped`) a time without one.
  struct Piece {
    Interval live;
    uint64_t last_address = 0;
    SectionId section = kNoSection;
    bool mapped = false;
  };
  /// A distinct content: the same bytes of one file may be mapped again and again.
  struct Content {
    Piece first;
    Interval possible, certain;
  };
  std::vector<Piece> pieces;      ///< all of time, in order
  std::vector<Content> contents;  ///< in order of their first piece
  size_t mappings = 0;            ///< pieces that are mapped
};

/// The histories that one thread looked up last. They use no more memory than a few copies of the mappings.
class MappingHistories {
 public:
  std::shared_ptr<const MappingHistory> at(const TimelineData& data, SpaceId space, uint64_t address);
  /// Returns how many pieces were collected, for tests of the cost.
  [[nodiscard]] uint64_t collected() const { return collected_; }

 private:
  std::map<std::pair<uint32_t, uint64_t>, std::shared_ptr<const MappingHistory>> known_;  // by space and first address
  size_t pieces_ = 0;
  uint64_t collected_ = 0;
};

}  // namespace ptd
