// Measures cases through the process' clock and /proc/self.
#include "tests/hostile/guard.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "tests/support/peak_memory.h"

namespace ptd::test {
namespace {

Worst g_worst;
char g_running[256];

double cpu_seconds() {
  timespec now{};
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
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
