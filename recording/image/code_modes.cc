// code_mode(): see code_modes.h.
#include "recording/image/code_modes.h"

#include "ptdecode/arm/config.h"
#include "recording/data/recording_data.h"

namespace ptd {

ExecMode code_mode(const Recording& recording, SpaceId space, Ip ip, TimeNs when) {
  constexpr uint64_t kMost32 = 0xffffffff;
  if (const arm::TraceConfig* config = recording.arm_config(0))
    return config->protocol == arm::Protocol::etmv3 || config->protocol == arm::Protocol::ptm ? ExecMode::a32 : ExecMode::a64;
  const Timeline& timeline = recording.timeline();
  const auto& modes = data_of(recording).modes;
  const auto mode_of = [&](const Section& section) {
    const auto known = modes.find({section.path, section.build_id});
    return known == modes.end() ? ExecMode::unknown : known->second;
  };
  const SectionId id = modes.empty() || ip.value > kMost32 ? kNoSection : timeline.section_at(space, ip, when);
  if (id == kNoSection) return ExecMode::bits64;
  const Section& section = timeline.section(id);
  if (const ExecMode own = mode_of(section); own != ExecMode::unknown) return own;
  ExecMode mode = ExecMode::bits64;
  for (SectionId other = 0; other < timeline.section_count(); ++other) {
    if (timeline.section(other).space != section.space) continue;
    const ExecMode known = mode_of(timeline.section(other));
    if (known == ExecMode::bits64) return known;
    if (known == ExecMode::bits32) mode = known;
  }
  return mode;
}

}  // namespace ptd
