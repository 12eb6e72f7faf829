// read_scopes(): see scope_reader.h.
#include "image/symbols/dwarf/scope_reader.h"

#include <dwarf.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>

#include "image/symbols/dwarf/entry_end.h"

namespace ptd {
namespace {

constexpr size_t kMaxScopes = 1U << 22;
constexpr unsigned kGnuDiscriminator = 0x2136;  // DW_AT_GNU_discriminator, which dwarf.h of elfutils lacks
constexpr unsigned kGnuEntryView = 0x2138;      // DW_AT_GNU_entry_view, likewise
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
  const Dwarf* const own = dwarf_cu_getdwarf(die.cu);
  for (int i = 0; i < kMostReferences && refers(die); ++i) continue;
  return dwarf_dieoffset(&die) | (dwarf_cu_getdwarf(die.cu) == own ? 0 : kAlternateOffset);
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

// Returns whether an inlined copy named `inner` may be a part of the function `outer`. Constructors and destructors have variants (C1, C2; D0, D1,
// D2) with one DIE of origin, which is named C4 or D4. A destructor D0 or D1 calls D2. [Itanium C++ ABI] "Constructors and Destructors"
bool may_be_part(std::string_view outer, std::string_view inner) {
  if (outer.empty() || outer.size() != inner.size()) return false;
  const auto [at, other] = std::mismatch(outer.begin(), outer.end(), inner.begin());
  if (at == outer.end()) return true;
  const bool rest_equal = std::equal(at + 1, outer.end(), other + 1);
  const char kind = at == outer.begin() ? '\0' : *(at - 1);
  return rest_equal && *other == '4' && ((kind == 'C' && (*at == '1' || *at == '2')) || (kind == 'D' && *at == '2'));
}

// Walks the DIEs of a unit and collects its functions and inlined calls.
class ScopeReader {
 public:
  ScopeReader(const ScopeSource& source, UnitScopes& found)
      : source_(source), limits_(source.limits), scopes_(found.scopes), extents_(found.extents), empty_(found.empty) {}
  void read(Dwarf_Die* unit) {
    dwarf_ = dwarf_cu_getdwarf(unit->cu);
    unit_ = bytes_of_unit(*unit);
    unit_offset_ = dwarf_dieoffset(unit) - dwarf_cuoffset(unit);
    if (limits_ == nullptr || limits_->spend(DebugLimits::Kind::entry_bytes, static_cast<uint64_t>(unit_.end - unit_.first))) (void)visit(unit, kNoScope, 0);
    for (Scope& scope : scopes_) {
      const auto known = scope.declared.line == 0 ? enclosing_of_.find(scope.origin) : enclosing_of_.end();
      if (known != enclosing_of_.end()) scope.enclosing = known->second;
    }
  }

 private:
  enum class Kind { function, scope, other };
  [[nodiscard]] Kind kind_of(Dwarf_Die die) const {
    if (skipping_) return Kind::other;
    switch (dwarf_tag(&die)) {
      case DW_TAG_subprogram:
      case DW_TAG_inlined_subroutine:
        return Kind::function;
      case DW_TAG_lexical_block:
      case DW_TAG_namespace:
      case DW_TAG_structure_type:  // member functions that are defined inside
      case DW_TAG_class_type:
      case DW_TAG_module:
        return Kind::scope;
      default:
        return Kind::other;
    }
  }

  // Reads the entries below `parent`. Returns the address after them; null if a limit or damage ended it. dwarf_siblingof() would read what is below an
  // entry again, for each level, so it is called only for entries that have nothing below or refer to their sibling.
  const unsigned char* visit(Dwarf_Die* parent, uint32_t scope, unsigned depth) {
    const unsigned char* end = end_of_entry(*parent, unit_);
    if (end == nullptr || dwarf_haschildren(parent) != 1) return end;
    if (depth > kMaxScopeDepth) return pass_below(end);
    Dwarf_Die die;
    if (dwarf_child(parent, &die) != 0) return end < unit_.end && *end == 0 ? end + 1 : nullptr;
    for (;;) {
      if (scopes_.size() >= kMaxScopes || (limits_ != nullptr && limits_->exceeded())) return nullptr;
      const Kind kind = kind_of(die);
      const bool leaf = dwarf_haschildren(&die) != 1;
      if (leaf && kind == Kind::function) (void)take(&die, scope, depth);
      Dwarf_Die next;
      if ((leaf || (kind == Kind::other && dwarf_hasattr(&die, DW_AT_sibling) == 1)) && dwarf_siblingof(&die, &next) == 0) {
        die = next;
        continue;
      }
      end = leaf ? end_of_entry(die, unit_) : read_below(&die, kind, scope, depth);
      if (end == nullptr || end >= unit_.end) return nullptr;
      if (*end == 0) return end + 1;
      if (!entry_at(end, die)) return nullptr;
    }
  }
  [[nodiscard]] bool entry_at(const unsigned char* at, Dwarf_Die& die) const {
    return dwarf_offdie(dwarf_, unit_offset_ + static_cast<Dwarf_Off>(at - unit_.first), &die) != nullptr;
  }

  // Returns the address after the entries that begin at `at`, and all below them; null if they are damaged.
  [[nodiscard]] const unsigned char* pass_below(const unsigned char* at) const {
    for (size_t levels = 1; at != nullptr && at < unit_.end;) {
      Dwarf_Die die;
      if (*at == 0) {
        ++at;
        if (--levels == 0) return at;
      } else if (entry_at(at, die)) {
        at = end_of_entry(die, unit_);
        if (dwarf_haschildren(&die) == 1) ++levels;
      } else {
        break;
      }
    }
    return nullptr;
  }
  const unsigned char* read_below(Dwarf_Die* die, Kind kind, uint32_t scope, unsigned depth) {
    if (kind == Kind::function) return take(die, scope, depth);
    const bool outer = std::exchange(skipping_, skipping_ || kind == Kind::other);
    const unsigned char* end = visit(die, scope, depth + 1);
    skipping_ = outer;
    return end;
  }

  // Returns whether an inlined copy is a part of the function `parent` around it. GCC splits a function that begins with a short part
  // (-fpartial-inlining), and may then inline the rest into that part. It gives the call, which is not in the source, the place of the function's
  // declaration. A call of a recursive function has a place of its own.
  // Limitation: without columns (-gno-column-info), a recursive call in the line of the declaration is taken for a part.
  [[nodiscard]] bool is_part(Dwarf_Die* die, uint32_t parent) const {
    if (parent == kNoScope || dwarf_tag(die) != DW_TAG_inlined_subroutine || scopes_[parent].origin != origin_of(*die)) return false;
    const Scope& outer = scopes_[parent];
    const char* const name = name_of(die);
    if (outer.linkage_name == nullptr || name == nullptr || !may_be_part(bounded(outer.linkage_name), bounded(name))) return false;
    const Declaration declared = place_of(die, DW_AT_decl_file, DW_AT_decl_line), call = place_of(die, DW_AT_call_file, DW_AT_call_line);
    const bool same_file = declared.file_number == call.file_number || declared.file_number == kNoFile;
    if (call.line == 0 || call.line != declared.line || !same_file || number_of(die, DW_AT_call_column) != number_of(die, DW_AT_decl_column))
      return false;
    // Of destructors that are inlined, the name does not say whether it is D0 or D2, which D0 calls first.
    Dwarf_Addr entry = 0;
    const bool both_begin = dwarf_entrypc(die, &entry) == 0 && entry == outer.entry;
    return !(outer.inlined && both_begin && bounded(name).find("D4Ev") != std::string_view::npos);
  }

  static std::string_view bounded(const char* name) {
    constexpr size_t kMostName = 1U << 16;
    return {name, ::strnlen(name, kMostName)};
  }

  const unsigned char* take(Dwarf_Die* die, uint32_t parent, unsigned depth) {
    if (is_part(die, parent)) return visit(die, parent, depth + 1);
    const auto number = static_cast<uint32_t>(scopes_.size());
    const size_t before = extents_.size();
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(die, at, &base, &first, &end)) > 0) {
      if (first == 0 || first >= end) continue;
      if (limits_ != nullptr && !limits_->spend(DebugLimits::Kind::ranges, 1)) return nullptr;
      extents_.push_back({first, end, number, depth});
    }
    const Declaration declared = place_of(die, DW_AT_decl_file, DW_AT_decl_line), outer = enclosing_;
    if (declared.line != 0) {
      enclosing_ = declared;
    } else if (outer.line != 0 && enclosing_of_.size() < kMaxEnclosed) {
      enclosing_of_.emplace(dwarf_dieoffset(die), outer);
    }
    const unsigned char* after = nullptr;
    if (extents_.size() == before) {  // a declaration, a function that is only inlined, or a copy without code
      Dwarf_Addr entry = 0;
      const bool is_copy = dwarf_tag(die) == DW_TAG_inlined_subroutine && empty_.size() < kMaxScopes;
      if (is_copy && dwarf_entrypc(die, &entry) == 0) empty_.push_back({entry, origin_of(*die)});
      after = visit(die, parent, depth + 1);
    } else {
      add(die, {declared, extents_[before].first, before}, parent);
      after = visit(die, number, depth + 1);
    }
    enclosing_ = outer;
    return after;
  }

  struct Start {
    Declaration declared;
    uint64_t first = 0;  // address
    size_t extents = 0;  // its extents are those from this one on
  };
  static uint64_t first_code(uint64_t entry, std::span<const ScopeExtent> extents) {
    uint64_t next = ~uint64_t{0};
    for (const ScopeExtent& extent : extents) {
      if (entry >= extent.first && entry < extent.end) return entry;
      if (extent.first > entry) next = std::min(next, extent.first);
    }
    return next != ~uint64_t{0} ? next : entry;
  }
  // Returns where a function is entered. Of a function in several parts that is its first range ([DWARF5] "Entry Address"), unless symbols show
  // another one: clang writes the parts that it split off first (LLVM, MachineFunction::MBBSectionRanges).
  uint64_t entry_of(Dwarf_Die* die, const Start& start) const {
    Dwarf_Addr entry = start.first;
    const bool known = dwarf_entrypc(die, &entry) == 0 && (dwarf_hasattr(die, DW_AT_entry_pc) == 1 || dwarf_hasattr(die, DW_AT_low_pc) == 1);
    if (known || dwarf_tag(die) == DW_TAG_inlined_subroutine || extents_.size() - start.extents == 1 || !source_.starts) return entry;
    const auto own = extents_.begin() + static_cast<std::ptrdiff_t>(start.extents);
    const auto begins = std::find_if(own, extents_.end(), [this](const ScopeExtent& extent) { return source_.starts(extent.first); });
    return begins == extents_.end() ? entry : begins->first;
  }
  void add(Dwarf_Die* die, const Start& start, uint32_t parent) {
    Scope scope;
    scope.linkage_name = name_of(die);
    scope.name = source_.names(scope.linkage_name);
    scope.inlined = dwarf_tag(die) == DW_TAG_inlined_subroutine;
    scope.parent = scope.inlined ? parent : kNoScope;
    scope.origin = origin_of(*die);
    scope.declared = start.declared;
    if (scope.inlined) {
      scope.call = place_of(die, DW_AT_call_file, DW_AT_call_line);
      scope.call_discriminator = static_cast<uint32_t>(number_of(die, kGnuDiscriminator));
    }
    scope.entry = entry_of(die, start);
    scope.first_code = first_code(scope.entry, std::span(extents_).subspan(start.extents));
    Dwarf_Attribute attribute;
    Dwarf_Word view = 0;
    if (scope.inlined && dwarf_attr(die, kGnuEntryView, &attribute) != nullptr && dwarf_formudata(&attribute, &view) == 0)
      scope.entry_view = static_cast<uint32_t>(std::min<Dwarf_Word>(view, kNoView));
    scopes_.push_back(scope);
  }

  // A number of a file is of the unit that contains it: link-time optimization and dwz give functions whose declaration is in another unit.
  static Declaration place_of(Dwarf_Die* die, unsigned file_kind, unsigned line_kind) {
    Dwarf_Attribute attribute;
    Dwarf_Word file = 0;
    if (!find_attribute(*die, file_kind, attribute) || dwarf_formudata(&attribute, &file) != 0) return {};
    const auto number = static_cast<uint32_t>(std::min<uint64_t>(file, kNoFile)), line = static_cast<uint32_t>(number_of(die, line_kind));
    if (attribute.cu == die->cu) return {{}, line, number};
    Dwarf_Die unit;
    if (dwarf_cu_die(attribute.cu, &unit, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) == nullptr) return {{}, line};
    const bool is_own = dwarf_cu_getdwarf(attribute.cu) == dwarf_cu_getdwarf(die->cu);
    return {{}, line, kNoFile, number, dwarf_dieoffset(&unit) | (is_own ? 0 : kAlternateOffset)};
  }

  const ScopeSource& source_;
  DebugLimits* const limits_;
  std::vector<Scope>& scopes_;
  std::vector<ScopeExtent>& extents_;
  std::vector<EmptyCopy>& empty_;
  Dwarf* dwarf_ = nullptr;
  UnitBytes unit_;
  Dwarf_Off unit_offset_ = 0;
  bool skipping_ = false;  // below an entry whose functions are not read
  static constexpr size_t kMaxEnclosed = 1U << 16;
  Declaration enclosing_;  // of the DIE that is read
  std::unordered_map<Dwarf_Off, Declaration> enclosing_of_;
};

}  // namespace

UnitScopes read_scopes(Dwarf_Die unit, const ScopeSource& source) {
  UnitScopes found;
  ScopeReader(source, found).read(&unit);
  return found;
}

std::vector<ScopePiece> pieces_of(std::vector<ScopeExtent> extents) {
  struct Edge {
    uint64_t at = 0;
    uint32_t extent = 0;
    bool begins = false;
  };
  std::sort(extents.begin(), extents.end(), [](const ScopeExtent& a, const ScopeExtent& b) { return std::pair(a.first, a.depth) < std::pair(b.first, b.depth); });
  std::vector<Edge> edges;
  for (uint32_t i = 0; i < extents.size(); ++i) {
    edges.push_back({extents[i].first, i, true});
    edges.push_back({extents[i].end, i, false});
  }
  std::sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  std::set<std::pair<uint32_t, uint32_t>> open;  // depth and index of the extents around an address
  std::vector<ScopePiece> pieces;
  for (size_t i = 0; i < edges.size(); ++i) {
    const std::pair key(extents[edges[i].extent].depth, edges[i].extent);
    if (edges[i].begins) {
      open.insert(key);
    } else {
      open.erase(key);
    }
    if (i + 1 < edges.size() && edges[i + 1].at == edges[i].at) continue;
    const uint32_t scope = open.empty() ? kNoScope : extents[open.rbegin()->second].scope;
    if (pieces.empty() || pieces.back().scope != scope) pieces.push_back({edges[i].at, scope});
  }
  return pieces;
}

uint32_t scope_at(const std::vector<ScopePiece>& pieces, uint64_t address) {
  const auto after =
      std::upper_bound(pieces.begin(), pieces.end(), address, [](uint64_t value, const ScopePiece& piece) { return value < piece.first; });
  return after == pieces.begin() ? kNoScope : std::prev(after)->scope;
}

}  // namespace ptd
