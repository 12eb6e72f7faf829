// The --itrace option: which synthesised events a listing shows, in perf's letters.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::cli {

enum class PeriodUnit : uint8_t { instructions, ticks, ns };

struct ItraceOptions {
  bool instructions = false;
  PeriodUnit unit = PeriodUnit::ns;
  uint64_t period = 100'000;  ///< in `unit`; 0 or 1 with PeriodUnit::instructions: every one
  bool branches = false, calls = false, returns = false;
  bool transactions = false, ptwrite = false, power = false, interrupts = false, pebs = false;
  bool errors = false, overflow_errors = true, lost_errors = true;
  std::vector<std::string> notes;  ///< one sentence for each letter that is accepted and does nothing

  [[nodiscard]] bool every_instruction() const {
    return instructions && ((unit == PeriodUnit::instructions && period <= 1) || (unit != PeriodUnit::instructions && period == 0));
  }
  [[nodiscard]] bool any_branch() const { return branches || calls || returns; }
};

/// What `ptdecode script` shows when --itrace is not given: calls, events and errors, as `perf script` does.
[[nodiscard]] ItraceOptions default_itrace();

/// Reads perf's letters (tools/perf "Documentation/itrace.txt"). An empty string means everything: ibxwpe.
/// A letter that has no meaning here is an error of kind usage that names the nearest equivalent.
[[nodiscard]] Result<ItraceOptions> parse_itrace(std::string_view text);

}  // namespace ptd::cli
