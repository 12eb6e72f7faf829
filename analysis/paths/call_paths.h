// CallPaths: the ways in which functions are called. OpenCalls: which calls are open, with the path of each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "analysis/base/key_counts.h"
#include "ptdecode/call_tree.h"

namespace ptd {

/// A tree of functions: a path is a function and the path that calls it. Numbered from kRoot, the path of no function. Callers come first,
/// except above open ends. Not thread-safe.
class CallPaths {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr size_t kMostDepth = 512, kMostPaths = size_t{1} << 22;  ///< limits of memory: recursion makes a path for each depth
  struct Path {
    uint32_t parent = kRoot, depth = 0;
    FunctionId function = kNoFunction;
    bool is_end = false;                     ///< see add_end()
    FunctionId last_function = kNoFunction;  ///< the last one that was looked up below this path
    uint32_t last_child = kRoot;             ///< its path; kRoot: none yet
  };
  struct Settled;

  /// Returns the path of `function` below `parent`, which is added if it is new. Beyond a limit, returns `parent`.
  uint32_t below(uint32_t parent, FunctionId function) {
    const Path& caller = paths_[parent];
    return caller.last_child != kRoot && caller.last_function == function ? caller.last_child : find(parent, function);
  }
  /// Adds an open end: a path that stands for callers that are not known so far, and for kRoot unless join() is called.
  uint32_t add_end();
  /// The callers for which `end` stands are `path`, which must not be below it.
  void join(uint32_t end, uint32_t path) { paths_[end].parent = path; }
  /// Returns the paths without open ends: what is below an end is below the path that it stands for.
  [[nodiscard]] Settled settled() const;
  [[nodiscard]] const std::vector<Path>& paths() const { return paths_; }
  /// How often below() returned the parent because of a limit.
  [[nodiscard]] uint64_t left_out() const { return left_out_; }

 private:
  uint32_t find(uint32_t parent, FunctionId function);

  std::vector<Path> paths_{Path{}};
  KeyCounts numbers_;  ///< of paths, by parent and function
  uint64_t left_out_ = 0;
};

/// Paths of which all callers are known.
struct CallPaths::Settled {
  std::vector<Path> paths;        ///< callers first
  std::vector<uint32_t> numbers;  ///< by the number before: the index in `paths`
};

/// Follows the steps of CallTree, of which some calls may be missing: their callees are then calls of their caller. Not thread-safe.
class OpenCalls {
 public:
  /// Where the path of a call begins whose caller is not known.
  enum class Callers : uint8_t {
    none,   ///< at CallPaths::kRoot
    later,  ///< at an open end, which is joined to the callers when the flow returns to them: needs CallPaths::settled()
  };
  struct Call {
    int64_t number = 0;  ///< from 1, in the order of their starts; 0: none
    uint32_t path = CallPaths::kRoot, depth = 0;
  };
  struct Ended {
    Call call, caller;
  };
  explicit OpenCalls(Callers callers = Callers::none) : later_(callers == Callers::later) {}
  /// Returns the call that ends with a step of kind leave; nothing if its start was not passed.
  std::optional<Ended> take(const CallStep& step) {
    if (step.thread >= threads_.size()) [[unlikely]]
      threads_.resize(size_t{step.thread} + 1);
    Thread& thread = threads_[step.thread];
    if (step.kind == CallStepKind::enter) {
      enter(thread, step);
    } else if (step.kind == CallStepKind::leave) {
      return leave(thread, step);
    } else {
      thread.returns = false;
    }
    return std::nullopt;
  }
  [[nodiscard]] const CallPaths& paths() const { return paths_; }
  /// The innermost open call of a thread that has one.
  [[nodiscard]] const Call& current(uint32_t thread) const { return threads_[thread].open.back(); }
  /// The path of the innermost open call of a thread; CallPaths::kRoot if it has none.
  [[nodiscard]] uint32_t path_of(uint32_t thread) const {
    return thread >= threads_.size() || threads_[thread].open.empty() ? CallPaths::kRoot : threads_[thread].open.back().path;
  }

 private:
  struct Thread {
    std::vector<Call> open;               ///< the outermost first
    uint32_t end = CallPaths::kRoot;      ///< that the paths of `open` begin at
    uint32_t joining = CallPaths::kRoot;  ///< the last end, while its callers are entered
    bool returns = false;                 ///< the step before left the outermost call, which returned to a caller or jumped
    uint32_t joined = 0;                  ///< ends joined one after the other, up to `end`
  };
  void enter(Thread& thread, const CallStep& step) {
    std::vector<Call>& calls = thread.open;
    while (!calls.empty() && calls.back().depth >= step.depth) calls.pop_back();
    if (calls.empty() && later_) [[unlikely]]
      begin(thread, step);
    const uint32_t path = paths_.below(calls.empty() ? thread.end : calls.back().path, step.function);
    calls.push_back({++last_, path, step.depth});
    if (thread.joining != CallPaths::kRoot) [[unlikely]]
      join(thread, step);
  }
  std::optional<Ended> leave(Thread& thread, const CallStep& step) {
    std::vector<Call>& calls = thread.open;
    while (!calls.empty() && calls.back().depth > step.depth) calls.pop_back();
    thread.returns = step.depth == 0 && (step.flags & kCallCut) == 0 && step.loss == CallLoss::none;
    thread.joining = CallPaths::kRoot;
    if (calls.empty() || calls.back().depth != step.depth) return std::nullopt;
    const Call ended = calls.back();
    calls.pop_back();
    return Ended{ended, calls.empty() ? Call{} : calls.back()};
  }
  void begin(Thread& thread, const CallStep& step);
  void join(Thread& thread, const CallStep& step);
  void share();

  bool later_;
  CallPaths paths_;
  std::vector<Thread> threads_;
  int64_t last_ = 0;
};

}  // namespace ptd
