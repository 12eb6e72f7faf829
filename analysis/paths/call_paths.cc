// CallPaths and OpenCalls: see call_paths.h.
#include "analysis/paths/call_paths.h"

#include <algorithm>
#include <utility>

namespace ptd {

uint32_t CallPaths::find(uint32_t parent, FunctionId function) {
  static_assert(kMostPaths < kNoFunction);  // so that no key is 0
  uint64_t& number = numbers_.count((uint64_t{parent} << 32U | function) + 1);
  if (number == kRoot) {
    const uint32_t depth = paths_[parent].depth + 1;
    if (depth > kMostDepth || paths_.size() >= kMostPaths) {
      ++left_out_;
      return parent;
    }
    number = paths_.size();
    paths_.push_back({parent, depth, function});
  }
  paths_[parent].last_function = function;
  return paths_[parent].last_child = static_cast<uint32_t>(number);
}

uint32_t CallPaths::add_end() {
  paths_.push_back({.is_end = true});
  return static_cast<uint32_t>(paths_.size() - 1);
}

CallPaths::Settled CallPaths::settled() const {
  constexpr uint32_t kNone = ~uint32_t{0};
  CallPaths all;
  std::vector<uint32_t> numbers(paths_.size(), kNone), chain;
  numbers[kRoot] = kRoot;
  for (uint32_t path = kRoot + 1; path < paths_.size(); ++path) {
    for (uint32_t at = path; numbers[at] == kNone; at = paths_[at].parent) chain.push_back(at);
    for (; !chain.empty(); chain.pop_back()) {
      const Path& inner = paths_[chain.back()];
      numbers[chain.back()] = inner.is_end ? numbers[inner.parent] : all.below(numbers[inner.parent], inner.function);
    }
  }
  return {std::move(all.paths_), std::move(numbers)};
}

// Enters the outermost call. Its callers are those of the call before, if that has just jumped to it; else others.
void OpenCalls::begin(Thread& thread, const CallStep& step) {
  const bool follows = std::exchange(thread.returns, false);
  if (follows && step.frame == FrameKind::tail) return;
  const bool unseen = (step.flags & kCallNoStart) != 0;
  const bool joins = follows && step.frame == FrameKind::root && unseen && thread.joined < CallPaths::kMostDepth;
  thread.joining = joins ? thread.end : CallPaths::kRoot;
  thread.joined = joins ? thread.joined + 1 : 0;
  if (paths_.paths().size() >= CallPaths::kMostPaths / 2) share();
  thread.end = unseen && later_ ? paths_.add_end() : CallPaths::kRoot;
}

// The flow has returned to `step`, to an inlined function in it, or to further calls that were open before the trace was lost.
void OpenCalls::join(Thread& thread, const CallStep& step) {
  const bool is_open = step.frame == FrameKind::root || step.frame == FrameKind::inlined;
  if (is_open && (step.flags & kCallNoStart) != 0) return paths_.join(thread.joining, thread.open.back().path);
  thread.joining = CallPaths::kRoot;
}

// There are so many paths that threads must have them in common: from here on, those whose callers are not known begin at the root.
void OpenCalls::share() {
  later_ = false;
  for (Thread& thread : threads_) {
    thread.end = thread.joining = CallPaths::kRoot;
    uint32_t caller = CallPaths::kRoot, before = CallPaths::kRoot;
    for (Call& call : thread.open) {
      if (std::exchange(before, call.path) != call.path) caller = paths_.below(caller, paths_.paths()[call.path].function);
      call.path = caller;
    }
  }
}

}  // namespace ptd
