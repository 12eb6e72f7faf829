// StatementScopes: see statement_scopes.h.
#include "image/symbols/dwarf/statement_scopes.h"

#include <algorithm>

namespace ptd {

StatementScopes::StatementScopes(const std::vector<Scope>& scopes, const std::vector<ScopePiece>& pieces) : scopes_(scopes), pieces_(pieces) {
  for (const Scope& scope : scopes)
    if (scope.declared.line != 0 && !scope.declared.file.empty()) owners_.push_back({scope.declared.file, scope.declared.line, scope.origin});
  std::sort(owners_.begin(), owners_.end());
  owners_.erase(std::unique(owners_.begin(), owners_.end()), owners_.end());
}

// Returns the functions that are declared in the last line with a declaration up to the row's.
StatementScopes::Owners StatementScopes::owners_of(const StatementRow& row) const {
  const auto after = std::upper_bound(owners_.begin(), owners_.end(), std::pair(row.file, row.line),
                                      [](const auto& place, const Owner& owner) { return place < std::pair(owner.file, owner.line); });
  if (after == owners_.begin() || std::prev(after)->file != row.file) return {after, after};
  return {std::lower_bound(owners_.begin(), after, Owner{row.file, std::prev(after)->line, 0}), after};
}

// Returns the innermost scope at the row's address that was entered before the row.
uint32_t StatementScopes::entered(const StatementRow& row) const {
  uint32_t scope = scope_at(pieces_, row.address);
  const uint32_t root = root_of(scope);
  if (root == scope) return scope;
  // Without numbers of rows, the first row of a function is its own: compilers emit it for the function's start.
  const bool begins = row.view == 0 && row.bare && scopes_[root].entry == row.address;
  while (scope != root && scopes_[scope].entry == row.address) {
    const uint32_t view = scopes_[scope].entry_view;
    if (view == kNoView ? !begins : row.view >= view) break;
    scope = scopes_[scope].parent;
  }
  return scope;
}

// Returns the copy of one of `owners` that ends at the row's address in the code of `scope`'s function; `scope` if there is none.
uint32_t StatementScopes::ended(const StatementRow& row, const Owners& owners, uint32_t scope) const {
  uint32_t before = row.bare && row.address != 0 ? scope_at(pieces_, row.address - 1) : kNoScope;
  if (before == kNoScope || root_of(before) != root_of(scope)) return scope;
  for (unsigned depth = 0; before != kNoScope && depth < kMaxScopeDepth; ++depth, before = scopes_[before].parent) {
    if (std::any_of(owners.first, owners.second, [&](const Owner& owner) { return owner.origin == scopes_[before].origin; })) return before;
  }
  return scope;
}

uint32_t StatementScopes::root_of(uint32_t scope) const {
  for (unsigned depth = 0; scope != kNoScope && scopes_[scope].parent != kNoScope && depth < kMaxScopeDepth; ++depth) scope = scopes_[scope].parent;
  return scope;
}

StatementScopes::Found StatementScopes::of(const StatementRow& row) const {
  const uint32_t innermost = entered(row);
  if (innermost == kNoScope) return {};
  const Owners owners = owners_of(row);
  uint32_t scope = innermost;
  for (unsigned depth = 0; scope != kNoScope && depth < kMaxScopeDepth; ++depth, scope = scopes_[scope].parent) {
    // What a compiler makes itself, such as the call operator of a lambda, may have no declared line.
    if (scopes_[scope].declared.line == 0) return {scope};
    if (std::any_of(owners.first, owners.second, [&](const Owner& owner) { return owner.origin == scopes_[scope].origin; })) return {scope};
  }
  scope = ended(row, owners, innermost);
  return {scope, scope != innermost};
}

}  // namespace ptd
