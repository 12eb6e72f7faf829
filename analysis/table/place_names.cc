// PlaceNames: see place_names.h.
#include "analysis/table/place_names.h"

#include <optional>

#include "image/likeliest_section.h"

namespace ptd {

PlaceName PlaceNames::find(SpaceId space, Ip ip, TimeNs when) {
  if (is_kernel_half(ip)) space = kKernelSpace;
  const uint64_t hash = (ip.value ^ (uint64_t{space.value} << 40)) * 0x9E3779B97F4A7C15ULL;
  const Entry& known = places_.at(hash);
  if (known.ip == ip && known.space == space && known.valid.contains(when)) return known.name;
  const std::optional<Symbol> symbol = recording_.symbolizer().find(space, ip, when);
  if (!symbol) return unnamed(space, ip, when);
  const PlaceName name{symbols.index_of(symbol->name), symbol->module.empty() ? -1 : modules.index_of(symbol->module), symbol->offset_bytes};
  places_.replace(hash) = Entry{ip, space, symbol->valid, name};
  return name;
}

/// Code without a symbol has the last part of its file's path.
PlaceName PlaceNames::unnamed(SpaceId space, Ip ip, TimeNs when) {
  const Timeline::SectionAt at = likeliest_section(recording_.timeline(), space, ip, when);
  PlaceName name;
  if (at.id == kNoSection) return name;
  std::string_view path = recording_.timeline().section(at.id).path;
  if (!path.starts_with('[')) path = path.substr(path.rfind('/') + 1);
  if (!path.empty()) name.module = modules.index_of(path);
  return name;
}

int32_t PlaceNames::comm(int32_t tid, TimeNs when) {
  if (comm_.tid == tid && comm_.valid.contains(when)) return comm_.name;
  comm_.tid = tid;
  const std::string text = recording_.comm_at(tid, when, &comm_.valid);
  comm_.name = text.empty() ? -1 : comms.index_of(text);
  return comm_.name;
}

}  // namespace ptd
