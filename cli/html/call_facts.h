// CallFacts: what one walk over the calls collects for the report.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "cli/calls/call_export.h"
#include "cli/calls/function_rows.h"

namespace ptd::cli {

/// How much goes into the page.
struct PageLimits {
  size_t functions = 1000, detailed = 60, frames = 6000, changes = 300, regions = 12, mappings = 400, findings = 200, rows = 48,
         streams = 256, images = 200, threads = 500, name_bytes = 300;
  /// Returns half of everything.
  [[nodiscard]] PageLimits halved() const;
};

/// Durations in classes of a quarter of a doubling.
class LatencyCounts {
 public:
  void add(uint64_t ns);
  /// Returns [from_ns, count] for each class that is not empty, and the next class's start after the last.
  [[nodiscard]] nlohmann::json json() const;

 private:
  std::vector<uint32_t> classes_;
};

/// Fed with the steps of CallInput::walk(). Not thread-safe.
class CallFacts {
 public:
  explicit CallFacts(CallInput& input) : input_(input), stacks_(input) {}
  void take(std::span<const CallStep> steps, const CallTree& tree);
  [[nodiscard]] nlohmann::json functions_json(const PageLimits& limits);
  [[nodiscard]] nlohmann::json flame_json(const PageLimits& limits);

 private:
  static constexpr size_t kSlowest = 5;
  CallInput& input_;
  StackTotals stacks_;
  FunctionProfile profile_;
  std::vector<LatencyCounts> latencies_;  ///< by function
  std::vector<SlowCalls> slowest_;        ///< by function
};

}  // namespace ptd::cli
