// ThreadWalk: follows one thread forward, with the stack of its calls. A trace has no stack pointer: calls and returns are matched by
// address.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "image/left_calls.h"
#include "replay/replay_cursor.h"
#include "replay/window_edge.h"

namespace ptd::replay {

/// A call, an interrupt or a signal whose end the walk has not reached.
struct OpenCall {
  Ip from;          ///< the instruction that called or was interrupted
  Ip back;          ///< where it goes on
  Ip entry;         ///< the first instruction of the callee or handler
  uint64_t at = 0;  ///< instructions of the thread that the walk passed before the entry
  TimeNs time;
  bool is_interrupt = false;  ///< also a signal's handler
};

/// Tells whether two addresses belong to one function. What a compiler split off a function (NAME.cold) belongs to it. Not thread-safe. The
/// symbolizer must outlive it.
class FunctionLookup {
 public:
  explicit FunctionLookup(const Symbolizer& symbolizer) : symbolizer_(&symbolizer) {}

  struct Function {
    std::string_view name, module, place;  ///< as of Symbol; without a symbol, `name` is empty and `start` tells functions apart
    Ip start;                              ///< of the function or of the part
    bool is_known = false, is_part = false;
    bool is_entry = false;    ///< the address is the function's first
    bool is_setjmp = false;   ///< and the function is setjmp or the like
    bool is_landing = false;  ///< the address is a landing pad
    Ip landing = {};          ///< where an exception goes on that leaves a call at the address; 0: nowhere in the function
    [[nodiscard]] bool is_same(const Function& other) const;
  };
  [[nodiscard]] const Function& at(SpaceId space, Ip ip, TimeNs when);

 private:
  struct Known {
    SpaceId space;
    Interval valid;
    Function function;
  };
  const Symbolizer* symbolizer_;
  std::unordered_map<uint64_t, Known> known_;  // by address
};

/// The calls that are open at a point of the flow, outermost first. A return to an address that no open call has is no return (a
/// retpoline); one that returns from several calls closes them all.
class CallStack {
 public:
  static constexpr size_t kMostCalls = 1U << 16;

  void open(const OpenCall& call);
  /// Closes the innermost call that goes on at `to`, with all calls in it. Returns false if there is none.
  bool close(Ip to);
  /// Closes the innermost call that was made at an address for which `in_function` returns true, with all calls in it. Returns false if
  /// there is none.
  template <typename Matches>
  bool unwind(const Matches& in_function) {
    for (size_t i = calls_.size(); i-- > 0;) {
      if (in_function(calls_[i].from)) return calls_.resize(i), true;
    }
    return false;
  }
  /// The innermost call is one of setjmp.
  void save_place();
  /// Closes the calls that longjmp leaves to go on at `place`. Returns false if none of the functions that called them called setjmp there.
  bool jump_back(Ip place);
  void drop() { calls_.pop_back(); }
  void clear() { calls_.clear(); }
  /// Returns a number for the active function inside of the first `depth` calls; no two at one depth share it.
  [[nodiscard]] uint64_t number(size_t depth) const { return depth == 0 ? 0 : calls_[depth - 1].at + 1; }
  [[nodiscard]] const std::vector<OpenCall>& calls() const { return calls_; }
  [[nodiscard]] size_t depth() const { return calls_.size(); }

 private:
  void drop_ended();
  std::vector<OpenCall> calls_;
  SavedPlaces saved_;
};

/// longjmp and exceptions leave calls that never return: the flow then goes on within a function that has an open call, which ends with all
/// calls in it. Of a recursive function, these are the calls that CallTree leaves.
/// Not thread-safe. `functions`, and what the cursor refers to, must outlive it.
class ThreadWalk {
 public:
  ThreadWalk(const ReplayCursor& start, ThreadKey thread, FunctionLookup& functions)
      : cursor_(start), thread_(thread), functions_(&functions) {}

  enum class Item : uint8_t { piece, gap, window, end, budget };  ///< window: the thread's flow passes from one window of trace to another
  /// Moves to the thread's next instruction, with whatever comes before it, and applies it to the stack. Looks at about `budget` blocks
  /// and other items, of all threads, which it counts down; with `budget`, the position is not before an instruction of the thread.
  Item enter(uint64_t& budget);
  /// The rest of the block that begins with the next instruction. Valid after enter() returned `piece`.
  [[nodiscard]] ReplayPlace place() { return cursor_.place(cursor_.block_index(), cursor_.insn_index()); }
  [[nodiscard]] uint32_t left() { return cursor_.info(cursor_.block_index()).instructions - cursor_.insn_index(); }
  /// Returns the address of the instruction `index` after the next one.
  [[nodiscard]] Ip ip(uint32_t index);
  /// Passes the next `count` instructions, at most left().
  void pass(uint32_t count);
  /// Leaves a gap or the edge of a window after it; the stack is then empty.
  void leave_gap();

  [[nodiscard]] const CallStack& stack() const { return stack_; }
  /// Returns whether a return led out of the outermost call that the walk knows, and forgets it.
  [[nodiscard]] bool take_return_below() { return std::exchange(below_, false); }
  /// Instructions of the thread passed so far.
  [[nodiscard]] uint64_t passed() const { return passed_; }
  [[nodiscard]] ReplayCursor& cursor() { return cursor_; }
  [[nodiscard]] const ReplayCursor& cursor() const { return cursor_; }

 private:
  enum class Effect : uint8_t { none, call, returns, jumps };
  struct Branch {  ///< a branch that was passed, whose target is the next instruction
    Effect effect = Effect::none;
    Ip from, end;
  };
  struct Target {
    Ip ip;
    TimeNs time;
    SpaceId space;
  };
  void reach(const Target& to);
  void unwind(Ip from, const Target& to);
  bool land(const Target& to);
  void pass_event();
  Effect effect_of(const BlockInfo& info);

  ReplayCursor cursor_;
  ThreadKey thread_;
  FunctionLookup* functions_;
  CallStack stack_;
  WindowEdge edge_;
  std::optional<Branch> branch_;
  std::optional<Ip> away_;  // tracing is off: where the code goes on
  std::unordered_map<const BlockInfo*, Effect> effects_;
  uint64_t passed_ = 0;
  bool below_ = false, entered_ = false;
};

}  // namespace ptd::replay
