// RecordingPlan: everything needed to make a recording from the plugin's logs, so that any process can do it.
#pragma once

#include <string>

#include "capture/emulate/user_recording.h"
#include "ptdecode/error.h"

namespace ptd::emulate {

/// The plugin's clock and CLOCK_MONOTONIC at one moment.
struct ClockPair {
  uint64_t tsc = 0, ns = 0;
};
[[nodiscard]] ClockPair read_clocks();

struct RecordingPlan {
  RecordingOptions recording;  ///< its time is set by plan_time()
  ClockPair before, start;     ///< some time before the program started, and just before
  std::string boot;            ///< names the run of this machine in which the clocks count
};

/// Where the plan is written, in the working folder; the config is in another file (kConfigFile).
inline constexpr const char* kPlanFile = "plan";

/// This machine's run, "" if the system does not name it.
[[nodiscard]] std::string this_boot();
/// Errors: file_open.
[[nodiscard]] Status write_plan(const RecordingPlan& plan);
/// Errors: file_format if the folder has no plan.
[[nodiscard]] Result<RecordingPlan> read_plan(const std::string& folder);
/// Sets the conversion of times, from the longest run of both clocks that is known.
void set_time(RecordingPlan& plan);

}  // namespace ptd::emulate
