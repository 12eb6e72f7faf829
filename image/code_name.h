// code_name: names code independently of the recording and of the address at which it was mapped.
#pragma once

#include <cstdint>
#include <string>

#include "ptdecode/timeline.h"

namespace ptd {

/// Returns the build id of a section's file; without one, "fnv64:" and a hash of the section's bytes; without bytes, its path.
[[nodiscard]] std::string code_name(const Section& section);
/// Returns the offset of `ip` in what code_name() names: in the file, or in the mapping.
[[nodiscard]] uint64_t code_offset(const Section& section, Ip ip);

}  // namespace ptd
