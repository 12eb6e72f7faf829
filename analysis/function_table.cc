// FunctionTable and FunctionFinder: see function_table.h.
#include "analysis/function_table.h"

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

std::string address_name(Ip ip) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (uint64_t rest = ip.value; rest != 0 || text.empty(); rest >>= 4) text.insert(text.begin(), kDigits[rest & 15]);
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
  const std::lock_guard lock(mutex_);
  return functions_.at(id);
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
    return {table_.intern(name, symbol->module), symbol->offset_bytes == 0 && name.size() == symbol->name.size(), true, symbol->valid};
  }
  return {table_.intern({}, {}), false, false, {when, when}};
}

FunctionId FunctionFinder::unnamed_entry(SpaceId, Ip ip, TimeNs) { return table_.intern(address_name(ip), {}); }

}  // namespace ptd
