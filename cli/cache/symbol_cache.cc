// SymbolCache: see symbol_cache.h.
#include "cli/cache/symbol_cache.h"

namespace ptd::cli {

std::string_view short_path(std::string_view path) {
  if (path.starts_with('[')) return path;
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

SymbolCache::Name SymbolCache::find(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) space = kKernelSpace;
  Entry& entry = entries_[((ip.value ^ (uint64_t{space.value} << 40)) * 0x9E3779B97F4A7C15ULL) >> 49];
  static_assert(kEntries == 1U << (64 - 49));
  if (entry.ip == ip && entry.space == space && entry.valid.contains(when)) return entry.name;
  if (const std::optional<Symbol> symbol = recording_.symbolizer().find(space, ip, when)) {
    entry = Entry{ip, space, symbol->valid, Name{symbol->name, symbol->module, symbol->offset_bytes}};
    return entry.name;
  }
  const SectionId section = recording_.timeline().section_at(space, ip, when);
  if (section == kNoSection) return {};
  return Name{{}, short_path(recording_.timeline().section(section).path), 0};
}

}  // namespace ptd::cli
