// FunctionTable and FunctionFinder: see function_table.h.
#include "ptdecode/function_table.h"

#include "image/symbols/mapped_kind.h"

namespace ptd {
namespace {

// "foo.cold", "foo.cold.7" -> "foo": gcc and clang move what seldom runs out of line (gcc, "-freorder-blocks-and-partition").
std::string_view whole_function(std::string_view name) {
  const size_t cold = name.rfind(".cold");
  if (cold == std::string_view::npos || cold == 0) return name;
  for (const char c : name.substr(cold + 5)) {
    if (c != '.' && (c < '0' || c > '9')) return name;
  }
  return name.substr(0, cold);
}

std::string hex(uint64_t value) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (uint64_t rest = value; rest != 0 || text.empty(); rest >>= 4) text.insert(text.begin(), kDigits[rest & 15]);
  return "0x" + text;
}

}  // namespace

FunctionId FunctionTable::intern(std::string_view name, std::string_view module) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = ids_.emplace(std::pair(std::string(name), std::string(module)), static_cast<FunctionId>(functions_.size()));
  if (is_new) functions_.push_back({std::string(name), std::string(module)});
  return place->second;
}

const FunctionInfo& FunctionTable::info(FunctionId id) const {
  static const FunctionInfo kUnknown;
  const std::lock_guard lock(mutex_);
  return id < functions_.size() ? functions_[id] : kUnknown;
}

size_t FunctionTable::size() const {
  const std::lock_guard lock(mutex_);
  return functions_.size();
}

FoundFunction FunctionFinder::find(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) space = kKernelSpace;
  Entry& entry = entries_[(ip.value ^ (ip.value >> 14) ^ space.value) % kEntries];
  if (entry.ip != ip || entry.space != space || !entry.found.valid.contains(when)) entry = {ip, space, look_up(space, ip, when)};
  return entry.found;
}

FoundFunction FunctionFinder::look_up(SpaceId space, Ip ip, TimeNs when) {
  const auto symbol = symbolizer_.find(space, ip, when);
  // A symbol without a size reaches as far as the next one, which is a guess: entries of the procedure linkage table lie there.
  if (symbol && (symbol->size_bytes != 0 || symbol->offset_bytes == 0)) {
    const std::string_view name = whole_function(symbol->name);
    return {table_.intern(name, symbol->module), symbol->offset_bytes == 0 && name.size() == symbol->name.size(), true, false,
            symbol->valid};
  }
  const Place place = place_of(space, ip, when);
  return {table_.intern("[unnamed code of " + place.module + "]", place.module), false, false, place.in_file, {when, when}};
}

FunctionFinder::Place FunctionFinder::place_of(SpaceId space, Ip ip, TimeNs when) const {
  const SectionId id = timeline_.section_at(space, ip, when);
  const Section* section = id == kNoSection ? nullptr : &timeline_.section(id);
  if (space == kKernelSpace) return {section == nullptr ? "[kernel]" : section->path, true, ip.value};
  if (section == nullptr || !shows_file(section->path)) return {"[anon " + std::to_string(pid_) + "]", false, ip.value};
  const std::string& path = section->path;
  const uint64_t offset = (ip - section->ip) + section->file_offset_bytes;
  // Of a raw trace or a snapshot there is one copy of each: a dump of memory, whose addresses say more than offsets.
  return {path.starts_with('[') ? path : path.substr(path.rfind('/') + 1), true, pid_ < 0 ? ip.value : offset};
}

FunctionId FunctionFinder::unnamed_entry(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) space = kKernelSpace;
  const Place place = place_of(space, ip, when);
  return table_.intern(place.module + "+" + hex(place.offset_bytes), place.module);
}

bool FunctionFinder::enters_module(const FoundFunction& at, FunctionId from) const {
  return !at.named && at.in_file && from != kNoFunction && table_.info(from).module != table_.info(at.id).module;
}

}  // namespace ptd
