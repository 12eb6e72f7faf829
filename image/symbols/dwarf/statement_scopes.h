// StatementScopes: which function each statement of a line table belongs to. Private to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "image/symbols/dwarf/scope_reader.h"

namespace ptd {

/// A statement: a row of the line table.
struct StatementRow {
  uint64_t address = 0;
  std::string_view file;
  uint32_t line = 0;
  uint32_t view = 0;  ///< number of rows at this address before this one
  bool bare = false;  ///< the instruction at the address is of a later row
};

/// Finds the scopes of statements. The innermost scope at a statement's address is not always that of the statement:
/// - An inlined copy begins at the address of the statement that calls it. Both have a row there. GCC says which row is the first of the
///   copy.
/// - A scheduler moves instructions of the caller between those of the copy.
/// - The last statement of a copy may have no code, and is then at the first address after the copy.
/// A copy and its caller differ in their lines, unless a source line contains both: a function's lines are those from its declaration up to
/// the next declaration of a function in the file. What it refers to must outlive it. Each step from a copy to the one around it is
/// counted.
class StatementScopes {
 public:
  /// `limits`: null if the unit is counted.
  StatementScopes(const std::vector<Scope>& scopes, const std::vector<ScopePiece>& pieces, DebugLimits* limits);
  struct Found {
    uint32_t scope = kNoScope;
    bool past_copy = false;  ///< the scope is a copy that ends at the row's address
  };
  [[nodiscard]] Found of(const StatementRow& row);

 private:
  struct Owner {
    std::string_view file;
    uint32_t line = 0;
    Dwarf_Off origin = 0;
    auto operator<=>(const Owner&) const = default;
  };
  using Owners = std::pair<std::vector<Owner>::const_iterator, std::vector<Owner>::const_iterator>;
  [[nodiscard]] Owners owners_of(const StatementRow& row) const;
  [[nodiscard]] Found find(const StatementRow& row);
  [[nodiscard]] uint32_t entered(const StatementRow& row);
  [[nodiscard]] uint32_t ended(const StatementRow& row, const Owners& owners, uint32_t scope);
  [[nodiscard]] static bool has(const Owners& owners, Dwarf_Off origin);
  const std::vector<Scope>& scopes_;
  const std::vector<ScopePiece>& pieces_;
  DebugLimits* const limits_;
  uint64_t steps_ = 0;           // of the last row
  std::vector<uint32_t> roots_;  // of each scope: the one around it that is not inlined
  std::vector<Owner> owners_;    // in order
};

}  // namespace ptd
