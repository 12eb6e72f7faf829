// Perf map: /tmp/perf-PID.map, the text file in which a JIT compiler names its code (Linux, tools/perf "jit-interface.txt").
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "ptdecode/error.h"

namespace ptd {

/// A line: where code stood when it was written, and its name. No line says when, nor when the code went away.
struct PerfMapLine {
  uint64_t address = 0, size_bytes = 0;
  std::string_view name;  ///< views the text
};

/// "/tmp/perf-4711.map"
[[nodiscard]] std::string perf_map_path(int32_t pid);
/// The text of a perf map on this machine. Anybody can write to /tmp: as perf does, only a regular file of this user or of root is read,
/// and no link is followed. Errors: file_open (absent, of another user, no regular file, too large).
[[nodiscard]] Result<std::string> read_own_perf_map(const std::string& path);
/// Calls `on_line` for each good line, "START SIZE NAME" in hex, in the file's order; at most kMostPerfMapLines. Returns how many others
/// there were.
uint64_t read_perf_map(std::string_view text, const std::function<void(const PerfMapLine&)>& on_line);

inline constexpr uint64_t kMostPerfMapLines = 1U << 21;
inline constexpr uint64_t kMostPerfMapBytes = 256U << 20;

}  // namespace ptd
