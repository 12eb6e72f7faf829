// CallStacks: how deep each thread is in calls, for indentation.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "image/left_calls.h"
#include "ptdecode/types.h"

namespace ptd::cli {

/// Open calls by thread; of calls deeper than kMaxDepth, only the number and the innermost function are kept. Follows the rules of
/// CallTree: a return ends the call that awaits it and all calls inside it; an exception, and a jump or return into the middle of an open
/// function (longjmp), end all calls inside that function; any other return ends all. Functions are given by their first address, 0 if it
/// is not known.
class CallStacks {
 public:
  /// Where a call or jump goes.
  struct Target {
    Ip ip;
    uint64_t function = 0;
    bool is_landing = false;  ///< of exceptions
    bool is_setjmp = false;
  };
  void select(int32_t tid) {
    thread_ = &threads_[tid];
    if (thread_->frames.empty()) thread_->frames.emplace_back();
  }
  [[nodiscard]] size_t depth() const { return thread_ == nullptr ? 0 : thread_->frames.size() - 1; }
  /// Returns the innermost function.
  [[nodiscard]] uint64_t function() const {
    if (thread_ == nullptr) return 0;
    return thread_->deeper != 0 ? thread_->deepest : thread_->frames.back().function;
  }
  void set_function(uint64_t function) {
    if (thread_ != nullptr) (thread_->deeper != 0 ? thread_->deepest : thread_->frames.back().function) = function;
  }
  /// `landing`: where an exception goes on that leaves the call; 0: nowhere in the function.
  void call(Ip return_to, const Target& to, uint64_t landing) {
    if (thread_ == nullptr) return;
    if (thread_->frames.size() > kMaxDepth) {
      ++thread_->deeper;
      thread_->deepest = to.function;
      thread_->deepest_return = return_to.value;
      return;
    }
    thread_->frames.push_back({return_to.value, to.function, 0, landing, ++thread_->calls, to.ip.value == 0});
    if (to.is_setjmp) save();
  }
  /// `function_at`: returns the function at an address.
  template <typename FunctionAt>
  void ret(const Target& to, FunctionAt function_at) {
    if (thread_ == nullptr || land(to)) return;
    std::vector<Frame>& frames = thread_->frames;
    if (thread_->deeper != 0) return end_deepest(function_at(to.ip));
    const size_t awaiting = thread_->search.innermost(frames, [&](const Frame& frame) { return frame.return_to == to.ip.value; });
    if (awaiting > 1) return frames.resize(awaiting - 1);
    const uint64_t function = function_at(to.ip);
    if (frames.back().is_handler() && !frames.back().is_restorer) {
      frames.back().is_restorer = true;
      frames.back().function = function;
    } else if (function == 0) {
      if (frames.size() > 1) frames.pop_back();
    } else if (to.ip.value == function) {  // a return used as a jump
      const bool inner = frames.size() > 1 && frames[frames.size() - 2].function == frames.back().function;
      if (inner) frames.pop_back();
      frames.back().function = function;
    } else if (!go_back(to.ip, function)) {
      set_frames({0, function});
    }
  }
  void jump(const Target& to) {
    if (thread_ == nullptr || land(to) || to.function == 0 || to.function == function()) return;
    if (to.ip.value == to.function || !go_back(to.ip, to.function)) set_function(to.function);
    if (to.is_setjmp && thread_->deeper == 0) save();
  }
  /// Tracing resumes at `to`: the call returns that left the traced region, or a signal's handler does. Elsewhere it may be such a handler.
  template <typename FunctionAt>
  void resume(Ip to, FunctionAt function_at) {
    if (thread_ == nullptr) return;
    std::vector<Frame>& frames = thread_->frames;
    if (thread_->deeper != 0) {
      if (std::exchange(thread_->deepest_return, 0) == to.value) end_deepest(function_at(to));
      return;
    }
    if (frames.size() > 1 && frames.back().resumes_at(to)) return frames.pop_back();
    const uint64_t function = function_at(to);
    if (frames.size() > 1 && frames.back().untraced && frames.back().function == 0 && frames[frames.size() - 2].is_restorer) {  // sigreturn
      frames.pop_back();
      frames.back().is_restorer = false;
      if (frames.back().resumes_at(to)) return frames.pop_back();
    }
    Frame& top = frames.back();
    if (function == 0 || function == top.function) return;
    if (top.interrupted == 0) {
      top.interrupted = top.function;
    } else if (top.interrupted == function) {
      top.interrupted = 0;
    }
    top.function = function;
  }
  /// Flow was lost: nothing is known of the depth.
  void lose() {
    if (thread_ != nullptr) set_frames({});
  }

 private:
  static constexpr size_t kMaxDepth = 4096;
  struct Frame {
    uint64_t return_to = 0, function = 0;
    uint64_t interrupted = 0;  ///< the function before a signal's handler
    uint64_t landing = 0, number = 0;
    bool untraced = false;     ///< a call of untraced code
    bool is_restorer = false;  ///< the handler has returned: what runs calls sigreturn
    [[nodiscard]] bool is_handler() const { return interrupted != 0 || (untraced && function != 0); }
    [[nodiscard]] bool resumes_at(Ip to) const { return return_to == to.value || (untraced && is_restart(to, Ip{return_to})); }
  };
  struct Thread {
    std::vector<Frame> frames;  ///< the first is the function that no call was seen of
    SavedPlaces saved;
    BoundedSearch search;
    uint64_t calls = 0;
    uint64_t deeper = 0;                       ///< calls inside of those of `frames`
    uint64_t deepest = 0, deepest_return = 0;  ///< their innermost function; where it returns to, 0: not known
  };
  /// Nothing is known but the innermost function.
  void set_frames(const Frame& only) {
    thread_->frames.assign(1, only);
    thread_->deeper = 0;
  }
  /// Ends the innermost of the calls that are only counted. `function`: where the flow goes on.
  void end_deepest(uint64_t function) {
    --thread_->deeper;
    thread_->deepest = function;
    thread_->deepest_return = 0;
  }
  void leave_to(size_t frames) {
    thread_->frames.resize(frames);
    thread_->deeper = 0;
  }
  /// Ends the calls that an exception leaves to go on at `to`. Returns false if it is no such place.
  bool land(const Target& to) {
    if (!to.is_landing) return false;
    for (size_t i = thread_->frames.size(); i-- > 1;) {
      if (thread_->frames[i].interrupted != 0 && thread_->frames[i].interrupted == to.function) return false;  // it may go on in this call
      if (thread_->frames[i].landing == to.ip.value) return leave_to(i), true;
    }
    return false;
  }
  /// Ends the calls inside the call of an open function in which the flow goes on. Returns false if it is not open.
  bool go_back(Ip to, uint64_t function) {
    const auto is_open = [function](const Frame& frame) { return frame.function == function || frame.interrupted == function; };
    size_t open = thread_->search.innermost(thread_->frames, is_open);
    if (open == 0) return false;
    drop_ended();
    SavedPlaces::Found found;
    const auto is_open_at = [&](size_t depth) { return is_open(thread_->frames[depth]); };
    if (thread_->saved.take(to, thread_->frames.size() - 1, is_open_at, found)) open = found.depth + 1;
    leave_to(open);
    thread_->frames.back().function = function;
    return true;
  }
  void drop_ended() {
    const std::vector<Frame>& frames = thread_->frames;
    thread_->saved.drop_ended([&](size_t depth, uint64_t number) { return depth < frames.size() && frames[depth].number == number; });
  }
  /// The innermost function is setjmp.
  void save() {
    const std::vector<Frame>& frames = thread_->frames;
    if (frames.size() < 2) return;
    drop_ended();
    thread_->saved.save(frames.size() - 2, frames[frames.size() - 2].number, Ip{frames.back().return_to});
  }
  std::unordered_map<int32_t, Thread> threads_;
  Thread* thread_ = nullptr;
};

}  // namespace ptd::cli
