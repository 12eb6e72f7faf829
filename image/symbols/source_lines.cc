// Source lines and inlined functions through libdw.
#include "image/symbols/source_lines.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <elfutils/libdwfl.h>
#include <fcntl.h>
#include <gelf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

namespace ptd {
namespace {

constexpr size_t kMaxUnits = 1U << 20, kMaxRows = 1U << 24, kMaxScopes = 1U << 22;
constexpr unsigned kMaxDepth = 200;
constexpr uint32_t kNoScope = 0xffffffffU;

struct Row {
  uint64_t address = 0;
  std::string_view file;
  uint32_t line = 0;
  bool statement = false, end = false;  // end: of a sequence; nothing is told from here on
};

// A function, or one inlined into the scope `parent`.
struct Scope {
  std::string_view name, file;  // file and line: of the call that was inlined, or of the declaration
  uint32_t line = 0, parent = kNoScope;
  bool inlined = false;
  uint64_t entry = 0;
};

// Where a scope's code is. Sorted by start, outer before inner.
struct Extent {
  uint64_t first = 0, end = 0;
  uint32_t scope = 0, depth = 0;
};

std::string_view name_of(Dwarf_Die* die) {
  Dwarf_Attribute attribute;
  for (const unsigned kind : {DW_AT_linkage_name, DW_AT_MIPS_linkage_name, DW_AT_name}) {
    if (dwarf_attr_integrate(die, kind, &attribute) == nullptr) continue;
    if (const char* text = dwarf_formstring(&attribute); text != nullptr) return text;
  }
  return {};
}

uint64_t number_of(Dwarf_Die* die, unsigned kind) {
  Dwarf_Attribute attribute;
  Dwarf_Word value = 0;
  return dwarf_attr_integrate(die, kind, &attribute) != nullptr && dwarf_formudata(&attribute, &value) == 0 ? value : 0;
}

/// What a section unpacks to, as it claims.
uint64_t unpacked_bytes(Elf_Scn* section, const char* name) {
  GElf_Chdr packed;
  if (gelf_getchdr(section, &packed) != nullptr) return packed.ch_size;
  constexpr size_t kSizeAt = 4, kDataAt = 12;  // GNU's older form: "ZLIB", then the size as a big-endian number
  const Elf_Data* data = name != nullptr && std::string_view(name).starts_with(".zdebug") ? elf_rawdata(section, nullptr) : nullptr;
  if (data == nullptr || data->d_buf == nullptr || data->d_size < kDataAt) return 0;
  uint64_t size = 0;
  for (size_t i = kSizeAt; i < kDataAt; ++i) size = size << 8 | static_cast<const uint8_t*>(data->d_buf)[i];
  return size;
}

/// Whether compressed sections of the file unpack to what debug information does: libdw unpacks whatever is claimed, up to a thousandfold.
bool unpacks_within_reason(int fd) {
  constexpr uint64_t kAlways = 256U << 20, kMostTimes = 32;
  struct stat info {};
  (void)elf_version(EV_CURRENT);
  Elf* elf = ::fstat(fd, &info) == 0 ? elf_begin(fd, ELF_C_READ_MMAP, nullptr) : nullptr;
  size_t names = 0;
  const bool named = elf != nullptr && elf_getshdrstrndx(elf, &names) == 0;
  const uint64_t most = std::max(kAlways, kMostTimes * static_cast<uint64_t>(info.st_size));
  uint64_t all = 0;
  bool within = true;
  for (Elf_Scn* section = named ? elf_nextscn(elf, nullptr) : nullptr; section != nullptr && within; section = elf_nextscn(elf, section)) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    const uint64_t size = unpacked_bytes(section, elf_strptr(elf, names, header.sh_name));
    within = size <= most - all;
    all += within ? size : 0;
  }
  if (elf != nullptr) elf_end(elf);
  return within;
}

}  // namespace

struct SourceLines::Handle {
  int fd = -1;
  Dwarf* dwarf = nullptr;
  Dwfl* layout = nullptr;  // owns `dwarf`, if it is there
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (layout != nullptr) dwfl_end(layout);
    if (layout == nullptr && dwarf != nullptr) dwarf_end(dwarf);
    if (fd >= 0) ::close(fd);
  }
};

struct SourceLines::Unit {
  Dwarf_Off offset = 0;  // of the unit's DIE
  bool loaded = false;
  std::vector<Row> rows;
  std::vector<Scope> scopes;
  std::vector<Extent> extents;
  std::vector<uint64_t> reach;  // highest end among extents[0..i]
};

std::unique_ptr<SourceLines> SourceLines::open(const std::string& elf_path) {
  auto handle = std::make_unique<Handle>();
  handle->fd = ::open(elf_path.c_str(), O_RDONLY | O_CLOEXEC);
  if (handle->fd < 0 || !unpacks_within_reason(handle->fd)) return nullptr;
  handle->dwarf = dwarf_begin(handle->fd, DWARF_C_READ);
  if (handle->dwarf == nullptr) return nullptr;
  std::unique_ptr<SourceLines> lines(new SourceLines(std::move(handle)));
  lines->index();
  return lines->units_.empty() ? nullptr : std::move(lines);
}

std::unique_ptr<SourceLines> SourceLines::open_relocatable(const std::string& elf_path, const std::function<bool(Dwfl_Module*)>& wanted) {
  static const auto kNoOtherFile = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
    return -1;
  };
  static const Dwfl_Callbacks kCallbacks = {nullptr, kNoOtherFile, dwfl_offline_section_address, nullptr};
  auto handle = std::make_unique<Handle>();
  handle->layout = dwfl_begin(&kCallbacks);
  if (handle->layout == nullptr) return nullptr;
  dwfl_report_begin(handle->layout);
  handle->fd = ::open(elf_path.c_str(), O_RDONLY | O_CLOEXEC);
  // libdwfl would unpack whatever is packed, to any size.
  std::array<char, SELFMAG> magic{};
  if (::pread(handle->fd, magic.data(), magic.size(), 0) != SELFMAG || std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0) return nullptr;
  if (!unpacks_within_reason(handle->fd)) return nullptr;
  Dwfl_Module* module = dwfl_report_offline(handle->layout, "module", elf_path.c_str(), handle->fd);
  if (module != nullptr) handle->fd = -1;  // libdwfl's from here on
  if (dwfl_report_end(handle->layout, nullptr, nullptr) != 0 || module == nullptr) return nullptr;
  Dwarf_Addr bias = 0;
  handle->dwarf = dwfl_module_getdwarf(module, &bias);
  if (handle->dwarf == nullptr || bias != 0 || !wanted(module)) return nullptr;
  std::unique_ptr<SourceLines> lines(new SourceLines(std::move(handle)));
  lines->index();
  return lines->units_.empty() ? nullptr : std::move(lines);
}

SourceLines::SourceLines(std::unique_ptr<Handle> handle) : handle_(std::move(handle)) {}
SourceLines::~SourceLines() = default;

std::string_view SourceLines::kept(std::string_view text) {
  if (const auto known = texts_.find(text); known != texts_.end()) return known->second;
  storage_.emplace_back(text);
  texts_.emplace(storage_.back(), storage_.back());
  return storage_.back();
}

// Which unit has which addresses: from the units' own ranges, because .debug_aranges may name only some of them, or be absent.
void SourceLines::index() {
  Dwarf_CU* cu = nullptr;
  Dwarf_Die die;
  while (units_.size() < kMaxUnits && dwarf_get_units(handle_->dwarf, cu, &cu, nullptr, nullptr, &die, nullptr) == 0) {
    if (dwarf_tag(&die) != DW_TAG_compile_unit && dwarf_tag(&die) != DW_TAG_skeleton_unit) continue;
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    bool any = false;
    while ((at = dwarf_ranges(&die, at, &base, &first, &end)) > 0) {
      if (first >= end || first == 0) continue;  // the linker dropped it
      any = true;
      reaches_.push_back({first, end, static_cast<uint32_t>(units_.size())});
    }
    if (!any) continue;
    units_.emplace_back().offset = dwarf_dieoffset(&die);
  }
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
  Unit& unit = units_[reach->unit];
  load(unit);
  return &unit;
}

namespace {

// Walks the DIEs of a unit for functions and what was inlined into them.
class ScopeReader {
 public:
  ScopeReader(Dwarf_Die* unit, std::vector<Scope>& scopes, std::vector<Extent>& extents) : scopes_(scopes), extents_(extents) {
    if (dwarf_getsrcfiles(unit, &files_, &file_count_) != 0) file_count_ = 0;
    visit(unit, kNoScope, 0);
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
    } while (scopes_.size() < kMaxScopes && dwarf_siblingof(&die, &die) == 0);
  }

  void take(Dwarf_Die* die, uint32_t parent, unsigned depth) {
    const auto number = static_cast<uint32_t>(scopes_.size());
    const size_t before = extents_.size();
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(die, at, &base, &first, &end)) > 0) {
      if (first != 0 && first < end) extents_.push_back({first, end, number, depth});
    }
    if (extents_.size() == before) return visit(die, parent, depth + 1);  // a declaration, or what is only inlined
    Scope scope;
    scope.name = name_of(die);
    scope.inlined = dwarf_tag(die) == DW_TAG_inlined_subroutine;
    scope.parent = scope.inlined ? parent : kNoScope;
    const uint64_t file = number_of(die, scope.inlined ? DW_AT_call_file : DW_AT_decl_file);
    const char* path = file < file_count_ ? dwarf_filesrc(files_, file, nullptr, nullptr) : nullptr;
    if (path != nullptr) scope.file = path;
    scope.line = static_cast<uint32_t>(number_of(die, scope.inlined ? DW_AT_call_line : DW_AT_decl_line));
    Dwarf_Addr entry = 0;
    scope.entry = dwarf_entrypc(die, &entry) == 0 ? entry : extents_[before].first;
    scopes_.push_back(scope);
    visit(die, number, depth + 1);
  }

  std::vector<Scope>& scopes_;
  std::vector<Extent>& extents_;
  Dwarf_Files* files_ = nullptr;
  size_t file_count_ = 0;
};

}  // namespace

void SourceLines::load(Unit& unit) {
  if (std::exchange(unit.loaded, true)) return;
  Dwarf_Die die;
  if (dwarf_offdie(handle_->dwarf, unit.offset, &die) == nullptr) return;
  Dwarf_Lines* lines = nullptr;
  size_t count = 0;
  if (dwarf_getsrclines(&die, &lines, &count) != 0) count = 0;
  for (size_t i = 0; i < std::min(count, kMaxRows); ++i) {
    Dwarf_Line* line = dwarf_onesrcline(lines, i);
    Dwarf_Addr address = 0;
    int number = 0;
    bool statement = false, end = false;
    if (dwarf_lineaddr(line, &address) != 0 || dwarf_lineno(line, &number) != 0 || dwarf_linebeginstatement(line, &statement) != 0 ||
        dwarf_lineendsequence(line, &end) != 0)
      continue;
    const char* path = dwarf_linesrc(line, nullptr, nullptr);
    unit.rows.push_back(
        {address, path == nullptr ? std::string_view{} : kept(path), static_cast<uint32_t>(std::max(number, 0)), statement, end});
  }
  std::stable_sort(unit.rows.begin(), unit.rows.end(), [](const Row& a, const Row& b) {
    return std::pair(a.address, !a.end) < std::pair(b.address, !b.end);  // the end of one sequence comes before the start of another
  });
  ScopeReader(&die, unit.scopes, unit.extents);
  for (Scope& scope : unit.scopes) {
    scope.name = kept(demangle(std::string(scope.name)));
    scope.file = kept(scope.file);
  }
  std::sort(unit.extents.begin(), unit.extents.end(),
            [](const Extent& a, const Extent& b) { return std::pair(a.first, a.depth) < std::pair(b.first, b.depth); });
  uint64_t highest = 0;
  for (const Extent& extent : unit.extents) unit.reach.push_back(highest = std::max(highest, extent.end));
}

// The innermost scope around the address.
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

std::vector<SourceFrame> SourceLines::frames(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const Unit* unit = unit_at(address);
  if (unit == nullptr) return {};
  std::vector<SourceFrame> frames;
  auto at =
      std::upper_bound(unit->rows.begin(), unit->rows.end(), address, [](uint64_t value, const Row& row) { return value < row.address; });
  SourceFrame frame;
  if (at != unit->rows.begin() && !std::prev(at)->end) {
    frame.file = std::prev(at)->file;
    frame.line = std::prev(at)->line;
  }
  for (uint32_t number = scope_at(*unit, address); number != kNoScope && frames.size() < kMaxDepth;) {
    const Scope& scope = unit->scopes[number];
    frame.function = scope.name;
    frames.push_back(frame);
    if (!scope.inlined) return frames;
    frame = {{}, scope.file, scope.line};
    number = scope.parent;
  }
  if (!frame.file.empty()) frames.push_back(frame);
  return frames;
}

SourceUnit SourceLines::statements(const Unit& unit) const {
  SourceUnit result;
  for (size_t i = 0; i < unit.rows.size(); ++i) {
    const Row& row = unit.rows[i];
    if (row.end || !row.statement || row.line == 0 || reach_of(row.address) == nullptr) continue;
    // Up to the next address of the table: rows at one address are several statements of one instruction.
    size_t next = i + 1;
    while (next < unit.rows.size() && unit.rows[next].address == row.address) ++next;
    const uint64_t end = next < unit.rows.size() ? unit.rows[next].address : row.address + 1;
    result.statements.push_back({row.address, end, row.file, row.line, scope_at(unit, row.address)});
  }
  for (const Scope& scope : unit.scopes) {
    if (!scope.inlined) result.functions.push_back({scope.name, scope.file, scope.line, scope.entry});
  }
  return result;
}

void SourceLines::visit(const SourceVisitor& visitor) {
  const std::lock_guard lock(mutex_);
  for (Unit& unit : units_) {
    const bool keep = unit.loaded;
    load(unit);
    const bool more = visitor(statements(unit));
    if (!keep) {
      const Dwarf_Off offset = unit.offset;
      unit = Unit{};
      unit.offset = offset;
    }
    if (!more) return;
  }
}

}  // namespace ptd
