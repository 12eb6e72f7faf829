// CopySet: the dated copies of a builder; determines which parts serve as base, when each was taken, and where two differ.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "image/build/edit_store.h"
#include "image/build/site_builder.h"
#include "ptdecode/timeline_builder.h"

namespace ptd {

/// A range of addresses, inclusive.
struct AddressRange {
  uint64_t first = 0, last = 0;
};

/// Limit of the edits that differences() returns. A kernel has some 100,000 places that it patches; each takes 1.3 kB of memory,
/// with its site and versions.
inline constexpr size_t kMaxCopyDifferences = size_t{1} << 18;

/// Limit of the bytes that differences() compares. Copies of a kernel share less; segments of a forged one may repeat the same bytes of a
/// file.
inline constexpr uint64_t kMaxComparedBytes = uint64_t{1} << 30;

struct CopyDifferences {
  std::vector<Edit> edits;
  std::optional<std::pair<SpaceId, Ip>> not_compared;  ///< the first address that was not, if any
};

class CopySet {
 public:
  void add(DatedCopy copy);
  void set_word_bytes(unsigned word_bytes) { word_bytes_ = word_bytes; }
  [[nodiscard]] bool empty() const { return copies_.empty(); }
  [[nodiscard]] size_t size() const { return copies_.size(); }
  [[nodiscard]] const DatedCopy& copy(size_t index) const { return copies_[index]; }

  /// Returns for each copy the ranges that no earlier copy of its space covers; they serve as base sections.
  [[nodiscard]] std::vector<std::vector<AddressRange>> base_ranges() const;
  /// Returns the parts of the copies of `space` that cover [ip, ip + size), the first base first.
  void covering(SpaceId space, uint64_t ip, uint32_t size, std::vector<SiteCopy>& out) const;
  [[nodiscard]] bool any_in(SpaceId space) const;
  /// Returns the earliest time at which a copy of the space may have been taken.
  [[nodiscard]] TimeNs earliest(SpaceId space) const;
  /// Returns whether the time of the copy is not bounded on both sides. Such a copy is dated by its bytes.
  [[nodiscard]] bool undated(size_t index) const;
  /// Returns the end of the run of copies from `index` on that were taken together: adjacent copies of the same space and date that do not
  /// overlap. A kcore has one for the kernel and one for each range of modules.
  [[nodiscard]] size_t taken_with(size_t index) const;
  /// The number of sites beyond those at the best time that may disagree with a copy, because records lost from `since` on explain it.
  struct Allowance {
    int sites = 0;
    TimeNs since = kTimeMin;
  };
  /// Dates copies [first, end), which were taken together, by majority: `times` are the times at which a site had the copy's bytes. If
  /// losses also explain the evidence for another time, no site is dated separately.
  void date(size_t first, size_t end, const std::vector<Interval>& times, Allowance allowance);
  /// Returns the bytes outside `known` (sorted, disjoint) at which two copies of one space differ, that is, edits without a record. At most
  /// kMaxCopyDifferences, in the first `most_bytes` that two copies share.
  [[nodiscard]] CopyDifferences differences(std::span<const SiteRange> known, uint64_t most_bytes = kMaxComparedBytes) const;

 private:
  [[nodiscard]] AddressRange range(size_t index) const;
  void compare(size_t earlier, size_t later, AddressRange range, std::span<const SiteRange> known, std::vector<Edit>& out) const;

  std::vector<DatedCopy> copies_;
  unsigned word_bytes_ = 0;       // size of fixed-size instructions; 0: x86
  std::vector<Interval> limits_;  // the given times: dating by bytes stays within them
};

}  // namespace ptd
