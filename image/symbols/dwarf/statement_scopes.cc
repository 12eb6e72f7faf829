// StatementScopes: see statement_scopes.h.
#include "image/symbols/dwarf/statement_scopes.h"

#include <algorithm>

namespace ptd {

StatementScopes::StatementScopes(const std::vector<Scope>& scopes, const std::vector<ScopePiece>& pieces, DebugLimits* limits)
    : scopes_(scopes), pieces_(pieces), limits_(limits) {
  roots_.reserve(scopes.size());
  for (const Scope& scope : scopes)
    roots_.push_back(scope.parent == kNoScope ? static_cast<uint32_t>(roots_.size()) : roots_[scope.parent]);
  for (const Scope& scope : scopes)
    if (scope.declared.line != 0 && !scope.declared.file.empty())
      owners_.push_back({scope.declared.file, scope.declared.line, scope.origin});
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
uint32_t StatementScopes::entered(const StatementRow& row) {
  uint32_t scope = scope_at(pieces_, row.address);
  if (scope == kNoScope || roots_[scope] == scope) return scope;
  const uint32_t root = roots_[scope];
  // Without numbers of rows, the first row of a function is its own: compilers emit it for the function's start.
  const bool begins = row.view == 0 && row.bare && scopes_[root].entry == row.address;
  while (scope != root && scopes_[scope].entry == row.address) {
    const uint32_t view = scopes_[scope].entry_view;
    if (view == kNoView ? !begins : row.view >= view) break;
    scope = scopes_[scope].parent;
    ++steps_;
  }
  return scope;
}

// Returns whether a function is one of `owners`, which are in order.
bool StatementScopes::has(const Owners& owners, Dwarf_Off origin) {
  const auto at = std::partition_point(owners.first, owners.second, [origin](const Owner& owner) { return owner.origin < origin; });
  return at != owners.second && at->origin == origin;
}

// Returns the copy of one of `owners` that ends at the row's address in the code of `scope`'s function; `scope` if there is none.
uint32_t StatementScopes::ended(const StatementRow& row, const Owners& owners, uint32_t scope) {
  uint32_t before = row.bare && row.address != 0 ? scope_at(pieces_, row.address - 1) : kNoScope;
  if (before == kNoScope || roots_[before] != roots_[scope]) return scope;
  for (unsigned depth = 0; before != kNoScope && depth < kMaxScopeDepth; ++depth, ++steps_, before = scopes_[before].parent) {
    if (has(owners, scopes_[before].origin)) return before;
  }
  return scope;
}

StatementScopes::Found StatementScopes::of(const StatementRow& row) {
  steps_ = 1;
  const Found found = find(row);
  if (limits_ != nullptr) limits_->spend(DebugLimits::Kind::scope_steps, steps_);
  return found;
}

StatementScopes::Found StatementScopes::find(const StatementRow& row) {
  const uint32_t innermost = entered(row);
  if (innermost == kNoScope) return {};
  const Owners owners = owners_of(row);
  uint32_t scope = innermost;
  for (unsigned depth = 0; scope != kNoScope && depth < kMaxScopeDepth; ++depth, ++steps_, scope = scopes_[scope].parent) {
    // What a compiler makes itself, such as the call operator of a lambda, may have no declared line.
    if (scopes_[scope].declared.line == 0) return {scope};
    if (has(owners, scopes_[scope].origin)) return {scope};
  }
  scope = ended(row, owners, innermost);
  return {scope, scope != innermost};
}

}  // namespace ptd
