// likeliest_section: the section at an address, also where the time is unknown.
#pragma once

#include "ptdecode/timeline.h"

namespace ptd {

/// Returns the section at (space, ip, when). Where nothing is mapped then, code that ran there ran at another moment than `when`, which is
/// the last that the packets tell: the section mapped next at this address is the likeliest, and if there is none, the one mapped last
/// before. Not so if a record gives the code at `when`, which no section had then: as that of a module which is being loaded, where a
/// trampoline was before. kTimeMin stands for an unknown time: then it is the section mapped last.
[[nodiscard]] Timeline::SectionAt likeliest_section(const Timeline& timeline, SpaceId space, Ip ip, TimeNs when);

}  // namespace ptd
