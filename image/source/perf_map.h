// Perf map: /tmp/perf-PID.map, the text file in which a JIT compiler names its code (Linux, tools/perf "jit-interface.txt").
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "ptdecode/error.h"

namespace ptd {

/// A line: the address of code when the line was written, and its name. It has neither the time nor the end of the code's lifetime.
struct PerfMapLine {
  uint64_t address = 0, size_bytes = 0;
  std::string_view name;  ///< views the text
};

/// Returns "/tmp/perf-4711.map" for process 4711.
[[nodiscard]] std::string perf_map_path(int32_t pid);
/// Reads a perf map on this machine. /tmp is world-writable, so, like perf, it reads only a regular file of this user or of root and
/// follows no link. Errors: file_open (absent, another user's, not a regular file, too large).
[[nodiscard]] Result<std::string> read_own_perf_map(const std::string& path);
/// Calls `on_line` for each valid line, "START SIZE NAME" in hex, the last line first, until it returns false.
void read_perf_map(std::string_view text, const std::function<bool(const PerfMapLine&)>& on_line);

inline constexpr uint64_t kMostPerfMapBytes = 256U << 20;

}  // namespace ptd
