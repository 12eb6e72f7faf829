// FunctionFinder: see function_finder.h.
#include "analysis/function_finder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include "analysis/base/kernel_entry.h"
#include "analysis/call_flow.h"
#include "image/code_name.h"
#include "image/left_calls.h"
#include "image/likeliest_section.h"
#include "image/mapped_kind.h"
#include "image/symbols/kernel_debug.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"

namespace ptd {
FunctionFinder::Entry& FunctionFinder::entry_at(SpaceId space, Ip ip, TimeNs when) {
  const uint64_t hash = (ip.value ^ (ip.value >> 15)) * 0x9e3779b97f4a7c15ULL + space.value;
  Entry& entry = entries_.at(hash);
  const bool same = entry.ip == ip && entry.space == space && entry.found.valid.contains(when) && (entry.found.named || entry.pid == pid_);
  if (same) return entry;
  const FoundFunction found = look_up(space, ip, when);
  return entries_.replace(hash) = {ip, space, pid_, found, kNoFunction, {}};
}

FoundFunction FunctionFinder::find(SpaceId space, Ip ip, TimeNs when) { return entry_at(space_at(space, ip), ip, when).found; }

FoundFunction FunctionFinder::look_up(SpaceId space, Ip ip, TimeNs when) {
  Interval valid;
  const auto symbol = symbolizer_.find(space, ip, when, &valid);
  if (symbol) {
    const std::string_view name = owner_of(*symbol);
    const bool entry = symbol->offset_bytes == 0 && name.size() == symbol->name.size();
    const FunctionId id =
        symbol->place.empty() ? table_.intern(name, symbol->module) : table_.intern(placed_name(symbol->place, name), symbol->module);
    if (name.size() == symbol->name.size()) {
      add_names(id, *symbol, space, when);
      add_code(id, space, symbol->start, when);
    }
    return {{id, module_number(symbol->module), entry, true}, valid};
  }
  const Place place = place_of(space, ip, when);
  const auto frame = symbolizer_.frame_at(space, ip, when);
  if (frame && frame->is_function) {
    const bool entry = frame->start == ip.value;
    const FunctionId id = entry ? add_unnamed(space, ip, when) : unnamed_entry(space, Ip{frame->start}, when);
    return {{id, module_number(place.module), entry, true}, intersect(valid, place.valid)};
  }
  const FunctionId id = table_.intern("[unnamed code of " + place.module + "]", place.module);
  return {{id, module_number(place.module), false, false, frame.has_value()}, intersect(valid, place.valid)};
}

bool FunctionFinder::is_setjmp(FunctionId id) const {
  const std::string_view name = table_.info(id).name;
  return is_setjmp_name(name.substr(0, name.find('@')));
}

int32_t FunctionFinder::entry_of(FunctionId id) const {
  const KernelEntry entry = kernel_entry(table_.info(id).name);
  return entry == KernelEntry::none ? 0 : entry == KernelEntry::syscall ? kBySyscall : kByInterrupt;
}

int32_t FunctionFinder::landing_of(SpaceId space, Ip call, Ip return_to, TimeNs when) const {
  const auto found = symbolizer_.landing_of(space, call, when);
  const auto distance = static_cast<int64_t>(found ? *found - return_to + 1 : 0);
  constexpr int64_t kMost = int64_t{1} << 30;  // in one function
  return -kMost < distance && distance < kMost ? static_cast<int32_t>(distance) : 0;
}

// Returns the name of the function that a symbol is, or is a part of. Where several functions share a name and are named by address, the
// function of a cold part may be unknown: then the part is a function of its own.
std::string_view FunctionFinder::owner_of(const Symbol& symbol) {
  const std::string_view whole = whole_function(symbol.name);
  if (whole.size() == symbol.name.size() || !symbol.place.starts_with("0x")) return whole;
  const auto [known, is_new] = owners_.try_emplace(placed_name(symbol.place, whole), false);
  if (is_new) known->second = !symbolizer_.addresses_of(known->first).empty();
  return known->second ? whole : symbol.name;
}

// The name of a part that a compiler split off another function is not one of this function.
void FunctionFinder::add_names(FunctionId id, const Symbol& symbol, SpaceId space, TimeNs when) {
  if (id >= names_added_.size()) names_added_.resize(std::max<size_t>(id + 1, 2 * names_added_.size()));
  if (names_added_[id]) return;
  names_added_[id] = true;
  std::vector<std::string> names = symbolizer_.names_at(space, symbol.start, when);
  std::erase_if(names, [](const std::string& each) { return whole_function(each).size() != each.size(); });
  table_.add_names(id, names);
}

void FunctionFinder::add_code(FunctionId id, SpaceId space, Ip start, TimeNs when) {
  if (!table_.with_code()) return;
  const SectionId found = likeliest_section(timeline_, space, start, when).id;
  if (found == kNoSection) return;
  if (id >= code_added_.size()) code_added_.resize(std::max<size_t>(id + 1, 2 * code_added_.size()), {kNoSection, Ip{}});
  if (std::exchange(code_added_[id], {found, start}) == std::pair(found, start)) return;
  const Section& section = timeline_.section(found);
  const auto [name, is_new] = code_names_.try_emplace(found);
  if (is_new) name->second = code_name(section);
  table_.add_code(id, {FunctionCode::State::one, name->second, code_offset(section, start)});
}

uint32_t FunctionFinder::module_number(std::string_view module) {
  const auto known = modules_.find(module);
  return known != modules_.end() ? known->second : modules_.emplace(module, static_cast<uint32_t>(modules_.size())).first->second;
}

FunctionFinder::Place FunctionFinder::place_of(SpaceId space, Ip ip, TimeNs when) const {
  const auto [id, valid] = likeliest_section(timeline_, space, ip, when);
  const Section* section = id == kNoSection ? nullptr : &timeline_.section(id);
  if (is_kernel_space(space)) return {section == nullptr || section->path == kKernelTextPath ? "[kernel]" : section->path, ip.value, valid};
  const auto is_file_of = [](const Section& code) {
    return shows_file(code.path) || (code.path.starts_with("/memfd:") && !code.build_id.empty());
  };
  if (section == nullptr || !is_file_of(*section)) return {"[anon " + std::to_string(pid_) + "]", ip.value, valid};
  const uint64_t offset = (ip - section->ip) + section->file_offset_bytes;
  constexpr uint64_t kMostOffset = ~uint64_t{0} >> 1;  // a damaged record may claim one that no file has
  const bool is_offset = section->file_offset_bytes <= kMostOffset && offset <= kMostOffset;
  // Of a raw trace or a snapshot there is one copy of each: a dump of memory, whose addresses say more than offsets. A Windows module has
  // an id.
  const bool is_dump = pid_ < 0 && section->build_id.empty();
  return {std::string(symbolizer_.module_of(*section)), is_dump || !is_offset ? ip.value : offset, valid};
}

FunctionId FunctionFinder::add_unnamed(SpaceId space, Ip start, TimeNs when) {
  const Place place = place_of(space, start, when);
  const FunctionId id = table_.intern(place.module + "+" + hex_text(place.offset_bytes), place.module);
  add_code(id, space, start, when);
  return id;
}

Bytes FunctionFinder::code_before(SpaceId space, Ip ip, uint64_t most, TimeNs when) const {
  const SectionId found = likeliest_section(timeline_, space_at(space, ip), ip, when).id;
  if (found == kNoSection) return {};
  const Section& section = timeline_.section(found);
  const uint64_t at = ip - section.ip;
  if (at > section.code.bytes.size()) return {};
  return section.code.bytes.subspan(at - std::min(at, most), std::min(at, most));
}

bool FunctionFinder::skips_endbr(FunctionId id, SpaceId space, Ip ip, TimeNs when) {
  static constexpr std::array<std::array<uint8_t, kEndbrBytes>, 3> kForms = {
      {{0xf3, 0x0f, 0x1e, 0xfa}, {0x0f, 0x1f, 0x40, 0xd6}, {0x66, 0x0f, 0x1f, 0x00}}};
  const Bytes code = code_before(space, ip, kEndbrBytes, when);
  const auto is_here = [&code](const auto& form) { return std::memcmp(form.data(), code.data(), kEndbrBytes) == 0; };
  if (code.size() != kEndbrBytes || std::none_of(kForms.begin(), kForms.end(), is_here)) return false;
  const FoundFunction first = find(space, Ip{ip.value - kEndbrBytes}, when);
  return first.entry && first.id == id;
}

bool FunctionFinder::follows_call(SpaceId space, Ip ip, ExecMode mode, TimeNs when) const {
  constexpr uint64_t kShortest = 2, kLongest = 7;
  const Bytes code = code_before(space, ip, kLongest, when);
  for (uint64_t length = kShortest; length <= code.size(); ++length) {
    const Insn insn = classify(code.last(length), mode);
    if (insn.length_bytes == length && (insn.cls == InsnClass::call_direct || insn.cls == InsnClass::call_indirect)) return true;
  }
  return false;
}

// The bytes at `ip`, of an instruction at least if they are known. Narrows `valid` to the times at which they are there.
Bytes FunctionFinder::code_at(SpaceId space, Ip ip, TimeNs when, Interval& valid) {
  CodeCandidate code;
  if (view_.fetch(space, ip, {when, when}, {}, {&code, 1}).count != 0) {
    valid = intersect(valid, code.certain);
    return code.bytes;
  }
  const SectionId found = likeliest_section(timeline_, space, ip, when).id;
  if (found == kNoSection) return {};
  const Section& section = timeline_.section(found);
  const uint64_t at = ip - section.ip;
  return section.code.bytes.subspan(std::min<uint64_t>(at, section.code.bytes.size()));
}

// Whether a function surely returns that is called: it has a name, which is none of those that do not.
bool FunctionFinder::returns_from(const FoundFunction& callee) const {
  if (!callee.named || !callee.entry) return false;
  const std::string_view name = table_.info(callee.id).name;
  return !is_noreturn_name(name.substr(0, name.find('@')));
}

FunctionFinder::WaysOut FunctionFinder::ways_out(SpaceId space, Ip start, ExecMode mode, TimeNs when) {
  WaysOut out{{}, {kTimeMin, kTimeMax}};
  std::vector<Ip> open{start};
  std::unordered_set<uint64_t> seen;
  while (!open.empty() && seen.size() < kMostWayInsns) {
    const Ip ip = open.back();
    open.pop_back();
    const FoundFunction at = find(space, ip, when);
    out.valid = intersect(out.valid, at.valid);
    if (at.named && !at.entry) out.into.push_back(at.id);
    if (at.named || !seen.insert(ip.value).second) continue;
    const Insn insn = classify(code_at(space, ip, when, out.valid), mode);
    const bool jumps = insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jcc;
    // Other code may follow a call that does not return.
    const bool is_call = insn.cls == InsnClass::call_direct;
    const FoundFunction callee = is_call ? find(space, direct_target(insn, ip, mode), when) : FoundFunction{};
    if (is_call) out.valid = intersect(out.valid, callee.valid);
    const bool returns = is_call && returns_from(callee);
    if (insn.cls == InsnClass::jcc || returns || (insn.cls != InsnClass::bad && !is_branch(insn.cls)))
      open.push_back(next_sequential(insn, ip, mode));
    if (jumps) open.push_back(direct_target(insn, ip, mode));
  }
  return out;
}

bool FunctionFinder::leads_back(SpaceId space, Ip start, FunctionId into, ExecMode mode, TimeNs when) {
  space = space_at(space, start);
  const auto leads = [into](const WaysOut& out) { return std::ranges::find(out.into, into) != out.into.end(); };
  if (const WaysOut& known = entry_at(space, start, when).ways_out; known.valid.contains(when)) return leads(known);
  WaysOut out = ways_out(space, start, mode, when);  // replaces entries
  return leads(entry_at(space, start, when).ways_out = std::move(out));
}

FunctionId FunctionFinder::unnamed_entry(SpaceId space, Ip ip, TimeNs when) {
  space = space_at(space, ip);
  Entry& entry = entry_at(space, ip, when);
  if (entry.unnamed_entry == kNoFunction) {
    const auto frame = symbolizer_.frame_at(space, ip, when);  // of a split-off part, which may be entered at any place
    entry.unnamed_entry = add_unnamed(space, frame ? Ip{frame->start} : ip, when);
  }
  return entry.unnamed_entry;
}

}  // namespace ptd
