// read_scopes(): the functions of a DWARF unit and those inlined in them. Private to the module.
#pragma once

#include <elfutils/libdw.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "image/symbols/dwarf/debug_limits.h"
#include "image/symbols/dwarf/entry_reader.h"
#include "image/symbols/dwarf/shared_tables.h"

namespace ptd {

inline constexpr unsigned kMaxScopeDepth = 512;
inline constexpr uint32_t kNoScope = 0xffffffffU;
inline constexpr uint32_t kNoFile = 0xffffffffU;
inline constexpr uint32_t kNoView = 0xffffffffU;

// A place in the source. `line` 0: not known.
struct Declaration {
  std::string_view file;  // not set by read_scopes(), which does not read the unit's line table
  uint32_t line = 0;
  uint32_t file_number = kNoFile;  // in that table
  // If another unit declares the function, as after link-time optimization or dwz: the file's number in the table of that unit.
  uint32_t other_number = kNoFile;
  Dwarf_Off other_unit = 0;  // offset of that unit's DIE, with kAlternateOffset
};

// A function, or one inlined into the scope `parent`.
struct Scope {
  std::string_view name;
  const char* linkage_name = nullptr;  // as the linker knows it; libdw's, null if unknown
  Declaration declared, call;          // call: the one that was inlined
  uint32_t call_discriminator = 0;
  Declaration enclosing;  // without a declared line: the declaration of the function around it
  uint32_t parent = kNoScope;
  bool inlined = false;
  uint64_t entry = 0;
  uint64_t first_code = 0;        // `entry`; if that is not in its code, as compilers may move it: the next address that is
  uint32_t entry_view = kNoView;  // number of the first row at `entry`, of those at that address, that is of the copy; kNoView: unknown
  Dwarf_Off origin = 0;           // of the function's own DIE: the same for all of its copies
};

// Address range of a scope.
struct ScopeExtent {
  uint64_t first = 0, end = 0;
  uint32_t scope = 0, depth = 0;
};

// An inlined copy that the optimizer left without code of its own.
struct EmptyCopy {
  uint64_t entry = 0;
  Dwarf_Off origin = 0;  // as Scope::origin
};

// From `first` up to the next piece, `scope` is the innermost scope.
struct ScopePiece {
  uint64_t first = 0;
  uint32_t scope = kNoScope;
};

/// What reading a unit needs. `names` returns the readable form of libdw's text, which lives long enough. `starts` returns whether a
/// function has a symbol at an address that is not one of a part that a compiler split off ("f.cold"); empty if that is not known.
struct ScopeSource {
  DebugLimits* limits = nullptr;   // null if the unit is counted
  SharedTables* tables = nullptr;  // likewise
  const std::function<std::string_view(const char*)>& names;
  const std::function<bool(uint64_t)>& starts;
};

/// What read_scopes() found in a unit.
struct UnitScopes {
  std::vector<Scope> scopes;
  std::vector<ScopeExtent> extents;
  std::vector<EmptyCopy> empty;
};

/// Returns the functions of a unit, and the inlined ones, with their addresses. Ends early where a limit is exceeded. A part that GCC split
/// off a function and inlined into the rest of it is not a scope of its own: its code belongs to the function.
[[nodiscard]] UnitScopes read_scopes(Dwarf_Die unit, const ScopeSource& source);

/// Returns the innermost scope of each address, as pieces by address.
[[nodiscard]] std::vector<ScopePiece> pieces_of(std::vector<ScopeExtent> extents);

/// Returns the innermost scope at an address; kNoScope if there is none.
[[nodiscard]] uint32_t scope_at(const std::vector<ScopePiece>& pieces, uint64_t address);

}  // namespace ptd
