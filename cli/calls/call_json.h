// Calls as JSON, an object a line, for programs: schema ptdecode-calls-1.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "analysis/names/function_filter.h"
#include "cli/calls/call_input.h"
#include "recording/data/other_events.h"

namespace ptd::cli {

/// The first line names the schema. Then, as they end: calls; stretches in which a thread did not run or was not traced; places where its
/// calls were given up. Not thread-safe.
class CallJson {
 public:
  /// `symbols`: only calls of these functions; empty: all, and the rest too.
  CallJson(CallInput& input, std::vector<std::string> symbols) : input_(input), symbols_(input.functions(), std::move(symbols)) {}

  void begin(TextBuffer& out) const;
  void take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out);
  /// A sample of another event of the recording.
  void sample(const OtherEvent& event, std::string_view name, TextBuffer& out) const;

 private:
  void take_step(const CallStep& step, const CallTree& tree, TextBuffer& out);
  CallInput& input_;
  FunctionFilter symbols_;
};

}  // namespace ptd::cli
