// FrameExtents: where the functions of a file begin and end, from .eh_frame. Private to the module.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "image/source/elf_file.h"
#include "image/symbols/dwarf/landing_pads.h"
#include "ptdecode/symbols.h"

namespace ptd {

/// Extents of functions, which stripped files keep because the unwinder needs them. An FDE whose first instruction describes a frame that
/// code before it made belongs to a part that a compiler split off a function. Addresses are in the file's own address space.
class FrameExtents {
 public:
  FrameExtents() = default;
  /// Reads the FDEs of code sections, without procedure linkage tables; at most 4,194,304. FDEs that cannot be read are skipped.
  explicit FrameExtents(const ElfFile& elf);
  /// Uses previously selected spans, by any start.
  explicit FrameExtents(std::vector<FrameSpan> spans);
  /// Returns what contains an address; of several, the one that begins last.
  [[nodiscard]] std::optional<FrameSpan> find(uint64_t address) const;
  /// Returns the start of the first function that begins after an address; nothing if more than 4,096 parts come first.
  [[nodiscard]] std::optional<uint64_t> next_function(uint64_t address) const;
  [[nodiscard]] const std::vector<FrameSpan>& all() const { return extents_; }
  /// Returns the tables of call sites that the FDEs name.
  [[nodiscard]] const std::vector<CallSiteTable>& tables() const { return tables_; }

 private:
  void sort();
  std::vector<FrameSpan> extents_;  // by address
  std::vector<CallSiteTable> tables_;
};

}  // namespace ptd
