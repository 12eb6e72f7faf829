// CallSequences: what each thread called, in order, as hashes that two recordings can be compared by.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "analysis/paths/call_paths.h"
#include "analysis/paths/module_match.h"
#include "ptdecode/function_table.h"

namespace ptd {

/// Returns the part of a function's name that is the same in every run and build: code from no file is named by its process and address,
/// and some functions by their addresses. Where two recordings name a file differently, it has the other's name.
[[nodiscard]] std::string comparable_name(const FunctionInfo& function, const ModuleMatch& modules);

/// The start or end of a call.
struct CallMoment {
  bool enters = false;
  bool counted = false;  ///< an end, and the call was seen from its start; or a start that was seen, not a call that was open before
  FunctionId function = kNoFunction;
  uint32_t path = CallPaths::kRoot;  ///< of the call
  TimeNs start, time;                ///< an end: of the call
  uint64_t instructions = 0;         ///< an end: of the function itself
};

/// The moments of one thread without those in interrupts and handlers of signals, which come when they come. They go on where the stack of
/// calls was abandoned and the flow is known: what runs then is called by nothing.
struct CallSequence {
  std::string comm;  ///< the thread's name when the first call of its last program began: until exec, a child has its parent's
  int32_t tid = -1;
  uint64_t moments = 0;
  uint64_t interrupts = 0;                    ///< that were left out
  std::vector<uint64_t> calls, instructions;  ///< hash of all moments up to the end of each piece, without and with numbers of instructions
  CallLoss loss = CallLoss::none;             ///< why there are no later moments: flow was lost, or calls were abandoned in an interrupt
  TimeNs lost = kTimeMin;                     ///< when
};

/// Follows the steps of one recording. Memory: 16 bytes for kPiece moments, and the moments that are asked for. Not thread-safe.
class CallSequences {
 public:
  static constexpr uint64_t kPiece = 1024;
  /// Of which moments of a thread to keep all: from the first on, this many.
  struct Range {
    uint64_t first = 0, count = 0;
  };

  /// `kept`: by the index of the thread in threads(). Calls of functions without a match in `modules` are left out. `functions` and
  /// `modules` must outlive it.
  CallSequences(const FunctionTable& functions, const ModuleMatch& modules, std::map<size_t, Range> kept = {})
      : functions_(functions), modules_(modules), wanted_(std::move(kept)) {
    for (const auto& [thread, range] : wanted_) kept_[thread];
  }
  /// `comm`: the name of the step's thread.
  void take(const CallStep& step, std::string_view comm, int32_t tid);
  void finish();
  /// In the order in which they began.
  [[nodiscard]] const std::vector<CallSequence>& threads() const { return threads_; }
  [[nodiscard]] const std::vector<CallMoment>& kept(size_t thread) const { return kept_.at(thread); }
  [[nodiscard]] const CallPaths& paths() const { return open_.paths(); }
  /// The modules of which calls were left out.
  [[nodiscard]] const std::set<std::string>& unmatched() const { return unmatched_; }

 private:
  struct State {
    size_t thread = ~size_t{0};            ///< index in threads_
    uint64_t calls = 0, instructions = 0;  ///< hashes so far
    std::optional<uint32_t> interrupt;     ///< depth of the handler that runs
    std::optional<uint32_t> ended;         ///< of the one that the last step ended
    bool cut = false;                      ///< calls in an interrupt were cut by the last steps
    bool named = false;                    ///< a call of the current program has begun
  };
  [[nodiscard]] bool in_interrupt(State& state, const CallStep& step);
  [[nodiscard]] uint64_t hash_of(FunctionId function);
  void add(State& state, const CallMoment& moment);

  const FunctionTable& functions_;
  const ModuleMatch& modules_;
  const std::map<size_t, Range> wanted_;
  OpenCalls open_;
  std::vector<State> states_;  ///< by CallStep::thread
  std::vector<CallSequence> threads_;
  std::map<size_t, std::vector<CallMoment>> kept_;
  std::vector<uint64_t> hashes_;  ///< of names, by FunctionId + 1; 0: not met
  std::set<std::string> unmatched_;
};

/// Threads of two recordings with one name: the first of it in each, the second, and so on; or the only one that is left in each. If all
/// that are left have one name in each, which the other does not have (another version of a program), they are matched in the same way.
struct ThreadPair {
  size_t a = 0, b = 0;
};
[[nodiscard]] std::vector<ThreadPair> match_threads(const std::vector<CallSequence>& a, const std::vector<CallSequence>& b);
/// The first piece in which the hashes differ, or in which one ends; nothing if all moments are the same.
[[nodiscard]] std::optional<uint64_t> first_difference(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b);

}  // namespace ptd
