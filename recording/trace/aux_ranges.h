// AuxRange: which bytes of a ring AUX records name. Private to recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ptd {

/// Bytes of a ring, [first, last), that a record names.
struct AuxRange {
  uint64_t first = 0, last = 0;
  size_t record = 0;  ///< its number
};

/// Ranges of a ring, sorted and disjoint.
struct NamedRanges {
  std::vector<AuxRange> ranges;
  uint64_t doubled_bytes = 0, first_doubled = 0;  ///< named by two records; offset of the first
};

/// Returns what `ranges` name, each byte once. Where two overlap, the bytes from the later one's beginning on are its own:
///
///     [ record 0 ......]                 [ 0 ][ record 1 ......]
///          [ record 1 ......]      ->
[[nodiscard]] NamedRanges each_once(std::vector<AuxRange> ranges);
/// Adds what `more` names and `named` does not. Both are sorted and disjoint.
void add_unnamed(std::vector<AuxRange>& named, const std::vector<AuxRange>& more);
/// Returns the first of these ranges that ends after `offset`.
[[nodiscard]] std::vector<AuxRange>::const_iterator first_after(const std::vector<AuxRange>& named, uint64_t offset);

}  // namespace ptd
