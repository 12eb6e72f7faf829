// How reports name a thread.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/recording.h"

namespace ptd::cli {

/// Returns the thread's last name and its number; of a guest's thread "VM:PID NAME" and its number on its machine. "swapper": 0; negative: not known.
[[nodiscard]] std::string thread_label(const Recording& recording, int32_t tid);

}  // namespace ptd::cli
