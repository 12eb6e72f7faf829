// Measures cases through the process' clock and /proc/self.
#include "tests/hostile/guard.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace ptd::test {
namespace {

Worst g_worst;
char g_running[256];

double cpu_seconds() {
  timespec now{};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Returns a line "VmHWM:  1234 kB" of /proc/self/status, in MiB; 0 if it does not exist.
long status_mib(const char* field) {
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

// Resets the peak to the present size; without the permission to do so the peak is that of the whole run, a stricter measure.
void reset_peak() {
  FILE* file = std::fopen("/proc/self/clear_refs", "w");
  if (file == nullptr) return;
  (void)std::fputs("5", file);
  (void)std::fclose(file);
}

void on_watchdog(int) {
  static constexpr char kText[] = "hangs: ";
  (void)!::write(STDERR_FILENO, kText, sizeof kText - 1);
  (void)!::write(STDERR_FILENO, g_running, std::strlen(g_running));
  (void)!::write(STDERR_FILENO, "\n", 1);
  ::_exit(3);
}

}  // namespace

CaseGuard::CaseGuard(const std::string& what) : what_(what) {
  std::snprintf(g_running, sizeof g_running, "%s", what.c_str());
  (void)::signal(SIGALRM, on_watchdog);
  (void)::alarm(kWatchdogS);
  reset_peak();
  start_mib_ = status_mib("VmRSS");
  start_s_ = cpu_seconds();
}

void CaseGuard::end(std::vector<std::string>& findings) {
  const double seconds = cpu_seconds() - start_s_;
  const long growth_mib = status_mib("VmHWM") - start_mib_;
  (void)::alarm(0);
  if (seconds > kMaxSeconds) findings.push_back(what_ + ": took " + std::to_string(seconds) + " s");
  if (growth_mib > kMaxGrowthMib) findings.push_back(what_ + ": needed " + std::to_string(growth_mib) + " MiB");
  if (seconds > g_worst.seconds) {
    g_worst.seconds = seconds;
    g_worst.slowest = what_;
  }
  if (growth_mib > g_worst.growth_mib) {
    g_worst.growth_mib = growth_mib;
    g_worst.largest = what_;
  }
}

const Worst& CaseGuard::worst() { return g_worst; }

}  // namespace ptd::test
