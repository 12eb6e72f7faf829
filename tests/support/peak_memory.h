// The memory that this process has, and the most that it had.
#pragma once

#include <cstdio>
#include <cstring>

namespace ptd::test {

/// Returns a line "VmHWM:  1234 kB" of /proc/self/status, in MiB; 0 if it does not exist.
inline long status_mib(const char* field) {
  FILE* file = std::fopen("/proc/self/status", "r");
  if (file == nullptr) return 0;
  char line[256];
  long kib = 0;
  while (std::fgets(line, sizeof line, file) != nullptr) {
    if (std::strncmp(line, field, std::strlen(field)) == 0) (void)std::sscanf(line + std::strlen(field), ": %ld", &kib);
  }
  (void)std::fclose(file);
  return kib / 1024;
}

/// Resets the peak to the present size; without the permission to do so the peak is that of the whole run, a stricter measure.
inline void reset_peak() {
  FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return;
  (void)std::fputs("5", file);
  (void)std::fclose(file);
}

}  // namespace ptd::test
