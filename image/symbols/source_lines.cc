// Source lines and inlined functions through libdw.
#include "image/symbols/source_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <unordered_map>
#include <utility>

#include "image/placed_name.h"
#include "image/source/elf_damage.h"
#include "image/symbols/debug_file.h"
#include "image/symbols/dwarf/line_rows.h"
#include "image/symbols/dwarf/scope_reader.h"
#include "image/symbols/dwarf/shared_tables.h"
#include "image/symbols/dwarf/source_unit.h"
#include "image/symbols/dwarf/statement_scopes.h"
#include "image/symbols/source_warnings.h"

namespace ptd {
namespace {

constexpr size_t kMaxUnits = 1U << 20;

using Row = LineRow;

constexpr const char* kTooMuchMemory = "more memory than is available";

std::string not_used(const std::string& path, const std::string& needs) {
  return path + ": its source lines are not used: its debug information needs " + needs;
}

/// Whether debug information can be read; else adds why not.
bool has_memory(const std::string& path, SourceWarnings& warnings) {
  if (memory_for_debug_info()) return true;
  warnings.add(not_used(path, kTooMuchMemory));
  return false;
}

}  // namespace

struct SourceLines::Unit {
  Dwarf_Off offset = 0;        // of the unit's DIE
  bool loaded = false;         // all of it
  bool has_scopes = false;     // `scopes` and `pieces`; without the files of places in the source unless `loaded`
  bool counted = false;        // the cost of its scopes is deducted from the file's limits
  bool lines_counted = false;  // and that of its line table
  bool steps_counted = false;  // and that of statements()
  bool has_lines = false;      // its line table can be read; valid once `lines_counted`
  bool joins_rows = false;     // a row that is no statement continues the one before it
  std::vector<Row> rows;
  std::vector<Scope> scopes;
  std::vector<EmptyCopy> empty_copies;
  std::vector<ScopePiece> pieces;  // by address
};

std::unique_ptr<SourceLines> SourceLines::open(const std::string& elf_path, std::shared_ptr<SourceWarnings> warnings,
                                               std::function<bool(uint64_t)> starts) {
  if (!has_memory(elf_path, *warnings)) return nullptr;
  return of(DebugFile::open(elf_path), elf_path, std::move(warnings), std::move(starts));
}

std::unique_ptr<SourceLines> SourceLines::open_relocatable(const std::string& elf_path, std::shared_ptr<SourceWarnings> warnings,
                                                           const std::function<bool(Dwfl_Module*)>& wanted) {
  if (!has_memory(elf_path, *warnings)) return nullptr;
  std::unique_ptr<DebugFile> file = DebugFile::open_relocatable(elf_path, wanted);
  const auto starts = [layout = file ? file->layout : nullptr](uint64_t address) {
    GElf_Off from_start = 0;
    GElf_Sym symbol;
    const char* name = dwfl_module_addrinfo(dwfl_addrmodule(layout, address), address, &from_start, &symbol, nullptr, nullptr, nullptr);
    return name != nullptr && from_start == 0 && GELF_ST_TYPE(symbol.st_info) == STT_FUNC &&
           whole_function(name).size() == std::strlen(name);
  };
  return of(std::move(file), elf_path, std::move(warnings), starts);
}

std::unique_ptr<SourceLines> SourceLines::of(std::unique_ptr<DebugFile> file, const std::string& elf_path,
                                             std::shared_ptr<SourceWarnings> warnings, std::function<bool(uint64_t)> starts) {
  if (!file) {
    const auto elf = ElfFile::open(elf_path);
    if (elf.ok() && has_debug_info(**elf) && find_elf_damage(**elf, false).debug.empty())
      warnings->add(debug_sentence(elf_path, "it cannot be opened, or would uncompress to far more than its file"));
    return nullptr;
  }
  std::unique_ptr<SourceLines> lines(new SourceLines(std::move(file), elf_path, std::move(warnings)));
  lines->starts_ = std::move(starts);
  lines->within_limits([&] { lines->index(); });
  return lines->units_.empty() && lines->exceeded_.empty() ? nullptr : std::move(lines);
}

SourceLines::SourceLines(std::unique_ptr<DebugFile> file, std::string path, std::shared_ptr<SourceWarnings> warnings)
    : path_(std::move(path)),
      warnings_(std::move(warnings)),
      file_(std::move(file)),
      tables_(std::make_unique<SharedTables>(file_->tables, file_->limits)) {}
SourceLines::~SourceLines() = default;

// Does work within the limits. After a limit is exceeded, the file has no units.
void SourceLines::within_limits(const std::function<void()>& work) {
  try {
    if (!memory_for_debug_info()) throw std::bad_alloc();
    work();
    exceeded_ = file_->limits.text();
  } catch (const std::bad_alloc&) {
    exceeded_ = kTooMuchMemory;
  }
  if (exceeded_.empty()) return;
  warnings_->add(not_used(path_, exceeded_));
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

// Counts the units of the alternate file, to which entries may refer. Returns false if a limit is exceeded.
bool SourceLines::spend_units(DebugFile& file) {
  SharedTables tables(file.tables, file_->limits);
  Dwarf_CU* cu = nullptr;
  Dwarf_Die die;
  while (dwarf_get_units(file.dwarf, cu, &cu, nullptr, nullptr, &die, nullptr) == 0)
    if (!tables.spend_unit(cu)) return false;
  return true;
}

// Builds the map from addresses to units. It uses the units' own ranges, because .debug_aranges may be incomplete or absent.
void SourceLines::index() {
  if (file_->alternate != nullptr && !spend_units(*file_->alternate)) return;
  Dwarf_CU* cu = nullptr;
  Dwarf_Die die;
  int got = 0;
  while ((got = dwarf_get_units(file_->dwarf, cu, &cu, nullptr, nullptr, &die, nullptr)) == 0) {
    if (!tables_->spend_unit(cu)) return;
    if (units_.size() >= kMaxUnits || (dwarf_tag(&die) != DW_TAG_compile_unit && dwarf_tag(&die) != DW_TAG_skeleton_unit)) continue;
    Dwarf_Attribute list;
    if (dwarf_attr(&die, DW_AT_ranges, &list) != nullptr && !tables_->spend_ranges(list)) return;
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    bool any = false;
    while ((at = dwarf_ranges(&die, at, &base, &first, &end)) > 0) {
      if (first >= end || first == 0) continue;  // the linker removed it
      any = true;
      reaches_.push_back({first, end, static_cast<uint32_t>(units_.size())});
    }
    if (!any) continue;
    units_.emplace_back().offset = dwarf_dieoffset(&die);
  }
  if (got < 0) warnings_->add(debug_sentence(path_, "after " + std::to_string(units_.size()) + " units"));
  // Units that share an inline function all describe the copy that the linker kept: reach_of() finds the first one, whose copy it is.
  std::sort(reaches_.begin(), reaches_.end(),
            [](const Reach& a, const Reach& b) { return std::pair(a.first, b.unit) < std::pair(b.first, a.unit); });
}

const SourceLines::Reach* SourceLines::reach_of(uint64_t address) const {
  const auto at =
      std::upper_bound(reaches_.begin(), reaches_.end(), address, [](uint64_t value, const Reach& reach) { return value < reach.first; });
  return at == reaches_.begin() || std::prev(at)->end <= address ? nullptr : &*std::prev(at);
}

SourceLines::Unit* SourceLines::unit_at(uint64_t address, bool all) {
  const Reach* reach = reach_of(address);
  if (reach == nullptr) return nullptr;
  const uint32_t number = reach->unit;
  if (all ? !units_[number].loaded : !units_[number].has_scopes)
    within_limits([&] { all ? load(units_[number]) : load_scopes(units_[number]); });
  return units_.empty() ? nullptr : &units_[number];
}

namespace {

// Whether all of the unit but its lines is in a .dwo file. DWARF 4 has the attribute as an extension of GNU's.
bool names_another_file(Dwarf_Die& unit) {
  return dwarf_hasattr(&unit, DW_AT_dwo_name) != 0 || dwarf_hasattr(&unit, DW_AT_GNU_dwo_name) != 0;
}

// Returns whether rows that are no statements belong to the statement before them if they have its line. LLVM leaves is_stmt out of a row
// whose line is that of the row before it, also of a loop's condition. So does GCC if only the discriminator differs (a loop without column
// numbers, or of a Fortran array). If it optimizes, it also leaves it out of code that it moved or inserted.
bool joins_rows(Dwarf_Die& unit) {
  Dwarf_Attribute attribute;
  const char* producer = dwarf_attr(&unit, DW_AT_producer, &attribute) == nullptr ? nullptr : dwarf_formstring(&attribute);
  if (producer == nullptr) return false;
  constexpr size_t kMostBytes = 4096;  // a hostile file may have a long one
  const std::string_view text(producer, ::strnlen(producer, kMostBytes));
  if (text.find("clang") != std::string_view::npos || text.find("LLVM") != std::string_view::npos) return true;
  const size_t level = text.rfind(" -O");  // GCC: the command line; without the option it does not optimize
  const bool has_options = text.starts_with("GNU ") && text.size() < kMostBytes && text.find(" -") != std::string_view::npos;
  return has_options && (level == std::string_view::npos || text.substr(level).starts_with(" -O0"));
}

// The folder that relative paths of a unit are relative to; null if it names none.
const char* folder_of(Dwarf_Die& unit) {
  Dwarf_Attribute attribute;
  return dwarf_attr(&unit, DW_AT_comp_dir, &attribute) == nullptr ? nullptr : dwarf_formstring(&attribute);
}

std::optional<Dwarf_Word> line_table_of(Dwarf_Die unit) {
  Dwarf_Attribute attribute;
  Dwarf_Word offset = 0;
  if (dwarf_attr(&unit, DW_AT_stmt_list, &attribute) == nullptr || dwarf_formudata(&attribute, &offset) != 0) return std::nullopt;
  return offset;
}

// Returns whether libdw may read the unit's line table. A table is counted for each unit that refers to it, because each gets its own rows.
LineTableUse use_of_lines(DebugFile& file, Dwarf_Die unit) {
  const std::optional<Dwarf_Word> table = line_table_of(unit);
  if (!table) return LineTableUse::invalid;
  const char* folder = folder_of(unit);
  const uint64_t most = file.limits.left(DebugLimits::Kind::paths) + 1;
  Dwarf_Die self;
  uint8_t address_bytes = 0;
  (void)dwarf_diecu(&unit, &self, &address_bytes, nullptr);
  return spend_line_table(file.sections, {*table, folder == nullptr ? 0 : ::strnlen(folder, most), address_bytes}, file.limits);
}

// Same as whether it may; adds a warning if its table is too long.
bool has_lines(DebugFile& file, Dwarf_Die unit, const std::string& path, SourceWarnings& warnings) {
  const LineTableUse use = use_of_lines(file, unit);
  if (use == LineTableUse::too_long)
    warnings.add(path + ": source lines of units whose line tables have more than " + std::to_string(kMostLineRows) + " rows are not used");
  return use == LineTableUse::readable;
}

}  // namespace

void SourceLines::load(Unit& unit) {
  if (std::exchange(unit.loaded, true)) return;
  Dwarf_Die die;
  if (dwarf_offdie(file_->dwarf, unit.offset, &die) == nullptr) return;
  unit.joins_rows = joins_rows(die);
  if (!std::exchange(unit.lines_counted, true)) unit.has_lines = has_lines(*file_, die, path_, *warnings_);
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
    return is_new ? at->second = kept_path(path, folder) : at->second;
  };
  unit.rows.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    Dwarf_Addr address = 0;
    int number = 0;
    bool statement = false, end = false;
    if (dwarf_lineaddr(line, &address) != 0 || dwarf_lineno(line, &number) != 0 || dwarf_linebeginstatement(line, &statement) != 0 ||
        dwarf_lineendsequence(line, &end) != 0)
      continue;
    unsigned discriminator = 0;
    (void)dwarf_linediscriminator(line, &discriminator);  // 0 if there is none
    const std::string_view path = paths(dwarf_linesrc(line, nullptr, nullptr));
    unit.rows.push_back({address, path, static_cast<uint32_t>(std::max(number, 0)), discriminator, 0, statement, end, false});
  }
  mark_repeats(unit.rows);
  std::stable_sort(unit.rows.begin(), unit.rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.address, !a.end) < std::pair(b.address, !b.end);  // the end of one sequence comes before the start of another
  });
  mark_shown(unit.rows);
  load_scopes(unit);
  for (Scope& scope : unit.scopes) {
    for (Declaration* place : {&scope.declared, &scope.call, &scope.enclosing}) {
      if (place->file_number < file_count) place->file = paths(dwarf_filesrc(files, place->file_number, nullptr, nullptr));
      if (place->other_number != kNoFile) place->file = file_of(place->other_unit, place->other_number);
    }
  }
}

struct SourceLines::OtherUnit {
  Dwarf_Files* files = nullptr;
  size_t count = 0;
  const char* folder = nullptr;
};

// Returns the file table of a unit that may have no code. Reads each once: any number of functions may be declared there.
const SourceLines::OtherUnit& SourceLines::other_unit(uint64_t unit_offset) {
  const auto [known, is_new] = other_units_.try_emplace(unit_offset);
  OtherUnit& unit = known->second;
  if (!is_new) return unit;
  const uint64_t alternate = unit_offset & kAlternateOffset;
  DebugFile* const file = alternate == 0 ? file_.get() : file_->alternate.get();
  Dwarf_Die die;
  if (file == nullptr || dwarf_offdie(file->dwarf, unit_offset & ~kAlternateOffset, &die) == nullptr) return unit;
  const std::optional<Dwarf_Word> table = line_table_of(die);
  if (!table) return unit;
  const auto [counted, is_first] = other_tables_.try_emplace(*table | alternate, false);  // libdw keeps it for all units that share it
  if (is_first) counted->second = has_lines(*file, die, path_, *warnings_);
  if (!counted->second || dwarf_getsrcfiles(&die, &unit.files, &unit.count) != 0) unit.count = 0;
  unit.folder = folder_of(die);
  return unit;
}

// Returns the path of a file in the table of such a unit; empty if it has none.
std::string_view SourceLines::file_of(uint64_t unit_offset, uint32_t number) {
  const auto [known, is_new] = other_files_.try_emplace({unit_offset, number});
  if (!is_new) return known->second;
  const OtherUnit& unit = other_unit(unit_offset);
  const char* const path = number < unit.count ? dwarf_filesrc(unit.files, number, nullptr, nullptr) : nullptr;
  return path == nullptr ? std::string_view{} : known->second = kept_path(path, unit.folder);
}

// libdw joins the folder of a DWARF 4 unit to its paths, but not that of a DWARF 5 unit.
std::string_view SourceLines::kept_path(const char* path, const char* folder) {
  const bool relative = *path != '/' && *path != '\0' && folder != nullptr && *folder != '\0';
  return relative ? kept(std::string(folder) + '/' + path) : kept(path);
}

// Reads what inlined() needs.
void SourceLines::load_scopes(Unit& unit) {
  Dwarf_Die die;
  if (std::exchange(unit.has_scopes, true)) return;
  if (dwarf_offdie(file_->dwarf, unit.offset, &die) == nullptr) return;
  if (names_another_file(die))
    warnings_->add(
        path_ +
        ": its functions and inlined calls are in .dwo files (-gsplit-dwarf), which are not read; lines are known, but their counts leave "
        "out inlined copies");
  if (!file_->missing_alternate.empty())
    warnings_->add(path_ + ": names of its functions and inlined calls are in " + file_->missing_alternate +
                   " (.gnu_debugaltlink), which is missing or has another build id; lines are known");
  const std::function<std::string_view(const char*)> names = [&](const char* text) { return readable(text); };
  const bool counted = std::exchange(unit.counted, true);
  UnitScopes found = read_scopes(die, {counted ? nullptr : &file_->limits, counted ? nullptr : tables_.get(), names, starts_});
  unit.scopes = std::move(found.scopes);
  unit.empty_copies = std::move(found.empty);
  unit.pieces = pieces_of(std::move(found.extents));
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
    const Row& row = unit->rows[std::prev(at)->shown];
    place.row = {row.file, row.line, address - row.address, row.statement, is_alone(unit->rows, row)};
  }
  for (uint32_t number = scope_at(unit->pieces, address); number != kNoScope && frames.size() < kMaxScopeDepth;) {
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

std::vector<ProfileFrame> SourceLines::profile_frames(uint64_t address) {
  constexpr size_t kMostName = 1U << 16;
  const std::lock_guard lock(mutex_);
  const Unit* unit = unit_at(address);
  if (unit == nullptr) return {};
  const auto after =
      std::upper_bound(unit->rows.begin(), unit->rows.end(), address, [](uint64_t value, const Row& row) { return value < row.address; });
  if (after == unit->rows.begin() || std::prev(after)->end || std::prev(after)->line == 0) return {};
  uint32_t line = std::prev(after)->line, discriminator = std::prev(after)->discriminator;
  std::vector<ProfileFrame> frames;
  for (uint32_t number = scope_at(unit->pieces, address); number != kNoScope && frames.size() < kMaxScopeDepth;) {
    const Scope& scope = unit->scopes[number];
    if (scope.linkage_name == nullptr || scope.declared.line == 0) return {};
    frames.push_back(
        {std::string_view(scope.linkage_name, ::strnlen(scope.linkage_name, kMostName)), line - scope.declared.line, discriminator});
    if (!scope.inlined) return frames;
    line = scope.call.line;
    discriminator = scope.call_discriminator;
    number = scope.parent;
  }
  return {};
}

InlinedPlace SourceLines::inlined(uint64_t address) {
  const std::lock_guard lock(mutex_);
  InlinedPlace place;
  const auto next_reach =
      std::upper_bound(reaches_.begin(), reaches_.end(), address, [](uint64_t value, const Reach& reach) { return value < reach.first; });
  place.same_bytes = next_reach == reaches_.end() ? ~uint64_t{0} : next_reach->first - address;
  const Reach* reach = reach_of(address);
  if (reach == nullptr) return place;
  place.same_bytes = std::min(place.same_bytes, reach->end - address);
  const Unit* unit = unit_at(address, false);
  if (unit == nullptr) return place;
  const auto after = std::upper_bound(unit->pieces.begin(), unit->pieces.end(), address,
                                      [](uint64_t value, const ScopePiece& piece) { return value < piece.first; });
  if (after != unit->pieces.end()) place.same_bytes = std::min(place.same_bytes, after->first - address);
  for (uint32_t number = scope_at(unit->pieces, address);
       number != kNoScope && unit->scopes[number].inlined && place.functions.size() < kMaxScopeDepth;) {
    const Scope& scope = unit->scopes[number];
    place.functions.push_back({scope.name, &scope, scope.first_code == address});
    number = scope.parent;
  }
  std::reverse(place.functions.begin(), place.functions.end());
  return place;
}

/// Returns the index of the first row after `at` with another address. Rows at one address are several statements of one instruction.
size_t SourceLines::next_address(const Unit& unit, size_t at) {
  size_t next = at + 1;
  while (next < unit.rows.size() && unit.rows[next].address == unit.rows[at].address) ++next;
  return next;
}

/// Returns the index of the first row from `next` on that has a line, if LLVM goes to line 0 there and comes back: what has the line of the
/// row before is then still the same statement.
size_t SourceLines::past_line_0(const Unit& unit, size_t next) {
  const auto is_line_0 = [](const Row& row) { return row.line == 0 && !row.statement && !row.end; };
  while (unit.joins_rows && next < unit.rows.size() && is_line_0(unit.rows[next])) ++next;
  return next;
}

/// Returns the index of the first row from `next` on that does not continue the statement of row `at`: of another line or scope, or a
/// statement itself.
size_t SourceLines::statement_end(const Unit& unit, size_t at, size_t next) {
  const Row& row = unit.rows[at];
  const auto continues = [&](const Row& other) {
    return !other.end && !other.statement && other.line == row.line && other.file == row.file;
  };
  const uint32_t scope = scope_at(unit.pieces, row.address);
  for (size_t group = past_line_0(unit, next); unit.joins_rows && group < unit.rows.size(); group = past_line_0(unit, next)) {
    const size_t group_end = next_address(unit, group);
    const auto first = unit.rows.begin() + static_cast<std::ptrdiff_t>(group),
               last = unit.rows.begin() + static_cast<std::ptrdiff_t>(group_end);
    if (!std::all_of(first, last, continues) || scope_at(unit.pieces, unit.rows[next].address) != scope ||
        scope_at(unit.pieces, first->address) != scope)
      break;
    next = group_end;
  }
  return next;
}

// Returns whether the instruction at the address of row `at` has its line, which is that of the last row at the address. The rows before it
// are statements that the optimizer left without code.
bool SourceLines::has_code(const Unit& unit, size_t at, size_t next) {
  const Row& row = unit.rows[at];
  const Row& last = unit.rows[next - 1];
  return last.line == row.line && last.file == row.file;
}

SourceUnit SourceLines::statements(Unit& unit) {
  SourceUnit result;
  std::vector<SourceStatement>& statements = result.statements;
  std::vector<StatementKind> kinds;
  DebugLimits* const limits = std::exchange(unit.steps_counted, true) ? nullptr : &file_->limits;
  StatementScopes scopes(unit.scopes, unit.pieces, limits);
  const auto unit_number = static_cast<uint32_t>(&unit - units_.data());
  size_t group = 0, next = 0;  // the first row at the address, and the first after it
  size_t resumed = 0;          // the first row after it that has a line; 0: not known
  size_t joined = 0;           // where statements at the address end that have the line of row `resumed`; 0: not known
  for (size_t i = 0; i < unit.rows.size(); ++i) {
    const Row& row = unit.rows[i];
    if (i >= next) next = next_address(unit, i), resumed = joined = 0;
    if (unit.rows[group].address != row.address || unit.rows[group].end) group = i;
    if (row.end || !row.statement || row.line == 0) continue;
    if (const Reach* reach = reach_of(row.address); reach == nullptr || reach->unit != unit_number) continue;
    if (resumed == 0) resumed = past_line_0(unit, next);
    const bool goes_on = resumed < unit.rows.size() && unit.rows[resumed].line == row.line && unit.rows[resumed].file == row.file;
    if (goes_on && joined == 0) joined = statement_end(unit, i, next);
    const size_t last = goes_on ? joined : next;
    const auto end_at = [&](size_t index) { return index < unit.rows.size() ? unit.rows[index].address : row.address + 1; };
    const bool bare = !has_code(unit, i, next);
    const auto [scope, past_copy] = scopes.of({row.address, row.file, row.line, static_cast<uint32_t>(i - group), bare});
    if (limits != nullptr && limits->exceeded()) return {};
    statements.push_back({row.address, end_at(next), row.file, row.line, scope});
    kinds.push_back(past_copy ? StatementKind::past_copy : bare ? StatementKind::bare : StatementKind::has_code);
    if (last == next) continue;
    statements.push_back(statements.back());
    statements.back().end = end_at(last);
    kinds.push_back(kinds.back());
  }
  drop_bare(unit.scopes, unit.empty_copies, kinds, statements);
  result.functions = functions_of(unit.scopes, unit.rows, result.statements);
  result.contains = [&unit](uint32_t number, uint64_t address) {
    uint32_t scope = scope_at(unit.pieces, address);
    for (unsigned depth = 0; scope != kNoScope && scope != number && depth < kMaxScopeDepth; ++depth) scope = unit.scopes[scope].parent;
    return scope == number;
  };
  for (SourceFunction& function : result.functions) {
    if (const Reach* reach = reach_of(function.entry); reach != nullptr && reach->unit != unit_number) function.name = {};
  }
  return result;
}

bool SourceLines::visit(const SourceVisitor& visitor) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < units_.size(); ++i) {
    const bool keep = units_[i].loaded || units_[i].has_scopes;
    SourceUnit found;
    within_limits([&] {
      load(units_[i]);
      if (!file_->limits.exceeded()) found = statements(units_[i]);
    });
    if (units_.empty()) break;
    Unit& unit = units_[i];
    const bool more = visitor(found);
    if (!keep) {
      Unit unloaded;
      unloaded.offset = unit.offset;
      unloaded.counted = unit.counted;
      unloaded.lines_counted = unit.lines_counted;
      unloaded.steps_counted = unit.steps_counted;
      unloaded.has_lines = unit.has_lines;
      unit = std::move(unloaded);
    }
    if (!more) break;
  }
  return exceeded_.empty();
}

}  // namespace ptd
