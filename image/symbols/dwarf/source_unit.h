// Functions and statements of a unit, from its scopes and its line table. Private to the module.
#pragma once

#include <cstdint>
#include <vector>

#include "image/symbols/dwarf/line_rows.h"
#include "image/symbols/dwarf/scope_reader.h"
#include "ptdecode/symbols.h"

namespace ptd {

/// Returns the functions of the scopes, in the same order. A compiler declares no line of what it makes itself, such as the call operator
/// of a lambda: its line is the first of the statements of all its copies that is not before the function around it. Optimized code of a
/// function may have lines of others, which it inlined.
[[nodiscard]] std::vector<SourceFunction> functions_of(const std::vector<Scope>& scopes, const std::vector<LineRow>& rows,
                                                       const std::vector<SourceStatement>& statements);

enum class StatementKind : uint8_t {
  has_code,
  bare,      ///< without code
  past_copy  ///< and at the first address after its copy
};

/// Removes statements without code at instructions of another function, if their line has code in its own, and no copy of that begins
/// there:
/// with optimization, the statement that ends an inlined copy is at the first instruction after the copy, which runs also if the statement
/// does not.
void drop_bare(const std::vector<Scope>& scopes, const std::vector<EmptyCopy>& empty, const std::vector<StatementKind>& kinds,
               std::vector<SourceStatement>& statements);

}  // namespace ptd
