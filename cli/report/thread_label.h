// How reports name threads and address spaces.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// Returns the thread's last name and its number; of a guest's thread "VM:PID NAME" and its number on its machine. "swapper": 0; negative:
/// not known.
[[nodiscard]] std::string thread_label(const Recording& recording, int32_t tid);
/// Returns "kernel" or "mm5"; of a guest "VM:PID kernel" or "VM:PID mm5", with the process that runs it, or "VM kernel" if that is not
/// known.
[[nodiscard]] std::string space_label(const Recording& recording, SpaceId space);
/// Returns the process that runs a guest; 0: not known.
[[nodiscard]] int32_t process_of_guest(const Recording& recording, uint32_t machine);

}  // namespace ptd::cli
