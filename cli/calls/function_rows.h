// Rows of `ptdecode functions` and the slowest calls of a function, for it and for the report.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "analysis/names/function_filter.h"
#include "cli/calls/call_input.h"
#include "ptdecode/function_profile.h"

namespace ptd::cli {

/// One call.
struct SlowCall {
  CallStep step;
  int32_t pid = -1, tid = -1;
  std::string comm;
};

/// The longest calls seen so far, the longest first; of equals the earliest.
class SlowCalls {
 public:
  explicit SlowCalls(size_t limit) : limit_(limit) {}
  /// Returns whether add() would keep a call that ends with this step.
  [[nodiscard]] bool wants(const CallStep& step) const {
    return limit_ != 0 && (calls_.size() < limit_ || is_longer(step, calls_.back().step));
  }
  void add(SlowCall call);
  [[nodiscard]] const std::vector<SlowCall>& calls() const { return calls_; }

 private:
  static bool is_longer(const CallStep& a, const CallStep& b) {
    return std::pair(b.total_ns(), a.start) < std::pair(a.total_ns(), b.start);
  }
  size_t limit_;
  std::vector<SlowCall> calls_;
};

/// A function and its totals.
struct FunctionRow {
  FunctionId id = kNoFunction;
  const FunctionTotals* totals = nullptr;
};

/// What is listed, and in which order.
struct FunctionOrder {
  std::string sort = "self";  ///< self, total, calls, max or instructions
  std::string function;       ///< only those of this name; empty: all
  bool timed = true;
};
[[nodiscard]] FunctionFilter filter_of(const std::string& function, const FunctionTable& functions);
/// Returns the functions that were called, and the untraced code. The totals are those of `profile`.
[[nodiscard]] std::vector<FunctionRow> ranked(const FunctionOrder& order, const FunctionProfile& profile, const FunctionTable& functions);
/// The start of a call for --time; empty if no packet bounds it.
[[nodiscard]] std::string start_text(const CallStep& step);
/// The objects of `ptdecode functions --format json`.
[[nodiscard]] nlohmann::json function_json(const FunctionRow& row, bool timed, const FunctionTable& functions);
[[nodiscard]] nlohmann::json slow_call_json(const SlowCall& call, const FunctionTable& functions);

}  // namespace ptd::cli
