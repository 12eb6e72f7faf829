// SymbolCache: see symbol_cache.h.
#include "cli/cache/symbol_cache.h"

#include <algorithm>
#include <utility>

#include "analysis/names/name_match.h"
#include "image/likeliest_section.h"
#include "image/placed_name.h"
#include "ptdecode/guest.h"

namespace ptd::cli {

std::string_view short_path(std::string_view path) {
  if (path.starts_with('[')) return path;
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

SymbolCache::Entry& SymbolCache::entry_at(SpaceId space, Ip ip, TimeNs when) {
  const uint64_t hash = (ip.value ^ (uint64_t{space.value} << 40)) * 0x9E3779B97F4A7C15ULL;
  Entry& entry = entries_.at(hash);
  if (entry.ip == ip && entry.space == space && entry.valid.contains(when)) return entry;
  Interval valid;
  const std::optional<Symbol> symbol = recording_.symbolizer().find(space, ip, when, &valid);
  Entry& fresh = entries_.replace(hash);
  fresh = Entry{ip, space, valid, symbol ? Name{symbol->name, symbol->module, {}, symbol->offset_bytes} : Name{}};
  return fresh;
}

/// Null: no name.
SymbolCache::Entry* SymbolCache::entry_of(SpaceId space, Ip ip, TimeNs when) {
  Entry& entry = entry_at(space, ip, when);
  return entry.name.name.empty() ? nullptr : &entry;
}

SymbolCache::Name SymbolCache::unnamed(SpaceId space, Ip ip, TimeNs when) const {
  const SectionId section = likeliest_section(recording_.timeline(), space, ip, when).id;
  if (section == kNoSection) return {};
  const Section& shown = recording_.timeline().section(section);
  return Name{{}, recording_.symbolizer().module_of(shown), shown.path, 0};
}

SymbolCache::Name SymbolCache::find(SpaceId space, Ip ip, TimeNs when) {
  space = space_at(space, ip);
  const Entry* entry = entry_of(space, ip, when);
  return entry != nullptr ? entry->name : unnamed(space, ip, when);
}

uint64_t SymbolCache::function_at(SpaceId space, Ip ip, TimeNs when) {
  space = space_at(space, ip);
  Entry& entry = entry_at(space, ip, when);
  const std::string_view name = entry.name.name;
  if (!name.empty()) return whole_function(name).size() == name.size() ? ip.value - entry.name.offset_bytes : 0;
  if (!entry.unnamed_start) {
    const std::optional<FrameSpan> frame = recording_.symbolizer().frame_at(space, ip, when);
    entry.unnamed_start = frame && frame->is_function ? frame->start : 0;
  }
  return *entry.unnamed_start;
}

bool SymbolCache::is_landing(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) return false;
  Entry& entry = entry_at(space, ip, when);
  if (!entry.is_landing) entry.is_landing = recording_.symbolizer().is_landing(space, ip, when);
  return *entry.is_landing;
}

uint64_t SymbolCache::landing_of(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) return 0;
  Entry& entry = entry_at(space, ip, when);
  if (!entry.landing) entry.landing = recording_.symbolizer().landing_of(space, ip, when).value_or(Ip{}).value;
  return *entry.landing;
}

bool SymbolCache::wanted(SpaceId space, Ip ip, TimeNs when, const std::vector<std::string>& patterns) {
  if (patterns.empty()) return true;
  space = space_at(space, ip);
  Entry* entry = entry_of(space, ip, when);
  if (entry == nullptr) return name_wanted(patterns, {});
  if (!entry->wanted) {
    const std::vector<std::string> names = recording_.symbolizer().names_at(space, ip, when);
    entry->wanted = std::any_of(names.begin(), names.end(), [&](const std::string& name) { return name_wanted(patterns, name); });
  }
  return *entry->wanted;
}

SymbolCache::Name SymbolCache::find_with_path(SpaceId space, Ip ip, TimeNs when) {
  space = space_at(space, ip);
  Entry* entry = entry_of(space, ip, when);
  if (entry == nullptr) return unnamed(space, ip, when);
  if (!std::exchange(entry->has_path, true)) entry->name.path = unnamed(space, ip, when).path;
  return entry->name;
}

}  // namespace ptd::cli
