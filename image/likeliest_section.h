// likeliest_section: the section at an address, also where the time is unknown.
#pragma once

#include "ptdecode/timeline.h"

namespace ptd {

/// Returns the section at (space, ip, when). Where nothing is mapped then, code that ran there ran at another moment than `when`, which is the
/// last that the packets tell: the section mapped next at this address is the likeliest, and if there is none, the one mapped last before.
/// kTimeMin stands for an unknown time: then it is the section mapped last.
[[nodiscard]] Timeline::SectionAt likeliest_section(const Timeline& timeline, SpaceId space, Ip ip, TimeNs when);

}  // namespace ptd
