// CodeKeys: see code_keys.h.
#include "analysis/table/code_keys.h"

#include "image/code_name.h"
#include "ptdecode/guest.h"

namespace ptd {
namespace {

constexpr int32_t kUnknown = -2;

}  // namespace

CodeKeys::Found CodeKeys::find(SpaceId space, Ip ip, TimeNs when) {
  const auto [id, valid] = timeline_.section_during(space_at(space, ip), ip, when);
  if (id == kNoSection) return {{}, valid};
  const Section& section = timeline_.section(id);
  if (code_of_.empty()) code_of_.assign(timeline_.section_count(), kUnknown);
  if (code_of_[id] == kUnknown) code_of_[id] = codes.index_of(code_name(section));
  return {{code_of_[id], code_offset(section, ip)}, valid};
}

}  // namespace ptd
