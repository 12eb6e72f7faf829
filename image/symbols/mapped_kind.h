// Classifies a mapping by its path.
#pragma once

#include <string>

namespace ptd {

/// True for a file or the vdso, whose code is the same wherever it is mapped; false for a process's own memory, and for code that a JIT
/// compiler logged in a jitdump.
[[nodiscard]] bool shows_file(const std::string& path);

}  // namespace ptd
