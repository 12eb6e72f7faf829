// CallScript: the tree of calls and returns as text, thread by thread: what `ptdecode script` lists without options.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "analysis/names/function_filter.h"
#include "cli/calls/call_input.h"
#include "recording/data/other_events.h"

namespace ptd::cli {

/// Makes lines of steps. A call that calls nothing is one line, with its duration; any other has one where it begins and one where it ends.
/// The line of a thread waits for the thread's next step. Not thread-safe.
class CallScript {
 public:
  /// `symbols`: only calls of these functions, with what they call; empty: all. `columns`: names are fitted to that many; 0: never.
  /// `wall_offset_ns`: see ScriptOptions.
  CallScript(CallInput& input, std::vector<std::string> symbols, bool nanoseconds, bool cpus, size_t columns,
             std::optional<int64_t> wall_offset_ns)
      : input_(input),
        symbols_(input.functions(), std::move(symbols)),
        nanoseconds_(nanoseconds),
        cpus_(cpus),
        columns_(columns),
        wall_offset_ns_(wall_offset_ns) {}

  void take(std::span<const CallStep> steps, const CallTree& tree, TextBuffer& out);
  /// A sample of another event, after the steps that take() got before.
  /// `tree`: null after the last step.
  void sample(const OtherEvent& event, std::string_view name, const CallTree* tree, TextBuffer& out);

 private:
  struct Thread {
    bool waits = false;  ///< `open` is the last step, a call that began
    CallStep open;
    uint64_t off_cpu_ns = 0, untraced_ns = 0;  ///< since then, if it is a call that is not traced
    uint8_t pause_flags = 0;                   ///< likewise: kCallKernel
    bool ended = false;                        ///< its end was shown
    size_t shown_from = 0;                     ///< with symbols: depth + 1 of the outermost call that is shown; 0: none
  };
  void take_step(const CallStep& step, const CallTree& tree, TextBuffer& out);
  void flush(Thread& thread, const CallTree& tree, TextBuffer& out);
  void leaf(Thread& thread, const CallStep& leave, const CallTree& tree, TextBuffer& out);
  void pause(const CallStep& step, const CallTree& tree, TextBuffer& out);
  void flow_end(Thread& thread, const CallStep& step, const CallTree& tree, TextBuffer& out);
  void prefix(const CallStep& step, const CallTree& tree, TimeNs when, const std::string& took, size_t depth, TextBuffer& out);
  void moment(TimeNs when, TextBuffer& out);
  void name(const CallStep& step, TextBuffer& out);
  /// Returns the duration of a call: "1.2 us", "~1.2 us" if it is an estimate, "-" if it is not known.
  [[nodiscard]] std::string took_text(const CallStep& step) const;
  [[nodiscard]] bool shown(Thread& thread, const CallStep& step);

  CallInput& input_;
  FunctionFilter symbols_;
  const bool nanoseconds_, cpus_;
  const size_t columns_;
  const std::optional<int64_t> wall_offset_ns_;
  size_t line_ = 0;  ///< where the last line began
  std::vector<Thread> threads_;
  std::map<int32_t, uint32_t> by_tid_;  ///< threads that had a sample
  std::vector<std::string> names_;      ///< by FunctionId, with the module
};

}  // namespace ptd::cli
