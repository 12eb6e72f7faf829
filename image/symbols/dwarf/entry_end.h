// The end of a debugging information entry (DIE), which libdw does not tell of the last one of a list. Private to the module.
#pragma once

#include <elfutils/libdw.h>

namespace ptd {

/// A unit's bytes, while its Dwarf is open.
struct UnitBytes {
  const unsigned char* first = nullptr;
  const unsigned char* end = nullptr;
  unsigned address_bytes = 8, offset_bytes = 4, version = 5;
};

/// Returns the bytes of the unit that begins with this DIE; empty if it is damaged.
[[nodiscard]] UnitBytes bytes_of_unit(Dwarf_Die unit);

/// Returns the address after the entry, without its children; null if the unit is damaged.
[[nodiscard]] const unsigned char* end_of_entry(Dwarf_Die die, const UnitBytes& unit);

}  // namespace ptd
