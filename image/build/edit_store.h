// EditStore: edits in compact form with their bytes in one arena; sorted, deduplicated and grouped into sites.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "ptdecode/edit.h"

namespace ptd {

/// An Edit with its bytes in the store's arena.
struct StoredEdit {
  uint64_t ip = 0;
  Interval time;
  uint64_t old_offset = 0, new_offset = 0;
  uint32_t old_size = 0, new_size = 0;
  SpaceId space = kKernelSpace;
  int32_t cpu = -1;
  uint64_t record_offset_bytes = 0;
  uint32_t order = 0;  ///< number in the order of addition
  EditOrigin origin = EditOrigin::text_poke;

  [[nodiscard]] uint64_t size_bytes() const { return old_size > new_size ? old_size : new_size; }
  [[nodiscard]] uint64_t last() const { return ip + (size_bytes() - 1); }
};

/// A range of addresses whose bytes are versioned together, and the edits that touch it.
struct SiteRange {
  SpaceId space;
  uint64_t ip = 0;
  uint32_t size_bytes = 0;
  uint64_t first_piece = 0;  ///< start of its run in SiteRanges::pieces
  uint32_t piece_count = 0;
};

struct SiteRanges {
  std::vector<SiteRange> ranges;  ///< in order of (space, ip)
  std::vector<uint32_t> pieces;   ///< indices into EditStore::edits()
};

class EditStore {
 public:
  /// Returns false for an edit without effect or one that extends past the end of the address space.
  bool add(const Edit& edit);
  /// Sorts by (space, ip, time) and removes duplicates of a record.
  void sort();
  /// Returns the maximal clusters of overlapping edits, split so that none exceeds kMaxSiteBytes and short edits stay whole.
  [[nodiscard]] SiteRanges ranges() const;

  [[nodiscard]] const std::vector<StoredEdit>& edits() const { return edits_; }
  [[nodiscard]] const std::byte* old_bytes(const StoredEdit& e) const { return arena_.data() + e.old_offset; }
  [[nodiscard]] const std::byte* new_bytes(const StoredEdit& e) const { return arena_.data() + e.new_offset; }

 private:
  [[nodiscard]] bool same(const StoredEdit& a, const StoredEdit& b) const;
  void cut(uint32_t first, uint32_t end, SiteRanges& out) const;

  std::vector<StoredEdit> edits_;
  std::vector<std::byte> arena_;
};

}  // namespace ptd
