// What debugging information entries (DIEs) contain, each read in one pass. Private to the module.
#pragma once

#include <elfutils/libdw.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "image/symbols/dwarf/debug_limits.h"

namespace ptd {

inline constexpr Dwarf_Off kAlternateOffset = Dwarf_Off{1} << 63;  ///< in offsets in the file of .gnu_debugaltlink

/// A unit's bytes, while its Dwarf is open.
struct UnitBytes {
  const unsigned char* first = nullptr;
  const unsigned char* end = nullptr;
  unsigned address_bytes = 8, offset_bytes = 4, version = 5;
};

/// Returns the bytes of the unit that begins with this DIE; empty if it is damaged.
[[nodiscard]] UnitBytes bytes_of_unit(Dwarf_Die unit);

/// An entry in its unit.
struct Entry {
  /// Without its children, which libdw does not tell of the last entry of a list; null if the unit is damaged.
  const unsigned char* end = nullptr;
  uint64_t attributes = 0;
  Dwarf_Attribute sibling{};  ///< `valp` is null if it has none
};
[[nodiscard]] Entry read_entry(Dwarf_Die die, const UnitBytes& unit);

/// Attributes of a function or of an inlined copy.
enum class Fact : uint8_t {
  linkage_name,
  old_linkage_name,
  name,
  decl_file,
  decl_line,
  decl_column,
  call_file,
  call_line,
  call_column,
  discriminator,
  entry_view,
  ranges,
};
inline constexpr size_t kFacts = 12;

/// What an entry says of a function. An attribute that it lacks is that of the entry to which it refers (DW_AT_abstract_origin,
/// DW_AT_specification), but for entry_view and ranges.
struct Facts {
  std::array<Dwarf_Attribute, kFacts> attributes{};  ///< `valp` is null if there is none
  Dwarf_Off origin = 0;                              ///< of the last entry in the chain of references; with kAlternateOffset
  /// Returns an attribute; null if there is none.
  [[nodiscard]] Dwarf_Attribute* find(Fact fact) {
    Dwarf_Attribute& found = attributes[static_cast<size_t>(fact)];
    return found.valp == nullptr ? nullptr : &found;
  }
  [[nodiscard]] bool has(Fact fact) const { return attributes[static_cast<size_t>(fact)].valp != nullptr; }
};

/// Reads the facts of the functions of one unit. Keeps those of entries to which others refer, and counts the others: any number of entries
/// may refer to one. Unlike dwarf_attr_integrate(), it does not continue in the .dwo file named by a unit, which libdw would open at any
/// path.
class FactReader {
 public:
  /// `limits`: null if the unit is counted.
  FactReader(Dwarf_Die unit, DebugLimits* limits) : dwarf_(dwarf_cu_getdwarf(unit.cu)), limits_(limits) {}
  [[nodiscard]] Facts read(Dwarf_Die die);

 private:
  [[nodiscard]] Facts resolve(Dwarf_Die die, int references);
  [[nodiscard]] const Facts& referred(Dwarf_Die die, int references);
  void count(Dwarf_Die die);
  const Dwarf* dwarf_;
  DebugLimits* limits_;
  std::unordered_map<const void*, Facts> known_;  // by the address of the entry
  const Dwarf_CU* other_ = nullptr;               // the unit of the last entry that was counted
  UnitBytes other_bytes_;
};

}  // namespace ptd
