// Limits of one case: CPU time, memory, and a watchdog that names a case that hangs.
#pragma once

#include <string>
#include <vector>

namespace ptd::test {

/// The maxima of all cases, for the report.
struct Worst {
  double seconds = 0;
  long growth_mib = 0;
  std::string slowest, largest;
};

/// Times one case from construction to end(). A case that outlives the watchdog ends the program with its name on standard error.
class CaseGuard {
 public:
  static constexpr double kMaxSeconds = 20;    // CPU time of one case, sanitizers included
  static constexpr long kMaxGrowthMib = 640;   // increase of peak resident memory during the case, sanitizers included
  static constexpr unsigned kWatchdogS = 300;  // elapsed time: other programs may share the processor

  explicit CaseGuard(const std::string& what);
  /// Adds a finding for each limit that the case exceeded.
  void end(std::vector<std::string>& findings);
  [[nodiscard]] static const Worst& worst();

 private:
  std::string what_;
  double start_s_;
  long start_mib_;
};

}  // namespace ptd::test
