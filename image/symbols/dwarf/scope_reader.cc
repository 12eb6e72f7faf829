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

namespace ptd {
namespace {

constexpr size_t kMaxScopes = 1U << 22;

const char* name_of(Facts& facts) {
  for (const Fact kind : {Fact::linkage_name, Fact::old_linkage_name, Fact::name}) {
    Dwarf_Attribute* const attribute = facts.find(kind);
    if (attribute == nullptr) continue;
    if (const char* text = dwarf_formstring(attribute); text != nullptr) return text;
  }
  return nullptr;
}

uint64_t number_of(Facts& facts, Fact kind) {
  Dwarf_Attribute* const attribute = facts.find(kind);
  Dwarf_Word value = 0;
  return attribute != nullptr && dwarf_formudata(attribute, &value) == 0 ? value : 0;
}

// Returns whether an inlined copy named `inner` may be a part of the function `outer`. Constructors and destructors have variants (C1, C2;
// D0, D1, D2) with one DIE of origin, which is named C4 or D4. A destructor D0 or D1 calls D2. [Itanium C++ ABI] "Constructors and
// Destructors"
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
  ScopeReader(Dwarf_Die unit, const ScopeSource& source, UnitScopes& found)
      : source_(source),
        limits_(source.limits),
        unit_die_(unit),
        facts_(unit, source.limits),
        scopes_(found.scopes),
        extents_(found.extents),
        empty_(found.empty) {}
  void read(Dwarf_Die* unit) {
    unit_ = bytes_of_unit(*unit);
    if (spend(DebugLimits::Kind::entry_bytes, static_cast<uint64_t>(unit_.end - unit_.first)))
      (void)visit(*unit, read_entry(*unit, unit_), kNoScope, 0);
    for (Scope& scope : scopes_) {
      const auto known = scope.declared.line == 0 ? enclosing_of_.find(scope.origin) : enclosing_of_.end();
      if (known != enclosing_of_.end()) scope.enclosing = known->second;
    }
  }

 private:
  enum class Kind { function, scope, other };
  [[nodiscard]] Kind kind_of(Dwarf_Die& die) const {
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

  // Consumes some of a limit. Returns false if one is exceeded.
  bool spend(DebugLimits::Kind kind, uint64_t amount) { return limits_ == nullptr || limits_->spend(kind, amount); }

  // Reads the entries below `parent`. Returns the address after them; null if a limit or damage ended it. dwarf_siblingof() would read what
  // is below an entry again, for each level.
  const unsigned char* visit(Dwarf_Die& parent, const Entry& entry, uint32_t scope, unsigned depth) {
    const unsigned char* at = entry.end;
    if (at == nullptr || dwarf_haschildren(&parent) != 1) return at;
    if (depth >= kMaxScopeDepth) return pass_below(at);
    while (at != nullptr && at < unit_.end) {
      if (*at == 0) return at + 1;
      if (scopes_.size() >= kMaxScopes) break;
      Dwarf_Die die = entry_at(at);
      const Kind kind = kind_of(die);
      const Entry next = read_entry(die, unit_);
      if (!spend(DebugLimits::Kind::attributes, next.attributes)) break;
      at = read_below(die, next, {kind, scope, depth});
    }
    return nullptr;
  }
  [[nodiscard]] Dwarf_Die entry_at(const unsigned char* at) const {
    Dwarf_Die die = unit_die_;
    die.addr = const_cast<unsigned char*>(at);
    die.abbrev = nullptr;
    return die;
  }

  // Returns the address after the entries that begin at `at`, and all below them; null if they are damaged.
  [[nodiscard]] const unsigned char* pass_below(const unsigned char* at) {
    for (size_t levels = 1; at != nullptr && at < unit_.end;) {
      if (*at == 0) {
        ++at;
        if (--levels == 0) return at;
        continue;
      }
      Dwarf_Die die = entry_at(at);
      const Entry entry = read_entry(die, unit_);
      if (!spend(DebugLimits::Kind::attributes, entry.attributes)) break;
      at = entry.end;
      if (dwarf_haschildren(&die) == 1) ++levels;
    }
    return nullptr;
  }
  struct Here {
    Kind kind = Kind::other;
    uint32_t scope = kNoScope;
    unsigned depth = 0;
  };
  const unsigned char* read_below(Dwarf_Die& die, const Entry& entry, const Here& here) {
    if (here.kind == Kind::function) return take(die, entry, here.scope, here.depth);
    if (dwarf_haschildren(&die) != 1) return entry.end;
    if (here.kind == Kind::scope) return visit(die, entry, here.scope, here.depth + 1);
    if (const unsigned char* const next = sibling_of(die, entry); next != nullptr) return next;
    const bool outer = std::exchange(skipping_, true);
    const unsigned char* end = visit(die, entry, here.scope, here.depth + 1);
    skipping_ = outer;
    return end;
  }
  // Returns the address to which an entry refers as the one after it and its children; null if it does not.
  [[nodiscard]] const unsigned char* sibling_of(const Dwarf_Die& die, const Entry& entry) const {
    Dwarf_Attribute sibling = entry.sibling;
    Dwarf_Die next;
    if (sibling.valp == nullptr || dwarf_formref_die(&sibling, &next) == nullptr || next.cu != die.cu) return nullptr;
    const auto* const at = static_cast<const unsigned char*>(next.addr);
    return at > entry.end && at < unit_.end ? at : nullptr;
  }

  // Returns whether an inlined copy is a part of the function `parent` around it. GCC splits a function that begins with a short part
  // (-fpartial-inlining), and may then inline the rest into that part. It gives the call, which is not in the source, the place of the
  // function's declaration. A call of a recursive function has a place of its own.
  // Limitation: without columns (-gno-column-info), a recursive call in the line of the declaration is taken for a part.
  [[nodiscard]] bool is_part(Dwarf_Die& die, Facts& facts, uint32_t parent) {
    if (parent == kNoScope || dwarf_tag(&die) != DW_TAG_inlined_subroutine || scopes_[parent].origin != facts.origin) return false;
    const Scope& outer = scopes_[parent];
    const char* const name = name_of(facts);
    if (outer.linkage_name == nullptr || name == nullptr) return false;
    const std::string_view outer_name = bounded(outer.linkage_name), own_name = bounded(name);
    if (!spend(DebugLimits::Kind::names, outer_name.size() + own_name.size()) || !may_be_part(outer_name, own_name)) return false;
    const Declaration declared = place_of(die, facts, Fact::decl_file, Fact::decl_line),
                      call = place_of(die, facts, Fact::call_file, Fact::call_line);
    const bool same_file = declared.file_number == call.file_number || declared.file_number == kNoFile;
    if (call.line == 0 || call.line != declared.line || !same_file ||
        number_of(facts, Fact::call_column) != number_of(facts, Fact::decl_column))
      return false;
    // Of destructors that are inlined, the name does not say whether it is D0 or D2, which D0 calls first.
    Dwarf_Addr entry = 0;
    const bool both_begin = dwarf_entrypc(&die, &entry) == 0 && entry == outer.entry;
    return !(outer.inlined && both_begin && own_name.find("D4Ev") != std::string_view::npos);
  }

  static std::string_view bounded(const char* name) {
    constexpr size_t kMostName = 1U << 16;
    return {name, ::strnlen(name, kMostName)};
  }

  const unsigned char* take(Dwarf_Die& die, const Entry& own, uint32_t parent, unsigned depth) {
    Facts facts = facts_.read(die);
    const bool has_list = facts.has(Fact::ranges);
    if (has_list && source_.tables != nullptr && !source_.tables->spend_ranges(*facts.find(Fact::ranges))) return nullptr;
    if (is_part(die, facts, parent)) return visit(die, own, parent, depth + 1);
    const auto number = static_cast<uint32_t>(scopes_.size());
    const size_t before = extents_.size();
    Dwarf_Addr base = 0, first = 0, end = 0;
    ptrdiff_t at = 0;
    while ((at = dwarf_ranges(&die, at, &base, &first, &end)) > 0) {
      if (!has_list && !spend(DebugLimits::Kind::ranges, 1)) return nullptr;
      if (first != 0 && first < end) extents_.push_back({first, end, number, depth});
    }
    const Declaration declared = place_of(die, facts, Fact::decl_file, Fact::decl_line), outer = enclosing_;
    if (declared.line != 0) {
      enclosing_ = declared;
    } else if (outer.line != 0 && enclosing_of_.size() < kMaxEnclosed) {
      enclosing_of_.emplace(dwarf_dieoffset(&die), outer);
    }
    const unsigned char* after = nullptr;
    if (extents_.size() == before) {  // a declaration, a function that is only inlined, or a copy without code
      Dwarf_Addr entry = 0;
      const bool is_copy = dwarf_tag(&die) == DW_TAG_inlined_subroutine && empty_.size() < kMaxScopes;
      if (is_copy && dwarf_entrypc(&die, &entry) == 0) empty_.push_back({entry, facts.origin});
      after = visit(die, own, parent, depth + 1);
    } else {
      add(die, facts, {declared, extents_[before].first, before}, parent);
      after = visit(die, own, number, depth + 1);
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
  // Returns where a function is entered. Of a function in several parts that is its first range ([DWARF5] "Entry Address"), unless symbols
  // show another one: clang writes the parts that it split off first (LLVM, MachineFunction::MBBSectionRanges).
  uint64_t entry_of(Dwarf_Die& die, const Start& start) const {
    Dwarf_Addr entry = start.first;
    const bool known =
        dwarf_entrypc(&die, &entry) == 0 && (dwarf_hasattr(&die, DW_AT_entry_pc) == 1 || dwarf_hasattr(&die, DW_AT_low_pc) == 1);
    if (known || dwarf_tag(&die) == DW_TAG_inlined_subroutine || extents_.size() - start.extents == 1 || !source_.starts) return entry;
    const auto own = extents_.begin() + static_cast<std::ptrdiff_t>(start.extents);
    const auto begins = std::find_if(own, extents_.end(), [this](const ScopeExtent& extent) { return source_.starts(extent.first); });
    return begins == extents_.end() ? entry : begins->first;
  }
  void add(Dwarf_Die& die, Facts& facts, const Start& start, uint32_t parent) {
    Scope scope;
    scope.linkage_name = name_of(facts);
    scope.name = source_.names(scope.linkage_name);
    scope.inlined = dwarf_tag(&die) == DW_TAG_inlined_subroutine;
    scope.parent = scope.inlined ? parent : kNoScope;
    scope.origin = facts.origin;
    scope.declared = start.declared;
    if (scope.inlined) {
      scope.call = place_of(die, facts, Fact::call_file, Fact::call_line);
      scope.call_discriminator = static_cast<uint32_t>(number_of(facts, Fact::discriminator));
    }
    scope.entry = entry_of(die, start);
    scope.first_code = first_code(scope.entry, std::span(extents_).subspan(start.extents));
    Dwarf_Attribute* const view = facts.find(Fact::entry_view);
    Dwarf_Word value = 0;
    if (scope.inlined && view != nullptr && dwarf_formudata(view, &value) == 0)
      scope.entry_view = static_cast<uint32_t>(std::min<Dwarf_Word>(value, kNoView));
    scopes_.push_back(scope);
  }

  // A number of a file is of the unit that contains it: link-time optimization and dwz give functions whose declaration is in another unit.
  static Declaration place_of(const Dwarf_Die& die, Facts& facts, Fact file_kind, Fact line_kind) {
    Dwarf_Attribute* const attribute = facts.find(file_kind);
    Dwarf_Word file = 0;
    if (attribute == nullptr || dwarf_formudata(attribute, &file) != 0) return {};
    const auto number = static_cast<uint32_t>(std::min<uint64_t>(file, kNoFile)), line = static_cast<uint32_t>(number_of(facts, line_kind));
    if (attribute->cu == die.cu) return {{}, line, number};
    Dwarf_Die unit;
    if (dwarf_cu_die(attribute->cu, &unit, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr) == nullptr) return {{}, line};
    const bool is_own = dwarf_cu_getdwarf(attribute->cu) == dwarf_cu_getdwarf(die.cu);
    return {{}, line, kNoFile, number, dwarf_dieoffset(&unit) | (is_own ? 0 : kAlternateOffset)};
  }

  const ScopeSource& source_;
  DebugLimits* const limits_;
  const Dwarf_Die unit_die_;
  FactReader facts_;
  std::vector<Scope>& scopes_;
  std::vector<ScopeExtent>& extents_;
  std::vector<EmptyCopy>& empty_;
  UnitBytes unit_;
  bool skipping_ = false;  // below an entry whose functions are not read
  static constexpr size_t kMaxEnclosed = 1U << 16;
  Declaration enclosing_;  // of the DIE that is read
  std::unordered_map<Dwarf_Off, Declaration> enclosing_of_;
};

}  // namespace

UnitScopes read_scopes(Dwarf_Die unit, const ScopeSource& source) {
  UnitScopes found;
  ScopeReader(unit, source, found).read(&unit);
  return found;
}

std::vector<ScopePiece> pieces_of(std::vector<ScopeExtent> extents) {
  struct Edge {
    uint64_t at = 0;
    uint32_t extent = 0;
    bool begins = false;
  };
  std::sort(extents.begin(), extents.end(),
            [](const ScopeExtent& a, const ScopeExtent& b) { return std::pair(a.first, a.depth) < std::pair(b.first, b.depth); });
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
