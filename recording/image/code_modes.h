// code_mode(): how the bytes of code are read where no flow says it. Private to recording and cli.
#pragma once

#include "ptdecode/recording.h"

namespace ptd {

/// Returns the mode of the code at a place and moment: that of the file that is mapped there. Generated code, and code of a file that was
/// not found, has that of the process's files if all of these are for 32-bit processors; else it is 64-bit code. Arm: A32 for ETMv3 and
/// PTM, else A64.
[[nodiscard]] ExecMode code_mode(const Recording& recording, SpaceId space, Ip ip, TimeNs when);

}  // namespace ptd
