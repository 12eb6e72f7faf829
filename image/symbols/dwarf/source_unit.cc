// Functions and statements of a unit: see source_unit.h.
#include "image/symbols/dwarf/source_unit.h"

#include <algorithm>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace ptd {
namespace {

// Returns the line of the instruction at an address. If that has none (line 0), returns that of one of the next statements.
Declaration first_line(const std::vector<LineRow>& rows, uint64_t address) {
  constexpr int kMostWithoutLine = 16;
  auto row = std::partition_point(rows.begin(), rows.end(), [address](const LineRow& each) { return each.address <= address; });
  if (row != rows.begin()) --row;
  for (int i = 0; i < kMostWithoutLine && row != rows.end() && !row->end; ++i, ++row) {
    if (row->line != 0) return {row->file, row->line};
  }
  return {};
}

}  // namespace

std::vector<SourceFunction> functions_of(const std::vector<Scope>& scopes, const std::vector<LineRow>& rows,
                                         const std::vector<SourceStatement>& statements) {
  std::unordered_map<Dwarf_Off, uint32_t> first;  // by origin
  for (const SourceStatement& statement : statements) {
    const Scope* scope = statement.scope == kNoScope ? nullptr : &scopes[statement.scope];
    if (scope == nullptr || statement.file != scope->enclosing.file || statement.line < scope->enclosing.line) continue;
    uint32_t& line = first.try_emplace(scope->origin, statement.line).first->second;
    line = std::min(line, statement.line);
  }
  std::vector<SourceFunction> functions;
  for (const Scope& scope : scopes) {
    Declaration place = scope.declared;
    if (place.line == 0 && scope.enclosing.line != 0) {
      const auto known = first.find(scope.origin);
      place = {scope.enclosing.file, known != first.end() ? known->second : scope.enclosing.line};
    } else if (place.line == 0 || place.file.empty()) {
      const Declaration found = first_line(rows, scope.entry);
      place = {found.file, place.line != 0 ? place.line : found.line};
    }
    functions.push_back({scope.name, place.file, place.line, scope.entry, scope.inlined});
  }
  return functions;
}

void drop_bare(const std::vector<Scope>& scopes, const std::vector<EmptyCopy>& empty, const std::vector<StatementKind>& kinds,
               std::vector<SourceStatement>& statements) {
  using Place = std::tuple<std::string_view, uint32_t, Dwarf_Off>;  // file, line, function
  const auto place = [&](const SourceStatement& each) {
    return Place(each.file, each.line, each.scope == kNoScope ? Dwarf_Off{0} : scopes[each.scope].origin);
  };
  std::vector<Place> with_code;
  for (size_t i = 0; i < statements.size(); ++i)
    if (kinds[i] == StatementKind::has_code) with_code.push_back(place(statements[i]));
  std::sort(with_code.begin(), with_code.end());
  std::vector<std::pair<uint64_t, Dwarf_Off>> entries;
  for (const Scope& scope : scopes) entries.emplace_back(scope.entry, scope.origin);
  for (const EmptyCopy& copy : empty) entries.emplace_back(copy.entry, copy.origin);
  std::sort(entries.begin(), entries.end());
  const auto is_strange = [&](const SourceStatement& each, StatementKind kind) {
    const auto at = std::lower_bound(with_code.begin(), with_code.end(), Place(each.file, each.line, 0));
    const bool has_code = at != with_code.end() && std::get<0>(*at) == each.file && std::get<1>(*at) == each.line;
    return has_code && (kind == StatementKind::past_copy || !std::binary_search(at, with_code.end(), place(each))) &&
           !std::binary_search(entries.begin(), entries.end(), std::pair(each.first, std::get<2>(*at)));
  };
  size_t kept = 0;
  for (size_t i = 0; i < statements.size(); ++i)
    if (kinds[i] == StatementKind::has_code || !is_strange(statements[i], kinds[i])) statements[kept++] = statements[i];
  statements.resize(kept);
}

}  // namespace ptd
