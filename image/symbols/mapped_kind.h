// Classifies a mapping by its path.
#pragma once

#include <string>

namespace ptd {

/// Returns true for a file or the vdso, whose code is the same in every mapping; false for a process's own memory and for code from a
/// jitdump.
[[nodiscard]] bool shows_file(const std::string& path);
/// Returns true for a mapping of a process that shows code made at run time: its own memory, code from a jitdump, announced code.
[[nodiscard]] bool is_generated_code(const std::string& path);

}  // namespace ptd
