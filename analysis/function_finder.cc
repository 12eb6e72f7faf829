// FunctionFinder: see function_finder.h.
#include "analysis/function_finder.h"

#include "image/likeliest_section.h"
#include "image/symbols/mapped_kind.h"

namespace ptd {
namespace {

// Returns the name without ".cold", ".cold.7" or, if it is demangled, " [clone .cold]": gcc and clang move code that seldom runs out of
// line (gcc, "-freorder-blocks-and-partition").
std::string_view whole_function(std::string_view name) {
  const size_t cold = name.rfind(".cold");
  if (cold == std::string_view::npos || cold == 0) return name;
  constexpr std::string_view kClone = " [clone ";
  const bool clone = name.substr(0, cold).ends_with(kClone);
  if (clone != name.ends_with(']')) return name;
  for (const char c : name.substr(cold + 5, name.size() - cold - 5 - (clone ? 1 : 0))) {
    if (c != '.' && (c < '0' || c > '9')) return name;
  }
  return name.substr(0, clone ? cold - kClone.size() : cold);
}

std::string hex(uint64_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (uint64_t rest = value; rest != 0 || text.empty(); rest >>= 4) text.insert(text.begin(), kDigits[rest & 15]);
  return "0x" + text;
}

}  // namespace

FunctionFinder::Entry& FunctionFinder::entry_at(SpaceId space, Ip ip, TimeNs when) {
  Entry& entry = entries_[(ip.value ^ (ip.value >> 14) ^ space.value) % kEntries];
  const bool same = entry.ip == ip && entry.space == space && entry.found.valid.contains(when) && (entry.found.named || entry.pid == pid_);
  if (!same) entry = {ip, space, pid_, look_up(space, ip, when), kNoFunction};
  return entry;
}

FoundFunction FunctionFinder::find(SpaceId space, Ip ip, TimeNs when) {
  return entry_at(is_kernel_half(ip) ? kKernelSpace : space, ip, when).found;
}

FoundFunction FunctionFinder::look_up(SpaceId space, Ip ip, TimeNs when) {
  Interval valid;
  const auto symbol = symbolizer_.find(space, ip, when, &valid);
  if (symbol) {
    const std::string_view name = whole_function(symbol->name);
    const bool entry = symbol->offset_bytes == 0 && name.size() == symbol->name.size();
    return {{table_.intern(name, symbol->module), module_number(symbol->module), entry, true}, valid};
  }
  const Place place = place_of(space, ip, when);
  const FunctionId id = table_.intern("[unnamed code of " + place.module + "]", place.module);
  return {{id, module_number(place.module), false, false}, intersect(valid, place.valid)};
}

uint32_t FunctionFinder::module_number(std::string_view module) {
  const auto known = modules_.find(module);
  return known != modules_.end() ? known->second : modules_.emplace(module, static_cast<uint32_t>(modules_.size())).first->second;
}

FunctionFinder::Place FunctionFinder::place_of(SpaceId space, Ip ip, TimeNs when) const {
  const auto [id, valid] = likeliest_section(timeline_, space, ip, when);
  const Section* section = id == kNoSection ? nullptr : &timeline_.section(id);
  if (space == kKernelSpace) return {section == nullptr ? "[kernel]" : section->path, ip.value, valid};
  if (section == nullptr || !shows_file(section->path)) return {"[anon " + std::to_string(pid_) + "]", ip.value, valid};
  const std::string& path = section->path;
  const uint64_t offset = (ip - section->ip) + section->file_offset_bytes;
  constexpr uint64_t kMostOffset = ~uint64_t{0} >> 1;  // a damaged record may claim one that no file has
  const bool is_offset = section->file_offset_bytes <= kMostOffset && offset <= kMostOffset;
  // Of a raw trace or a snapshot there is one copy of each: a dump of memory, whose addresses say more than offsets.
  return {path.starts_with('[') ? path : path.substr(path.rfind('/') + 1), pid_ < 0 || !is_offset ? ip.value : offset, valid};
}

FunctionId FunctionFinder::unnamed_entry(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) space = kKernelSpace;
  Entry& entry = entry_at(space, ip, when);
  if (entry.unnamed_entry == kNoFunction) {
    const Place place = place_of(space, ip, when);
    entry.unnamed_entry = table_.intern(place.module + "+" + hex(place.offset_bytes), place.module);
  }
  return entry.unnamed_entry;
}

}  // namespace ptd
