// Samples of a recording's other events among the lines of the flow, by time.
#pragma once

#include <span>

#include "cli/calls/call_json.h"
#include "cli/calls/call_script.h"
#include "cli/list/stream_merge.h"
#include "cli/options/script_options.h"
#include "recording/data/other_events.h"

namespace ptd::cli {

/// Reads them, in `times` (empty: all). More than fit into memory are left out, which is said on standard error.
[[nodiscard]] OtherEvents read_samples(const InputOptions& input, const std::vector<Interval>& times);

/// Their lines as one more stream of `ptdecode script`. All must outlive the task.
[[nodiscard]] StreamTask sample_task(const Recording& recording, const ScriptOptions& options, const OtherEvents& samples);

/// Puts them between the steps of the tree of calls. One of `script` and `json` gets all.
class SampleMerge {
 public:
  SampleMerge(const OtherEvents& samples, CallScript* script, CallJson* json) : samples_(samples), script_(script), json_(json) {}
  void take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out);
  /// After the last step.
  void finish(TextBuffer& out) { give_until(kTimeMax, nullptr, out); }

 private:
  void give_until(TimeNs time, const CallTree* tree, TextBuffer& out);
  void give(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out);
  const OtherEvents& samples_;
  CallScript* script_;
  CallJson* json_;
  size_t next_ = 0;
};

}  // namespace ptd::cli
