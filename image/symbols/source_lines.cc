// Source lines and inlined functions through libdw.
#include "image/symbols/source_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <unordered_map>
#include <utility>

#include "image/source/elf_damage.h"
#include "image/symbols/debug_file.h"
#include "image/symbols/source_warnings.h"

namespace ptd {
namespace {

constexpr size_t kMaxUnits = 1U << 20, kMaxRows = 1U << 24, kMaxScopes = 1U << 22;
constexpr unsigned kMaxDepth = 200;
constexpr uint32_t kNoScope = 0xffffffffU;

struct Row {
  uint64_t address = 0;
  std::string_view file;
  uint32_t line = 0;
  bool statement = false, end = false;  // end: of a sequence; the following addresses have no line
};

// A place in the source. `line` 0: not known.
struct Declaration {
  std::string_view file;
  uint32_t line = 0;
};

// A function, or one inlined into the scope `parent`.
struct Scope {
  std::string_view name;
  Declaration declared, call;  // call: the one that was inlined
  Declaration enclosing;       // without a declared line: the declaration of the function around it
  uint32_t parent = kNoScope;
  bool inlined = false;
  uint64_t entry = 0;
  Dwarf_Off origin = 0;  // of the function's own DIE: the same for all of its copies
};

// Address range of a scope. Sorted by start, outer before inner.
struct Extent {
  uint64_t first = 0, end = 0;
  uint32_t scope = 0, depth = 0;
};

constexpr int kMostReferences = 16;  // from one DIE to the next

// Replaces a DIE by the one that it refers to. Returns false if there is none.
bool refers(Dwarf_Die& die) {
  Dwarf_Attribute reference;
  if (dwarf_attr(&die, DW_AT_abstract_origin, &reference) == nullptr && dwarf_attr(&die, DW_AT_specification, &reference) == nullptr)
    return false;
  Dwarf_Die next;
  if (dwarf_formref_die(&reference, &next) == nullptr) return false;
  die = next;
  return true;
}

// Finds an attribute of the DIE or of the DIEs to which it refers. Unlike dwarf_attr_integrate(), it does not continue in the .dwo file
// named by a unit, which libdw would open at any path.
bool find_attribute(Dwarf_Die die, unsigned kind, Dwarf_Attribute& found) {
  for (int i = 0; i < kMostReferences; ++i) {
    if (dwarf_attr(&die, kind, &found) != nullptr) return true;
    if (!refers(die)) return false;
  }
  return false;
}

Dwarf_Off origin_of(Dwarf_Die die) {
  for (int i = 0; i < kMostReferences && refers(die); ++i) continue;
  return dwarf_dieoffset(&die);
}

const char* name_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    if (!find_attribute(*die, kind, attribute)) continue;
    if (const char* text = dwarf_formstring(&attribute); text != nullptr) return text;
  }
  return nullptr;
}

uint64_t number_of(Dwarf_Die* die, unsigned kind) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return find_attribute(*die, kind, attribute) && dwarf_formudata(&attribute, &value) == 0 ? value : 0;
}

}  // namespace

struct SourceLines::Unit {
  Dwarf_Off offset = 0;  // of the unit's DIE
  bool loaded = false;
  bool counted = false;     // its cost is deducted from the file's limits
  bool has_lines = false;   // its line table can be read; valid once `counted`
  bool is_llvm = false;     // compiled by clang or another compiler that uses LLVM
  std::vector<Row> rows;
  std::vector<Scope> scopes;
  std::vector<Extent> extents;
  std::vector<uint64_t> reach;  // highest end among extents[0..i]
};

std::unique_ptr<SourceLines> SourceLines::open(const std::string& elf_path, std::shared_ptr<SourceWarnings> warnings) {
  return of(DebugFile::open(elf_path), elf_path, std::move(warnings));
}

std::unique_ptr<SourceLines> SourceLines::open_relocatable(const std::string& elf_path, std::shared_ptr<SourceWarnings> warnings,
                                                           const std::function<bool(Dwfl_Module*)>& wanted) {
  return of(DebugFile::open_relocatable(elf_path, wanted), elf_path, std::move(warnings));
}

std::unique_ptr<SourceLines> SourceLines::of(std::unique_ptr<DebugFile> file, const std::string& elf_path,
                                             std::shared_ptr<SourceWarnings> warnings) {
  if (!file) {
    const auto elf = ElfFile::open(elf_path);
    if (elf.ok() && has_debug_info(**elf) && find_elf_damage(**elf, false).debug.empty())
      warnings->add(debug_sentence(elf_path, "it cannot be opened, or would uncompress to far more than its file"));
    return nullptr;
  }
  std::unique_ptr<SourceLines> lines(new SourceLines(std::move(file), elf_path, std::move(warnings)));
  lines->within_limits([&] { lines->index(); });
  return lines->units_.empty() && lines->exceeded_.empty() ? nullptr : std::move(lines);
}

SourceLines::SourceLines(std::unique_ptr<DebugFile> file, std::string path, std::shared_ptr<SourceWarnings> warnings)
    : path_(std::move(path)), warnings_(std::move(warnings)), file_(std::move(file)) {}
SourceLines::~SourceLines() = default;

// Does work within the limits. After a limit is exceeded, the file has no units.
void SourceLines::within_limits(const std::function<void()>& work) {
  try {
    work();
    exceeded_ = file_->limits.text();
  } catch (const std::bad_alloc&) {
    exceeded_ = "more memory than is available";
  }
  if (exceeded_.empty()) return;
  warnings_->add(path_ + ": its source lines are not used: its debug information needs " + exceeded_);
  units_ = {};
  reaches_ = {};
}

std::string_view SourceLines::kept(std::string_view text) {
  if (const auto known = texts_.find(text); known != texts_.end()) return known->second;
  storage_.emplace_back(text);
  texts_.emplace(storage_.back(), storage_.back());
  return storage_.back();
}

// Returns the readable form of a name. Reads each string once: any number of functions may share a name, and one string may be the tail of
// any number of names.
std::string_view SourceLines::readable(const char* text) {
  if (text == nullptr) return {};
  const auto [known, is_new] = readable_.try_emplace(text);
  if (!is_new) return known->second;
  constexpr uint64_t kEntryBytes = 64;
  const uint64_t left = file_->limits.left(DebugLimits::Kind::names);
  const size_t length = ::strnlen(text, left + 1);
  if (!file_->limits.spend(DebugLimits::Kind::names, length + kEntryBytes)) return {};
  const std::string name = demangle(std::string(text, length));
  if (!file_->limits.spend(DebugLimits::Kind::names, name.size())) return {};
  return known->second = kept(name);
}

// Builds the map from addresses to units. It uses the units' own ranges, because .debug_aranges may be incomplete or absent.
void SourceLines::index() {
  Dwarf_CU* cu = nullptr;
  Dwarf_Die die;
  int got = 0;
  while (units_.size() < kMaxUnits && (got = dwarf_get_units(file_->dwarf, cu, &cu, nullptr, nullptr, &die, nullptr)) == 0) {
    if (dwarf_tag(&die) != DW_TAG_compile_unit && dwarf_tag(&die) != DW_TAG_skeleton_unit) continue;
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    bool any = false;
    while ((at = dwarf_ranges(&die, at, &base, &first, &end)) > 0) {
      if (first >= end || first == 0) continue;  // the linker removed it
      if (!file_->limits.spend(DebugLimits::Kind::ranges, 1)) return;
      any = true;
      reaches_.push_back({first, end, static_cast<uint32_t>(units_.size())});
    }
    if (!any) continue;
    units_.emplace_back().offset = dwarf_dieoffset(&die);
  }
  if (got < 0) warnings_->add(debug_sentence(path_, "after " + std::to_string(units_.size()) + " units"));
  std::sort(reaches_.begin(), reaches_.end(), [](const Reach& a, const Reach& b) { return a.first < b.first; });
}

const SourceLines::Reach* SourceLines::reach_of(uint64_t address) const {
  const auto at =
      std::upper_bound(reaches_.begin(), reaches_.end(), address, [](uint64_t value, const Reach& reach) { return value < reach.first; });
  return at == reaches_.begin() || std::prev(at)->end <= address ? nullptr : &*std::prev(at);
}

SourceLines::Unit* SourceLines::unit_at(uint64_t address) {
  const Reach* reach = reach_of(address);
  if (reach == nullptr) return nullptr;
  const uint32_t number = reach->unit;
  within_limits([&] { load(units_[number]); });
  return units_.empty() ? nullptr : &units_[number];
}

namespace {

// Walks the DIEs of a unit and collects its functions and inlined calls.
class ScopeReader {
 public:
  /// `names`: returns a readable name; `limits`: null if the unit is counted.
  ScopeReader(std::vector<Scope>& scopes, std::vector<Extent>& extents, DebugLimits* limits,
              const std::function<std::string_view(const char*)>& names)
      : scopes_(scopes), extents_(extents), limits_(limits), names_(names) {}
  void read(Dwarf_Die* unit, Dwarf_Files* files, size_t file_count, const std::function<std::string_view(const char*)>& paths) {
    files_ = files;
    file_count_ = file_count;
    paths_ = &paths;
    visit(unit, kNoScope, 0);
    for (Scope& scope : scopes_) {
      const auto known = scope.declared.line == 0 ? enclosing_of_.find(scope.origin) : enclosing_of_.end();
      if (known != enclosing_of_.end()) scope.enclosing = known->second;
    }
  }

 private:
  void visit(Dwarf_Die* parent, uint32_t scope, unsigned depth) {
    Dwarf_Die die;
    if (depth > kMaxDepth || dwarf_child(parent, &die) != 0) return;
    do {
      switch (dwarf_tag(&die)) {
        case DW_TAG_subprogram:
        case DW_TAG_inlined_subroutine:
          take(&die, scope, depth);
          break;
        case DW_TAG_lexical_block:
        case DW_TAG_namespace:
        case DW_TAG_structure_type:  // member functions that are defined inside
        case DW_TAG_class_type:
        case DW_TAG_module:
          visit(&die, scope, depth + 1);
          break;
        default:
          break;
      }
    } while (scopes_.size() < kMaxScopes && (limits_ == nullptr || !limits_->exceeded()) && dwarf_siblingof(&die, &die) == 0);
  }

  void take(Dwarf_Die* die, uint32_t parent, unsigned depth) {
    const auto number = static_cast<uint32_t>(scopes_.size());
    const size_t before = extents_.size();
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(die, at, &base, &first, &end)) > 0) {
      if (first == 0 || first >= end) continue;
      if (limits_ != nullptr && !limits_->spend(DebugLimits::Kind::ranges, 1)) return;
      extents_.push_back({first, end, number, depth});
    }
    const Declaration declared = place_of(die, DW_AT_decl_file, DW_AT_decl_line), outer = enclosing_;
    if (declared.line != 0) {
      enclosing_ = declared;
    } else if (outer.line != 0 && enclosing_of_.size() < kMaxEnclosed) {
      enclosing_of_.emplace(dwarf_dieoffset(die), outer);
    }
    if (extents_.size() == before) {  // a declaration, or a function that is only inlined
      visit(die, parent, depth + 1);
    } else {
      add(die, {declared, extents_[before].first}, parent, depth);
    }
    enclosing_ = outer;
  }

  struct Start {
    Declaration declared;
    uint64_t first = 0;  // address
  };
  void add(Dwarf_Die* die, const Start& start, uint32_t parent, unsigned depth) {
    const auto number = static_cast<uint32_t>(scopes_.size());
    Scope scope;
    scope.name = names_(name_of(die));
    scope.inlined = dwarf_tag(die) == DW_TAG_inlined_subroutine;
    scope.parent = scope.inlined ? parent : kNoScope;
    scope.origin = origin_of(*die);
    scope.declared = start.declared;
    if (scope.inlined) scope.call = place_of(die, DW_AT_call_file, DW_AT_call_line);
    Dwarf_Addr entry = 0;
    scope.entry = dwarf_entrypc(die, &entry) == 0 ? entry : start.first;
    scopes_.push_back(scope);
    visit(die, number, depth + 1);
  }

  // A number of a file is of the unit that contains it: link-time optimization gives functions whose declaration is in another unit.
  Declaration place_of(Dwarf_Die* die, unsigned file_kind, unsigned line_kind) const {
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0;
    if (!find_attribute(*die, file_kind, attribute) || dwarf_formudata(&attribute, &file) != 0) return {};
    const char* path = attribute.cu != die->cu ? nullptr : file < file_count_ ? dwarf_filesrc(files_, file, nullptr, nullptr) : nullptr;
    return {(*paths_)(path), static_cast<uint32_t>(number_of(die, line_kind))};
  }

  std::vector<Scope>& scopes_;
  std::vector<Extent>& extents_;
  DebugLimits* limits_;
  const std::function<std::string_view(const char*)>& names_;
  const std::function<std::string_view(const char*)>* paths_ = nullptr;
  Dwarf_Files* files_ = nullptr;
  size_t file_count_ = 0;
  static constexpr size_t kMaxEnclosed = 1U << 16;
  Declaration enclosing_;  // of the DIE that is read
  std::unordered_map<Dwarf_Off, Declaration> enclosing_of_;
};

}  // namespace

namespace {

// Whether all of the unit but its lines is in a .dwo file. DWARF 4 has the attribute as an extension of GNU's.
bool names_another_file(Dwarf_Die& unit) {
  return dwarf_hasattr(&unit, DW_AT_dwo_name) != 0 || dwarf_hasattr(&unit, DW_AT_GNU_dwo_name) != 0;
}

bool is_of_llvm(Dwarf_Die& unit) {
  Dwarf_Attribute attribute;
  const char* producer = dwarf_attr(&unit, DW_AT_producer, &attribute) == nullptr ? nullptr : dwarf_formstring(&attribute);
  if (producer == nullptr) return false;
  constexpr size_t kMostBytes = 256;  // a hostile file may have a long one
  const std::string_view text(producer, ::strnlen(producer, kMostBytes));
  return text.find("clang") != std::string_view::npos || text.find("LLVM") != std::string_view::npos;
}

// The folder that relative paths of a unit are relative to; null if it names none.
const char* folder_of(Dwarf_Die& unit) {
  Dwarf_Attribute attribute;
  return dwarf_attr(&unit, DW_AT_comp_dir, &attribute) == nullptr ? nullptr : dwarf_formstring(&attribute);
}

}  // namespace

// Returns whether libdw may read the unit's line table. A table is counted for each unit that refers to it, because each gets its own rows.
bool SourceLines::has_lines(const Unit& unit) {
  Dwarf_Die die;
  Dwarf_Attribute attribute;
  Dwarf_Word offset = 0;
  if (dwarf_offdie(file_->dwarf, unit.offset, &die) == nullptr) return false;
  if (dwarf_attr(&die, DW_AT_stmt_list, &attribute) == nullptr || dwarf_formudata(&attribute, &offset) != 0) return false;
  const char* folder = folder_of(die);
  const uint64_t most = file_->limits.left(DebugLimits::Kind::paths) + 1;
  return spend_line_table(file_->sections, offset, folder == nullptr ? 0 : ::strnlen(folder, most), file_->limits);
}

void SourceLines::load(Unit& unit) {
  if (std::exchange(unit.loaded, true)) return;
  Dwarf_Die die;
  if (dwarf_offdie(file_->dwarf, unit.offset, &die) == nullptr) return;
  if (names_another_file(die))
    warnings_->add(path_ + ": its functions and inlined calls are in .dwo files (-gsplit-dwarf), which are not read; lines are known");
  unit.is_llvm = is_of_llvm(die);
  const bool counted = std::exchange(unit.counted, true);
  if (!counted) unit.has_lines = has_lines(unit);
  Dwarf_Lines* lines = nullptr;
  Dwarf_Files* files = nullptr;
  size_t count = 0, file_count = 0;
  if (!unit.has_lines || dwarf_getsrclines(&die, &lines, &count) != 0) count = 0;
  if (!unit.has_lines || dwarf_getsrcfiles(&die, &files, &file_count) != 0) file_count = 0;
  const char* folder = folder_of(die);
  std::unordered_map<const char*, std::string_view> known;  // maps libdw's text of a path to ours
  const std::function<std::string_view(const char*)> paths = [&](const char* path) {
    if (path == nullptr) return std::string_view{};
    const auto [at, is_new] = known.try_emplace(path);
    if (!is_new) return at->second;
    // libdw joins the folder of a DWARF 4 unit to its paths, but not that of a DWARF 5 unit.
    const bool relative = *path != '/' && *path != '\0' && folder != nullptr && *folder != '\0';
    return at->second = relative ? kept(std::string(folder) + '/' + path) : kept(path);
  };
  for (size_t i = 0; i < std::min(count, kMaxRows); ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    Dwarf_Addr address = 0;
    int number = 0;
    bool statement = false, end = false;
    if (dwarf_lineaddr(line, &address) != 0 || dwarf_lineno(line, &number) != 0 || dwarf_linebeginstatement(line, &statement) != 0 ||
        dwarf_lineendsequence(line, &end) != 0)
      continue;
    const std::string_view path = paths(dwarf_linesrc(line, nullptr, nullptr));
    unit.rows.push_back({address, path, static_cast<uint32_t>(std::max(number, 0)), statement, end});
  }
  std::stable_sort(unit.rows.begin(), unit.rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.address, !a.end) < std::pair(b.address, !b.end);  // the end of one sequence comes before the start of another
  });
  const std::function<std::string_view(const char*)> names = [&](const char* text) { return readable(text); };
  ScopeReader(unit.scopes, unit.extents, counted ? nullptr : &file_->limits, names).read(&die, files, file_count, paths);
  std::sort(unit.extents.begin(), unit.extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.first, a.depth) < std::pair(b.first, b.depth); });
  uint64_t highest = 0;
  for (const Extent& extent : unit.extents) unit.reach.push_back(highest = std::max(highest, extent.end));
}

// Returns the innermost scope that contains the address.
uint32_t SourceLines::scope_at(const Unit& unit, uint64_t address) {
  auto at = std::upper_bound(unit.extents.begin(), unit.extents.end(), address,
                             [](uint64_t value, const Extent& extent) { return value < extent.first; });
  const Extent* best = nullptr;
  while (at != unit.extents.begin() && unit.reach[static_cast<size_t>(at - unit.extents.begin()) - 1] > address) {
    --at;
    if (at->end > address && (best == nullptr || best->depth < at->depth)) best = &*at;
  }
  return best == nullptr ? kNoScope : best->scope;
}

SourcePlace SourceLines::place(uint64_t address) {
  const std::lock_guard lock(mutex_);
  SourcePlace place;
  const Unit* unit = unit_at(address);
  if (unit == nullptr) return place;
  std::vector<SourceFrame>& frames = place.frames;
  auto at =
      std::upper_bound(unit->rows.begin(), unit->rows.end(), address, [](uint64_t value, const Row& row) { return value < row.address; });
  SourceFrame frame;
  if (at != unit->rows.begin() && !std::prev(at)->end) {
    frame.file = std::prev(at)->file;
    frame.line = std::prev(at)->line;
  }
  for (auto row = at; row != unit->rows.begin() && std::prev(row)->address == address; --row) place.begins_statement |= std::prev(row)->statement && !std::prev(row)->end;
  for (uint32_t number = scope_at(*unit, address); number != kNoScope && frames.size() < kMaxDepth;) {
    const Scope& scope = unit->scopes[number];
    frame.function = scope.name;
    frames.push_back(frame);
    if (!scope.inlined) return place;
    frame = {{}, scope.call.file, scope.call.line};
    number = scope.parent;
  }
  if (!frame.file.empty()) frames.push_back(frame);
  return place;
}

namespace {

// Returns the line of the instruction at an address. If that has none (line 0), returns that of one of the next statements.
Declaration first_line(const std::vector<Row>& rows, uint64_t address) {
  constexpr int kMostWithoutLine = 16;
  auto row = std::partition_point(rows.begin(), rows.end(), [address](const Row& each) { return each.address <= address; });
  if (row != rows.begin()) --row;
  for (int i = 0; i < kMostWithoutLine && row != rows.end() && !row->end; ++i, ++row) {
    if (row->line != 0) return {row->file, row->line};
  }
  return {};
}

// Returns the functions of the scopes, in the same order. A compiler declares no line of what it makes itself, such as the call operator of a
// lambda: its line is the first of the statements of all its copies that is not before the function around it. Optimized code of a function may
// have lines of others, which it inlined.
std::vector<SourceFunction> functions_of(const std::vector<Scope>& scopes, const std::vector<Row>& rows, const std::vector<SourceStatement>& statements) {
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

}  // namespace

/// Returns the index of the first row after `at` with another address. Rows at one address are several statements of one instruction.
size_t SourceLines::next_address(const Unit& unit, size_t at) {
  size_t next = at + 1;
  while (next < unit.rows.size() && unit.rows[next].address == unit.rows[at].address) ++next;
  return next;
}

/// Returns the index of the first row from `next` on that does not continue the statement of row `at`: of another line or scope, or a statement
/// itself. LLVM leaves is_stmt out of a row whose line is that of the row before it, also of a loop's condition. GCC leaves it out of code that it
/// moved or inserted.
size_t SourceLines::statement_end(const Unit& unit, size_t at, size_t next) {
  const Row& row = unit.rows[at];
  const auto continues = [&](const Row& other) { return !other.end && !other.statement && other.line == row.line && other.file == row.file; };
  while (unit.is_llvm && next < unit.rows.size()) {
    const size_t group_end = next_address(unit, next);
    const auto first = unit.rows.begin() + static_cast<std::ptrdiff_t>(next), last = unit.rows.begin() + static_cast<std::ptrdiff_t>(group_end);
    if (!std::all_of(first, last, continues) || scope_at(unit, first->address) != scope_at(unit, row.address)) break;
    next = group_end;
  }
  return next;
}

SourceUnit SourceLines::statements(const Unit& unit) const {
  SourceUnit result;
  for (size_t i = 0; i < unit.rows.size(); ++i) {
    const Row& row = unit.rows[i];
    if (row.end || !row.statement || row.line == 0 || reach_of(row.address) == nullptr) continue;
    const size_t next = next_address(unit, i), last = statement_end(unit, i, next);
    const auto end_at = [&](size_t index) { return index < unit.rows.size() ? unit.rows[index].address : row.address + 1; };
    result.statements.push_back({row.address, end_at(next), row.file, row.line, scope_at(unit, row.address)});
    if (last == next) continue;
    result.statements.push_back(result.statements.back());
    result.statements.back().end = end_at(last);
  }
  result.functions = functions_of(unit.scopes, unit.rows, result.statements);
  return result;
}

bool SourceLines::visit(const SourceVisitor& visitor) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < units_.size(); ++i) {
    const bool keep = units_[i].loaded;
    within_limits([&] { load(units_[i]); });
    if (units_.empty()) break;
    Unit& unit = units_[i];
    const bool more = visitor(statements(unit));
    if (!keep) {
      Unit unloaded;
      unloaded.offset = unit.offset;
      unloaded.counted = unit.counted;
      unloaded.has_lines = unit.has_lines;
      unit = std::move(unloaded);
    }
    if (!more) break;
  }
  return exceeded_.empty();
}

}  // namespace ptd
