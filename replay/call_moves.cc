// CallMoves: see call_moves.h.
#include "replay/call_moves.h"

#include <algorithm>
#include <initializer_list>

#include "ptdecode/guest.h"

namespace ptd::replay {

namespace {

// Whether an x86 function begins at `ip` with the set-up of a frame pointer.
bool sets_up_x86_frame(const BlockInfo& block, Ip ip) {
  const Bytes bytes{block.first_byte, block.size_bytes};
  Bytes code = bytes.subspan(std::min<uint64_t>(ip - block.ip, bytes.size()));
  const auto take = [&code](std::initializer_list<unsigned> bytes) {
    const bool fits = code.size() >= bytes.size() &&
                      std::equal(bytes.begin(), bytes.end(), code.begin(), [](unsigned a, std::byte b) { return std::byte(a) == b; });
    if (fits) code = code.subspan(bytes.size());
    return fits;
  };
  if (block.mode != ExecMode::bits64 && block.mode != ExecMode::bits32) return false;
  (void)(take({0xf3, 0x0f, 0x1e, 0xfa}) || take({0xf3, 0x0f, 0x1e, 0xfb}));                             // endbr64, endbr32
  return take({0x55}) && (take({0x48, 0x89, 0xe5}) || take({0x48, 0x8b, 0xec}) || take({0x89, 0xe5}));  // push rbp; mov rsp, rbp
}

}  // namespace

// Lines

const CallMoves::Line& CallMoves::line_of(SpaceId space, Ip ip, TimeNs when) {
  constexpr size_t kMostLines = 1U << 20;
  if (lines_.size() >= kMostLines) lines_.clear();
  const auto [known, is_new] = lines_.try_emplace(ip.value);
  KnownLine& entry = known->second;
  if (!is_new && entry.space == space && entry.valid.contains(when)) return entry.line;
  const SourcePlace place = session_->recording().symbolizer().source_at(space_at(space, ip), ip, when);
  entry = {space, place.valid, Line{place.row}};
  return entry.line;
}

// Whether a function begins at `ip` with the set-up of its frame, which moves by lines pass. GDB looks for a frame pointer in x86 code. In
// Arm code, the set-up is the first row of the function's lines, unless a second row begins at the same address: optimized code may have no
// set-up.
bool CallMoves::sets_up_frame(const BlockInfo& block, const Line& line, SpaceId space, Ip ip, TimeNs when) {
  const bool is_arm = block.mode == ExecMode::a64 || block.mode == ExecMode::a32 || block.mode == ExecMode::t32;
  if (!is_arm) return sets_up_x86_frame(block, ip);
  return line.begins() && line.is_alone && functions_.at(space, ip, when).start == ip;
}

// The part of the flow before the position

// Moves the start, which is the position, back to the last gap or edge of a window.
void CallMoves::go_back(Past& past, ThreadKey thread) {
  using Why = MoveResult::Why;
  const auto next = past.start.next_place(thread);
  WindowEdge edge;
  if (next) edge.reach(next->stream);
  ReplayCursor& back = past.start;
  for (uint64_t budget = kPastBlocks; budget != 0; --budget) {
    if (++looked_ % (kCheckedBlocks / 16) == 0 && is_interrupted()) return;
    if (!back.enter_previous()) {
      past.before = Why::edge;
      return;
    }
    const bool is_window = back.item().is_window, own = !is_window && back.thread() == thread;
    const bool is_gap = back.item().kind == FlowItem::gap;
    if (is_window ? edge.pass(back.stream()) : own && edge.reach(back.stream())) {
      past.before = Why::window;
      return back.step_out();
    }
    if (own && (is_gap || (next && back.item().space != next->space))) return back.step_out();
    if (back.item().kind != FlowItem::blocks) {
      back.leave_backward();
      continue;
    }
    if (own) {
      for (uint32_t block = 0; block < back.block_index(); ++block) past.instructions += back.info(block).instructions;
      past.instructions += back.insn_index();
      budget -= std::min<uint64_t>(budget - 1, back.block_index());
    }
    back.set_backward(0, 0);
  }
}

// Whether a breakpoint stops a move. GDB's own next and finish pass the function at which it waits for libraries.
bool CallMoves::breaks_at(SpaceId space, Ip ip, TimeNs when) {
  if (!session_->run().breaks().contains(ip)) return false;
  const FunctionLookup::Function& function = functions_.at(space, ip, when);
  std::string_view name = function.name.substr(0, function.name.find('@'));
  if (name.starts_with("__GI_")) name.remove_prefix(5);
  return !function.is_entry || (name != "_dl_debug_state" && name != "rtld_db_dlactivity");
}

void CallMoves::note_piece(Past& past) {
  ThreadWalk& walk = past.walk;
  const ReplayPlace place = walk.place();
  const uint32_t count = static_cast<uint32_t>(std::min<uint64_t>(walk.left(), past.instructions - walk.passed()));
  const size_t depth = walk.stack().depth();
  const uint64_t frame = frame_of(walk.stack());
  if (past.pieces.size() == kMostPieces) past.pieces.pop_front();
  past.pieces.push_back({walk.passed(), depth, frame, place.block, walk.cursor().insn_index(), count, place.space, place.time});
  if (past.last.size() <= depth) past.last.resize(depth + 1);
  past.last[depth] = {frame, walk.passed() + count - 1};
  BreakSet& breaks = session_->run().breaks();
  if (!breaks.empty() && breaks.touches(place.stream, walk.cursor().block(walk.cursor().block_index()).node, *place.block)) {
    for (uint32_t i = 0; i < count; ++i) {
      if (breaks_at(place.space, walk.ip(i), place.time)) past.breakpoint = walk.passed() + i;
    }
  }
  walk.pass(count);
}

CallMoves::Past CallMoves::past_of(ThreadKey thread) {
  stopped_ = false;
  using Item = ThreadWalk::Item;
  using Why = MoveResult::Why;
  const auto from = [&](const ReplayCursor& start) { return Past{start, ThreadWalk(start, thread, functions_), 0, Why::gap, {}, {}, {}}; };
  Past past = from(session_->cursor());
  go_back(past, thread);
  past.walk = ThreadWalk(past.start, thread, functions_);
  uint64_t budget = ~uint64_t{0};  // the past is bounded
  while (past.walk.passed() < past.instructions && past.walk.enter(budget) == Item::piece) note_piece(past);
  // The branch before the position leads to the thread's next instruction, if that is near. If it comes after a gap, nothing before it is
  // connected.
  ThreadWalk ahead(past.walk);
  uint64_t near = kNearBlocks;
  for (Item item = ahead.enter(near); item != Item::budget; item = ahead.enter(near)) {
    const bool is_gap = item == Item::gap || item == Item::window;
    if (is_gap) {
      ahead.leave_gap();
      past = from(ahead.cursor());
      past.before = item == Item::gap ? Why::gap : Why::window;
    }
    past.walk = ahead;
    if (!is_gap) break;
  }
  (void)past.walk.take_return_below();
  return past;
}

Backtrace CallMoves::backtrace(ThreadKey thread) {
  Backtrace trace;
  const auto next = session_->cursor().next_place(thread);
  if (!next) return trace;
  const Past past = past_of(thread);
  trace.is_whole = past.before == MoveResult::Why::edge;
  CallFrame frame{next->ip, {}, false};
  const std::vector<OpenCall>& calls = past.walk.stack().calls();
  for (auto call = calls.rbegin(); call != calls.rend(); ++call) {
    frame.entry = call->entry;
    trace.frames.push_back(frame);
    frame = {call->back, {}, call->is_interrupt};
  }
  trace.frames.push_back(frame);
  return trace;
}

// Moves

void CallMoves::take(const ReplayCursor& cursor, ThreadKey thread) {
  session_->cursor() = cursor;
  session_->moved();
  session_->set_current(thread);
}

// At the end of the recording the position is before its last instruction.
MoveResult CallMoves::to_end(ThreadKey thread) {
  session_->run().begin({});
  RunResult result = session_->run().go_on();
  while (result.reason == StopReason::budget && !is_interrupted()) result = session_->run().go_on();
  session_->moved();
  session_->set_current(thread);
  return {result.reason == StopReason::budget ? MoveResult::Why::budget : MoveResult::Why::edge};
}

ThreadWalk::Item CallMoves::enter(ThreadWalk& walk, uint64_t& budget) {
  for (ThreadWalk::Item item = ThreadWalk::Item::budget; item == ThreadWalk::Item::budget && budget != 0;) {
    if (++looked_ >= kCheckedBlocks) {
      looked_ = 0;
      if (is_interrupted()) break;
    }
    const uint64_t some = std::min(budget, kCheckedBlocks - looked_);
    uint64_t left = some;
    item = walk.enter(left);
    looked_ += some - left;
    budget -= some - left;
    if (item != ThreadWalk::Item::budget) return item;
  }
  return ThreadWalk::Item::budget;
}

template <typename Decide>
MoveResult CallMoves::forward(ThreadKey thread, const Decide& decide) {
  using Why = MoveResult::Why;
  ThreadWalk walk = past_of(thread).walk;
  if (stopped_) return {Why::budget};
  BreakSet& breaks = session_->run().breaks();
  uint64_t budget = kMostBlocks;
  for (bool is_first = true;; is_first = false) {
    const ThreadWalk::Item item = enter(walk, budget);
    if (item == ThreadWalk::Item::gap || item == ThreadWalk::Item::window) walk.leave_gap();
    if (item != ThreadWalk::Item::piece) {
      take(walk.cursor(), thread);
      uint64_t ahead = kMostBlocks;
      if (item == ThreadWalk::Item::end || enter(walk, ahead) == ThreadWalk::Item::end) return to_end(thread);
      return {item == ThreadWalk::Item::gap ? Why::gap : item == ThreadWalk::Item::window ? Why::window : Why::budget};
    }
    const ReplayPlace place = walk.place();
    const Decision decision = decide(walk, place, is_first);
    const bool breaks_here = !is_first && breaks_at(place.space, place.ip, place.time);
    if (decision == Decision::stop || breaks_here) {
      take(walk.cursor(), thread);
      return {breaks_here ? Why::breakpoint : Why::done};
    }
    uint32_t count = decision == Decision::pass_one ? 1 : walk.left();
    if (count > 1 && breaks.touches(place.stream, walk.cursor().block(walk.cursor().block_index()).node, *place.block)) {
      for (uint32_t i = 1; i < count; ++i) {
        if (breaks.contains(walk.ip(i))) count = i;
      }
    }
    walk.pass(count);
    budget -= std::min<uint64_t>(budget, 1);
  }
}

// GDB's rules: where the flow goes on in the middle of a line, it passes the rest of that line. It passes a row that is no statement, too,
// and the line is still that of the statement before.
MoveResult CallMoves::next(ThreadKey thread, const Advance& how) {
  size_t depth = 0;
  Line line;
  Ip row, below, above;       // the begin of the current row; addresses from `below` to `above` are passed
  bool skips_set_up = false;  // stops at the next row, whatever its line
  return forward(thread, [&](ThreadWalk& walk, const ReplayPlace& place, bool is_first) {
    const size_t now = walk.stack().depth();
    const bool returned = walk.take_return_below() || now < depth;
    const bool enters = !is_first && now > depth;
    if (enters && (!how.into || now > depth + 1 || walk.stack().calls().back().is_interrupt)) return Decision::pass_block;
    if (how.unit == MoveUnit::instruction && !is_first) return Decision::stop;
    const Line& here = how.unit == MoveUnit::line ? line_of(place.space, place.ip, place.time) : line;
    // The dynamic linker's code goes on to the function that it finds.
    const bool links = enters && functions_.at(place.space, place.ip, place.time).name.starts_with("_dl_runtime_resolve");
    if (enters && (here.line == 0 || links)) return Decision::pass_one;
    if (enters && !sets_up_frame(*place.block, here, place.space, place.ip, place.time)) return Decision::stop;
    const Ip start{place.ip.value - here.offset_bytes};
    if (is_first || enters) {
      depth = now;
      line = here;
      row = start;
      if (how.upward) {
        below = functions_.at(place.space, place.ip, place.time).start;
        above = place.ip;
      }
      skips_set_up = enters;
      return Decision::pass_one;
    }
    if (returned)
      depth = now;
    else if (place.ip >= below && place.ip <= above)
      return Decision::pass_one;
    if (here.line == 0) return returned || line.line != 0 ? Decision::stop : Decision::pass_one;
    if (skips_set_up && !returned) return here.begins() ? Decision::stop : Decision::pass_one;
    if (start == row) return Decision::pass_one;
    const bool is_other = here.begins() && !here.is_same(line);
    if (is_other && here.is_statement) return Decision::stop;
    if (how.upward && !returned && !here.is_statement && here.is_same(line))
      above = place.ip;
    else
      above = {};
    if (!is_other)
      line = here;
    else if (returned)
      line = {};  // any statement is of another line
    row = start;
    skips_set_up = false;
    return Decision::pass_one;
  });
}

MoveResult CallMoves::finish(ThreadKey thread) {
  size_t depth = 0;
  return forward(thread, [&](ThreadWalk& walk, const ReplayPlace&, bool is_first) {
    const size_t now = walk.stack().depth();
    const bool returned = walk.take_return_below() || now < depth;
    if (is_first) depth = now;
    return !is_first && returned ? Decision::stop : Decision::pass_block;
  });
}

MoveResult CallMoves::go_to(const Past& past, ThreadKey thread, uint64_t instructions) {
  using Why = MoveResult::Why;
  const bool breaks = past.breakpoint && *past.breakpoint >= instructions;
  if (breaks) instructions = *past.breakpoint;
  ThreadWalk walk(past.start, thread, functions_);
  uint64_t budget = ~uint64_t{0};
  while (walk.enter(budget) == ThreadWalk::Item::piece && walk.passed() < instructions)
    walk.pass(static_cast<uint32_t>(std::min<uint64_t>(walk.left(), instructions - walk.passed())));
  take(walk.cursor(), thread);
  return {breaks ? Why::breakpoint : Why::done};
}

// The instructions passed before the first one of the previous line.
std::optional<uint64_t> CallMoves::line_start(const Past& past, bool into) {
  uint64_t frame = frame_of(past.walk.stack());
  size_t depth = past.walk.stack().depth();
  std::optional<uint64_t> start;
  Line line;
  ReplayCursor offsets(past.start);
  for (auto piece = past.pieces.rbegin(); piece != past.pieces.rend(); ++piece) {
    if (start || !into) {
      if (piece->depth > depth) continue;
      if (piece->depth < depth || piece->frame != frame) {
        if (start || into) break;
        frame = piece->frame;  // from the first instruction of a function to its caller's line
        depth = piece->depth;
      }
    }
    const std::span<const uint32_t> at = offsets.insn_offsets(*piece->block);
    for (uint32_t i = piece->count; i-- > 0;) {
      const Ip ip = piece->block->ip + at[piece->first + i];
      const Line& here = line_of(piece->space, ip, piece->time);
      if (!here.begins() || !here.is_statement || sets_up_frame(*piece->block, here, piece->space, ip, piece->time)) continue;
      if (start && !here.is_same(line)) return start;
      line = here;
      start = piece->at + i;
      frame = piece->frame;
      depth = piece->depth;
    }
  }
  return start;
}

MoveResult CallMoves::reverse_next(ThreadKey thread, MoveUnit unit, bool into) {
  const Past past = past_of(thread);
  if (past.instructions == 0) return {past.before};
  if (unit == MoveUnit::line) {
    if (const auto start = line_start(past, into)) return go_to(past, thread, *start);
  }
  const CallStack& stack = past.walk.stack();
  const size_t depth = stack.depth();
  if (into) return go_to(past, thread, past.instructions - 1);
  if (depth < past.last.size() && past.last[depth].frame == frame_of(stack)) return go_to(past, thread, past.last[depth].at);
  if (depth == 0 || stack.calls().back().at == 0) return {MoveResult::Why::unknown};
  return go_to(past, thread, stack.calls().back().at - 1);
}

MoveResult CallMoves::reverse_finish(ThreadKey thread) {
  const Past past = past_of(thread);
  const CallStack& stack = past.walk.stack();
  if (stack.depth() == 0 || stack.calls().back().at == 0) return {MoveResult::Why::unknown};
  return go_to(past, thread, stack.calls().back().at - 1);
}

}  // namespace ptd::replay
