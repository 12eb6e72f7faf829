// likeliest_section: the section at an address, also where the time is unknown.
#pragma once

#include "ptdecode/timeline.h"

namespace ptd {

/// Returns the section at (space, ip, when). kTimeMin stands for an unknown time: where nothing is mapped then, the section mapped last at
/// this address is the likeliest.
[[nodiscard]] Timeline::SectionAt likeliest_section(const Timeline& timeline, SpaceId space, Ip ip, TimeNs when);

}  // namespace ptd
