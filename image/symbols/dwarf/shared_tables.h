// SharedTables: measures the tables that units and entries share, before libdw reads them. Private to the module.
#pragma once

#include <elfutils/libdw.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "image/symbols/dwarf/debug_limits.h"

namespace ptd {

/// The sections that contain the tables; empty if the file has none.
struct TableSections {
  std::span<const std::byte> abbreviations, ranges, range_lists;  // .debug_abbrev, .debug_ranges, .debug_rnglists
  bool big_endian = false;
};

/// libdw reads the abbreviations of a unit again for each unit that has the same table, and a range list for each entry that refers to it.
/// Both may overlap, so each use is counted. [DWARF5] "Abbreviations Tables", "Non-Contiguous Address Ranges"
class SharedTables {
 public:
  SharedTables(const TableSections& sections, DebugLimits& limits) : sections_(sections), limits_(limits) {}
  /// Counts a unit with its abbreviations. Returns false if a limit is exceeded.
  bool spend_unit(Dwarf_CU* unit);
  /// Counts the range list of an entry (DW_AT_ranges), with entries that are empty or no ranges. Returns false if a limit is exceeded.
  bool spend_ranges(const Dwarf_Attribute& list);

 private:
  struct Table {
    uint64_t abbreviations = 0, attributes = 0;
  };
  [[nodiscard]] Table measure(uint64_t offset) const;
  void enter(Dwarf_CU* unit);
  [[nodiscard]] uint64_t entries_at(uint64_t offset) const;
  [[nodiscard]] uint64_t entries_of(uint64_t index, uint64_t base) const;
  const TableSections& sections_;
  DebugLimits& limits_;
  std::unordered_map<uint64_t, Table> tables_;  // by offset
  const Dwarf_CU* unit_ = nullptr;              // of the last range list
  bool has_pairs_ = false;                      // its lists are in .debug_ranges
  unsigned address_bytes_ = 8, offset_bytes_ = 4;
  uint64_t base_ = 0;  // DW_AT_rnglists_base; 0: none
};

}  // namespace ptd
