// ReplayRun: see replay_run.h.
#include "replay/replay_run.h"

#include <algorithm>

#include "ptdecode/guest.h"
#include "replay/text.h"

namespace ptd::replay {

void BreakSet::add(Ip ip) {
  const auto at = std::lower_bound(ips_.begin(), ips_.end(), ip);
  if (at != ips_.end() && *at == ip) return;
  ips_.insert(at, ip);
  touched_.clear();
}

void BreakSet::remove(Ip ip) {
  const auto at = std::lower_bound(ips_.begin(), ips_.end(), ip);
  if (at == ips_.end() || *at != ip) return;
  ips_.erase(at);
  touched_.clear();
}

bool BreakSet::contains(Ip ip) const { return std::binary_search(ips_.begin(), ips_.end(), ip); }

bool BreakSet::touches(uint32_t stream, NodeId node, const BlockInfo& info) {
  if (ips_.empty()) return false;
  if (stream >= touched_.size()) touched_.resize(stream + 1);
  std::vector<uint8_t>& known = touched_[stream];
  if (node >= known.size()) known.resize(node + node / 2 + 1024);
  if (known[node] == 0) {
    const auto first = std::lower_bound(ips_.begin(), ips_.end(), info.ip);
    known[node] = first != ips_.end() && *first - info.ip < info.size_bytes ? 2 : 1;
  }
  return known[node] == 2;
}

void ReplayRun::begin(const RunRequest& request) {
  request_ = request;
  first_ = true;
  gap_behind_ = window_behind_ = false;
  edge_.reset();
  if (!request.keeps_notes) {
    notes_.clear();
    more_notes_ = windows_ = 0;
    passed_others_ = false;
  }
  before_ = cursor_->time();
  if (request.backward && request.step > kNoThread) leave_cut_off();
}

RunResult ReplayRun::go_on() { return request_.backward ? backward() : forward(); }

void ReplayRun::note(ThreadKey thread, TimeNs time, std::string text) {
  if (notes_.size() < kMostNotes) {
    notes_.push_back({time, thread, std::move(text)});
  } else {
    ++more_notes_;
  }
}

void ReplayRun::note_window(const ReplayCursor& at) {
  note(at.thread(), at.item().time, "another window of trace (snapshot or AUX sample): what ran between the two is not traced");
}

void ReplayRun::note_gap(const ReplayCursor& at) {
  if (at.item().is_window || at.item().kind != FlowItem::gap) return note_window(at);
  const Gap& gap = at.gap();
  std::string text = std::string("gap: ") + sentence(gap.reason);
  if (gap.ip.value != 0) text += ", at " + hex(gap.ip);
  if (gap.lost_bytes != 0) text += ", " + std::to_string(gap.lost_bytes) + " bytes of trace skipped";
  note(at.thread(), at.item().time, std::move(text));
}

void ReplayRun::note_event() {
  const Event& event = cursor_->event();
  const auto from = (event.flags & kEventHasFrom) != 0 ? hex(event.from) : std::string("?");
  const auto to = (event.flags & kEventHasTo) != 0 ? hex(event.to) : std::string("?");
  const ThreadKey thread = cursor_->thread();
  const TimeNs time = cursor_->item().time;
  if ((event.flags & (kEventStatus | kEventSyscall)) != 0) return;
  if (event.kind == EventKind::async_branch) {
    const char* what =
        (event.flags & kEventBreakpoint) != 0 ? "breakpoint instruction hit at " : "asynchronous branch (interrupt, fault or trap) at ";
    note(thread, time, what + from + " to " + to);
  } else if (event.kind == EventKind::overflow) {
    note(thread, time, "overflow: the processor lost packets");
  } else if (event.kind == EventKind::tsx_abort) {
    note(thread, time, "transaction aborted at " + from);
  } else if (event.kind == EventKind::enabled && (event.flags & kEventResumed) == 0) {
    const Stretch* before = cursor_->event_before();
    const Event* left = before == nullptr ? nullptr : &cursor_->event(*before);
    if (left == nullptr || (left->kind != EventKind::async_disabled && left->kind != EventKind::disabled)) return;
    const bool async = left->kind == EventKind::async_disabled;
    if (async && machine_of_thread(before->tid) != machine_of_thread(cursor_->item().tid))
      return note(thread, time, "VM exit: the guest was at " + hex(left->from) + ", the host continues at " + to);
    if (before->tid != cursor_->item().tid) return;
    if (async && left->from == event.to) return;
    if (!async && (left->aux == 0 || left->aux == event.to.value)) return;
    note(thread, time,
         std::string(async ? "asynchronous" : "tracing stopped at") + (async ? " branch at " : " ") + hex(left->from) +
             ": the traced code continues at " + to + " (signal or other transfer by the kernel)");
  }
}

bool ReplayRun::passes_time() {
  const TimeNs now = cursor_->item().time;
  const TimeNs low = std::min(before_, now), high = std::max(before_, now);
  const bool passes = std::any_of(request_.times.begin(), request_.times.end(), [&](TimeNs time) { return low < time && time <= high; });
  before_ = now;
  return passes;
}

// Whether the current item, the edge of a window, ends a step.
bool ReplayRun::stops_at_window() {
  if (request_.step == kNoThread) return ++windows_, false;
  if (request_.step == kAnyThread) return true;
  if (!edge_) {
    edge_.emplace();
    const auto last = request_.backward ? cursor_->next_place(request_.step) : cursor_->previous_place(request_.step);
    if (last) edge_->reach(last->stream);
  }
  return edge_->pass(cursor_->stream());
}

// Whether a step reaches flow of its thread after the edge of a window.
bool ReplayRun::reaches_window(ThreadKey thread) {
  if (thread != request_.step || !edge_ || !edge_->reach(cursor_->stream())) return false;
  note_window(*cursor_);
  return true;
}

bool ReplayRun::stops(ThreadKey thread) const {
  return request_.only.empty() || std::binary_search(request_.only.begin(), request_.only.end(), thread);
}

bool ReplayRun::leaves_space() const {
  const Stretch& item = cursor_->item();
  return request_.space != kNoSpace && item.kind == FlowItem::blocks && item.space != request_.space && item.space != kKernelSpace &&
         item.space != kNoSpace;
}

// An instruction that faults does not retire, so no position shows where the flow of a thread ended.
void ReplayRun::note_ends() {
  constexpr int kMostItems = 4096;
  ReplayCursor back(*cursor_);
  back.seek_end();  // a step ends before the events
  std::vector<bool> known(back.store().recording().streams().size());
  for (int i = 0; i < kMostItems && back.enter_previous(); ++i) {
    const bool is_event = back.item().kind == FlowItem::event;
    const bool is_end = is_event && back.event().kind == EventKind::async_disabled && (back.event().flags & kEventHasFrom) != 0;
    if (is_end && !known[back.stream()])
      note(back.thread(), back.item().time,
           "the flow ends before the instruction at " + hex(back.event().from) + ": fault, signal or interrupt");
    if (is_end || !is_event) known[back.stream()] = true;
    if (back.item().kind == FlowItem::blocks) {
      back.set_backward(0, 0);
    } else {
      back.leave_backward();
    }
  }
}

// Moving back one instruction leaves the position before the last one, whose address is known.
RunResult ReplayRun::at_end() {
  note_ends();
  const auto last = cursor_->previous_place();
  while (cursor_->enter_previous()) {
    if (cursor_->item().kind == FlowItem::blocks) {
      step_back();
      break;
    }
    cursor_->leave_backward();
  }
  return {StopReason::edge, last ? last->thread : kNoThread};
}

// Moves before the previous instruction of the current blocks.
void ReplayRun::step_back() {
  const uint32_t block = cursor_->insn_index() != 0 ? cursor_->block_index() : cursor_->block_index() - 1;
  const uint32_t insn = cursor_->insn_index() != 0 ? cursor_->insn_index() - 1 : cursor_->info(block).instructions - 1U;
  cursor_->set_backward(block, insn);
}

// Backward, into the flow of an earlier program. Its last instruction becomes the next one, so that everything that is read belongs to that
// program.
RunResult ReplayRun::leave_space() {
  const ThreadKey thread = cursor_->thread();
  const bool steps = request_.step == thread || request_.step == kAnyThread;
  step_back();
  if (gap_behind_ || (steps && window_behind_)) return {StopReason::gap, thread};
  return {steps ? StopReason::stepped : StopReason::space, thread};
}

// Gaps without an instruction between them are one stop.
void ReplayRun::pass_gap() {
  constexpr int kMostItems = 4096;
  const uint32_t stream = cursor_->stream();
  note_gap(*cursor_);
  cursor_->leave_forward();
  for (int i = 0; i < kMostItems; ++i) {
    ReplayCursor ahead(*cursor_);
    if (!ahead.enter_next() || ahead.stream() != stream || ahead.item().kind == FlowItem::blocks) return;
    *cursor_ = ahead;
    if (cursor_->item().kind == FlowItem::gap) {
      note_gap(*cursor_);
    } else {
      note_event();
    }
    cursor_->leave_forward();
  }
}

// After a gap that nothing follows there is no position before an instruction: the recording ends there, and the note says why.
RunResult ReplayRun::after_gap(ThreadKey thread) {
  pass_gap();
  return cursor_->next_place() ? RunResult{StopReason::gap, thread} : at_end();
}

// Moves `ahead`, which is after flow of the thread in `stream`, to what cuts the thread's next instruction off: a gap or the edge of a
// window. Returns whether flow of other threads comes before that; nothing if the next instruction is the successor.
std::optional<bool> ReplayRun::cut_ahead(ReplayCursor& ahead, ThreadKey thread, uint32_t stream) {
  constexpr int kMostItems = 1 << 16;
  WindowEdge edge;
  edge.reach(stream);
  bool others = false;
  for (int i = 0; i < kMostItems && ahead.enter_next(); ++i) {
    const Stretch& item = ahead.item();
    const bool own = !item.is_window && ahead.thread() == thread;
    if (item.is_window ? edge.pass(ahead.stream()) : own && edge.reach(ahead.stream())) return others;
    if (item.kind == FlowItem::gap && !item.is_window && (own || (!others && ahead.stream() == stream))) return others;
    if (item.kind == FlowItem::blocks && own) return std::nullopt;
    others = others || item.kind == FlowItem::blocks;
    ahead.leave_forward();
  }
  return std::nullopt;
}

// What cuts the thread's next instruction off belongs to the step: it is the reason why that instruction is not the successor. The step
// passes the flow of other threads that comes before it.
std::optional<RunResult> ReplayRun::after_step(ThreadKey thread) {
  ReplayCursor ahead(*cursor_);
  const uint32_t stream = cursor_->stream();
  const std::optional<bool> others = cut_ahead(ahead, thread, stream);
  if (others == false && ahead.item().kind == FlowItem::gap) {
    *cursor_ = ahead;
    return after_gap(thread);
  }
  if (others && request_.step == thread) {
    edge_.emplace().reach(stream);
    return std::nullopt;
  }
  return cursor_->next_place() ? RunResult{StopReason::stepped, thread} : at_end();
}

// A step back from an instruction that is cut off: the position may be before what cuts it off.
void ReplayRun::leave_cut_off() {
  const auto last = cursor_->previous_place(request_.step);
  ReplayCursor ahead(*cursor_);
  if (!last || !cut_ahead(ahead, request_.step, last->stream)) return;
  note_gap(ahead);
  window_behind_ = true;
}

std::optional<RunResult> ReplayRun::forward_blocks(uint64_t& budget) {
  ReplayCursor& at = *cursor_;
  const ThreadKey thread = at.thread();
  const bool steps = request_.step == thread || request_.step == kAnyThread;
  const uint32_t count = at.item().count;
  uint32_t block = at.block_index(), insn = at.insn_index();
  if (!stops(thread)) {
    passed_others_ = passed_others_ || block < count;
    budget -= std::min<uint64_t>(budget, count - block);
    block = count;
  }
  if (reaches_window(thread)) return RunResult{StopReason::gap, thread};
  for (; block < count; ++block, insn = 0) {
    if (budget == 0) {
      at.set_forward(block, insn);
      return RunResult{StopReason::budget, thread};
    }
    --budget;
    const Block& of = at.block(block);
    const BlockInfo& info = at.info(block);
    if (breaks_.touches(at.stream(), of.node, info)) {
      const std::span<const uint32_t> offsets = at.insn_offsets(info);
      for (uint32_t i = insn; i < offsets.size(); ++i) {
        const bool told = first_ && request_.resumed == thread;
        if (!told && breaks_.contains(info.ip + offsets[i])) {
          at.set_forward(block, i);
          return RunResult{StopReason::breakpoint, thread};
        }
        first_ = false;
        if (!steps) continue;
        at.set_forward(block, i + 1);
        return after_step(thread);
      }
    }
    first_ = false;
    if (!steps) continue;
    at.set_forward(block, insn + 1);
    return after_step(thread);
  }
  at.set_forward(count, 0);
  return std::nullopt;
}

RunResult ReplayRun::forward() {
  uint64_t budget = kBudgetBlocks;
  while (cursor_->enter_next()) {
    const ThreadKey thread = cursor_->thread();
    if (!request_.times.empty() && passes_time()) return {StopReason::time, thread};
    if (leaves_space()) return {StopReason::space, thread};
    switch (cursor_->item().kind) {
      case FlowItem::blocks:
        if (const auto stop = forward_blocks(budget)) return *stop;
        break;
      case FlowItem::gap:
        if (cursor_->item().is_window) {
          if (stops_at_window()) return after_gap(request_.step == kAnyThread ? thread : request_.step);
        } else {
          if (stops(thread)) return after_gap(thread);
          note_gap(*cursor_);
        }
        cursor_->leave_forward();
        if (budget != 0) --budget;
        break;
      default:
        note_event();
        cursor_->leave_forward();
        if (budget != 0) --budget;
    }
    if (budget == 0) return {StopReason::budget, thread};
  }
  return at_end();
}

std::optional<RunResult> ReplayRun::backward_blocks(uint64_t& budget) {
  ReplayCursor& at = *cursor_;
  const ThreadKey thread = at.thread();
  const bool steps = request_.step == thread || request_.step == kAnyThread;
  uint32_t block = at.block_index(), insn = at.insn_index();
  if (!stops(thread)) {
    passed_others_ = passed_others_ || block != 0 || insn != 0;
    budget -= std::min<uint64_t>(budget, block);
    block = insn = 0;
  }
  window_behind_ = reaches_window(thread) || window_behind_;
  while (block != 0 || insn != 0) {
    if (budget == 0) {
      at.set_backward(block, insn);
      return RunResult{StopReason::budget, thread};
    }
    --budget;
    if (insn == 0) insn = at.info(--block).instructions;
    const BlockInfo& info = at.info(block);
    if (steps || gap_behind_) {
      at.set_backward(block, insn - 1);
      return RunResult{gap_behind_ || (steps && window_behind_) ? StopReason::gap : StopReason::stepped, thread};
    }
    if (breaks_.touches(at.stream(), at.block(block).node, info)) {
      const std::span<const uint32_t> offsets = at.insn_offsets(info);
      while (insn-- > 0) {
        if (!breaks_.contains(info.ip + offsets[insn])) continue;
        at.set_backward(block, insn);
        return RunResult{StopReason::breakpoint, thread};
      }
    }
    insn = 0;
  }
  at.set_backward(0, 0);
  return std::nullopt;
}

void ReplayRun::pass_gap_backward(ThreadKey thread) {
  if (!cursor_->item().is_window) {
    note_gap(*cursor_);
    gap_behind_ = gap_behind_ || stops(thread);
  } else if (stops_at_window()) {
    note_window(*cursor_);
    window_behind_ = true;
  }
  cursor_->leave_backward();
}

RunResult ReplayRun::backward() {
  uint64_t budget = kBudgetBlocks;
  while (cursor_->enter_previous()) {
    const ThreadKey thread = cursor_->thread();
    // Not before the item but where the position was.
    if (!request_.times.empty() && passes_time()) return cursor_->step_out(), RunResult{StopReason::time, thread};
    if (leaves_space()) return leave_space();
    switch (cursor_->item().kind) {
      case FlowItem::blocks:
        if (const auto stop = backward_blocks(budget)) return *stop;
        break;
      case FlowItem::gap:
        pass_gap_backward(thread);
        break;
      default:
        note_event();
        cursor_->leave_backward();
        if (budget != 0) --budget;
    }
    if (budget == 0) return {StopReason::budget, thread};
  }
  const auto next = cursor_->next_place();
  return {StopReason::edge, next ? next->thread : kNoThread};
}

}  // namespace ptd::replay
