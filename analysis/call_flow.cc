// CallFlow: extracts transfers between functions from batches of blocks. See call_flow.h.
#include "analysis/call_flow.h"

#include <algorithm>
#include <utility>

#include "analysis/call_condenser.h"
#include "analysis/look_up_time.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {
namespace {

constexpr size_t kMaxHeld = 1U << 16;
constexpr uint64_t kMostSkipped = 16;  // bytes between a CALL that does not return to its caller, and its target

constexpr uint8_t kDropped = 128;  // FlowStep::flags of a step that is held and will not be given out

}  // namespace

CallFlow::CallFlow(const Symbolizer& symbolizer, const Timeline& timeline, FunctionTable& table, int32_t cpu, int32_t tid,
                   const FlowClock& clock)
    : finder_(symbolizer, timeline, table),
      kernel_(table.intern("[kernel]", "")),
      cpu_(cpu),
      stream_tid_(tid),
      tid_(tid),
      dates_(clock) {}

void CallFlow::refresh(NodeId id) {
  if (id >= nodes_->nodes.size()) {
    nodes_->nodes.resize(std::max<size_t>(size_t{id} + 1, nodes_->nodes.size() * 2));
    nodes_->asked.resize(nodes_->nodes.size());
  }
  Node& node = nodes_->nodes[id];
  Asked& asked = nodes_->asked[id];
  if (node.epoch == 0) node.code = branch_code(blocks_->info(id), blocks_->bytes(id));
  const bool same = node.epoch != 0 && asked.valid.contains(when()) && (node.at.named || asked.pid == pid_);
  if (!same) {
    const FoundFunction found = finder_.find(blocks_->info(id).space, node.code.ip, when());
    node.at = found;
    asked = {found.valid, pid_};
  }
  epoch_time_ = intersect(epoch_time_, asked.valid);
  node.epoch = epoch_;
}

// The process is another one, or it is a moment at which some answer is not surely right.
void CallFlow::begin_epoch() {
  epoch_time_ = {};
  if (++epoch_ != 0) return;
  for (auto& [blocks, nodes] : tables_) nodes = {};
  epoch_ = 1;
}

void CallFlow::begin_segment(Interval time) {
  dates_.begin_segment(time.first);
  segment_time_ = look_up_time(time);
  if (!epoch_time_.contains(when())) begin_epoch();
}

void CallFlow::take(const Batch& batch, const BlockTable& blocks) {
  if (blocks_ != &blocks) {
    blocks_ = &blocks;
    nodes_ = &tables_[&blocks];
  }
  cursor_.begin(batch);
  for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
    switch (item) {
      case FlowItem::blocks:
        for (const Block& block : cursor_.blocks()) take_block(block);
        break;
      case FlowItem::mark:
        if (pending_ && has_thread_ && cursor_.mark().tid != tid_) resolve_ahead();
        take_mark(cursor_.mark());
        break;
      case FlowItem::event:
        take_event(cursor_.event());
        break;
      case FlowItem::gap:
        take_gap(cursor_.gap());
        break;
      case FlowItem::end:
        break;
    }
  }
}

// The thread changes after an open branch, which was the old thread's: it went where the next event or block says.
void CallFlow::resolve_ahead() {
  FlowCursor ahead = cursor_;
  FlowItem item = ahead.next();
  while (item == FlowItem::mark) item = ahead.next();
  if (item == FlowItem::event && (ahead.event().flags & kEventHasFrom) != 0) {
    const Ip from = ahead.event().from;
    resolve(find(from), from);
  } else if (item == FlowItem::blocks) {
    const Node& to = node(ahead.blocks().front().node);
    resolve(to.at, to.code.ip);
  }
}

void CallFlow::take_block(const Block& block) {
  if (is_left_out(block)) {
    dates_.ran(block.node);
    pending_.reset();
    synced_ = false;
    return;
  }
  const Node& here = node(block.node);
  const bool was_uncertain = std::exchange(uncertain_, (block.flags & kUncertainFlags) != 0);
  branch_uncertain_ = was_uncertain || uncertain_;
  if (pending_) {
    resolve(here.at, here.code.ip, here.code.bare_return);
  } else if (!flowing_) {
    begin(here.code.ip, synced_ && !halted_, halted_ ? kFlowHalted : 0);
  }
  synced_ = false;
  if (lost_ || !proved_) prove();
  dates_.ran(block.instructions);
  last_function_ = here.at.id;
  far_next_ = here.code.way == Way::far_call ? here.code.next : Ip{};
  if (here.code.halts) halt(here.code.next);
  if (has(block.flags, BlockFlag::taken)) pending_ = Pending{here.code.way, here.at.id, here.at.module, here.code.next};
}

void CallFlow::begin(Ip to, bool exact, uint8_t flags) {
  flowing_ = true;
  dates_.set_flowing(true);
  was_paused_ = std::exchange(paused_, false);
  proved_ = halted_ = false;
  const FoundFunction at = find(to);
  FlowStep step;
  step.kind = FlowKind::begin;
  step.function = at.id;
  step.to = to;
  step.flags = static_cast<uint8_t>(flags | (at.entry ? kFlowEntry : 0) | (at.named ? kFlowNamed : 0));
  if (!at.named && was_paused_ && to != paused_at_) step.from = finder_.unnamed_entry(space_, to, when());  // it may be a signal's handler
  // A stream's first start follows its first time directly: otherwise a timing packet would show how long it waited.
  const bool first = !std::exchange(began_, true) && dates_.has_tick();
  push(step, !exact && !first);
}

void CallFlow::stop() {
  flowing_ = false;
  dates_.set_flowing(false);
}

// The core sleeps, up to the next instruction or interrupt.
void CallFlow::halt(Ip next) {
  FlowStep step;
  step.kind = FlowKind::pause;
  step.flags = kFlowHalted;
  step.return_to = next;
  push(step);
  stop();
  paused_ = halted_ = true;
}

// The open branch went `to` there.
void CallFlow::resolve(const FunctionAt& at, Ip to, bool bare_return) {
  const Pending pending = *pending_;
  pending_.reset();
  if (pending.way == Way::none || (pending.way == Way::jump && (at.id == pending.from || bare_return))) return;
  if (pending.way == Way::call_direct) {
    // "call 1f; 1: pop" reads its own address; "call 1f; int3; 1:" fills the return stack, or begins a retpoline. No function is called.
    if (to == pending.return_to) return;
    const uint64_t skipped = to.value - pending.return_to.value;
    if (at.named && at.id == pending.from && !at.entry && pending.return_to < to && skipped <= kMostSkipped) return;
  }
  FlowStep& step = held_.emplace_back();
  step.to = to;
  step.function = at.id;
  step.return_to = pending.return_to;
  step.flags = static_cast<uint8_t>((at.entry ? kFlowEntry : 0) | (at.named ? kFlowNamed : 0) |
                                    (branch_uncertain_ ? kFlowUncertain : 0));
  switch (pending.way) {
    case Way::jump:
      step.kind = FlowKind::jump;
      // A jump from another module to unnamed code enters a function there.
      if (at.named || at.module == pending.module) break;
      step.function = finder_.unnamed_entry(space_, to, when());
      step.flags |= kFlowEntry | kFlowNamed;
      break;
    case Way::call_direct:
    case Way::call:
    case Way::far_call:
      step.kind = FlowKind::call;
      if (pending.way == Way::far_call) step.flags |= kFlowFar;
      step.function = entered(at, to);
      break;
    default:
      step.kind = pending.way == Way::ret ? FlowKind::ret : FlowKind::far_return;
  }
  hold(false, false);
}

// The branch left the traced region; `to` is 0 where no packet gives it.
void CallFlow::resolve_unseen(Ip to) {
  const FoundFunction at = to.value != 0 ? find(to) : FoundFunction{};
  const bool far_call = pending_->way == Way::far_call;
  if (pending_->way == Way::jump) {
    pending_.reset();
    return;
  }
  const size_t before = held_.size() + out_.size();
  resolve(at, to);
  if (held_.size() + out_.size() == before || held_.empty()) return;
  held_.back().flags |= kFlowUnseen;
  if (to.value == 0) held_.back().function = far_call ? kernel_ : kNoFunction;
}

void CallFlow::take_mark(const Mark& mark) {
  synced_ = is_dated(mark);
  if (synced_) told(likeliest(mark), mark.cycles);
  const int32_t tid = mark.tid < 0 ? stream_tid_ : mark.tid;
  if (has_thread_ && tid == tid_ && mark.pid == pid_) {
    space_ = mark.space;
    return;
  }
  FlowStep step;
  if (has_thread_ && tid != tid_) {
    drop_unproved();
    step.kind = FlowKind::switch_out;
    push(step);
  }
  const bool changes = !has_thread_ || tid != tid_;
  has_thread_ = true;
  if (pid_ != mark.pid) begin_epoch();
  pid_ = mark.pid;
  finder_.set_process(pid_);
  tid_ = tid;
  space_ = mark.space;
  step.kind = FlowKind::switch_in;
  if (changes) push(step);
}

void CallFlow::take_event(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  const bool status = (event.flags & kEventStatus) != 0;
  const bool known = is_dated(event);
  switch (event.kind) {
    case EventKind::async_branch:
      return take_async_branch(event);
    case EventKind::disabled:
    case EventKind::async_disabled:
      return take_disabled(event);
    case EventKind::enabled: {
      if (status && (flowing_ || pending_)) return;
      pending_.reset();
      // A packet with a cycle count dates the resume; otherwise tracing resumed at some time after its last timing packet.
      const bool exact = known && dates_.last_count() && event.cycles > *dates_.last_count();
      if (known) told(likeliest(event), event.cycles);
      if (has_to) begin(event.to, exact);
      return;
    }
    case EventKind::skipped:  // time passes in this code, without a block
      if (pending_ && has_from) resolve(find(event.from), event.from);
      if (known) told(likeliest(event), event.cycles);
      return;
    default:
      return;
  }
}

void CallFlow::take_async_branch(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0;
  if ((event.flags & kEventHasTo) == 0) return leave_traced(event);
  if (pending_ && has_from) resolve(find(event.from), event.from);
  pending_.reset();
  if (is_dated(event)) told(likeliest(event), event.cycles);
  if (!flowing_ && has_from) begin(event.from, false, halted_ ? kFlowHalted : 0);
  const FoundFunction at = find(event.to);
  FlowStep step;
  step.kind = FlowKind::interrupt;
  step.to = event.to;
  step.return_to = event.from;
  step.function = entered(at, event.to);
  step.flags = static_cast<uint8_t>((at.entry ? kFlowEntry : 0) | (at.named ? kFlowNamed : 0) |
                                    ((event.flags & kEventBreakpoint) != 0 ? kFlowBreakpoint : 0));
  flowing_ = true;
  dates_.set_flowing(true);
  proved_ = halted_ = false;
  push(step);
}

// An exception whose handler is not traced.
void CallFlow::leave_traced(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0;
  if (pending_ && has_from && pending_->way != Way::far_call) resolve(find(event.from), event.from);
  pending_.reset();
  if (is_dated(event)) told(likeliest(event), event.cycles);
  FlowStep step;
  step.return_to = has_from ? event.from : Ip{};
  if (has_from && !is_kernel_half(event.from)) step.flags = kFlowFar;
  if (flowing_ && proved_ && has_from && event.from == far_next_) {  // of a system call (Arm)
    FlowStep call = step;
    call.kind = FlowKind::call;
    call.flags = kFlowFar | kFlowUnseen;
    call.function = kernel_;
    push(call);
  }
  step.kind = FlowKind::pause;
  take_pause(step);
}

void CallFlow::take_disabled(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  const bool async = event.kind == EventKind::async_disabled;
  if (pending_ && async && has_from) resolve(find(event.from), event.from);
  const bool far = pending_ && pending_->way == Way::far_call && !is_kernel_half(pending_->return_to);
  const bool interrupted = async && has_from && !is_kernel_half(event.from);
  if (pending_) resolve_unseen(!async && has_to ? event.to : Ip{});
  if (is_dated(event)) told(likeliest(event), event.cycles);
  FlowStep step;
  step.kind = FlowKind::pause;
  if (far || interrupted) step.flags |= kFlowFar;
  step.return_to = async && has_from ? event.from : Ip{event.aux};
  take_pause(step);
}

// Tracing stops, and with it a loss. If nothing ran since it began, the pause before goes on.
void CallFlow::take_pause(const FlowStep& step) {
  const bool nothing_ran = first_unproved() == FlowKind::begin, was_lost = lost_;
  if (nothing_ran) drop_unproved();
  prove();
  if (was_lost || (flowing_ && !(nothing_ran && was_paused_))) {
    push(step);
    paused_at_ = step.return_to;
  }
  paused_ = paused_ || flowing_ || was_lost;
  stop();
}

// The loss begins where flow resumed or an interrupt was taken, if no instruction was decoded since.
void CallFlow::take_gap(const Gap& gap) {
  pending_.reset();
  FlowStep step;
  step.kind = FlowKind::gap;
  step.gap = gap.reason;
  const bool comparable = timed_ || dates_.position() == 0;  // with the times that came before
  if (comparable && gap.time.first != kTimeMin && gap.time.last != kTimeMax) put_out(dates_.anchor(gap.time.first));
  if (!unproved_.empty()) {
    const FlowStep first = unproved_.front();
    drop_unproved();
    fill(step);
    step.time = first.time;
    step.floor = first.floor;
    step.cycles = std::exchange(dropped_cycles_, 0);
    out_.push_back(step);
  } else if (first_unproved()) {
    const size_t at = drop_unproved();
    fill(step);
    held_[at] = step;
  } else {
    push(step);
  }
  stop();
  proved_ = lost_ = true;
  paused_ = halted_ = synced_ = false;
}

// Sets what the stream says of each step.
void CallFlow::fill(FlowStep& step) {
  step.pid = pid_;
  step.tid = tid_;
  step.cpu = cpu_;
  step.space = space_;
  if (step.kind != FlowKind::begin) step.from = last_function_;
  step.instructions = static_cast<uint32_t>(std::min<uint64_t>(dates_.position() - last_position_, 0xffffffffU));
  last_position_ = dates_.position();
}

void CallFlow::push(const FlowStep& step, bool resumes) {
  if (!proved_ && (step.kind == FlowKind::begin || step.kind == FlowKind::interrupt)) held_unproved_.push_back(held_.size());
  held_.push_back(step);
  hold(resumes, step.kind == FlowKind::begin && (step.flags & kFlowHalted) != 0);
}

// The last of held_ is new.
void CallFlow::hold(bool resumes, bool slept) {
  fill(held_.back());
  dates_.add(resumes, slept);
  if (held_.size() >= kMaxHeld) put_out(dates_.anchor_untold(false));
}

// An instruction was decoded.
void CallFlow::prove() {
  lost_ = false;
  if (std::exchange(proved_, true)) return;
  out_.insert(out_.end(), unproved_.begin(), unproved_.end());
  unproved_.clear();
  held_unproved_.clear();
}

// The kind of the first step that no instruction proves.
std::optional<FlowKind> CallFlow::first_unproved() const {
  if (!unproved_.empty()) return unproved_.front().kind;
  if (!held_unproved_.empty()) return held_[held_unproved_.front()].kind;
  return {};
}

// Their instructions and cycles go to the next step. Returns the index in held_ of the first one there.
size_t CallFlow::drop_unproved() {
  for (const FlowStep& step : unproved_) {
    last_position_ -= step.instructions;
    dropped_cycles_ += step.cycles;
  }
  unproved_.clear();
  const size_t first = held_unproved_.empty() ? held_.size() : held_unproved_.front();
  for (const size_t i : held_unproved_) {
    last_position_ -= held_[i].instructions;
    held_[i].flags |= kDropped;
    held_dropped_ = true;
  }
  held_unproved_.clear();
  return first;
}

// A packet with a time and a cycle count. If it repeats the last one, undated steps stay undated: they ran after that one.
void CallFlow::told(TimeNs time, uint64_t cycles) {
  timed_ = true;
  const bool counts = dates_.last_count() != cycles;
  if (dates_.timed() && time <= dates_.now() && !counts) return;
  put_out(dates_.anchor(time, counts ? std::optional(cycles) : std::nullopt));
}

// Gives out the steps that wait: `dates` has one for each, or none if they go on to wait.
void CallFlow::put_out(std::span<const FlowDates::Date> dates) {
  if (!epoch_time_.contains(when())) begin_epoch();
  for (size_t i = 0; i < dates.size(); ++i) {
    FlowStep& step = held_[i];
    step.time = dates[i].time;
    step.floor = dates[i].floor;
    dropped_cycles_ += dates[i].cycles;
    if ((step.flags & kDropped) == 0) step.cycles = std::exchange(dropped_cycles_, 0);
  }
  if (!dates.empty()) put_out_dated();
}

void CallFlow::put_out_dated() {
  if (!held_unproved_.empty() || held_dropped_) {
    auto unproved = held_unproved_.begin();
    for (size_t i = 0; i < held_.size(); ++i) {
      const bool proved = unproved == held_unproved_.end() || *unproved != i;
      if (!proved) ++unproved;
      if ((held_[i].flags & kDropped) == 0) (proved ? out_ : unproved_).push_back(held_[i]);
    }
    held_unproved_.clear();
    held_dropped_ = false;
  } else if (out_.empty()) {
    std::swap(out_, held_);
  } else {
    out_.insert(out_.end(), held_.begin(), held_.end());
  }
  held_.clear();
}

void CallFlow::finish(TimeNs end) {
  pending_.reset();
  drop_unproved();
  if (timed_ && (lost_ || !flowing_) && end != kTimeMin && end != kTimeMax) put_out(dates_.anchor(end));
  FlowStep step;
  step.kind = FlowKind::switch_out;
  push(step);
  put_out(dates_.anchor_untold(true));
}

}  // namespace ptd
