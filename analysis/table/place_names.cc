// PlaceNames: see place_names.h.
#include "analysis/table/place_names.h"

#include <optional>
#include <utility>

#include "image/likeliest_section.h"

namespace ptd {

const PlaceNames::Key& PlaceNames::look_up(SpaceId space, Ip ip, TimeNs when) {
  Interval valid;
  const std::optional<Symbol> symbol = recording_.symbolizer().find(space, ip, when, &valid);
  PlaceName name;
  if (symbol) {
    name = {symbols.index_of(symbol->name), symbol->module.empty() ? -1 : modules.index_of(symbol->module), symbol->offset_bytes};
  } else {
    name = unnamed(space, ip, when, valid);
  }
  all_valid_ = intersect(all_valid_, valid);
  places_.replace(hash_of(space, ip)) = Place{valid, name.offset_bytes, name.module};
  return keys_.replace(hash_of(space, ip)) = Key{ip, space, name.symbol};
}

/// Code without a symbol has its file's short name. Narrows `valid` to moments with the same answer.
PlaceName PlaceNames::unnamed(SpaceId space, Ip ip, TimeNs when, Interval& valid) {
  const Timeline::SectionAt at = likeliest_section(recording_.timeline(), space, ip, when);
  valid = intersect(valid, at.valid);
  PlaceName name;
  if (at.id == kNoSection) return name;
  const std::string_view module = recording_.symbolizer().module_of(recording_.timeline().section(at.id));
  if (!module.empty()) name.module = modules.index_of(module);
  return name;
}

int32_t PlaceNames::comm(int32_t tid, TimeNs when) {
  if (comm_.tid == tid && comm_.valid.contains(when)) return comm_.name;
  comm_.tid = tid;
  const std::string text = recording_.comm_at(tid, when, &comm_.valid);
  comm_.name = text.empty() ? -1 : comms.index_of(text);
  return comm_.name;
}

std::string MarkNames::text_of(uint16_t block_flags) {
  constexpr std::pair<BlockFlag, std::string_view> kWords[] = {
      {BlockFlag::ambiguous, "ambiguous"}, {BlockFlag::suspect, "suspect"}, {BlockFlag::healed, "healed"}, {BlockFlag::assumed, "assumed"}};
  std::string text;
  for (const auto& [flag, word] : kWords) {
    if (has(block_flags, flag)) text += (text.empty() ? "" : " ") + std::string(word);
  }
  return text;
}

}  // namespace ptd
