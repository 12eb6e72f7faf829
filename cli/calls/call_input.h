// What the commands that follow calls have in common: which threads and times, how to run, how durations are written.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cli/options/options.h"
#include "cli/options/script_options.h"
#include "cli/report/filter_check.h"
#include "cli/report/missing_report.h"
#include "cli/text/output.h"
#include "ptdecode/call_walk.h"
#include "ptdecode/counts.h"
#include "recording/data/other_events.h"

namespace ptd::cli {

class Progress;

/// As typed.
struct CallWords {
  InputOptions input;
  std::string cpus, pids, tids, comms, time;
  unsigned threads = 0;         ///< that decode; 0: one for each core
  bool inlined = false;         ///< follows inlined functions
  bool fibres = false;          ///< follows announced fibres
  bool trace_optional = false;  ///< a recording without trace is no error: it has no calls
};
/// Adds the input options, -C, --pid, --tid, --comm and --time.
void add_call_options(CLI::App& command, CallWords& words);

/// Adds --inline and --no-inline; inlined functions are followed by default.
void add_inline_option(CLI::App& command, CallWords& words);

/// Adds --fibres.
void add_fibre_option(CLI::App& command, bool& fibres);

/// Adds --threads.
void add_thread_option(CLI::App& command, unsigned& threads);

/// As the members of CallWalkOptions.
struct WalkWants {
  bool enters = true;
  FunctionProfile* totals = nullptr;
};

/// An open recording with what of it is wanted.
class CallInput {
 public:
  /// Opens and reads the words; says on standard error what cannot match. Errors: usage, and those of opening.
  [[nodiscard]] static Result<std::unique_ptr<CallInput>> open(const CallWords& words);

  [[nodiscard]] const Recording& recording() const { return *recording_; }
  /// Only calls of these are listed: for the message if there are none.
  void set_symbols(std::vector<std::string> symbols) { filter_.symbols = std::move(symbols); }
  [[nodiscard]] const ScriptOptions& filter() const { return filter_; }
  [[nodiscard]] FunctionTable& functions() { return functions_; }
  /// Whether what happens in `step` passes --pid, --tid and --comm. A call has the name that its thread had when it began.
  bool wanted(const CallStep& step, const CallTree& tree) {
    return (filter_.comms.empty() && matched(step.thread)) || decide(step, tree);  // without --comm, a thread's steps pass together
  }
  /// Whether the steps of all threads pass.
  [[nodiscard]] bool wants_all() const { return filter_.pids.empty() && filter_.tids.empty() && filter_.comms.empty(); }
  /// Whether the step's thread passes --pid and --tid.
  bool passes(const CallStep& step, const CallTree& tree) { return know(step.thread, tree).passes; }
  /// The same of a sample of another event, and whether it passes --cpu.
  [[nodiscard]] bool wanted(const OtherEvent& sample) const;
  /// The same of flow after a mark.
  [[nodiscard]] bool wanted(const Mark& mark) const;
  [[nodiscard]] std::string comm(const OtherEvent& sample) const { return recording_->comm_at(sample.tid, sample.time); }
  /// Whether any step of a thread was wanted.
  [[nodiscard]] bool matched(uint32_t thread) const { return thread < threads_.size() && threads_[thread].matched; }
  const std::string& comm(const CallStep& step, const CallTree& tree);
  /// Returns the same for people: for a thread without a name ":TID", as perf shows it, or "unknown thread".
  std::string label(const CallStep& step, const CallTree& tree);
  /// Returns when the thread of the last comm(step, tree) has the name that this returned.
  [[nodiscard]] Interval named(const CallStep& step) const { return threads_[step.thread].named; }
  /// The last name of a thread. `thread` as CallStep::thread.
  const std::string& comm(uint32_t thread, const CallTree& tree);
  /// Decodes, with progress on standard error; `sink` gets the steps of all threads. Ctrl-C ends it early. Returns the exit status.
  /// `wants` says what `sink` gets. May be called again; the other functions then describe the last walk.
  int walk(const CallWords& words, const CallSink& sink, const WalkWants& wants = {});
  /// Decodes likewise and counts how often which code ran. Returns the exit status.
  int count(const CallWords& words, CodeCounts& counts);
  /// Same as above, with a function that counts.
  int count(const CallWords& words, const std::function<Status(const CodeCountOptions&)>& counting);
  /// Whether the recording's trace is dated at all; known before the walk.
  [[nodiscard]] bool has_time() const { return has_time_; }
  /// Returns why a recording is not timed(): half a sentence.
  [[nodiscard]] const char* why_untimed() const { return cli::why_untimed(*recording_); }
  /// After the walk: whether a packet gave a time. Otherwise durations mean nothing.
  [[nodiscard]] bool timed() const { return timed_; }
  /// Prints on standard error what was lost, or that nothing matched the filters. Returns the exit status: kExitUsage if nothing matched.
  [[nodiscard]] int say_summary(const CallWords& words, bool any) const;
  [[nodiscard]] const GapTally& gaps() const { return gaps_; }
  /// After the walk: the calls of the chosen threads that were too deep to be counted (CallThread::folded).
  [[nodiscard]] uint64_t folded() const { return folded_; }
  /// Likewise CallThread::guessed.
  [[nodiscard]] uint64_t guessed() const { return guessed_; }
  /// Likewise CallThread::forgotten.
  [[nodiscard]] uint64_t forgotten() const { return forgotten_; }
  /// After the walk: how often the flow was in a loop or recursion without packets.
  [[nodiscard]] uint64_t uncounted() const { return uncounted_; }
  /// A sentence on each of these numbers that is not 0. They are no part of a summary, which --quiet hides: other numbers are wrong, or may
  /// be.
  [[nodiscard]] std::vector<std::string> doubts() const;

 private:
  struct Known {
    bool known = false, passes = false, matched = false;
    Interval named{kTimeMax, kTimeMin};  ///< when it is called `comm`
    std::string comm, last_comm;
  };
  Known& know(uint32_t index, const CallTree& tree);
  /// Whether the thread passes --pid and --tid, and has a name that passes --comm at a time at which it runs.
  bool ever_wanted(uint32_t index, const CallTree& tree);
  bool decide(const CallStep& step, const CallTree& tree);
  template <typename Options>
  void set_up(Options& options, Progress& progress);
  int ended(const Progress& progress);
  std::unique_ptr<Recording> recording_;
  ScriptOptions filter_;
  FunctionTable functions_;
  std::vector<Known> threads_;
  std::vector<uint32_t> streams_;
  uint64_t total_bytes_ = 0, folded_ = 0, uncounted_ = 0, guessed_ = 0, forgotten_ = 0;
  uint64_t undated_ = 0;    ///< threads that began without a time
  bool any_fibre_ = false;  ///< a thread that passes has announced one
  GapTally gaps_;
  bool timed_ = false, has_time_ = false;
  std::optional<double> interrupted_at_;  ///< share of the trace that was decoded when Ctrl-C came
};

/// A sentence on calls without a path of their own (CallPaths::left_out()).
[[nodiscard]] std::string left_out_text(uint64_t left_out);
/// Reads one --time against the recording. Errors: usage.
[[nodiscard]] Result<Interval> read_time(std::string_view text, const Recording& recording);
/// What of one --time is wrong whatever the recording: found before it is opened.
[[nodiscard]] Status check_time_words(std::string_view text);
/// "12.3 us", "3.20 ms", "950 ns"; three digits that matter.
[[nodiscard]] std::string duration_text(uint64_t ns);
/// "17.865267613"
[[nodiscard]] std::string moment_text(TimeNs time);
/// Lines of a comparison of two recordings. Empty if all code without a symbol is compared; if the side has times.
[[nodiscard]] std::string unmatched_text(const std::set<std::string>& modules);
[[nodiscard]] std::string untimed_text(size_t side, const CallInput& input);
/// The name for people: FunctionInfo's, "[not traced]" for kNoFunction. With `width`, fitted to so many letters.
[[nodiscard]] std::string function_text(const FunctionTable& functions, FunctionId id, size_t width = 0);

}  // namespace ptd::cli
