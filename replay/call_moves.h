// CallMoves: the moves of a debugger that depend on calls and source lines: next, step, finish, until and their reverse, and the backtrace.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "replay/replay_session.h"
#include "replay/thread_walk.h"

namespace ptd::replay {

/// An active function of a thread.
struct CallFrame {
  Ip ip;                        ///< the next instruction; of a caller, the one to which the callee returns
  Ip entry;                     ///< where the function was entered; 0: before the part of the flow that was looked at
  bool is_interrupted = false;  ///< an interrupt or a signal came before `ip`
};

struct Backtrace {
  std::vector<CallFrame> frames;  ///< innermost first
  bool is_whole = false;          ///< it goes back to the beginning of the thread's flow
};

enum class MoveUnit : uint8_t { instruction, line };

/// How CallMoves::next() moves.
struct Advance {
  MoveUnit unit = MoveUnit::line;
  bool into = false;    ///< a call is entered if its code has lines (or the unit is an instruction)
  bool upward = false;  ///< only to a higher address of the function, or to its caller: past loops
};

struct MoveResult {
  enum class Why : uint8_t {
    done,
    breakpoint,
    gap,      ///< the flow is lost here; the position is after the gap
    window,   ///< another snapshot or AUX sample begins here; the position is after the edge
    edge,     ///< the end of the recording, or the beginning
    budget,   ///< enough was looked at, or the move was interrupted; another call goes on from the position
    unknown,  ///< nothing is known of the caller; the position has not moved
  };
  Why why = Why::done;
};

/// Moves the position of a session along the flow of one thread. Breakpoints of the session stop each move, except where GDB has one of its
/// own: at the function that the dynamic linker calls when libraries come or go. A move looks at most at
/// kMostBlocks blocks, also of other threads. The backtrace, and moves backward, look at up to kPastBlocks blocks before the position, back
/// to the last gap of the thread or the last edge of a window of trace. Not thread-safe. The session must outlive it.
class CallMoves {
 public:
  static constexpr uint64_t kMostBlocks = 1U << 26, kPastBlocks = 1U << 22;

  explicit CallMoves(ReplaySession& session) : session_(&session), functions_(session.recording().symbolizer()) {}

  /// `interrupted`: called now and then; if it returns true, the move ends where it is.
  void set_interrupted(std::function<bool()> interrupted) { interrupted_ = std::move(interrupted); }

  [[nodiscard]] Backtrace backtrace(ThreadKey thread);
  /// Moves to the next instruction or line of the function, or of its caller after its return. Stops where GDB does: where a statement of
  /// another line begins, and after the set-up of a frame.
  MoveResult next(ThreadKey thread, const Advance& how);
  /// Moves after the return of the function.
  MoveResult finish(ThreadKey thread);
  /// Moves to the previous instruction of the function, or to the beginning of its previous line; from its first instruction, to the call.
  /// With `into`, to the last instruction or line of a callee.
  MoveResult reverse_next(ThreadKey thread, MoveUnit unit, bool into);
  /// Moves before the call of the function.
  MoveResult reverse_finish(ThreadKey thread);

  /// An address in the source, as GDB sees it; line 0: not known. The views are valid as long as the recording.
  struct Line : SourceRow {
    [[nodiscard]] bool begins() const { return line != 0 && offset_bytes == 0; }
    [[nodiscard]] bool is_same(const Line& other) const { return file == other.file && line == other.line; }
  };
  /// Returns the innermost line of an address.
  const Line& line_of(SpaceId space, Ip ip, TimeNs when);

 private:
  /// Instructions of a block that were executed in a row, in one call of a function.
  struct Piece {
    uint64_t at = 0;     ///< instructions passed before it
    size_t depth = 0;    ///< of the stack
    uint64_t frame = 0;  ///< names the call; see frame_of()
    const BlockInfo* block = nullptr;
    uint32_t first = 0, count = 0;
    SpaceId space;
    TimeNs time;
  };
  /// The last instruction that was executed at a depth of the stack.
  struct Last {
    uint64_t frame = 0, at = 0;
  };
  /// The flow before the position, as far back as it is connected.
  struct Past {
    ReplayCursor start;
    ThreadWalk walk;            ///< at the thread's next instruction, after the events that precede it
    uint64_t instructions = 0;  ///< of the thread, up to the position
    /// The start: a gap (or more than was looked at), the edge of a window, the beginning of the recording.
    MoveResult::Why before = MoveResult::Why::gap;
    std::deque<Piece> pieces;            ///< the last ones before it, oldest first; at most kMostPieces
    std::vector<Last> last;              ///< by depth
    std::optional<uint64_t> breakpoint;  ///< instructions passed before the last breakpoint
  };
  static constexpr size_t kMostPieces = 1U << 16;
  static constexpr uint64_t kNearBlocks = 1U << 16;
  static constexpr uint64_t kCheckedBlocks = 1U << 14;  // between two looks at interrupted_
  static uint64_t frame_of(const CallStack& stack) { return stack.number(stack.depth()); }
  bool sets_up_frame(const BlockInfo& block, const Line& line, SpaceId space, Ip ip, TimeNs when);
  void go_back(Past& past, ThreadKey thread);
  Past past_of(ThreadKey thread);
  void note_piece(Past& past);
  std::optional<uint64_t> line_start(const Past& past, bool into);
  /// Moves to where the thread has executed so many instructions since the window's start, or to a later breakpoint.
  MoveResult go_to(const Past& past, ThreadKey thread, uint64_t instructions);
  /// What to do at an instruction of the thread.
  enum class Decision : uint8_t { stop, pass_one, pass_block };
  template <typename Decide>
  MoveResult forward(ThreadKey thread, const Decide& decide);
  bool is_interrupted() { return stopped_ = stopped_ || (interrupted_ && interrupted_()); }
  /// ThreadWalk::enter(), which `budget` or an interrupt ends.
  ThreadWalk::Item enter(ThreadWalk& walk, uint64_t& budget);
  void take(const ReplayCursor& cursor, ThreadKey thread);
  bool breaks_at(SpaceId space, Ip ip, TimeNs when);
  MoveResult to_end(ThreadKey thread);

  struct KnownLine {
    SpaceId space;
    Interval valid;
    Line line;
  };
  ReplaySession* session_;
  FunctionLookup functions_;
  std::function<bool()> interrupted_;
  bool stopped_ = false;                           // by it, since the beginning of the move
  uint64_t looked_ = 0;                            // blocks since it was called last
  std::unordered_map<uint64_t, KnownLine> lines_;  // by address
};

}  // namespace ptd::replay
