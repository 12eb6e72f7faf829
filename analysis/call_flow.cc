// CallFlow: extracts transfers between functions from batches of blocks. See call_flow.h.
#include "analysis/call_flow.h"

#include <algorithm>
#include <utility>

#include "analysis/frame_search.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {
namespace {

// Where the flow is at an event, by which it has not gone on from its last branch.
std::optional<Ip> place_of(const Event& event) {
  switch (event.kind) {
    case EventKind::async_branch:
    case EventKind::async_disabled:
    case EventKind::skipped:
      return (event.flags & kEventHasFrom) != 0 ? std::optional(event.from) : std::nullopt;
    case EventKind::enabled:  // repeated by a PSB+
      return (event.flags & kEventStatus) != 0 ? std::optional(event.to) : std::nullopt;
    default:
      return {};
  }
}

// Whether the flow goes on after an event as if it were not there.
bool keeps_place(const Event& event) {
  return event.kind > EventKind::async_branch && event.kind != EventKind::overflow && event.kind != EventKind::skipped;
}

}  // namespace

CallFlow::CallFlow(const Symbolizer& symbolizer, const Timeline& timeline, FunctionTable& table, int32_t cpu, int32_t tid,
                   const FlowClock& clock, InlineChains* inlined)
    : finder_(symbolizer, timeline, table), kernel_(table.intern("[kernel]", "")), cpu_(cpu), stream_tid_(tid), tid_(tid), dates_(clock) {
  if (inlined != nullptr) inlined_code_.emplace(symbolizer, table, *inlined);
}

void CallFlow::begin_segment(const AuxSegment& segment, bool window) {
  if (window) end_window();
  dates_.begin_segment(dates_.in_ns() ? segment.time.first : kTimeMin, segment.tsc.use);
  segment_end_ = segment.time.last;
  segment_time_ = look_up_time(segment.time);
  if (!epoch_time_.contains(when())) begin_epoch();
}

// A mark comes, perhaps after an open branch. If the thread changes, the branch was the old thread's: it went where the next event or block
// says. If time has passed since the flow was there, by done_by_, it passed in the code that comes next.
[[gnu::always_inline]] inline void CallFlow::resolve_ahead(const Mark& mark) {
  const bool switches = has_thread_ && mark.tid != tid_;
  if (switches ? pending_.has_value() : is_dated(mark) && passes_time(likeliest(mark))) [[unlikely]]
    look_ahead(mark, switches);
}

void CallFlow::take(const Batch& batch, const BlockTable& blocks) {
  if (blocks_ != &blocks) {
    blocks_ = &blocks;
    nodes_ = &tables_[&blocks];
  }
  if (nodes_->keys.size() < blocks.size()) {  // the table of blocks has grown since the batch before
    nodes_->keys.resize(std::max(blocks.size(), nodes_->keys.size() * 2));
    nodes_->nodes.resize(nodes_->keys.size());
    nodes_->asked.resize(nodes_->keys.size());
    if (inlined_code_) nodes_->inlined.resize(nodes_->keys.size());
  }
  check_keys();
  cursor_.begin(batch);
  for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
    switch (item) {
      case FlowItem::blocks:
        take_blocks(cursor_.blocks());
        break;
      case FlowItem::mark:
        if (pending_ || inlined_code_) resolve_ahead(cursor_.mark());
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

void CallFlow::look_ahead(const Mark& mark, bool switches) {
  if (!switches) next_mark_ = std::max(next_mark_, likeliest(mark));
  if (!epoch_time_.contains(when())) begin_epoch();
  FlowCursor ahead = cursor_;
  FlowItem item = ahead.next();
  while (item == FlowItem::mark || (item == FlowItem::event && keeps_place(ahead.event()))) item = ahead.next();
  if (item == FlowItem::event) {
    const std::optional<Ip> to = place_of(ahead.event());
    if (to && pending_) resolve(find(*to), *to);
    if (to && !switches) enter_inlined_at(*to);
  } else if (item == FlowItem::blocks && switches) {
    const Node& to = node(ahead.blocks().front().node);
    resolve(to.at(), to.ip);
  } else if (item == FlowItem::blocks) {
    const Block& next = ahead.blocks().front();
    arrive(next);
    if (inlined_code_) enter_inlined(next);
  }
}

// Sets what the stream says of each step.
[[gnu::always_inline]] inline void CallFlow::fill(FlowStep& step) {
  step.part = part_;
  step.pid = pid_;
  step.tid = tid_;
  step.cpu = cpu_;
  step.space = space_;
  if (step.kind != FlowKind::begin) step.from = last_function_;
  step.instructions = static_cast<uint32_t>(std::min<uint64_t>(dates_.position() - last_position_, 0xffffffffU));
  last_position_ = dates_.position();
}

// The last of out_ is new.
[[gnu::always_inline]] inline void CallFlow::hold(bool resumes, bool silent) {
  fill(out_.back());
  dates_.add(resumes, silent);
  if (dates_.waiting() >= kMaxHeld) [[unlikely]]
    put_out(dates_.anchor_undated(false));
}

// The open branch went `to` there.
void CallFlow::resolve(const FunctionAt& at, Ip to) {
  const Pending& pending = *pending_;
  FunctionId entered = kNoFunction;
  int32_t landing = at.entry ? (finder_.is_setjmp(at.id) ? kEntersSetjmp : 0) : finder_.is_landing(space_, to, when()) ? kLandsHere : 0;
  if (landing == 0 && finder_.is_probe_slot(at.id, to)) landing = kInSlot;
  resolve(pending,
          {.ip = to,
           .function = at.id,
           .module = at.module,
           .landing = landing,
           .flags = flags_of(at),
           .after_call = is_return(pending.way) && follows_call(to),
           .part = at.part},
          entered);
  pending_.reset();
}

// `entered`: Node::entered of the target.
[[gnu::always_inline]] inline void CallFlow::resolve(const Pending& pending, const Target& to, FunctionId& entered) {
  if (pending.way == Way::none) return;
  const FunctionId filled_by = std::exchange(return_stack_filled_by_, kNoFunction);
  const bool again = pending.indirect && (to.flags & kFlowEntry) != 0;  // a tail call of the function itself; a direct jump may be a loop
  const bool out = pending.bounded && pending.way == Way::jump && (to.flags & kFlowNamed) == 0 && !to.part;
  const bool part = out && finder_.leads_back(space_, to.ip, pending.from, cursor_.context().mode, when());
  const bool leaves = out && !part && to.ip != entered_at_;
  if (pending.way == Way::jump && !again && !leaves &&
      (to.function == pending.from || (to.flags == kFlowNamed && jumps_inside(pending.return_to, to.function))))
    return;
  const bool named = (to.flags & kFlowNamed) != 0;
  // "call 1f; 1: pop" reads its own address; "call 1f; int3; 1:" fills the return stack, or begins a retpoline. No function is called.
  if (pending.way == Way::call_direct && fills_return_stack(pending.return_to, to.ip)) {
    if (to.ip == pending.return_to) return;
    if (to.function == pending.from && to.flags == kFlowNamed) return void(return_stack_filled_by_ = pending.from);
  }
  const bool ret = is_return(pending.way);
  // A RET that serves as an indirect jump.
  const bool retpoline = pending.way == Way::ret && filled_by != kNoFunction && filled_by == pending.from;
  // A jump to unnamed code enters a function there from another module, out of a function whose extent is known, and as all of a function.
  // A call always does.
  const bool enters = !named && (retpoline || (!ret && (pending.way != Way::jump || leaves || (!part && to.module != pending.module))));
  if (enters && entered == kNoFunction) entered = unnamed_entry(to.ip);
  entered_at_ = enters ? to.ip : Ip{};
  static constexpr FlowKind kKinds[] = {FlowKind::jump, FlowKind::jump, FlowKind::call,      FlowKind::call,
                                        FlowKind::call, FlowKind::ret,  FlowKind::far_return};  // by Way
  out_.push_back(new_step_);
  FlowStep& step = out_.back();
  step.kind = kKinds[static_cast<size_t>(pending.way)];
  step.flags = (retpoline || pending.way == Way::jump) && enters ? kFlowEntry | kFlowNamed : to.flags;
  const bool may_skip = pending.way == Way::call_direct || (pending.way == Way::jump && !pending.indirect && to.function != pending.from);
  if (may_skip && to.flags == kFlowNamed && finder_.skips_endbr(to.function, space_, to.ip, when()) &&
      !finder_.is_probe_slot(pending.from, to.ip)) {  // the probe is at the ENDBR64
    step.flags |= kFlowEntry;
  }
  if (pending.way == Way::far_call) step.flags |= kFlowFar;
  if (branch_uncertain_) [[unlikely]]
    step.flags |= kFlowUncertain;
  if (ret && to.after_call) step.flags |= kFlowAfterCall;
  step.to = to.ip;
  step.function = enters ? entered : to.function;
  step.return_to = pending.return_to;
  step.landing = to.landing != 0 ? to.landing : pending.landing;
  step.inlined = chain_ = to.inlined;
  step.begins = to.begins;
  hold(false, false);
  if (to.flags == kFlowNamed && (ret ? !to.after_call || retpoline : pending.indirect)) [[unlikely]]
    go_back();
}

// Whether a jump into `to`, with this address after it, stays in the function that its instruction is in. The block may have begun in
// another one, whose code goes on there without a branch: entry_SYSCALL_64 of Linux is three symbols, one after the other.
bool CallFlow::jumps_inside(Ip after, FunctionId to) { return find(Ip{after.value - 1}).id == to; }

// The last step has led into the middle of a function. If that had just jumped to the start of the code that ends with this step, the code
// was called: a thunk that serves as an indirect jump, or a function that returns to an address which the other one has pushed.
void CallFlow::go_back() {
  FlowStep& step = out_.back();
  const bool from_thunk = finder_.is_indirect_thunk(step.from);
  // After a CALL, it may be a return, as of "call 1f; 1: lea 8(%rsp),%rsp; ret", or longjmp.
  const bool after_call = !from_thunk && (step.kind == FlowKind::jump ? follows_call(step.to) : (step.flags & kFlowAfterCall) != 0);
  if (from_thunk && step.kind == FlowKind::ret) step.flags &= static_cast<uint8_t>(~kFlowAfterCall);
  const size_t before = last_step(out_.size() - 1);
  if (after_call || before == out_.size()) return;
  FlowStep& jump = out_[before];
  if (jump.kind != FlowKind::jump || jump.from != step.function || jump.tid != step.tid || (jump.flags & kFlowEntry) == 0) return;
  if (step.kind == FlowKind::far_return || step.landing == kLandsHere) return;
  jump.kind = FlowKind::call;
  jump.return_to = step.to;
  step.kind = FlowKind::ret;
}

[[gnu::always_inline]] inline CallFlow::Target CallFlow::target_at(NodeId id) const {
  const Node& node = nodes_->nodes[id];
  Target to{.ip = node.ip,
            .function = node.function,
            .module = node.module,
            .landing = node.entry_landing(),
            .flags = node.flags,
            .after_call = node.after_call,
            .part = node.part};
  if (!inlined_code_) return to;
  to.inlined = nodes_->inlined[id].chain;
  to.begins = nodes_->inlined[id].begins;
  return to;
}

// The flow came to this block by a branch that may matter, or it begins here.
[[gnu::always_inline]] inline void CallFlow::arrive(const Block& block) {
  Node& here = node(block.node);
  branch_uncertain_ = uncertain_ || (block.flags & kUncertainFlags) != 0;
  if (pending_) {
    const Pending& open = *pending_;  // not a copy: its loads would span stores that are not done
    if (!here.thunk || open.way != Way::jump) {
      if (is_return(open.way) && !here.sought_call) [[unlikely]] {
        here.sought_call = true;
        here.after_call = follows_call(here.ip);
      }
      resolve(open, target_at(block.node), here.entered);
    }
    pending_.reset();
  } else if (!flowing_) [[unlikely]] {
    begin(here.ip, synced_ && !halted_, halted_ ? kFlowHalted : 0);
  }
}

// Whether the flow goes on from this block, for which Key::may_end() holds, in a way that matters.
bool CallFlow::ends(const Block* at) {
  if (!nodes_->keys[at->node].is_known()) refresh(at->node);
  const Key key = nodes_->keys[at->node];
  if (!key.is_jump()) return key.may_end(*at);
  const NodeId next = at[1].node;
  if (!nodes_->keys[next].is_known()) refresh(next);
  return key.may_end(*at) &&
         (!key.same_function(nodes_->keys[next]) || (nodes_->keys[next].is_entry() && nodes_->nodes[at->node].indirect));
}

// Passes blocks whose branches call nothing, return from nothing and stay in one function. Returns the first other one, or the last.
[[gnu::always_inline]] inline const Block* CallFlow::pass(const Block* at, const Block* last) {
  const Key* const keys = nodes_->keys.data();
  uint64_t ran = 0;
  for (;; ++at) {
    ran += at->instructions;
    if (at == last) break;
    const Key key = keys[at->node];
    if (!key.may_end(*at) || key.jumps_inside(keys[at[1].node])) continue;
    if (key.surely_ends() || ends(at)) break;
  }
  dates_.ran(ran);
  return at;
}

// The block that pass() returned.
[[gnu::always_inline]] inline void CallFlow::depart(const Block& block) {
  const Node& here = node(block.node);
  uncertain_ = (block.flags & kUncertainFlags) != 0;
  last_function_ = here.function;
  if (here.halts) [[unlikely]]
    halt(here.next());
  const bool bounded = here.bounded || (here.bare_jump && here.ip == entered_at_);
  if (has(block.flags, BlockFlag::taken))
    pending_ = {here.way, here.indirect, bounded, here.function, here.module, here.next(), here.landing};
}

void CallFlow::take_blocks(std::span<const Block> blocks) {
  done_by_ = blocks_done_by_;
  const Block* at = blocks.data();
  for (const Block* const last = at + blocks.size() - 1; at <= last; ++at) {
    arrive(*at);
    synced_ = false;
    if (lost_ || !proved_) [[unlikely]]
      prove();
    at = inlined_code_ ? pass_inlined(at, last) : pass(at, last);
    depart(*at);
  }
}

void CallFlow::begin(Ip to, bool exact, uint8_t flags) {
  flowing_ = true;
  dates_.set_flowing(true);
  was_paused_ = std::exchange(paused_, false);
  proved_ = halted_ = false;
  begun_at_ = to;
  const FoundFunction at = find(to);
  FlowStep step;
  step.kind = FlowKind::begin;
  step.function = at.id;
  step.to = to;
  step.flags = static_cast<uint8_t>(flags | (at.entry ? kFlowEntry : 0) | (at.named ? kFlowNamed : 0));
  if (!at.named && was_paused_ && to != paused_at_) step.from = unnamed_entry(to);  // it may be a signal's handler
  if (at.entry && is_kernel_half(to)) step.landing = finder_.entry_of(at.id);
  // A stream's first start follows its first time directly: otherwise a timing packet would show how long it waited.
  const bool first = !std::exchange(began_, true) && dates_.has_tick();
  push(step, !exact && !first);
}

void CallFlow::take_mark(const Mark& mark) {
  synced_ = is_dated(mark);
  if (mark.time.last < segment_end_) dates_.set_clock_known();
  if (synced_) take_flow_time(likeliest(mark), mark.cycles);
  done_by_ = blocks_done_by_ = synced_ ? latest(mark) : kTimeMax;
  const int32_t tid = mark.tid < 0 ? stream_tid_ : mark.tid;
  if (has_thread_ && tid == tid_ && mark.pid == pid_) {
    if (std::exchange(space_, mark.space) != mark.space) chain_ = kUnknownInlining;
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
  pid_ = mark.pid;
  finder_.set_process(pid_);
  check_keys();
  tid_ = tid;
  space_ = mark.space;
  step.kind = FlowKind::switch_in;
  if (changes) push(step);
}

// The loss begins where flow resumed or an interrupt was taken, if no instruction was decoded since and no time has passed there. It also
// begins where a branch went, if the trace does not tell that place and time has passed there.
void CallFlow::take_gap(const Gap& gap) {
  const bool lost_branch = pending_ && pending_->way != Way::none;
  pending_.reset();
  FlowStep step;
  step.kind = FlowKind::gap;
  step.gap = gap.reason;
  const bool comparable = timed_ || dates_.position() == 0;  // with the times that came before
  const bool known = dates_.in_ns() && gap.time.first != kTimeMin && gap.time.last != kTimeMax;
  // An earlier or equal time says nothing new: the steps since the last packet ran after it, and share the time up to the next one.
  if (comparable && known && (!dates_.timed() || dates_.now() < gap.time.first)) {
    const bool passes = passes_time(gap.time.first);
    if (passes && !lost_branch) prove();
    if (passes && dates_.now() < done_by_) date_until(done_by_, {});
    if (!passes || !lost_branch) {
      bound(done_by_);
      put_out(dates_.anchor(gap.time.first));
    }
  }
  if (!unproved_.empty()) {
    const FlowStep first = unproved_.front();
    drop_unproved();
    fill(step);
    step.time = first.time;
    step.floor = first.floor;
    step.cycles = std::exchange(dropped_cycles_, 0);
    out_.insert(out_.begin() + static_cast<ptrdiff_t>(dated_++), step);
  } else if (first_unproved()) {
    const size_t at = drop_unproved();
    fill(step);
    held(at) = step;
  } else {
    push(step);
  }
  const bool loses_packets = gap.reason == GapReason::overflow || gap.reason == GapReason::aux_lost || gap.reason == GapReason::bad_packet;
  dates_.set_beside_loss(loses_packets);
  stop();
  proved_ = lost_ = true;
  paused_ = halted_ = synced_ = false;
  done_by_ = blocks_done_by_ = kTimeMax;
}

void CallFlow::push(const FlowStep& step, bool resumes) {
  if (!proved_ && (step.kind == FlowKind::begin || step.kind == FlowKind::interrupt)) held_unproved_.push_back(held_count());
  out_.push_back(step);
  chain_ = step.inlined;
  if (lost_ && step.kind == FlowKind::begin) dates_.set_beside_loss();
  hold(resumes, step.kind == FlowKind::begin && (lost_ || (step.flags & kFlowHalted) != 0));
}

// An instruction was decoded.
void CallFlow::prove() {
  lost_ = false;
  if (std::exchange(proved_, true)) return;
  out_.insert(out_.begin() + static_cast<ptrdiff_t>(dated_), unproved_.begin(), unproved_.end());
  dated_ += unproved_.size();
  unproved_.clear();
  held_unproved_.clear();
}

// The kind of the first step that no instruction proves.
std::optional<FlowKind> CallFlow::first_unproved() const {
  if (!unproved_.empty()) return unproved_.front().kind;
  if (!held_unproved_.empty()) return out_[dated_ + held_unproved_.front()].kind;
  return {};
}

// Their instructions and cycles go to the next step. Returns the index of the first one that waits for a time.
size_t CallFlow::drop_unproved() {
  for (const FlowStep& step : unproved_) {
    last_position_ -= step.instructions;
    dropped_cycles_ += step.cycles;
  }
  unproved_.clear();
  const size_t first = held_unproved_.empty() ? held_count() : held_unproved_.front();
  for (const size_t i : held_unproved_) {
    last_position_ -= held(i).instructions;
    held(i).kind = FlowKind::dropped;
    held_dropped_ = true;
  }
  held_unproved_.clear();
  return first;
}

// Returns the index of the last of the first `count` steps that is no cut of put_cut(); out_.size() if there is none.
size_t CallFlow::last_step(size_t count) const {
  while (count != 0 && out_[count - 1].kind == FlowKind::inlined && out_[count - 1].inlined == kUnknownInlining) --count;
  return count == 0 ? out_.size() : count - 1;
}

void CallFlow::give(std::vector<FlowStep>& steps, std::vector<InlinedMove>& moves) {
  const size_t last = dated_ == out_.size() ? last_step(dated_) : dated_;
  const bool may_be_call = last < dated_ && out_[last].kind == FlowKind::jump;  // go_back() decides
  const size_t given = may_be_call ? last : dated_, moves_given = dated_moves_ - (may_be_call ? out_[last].moves : 0);
  std::swap(steps, out_);
  out_.assign(steps.begin() + static_cast<ptrdiff_t>(given), steps.end());
  steps.resize(given);
  dated_ -= given;
  std::swap(moves, moves_);
  moves_.assign(moves.begin() + static_cast<ptrdiff_t>(moves_given), moves.end());
  moves.resize(moves_given);
  dated_moves_ -= moves_given;
}

void CallFlow::finish(TimeNs end) {
  pending_.reset();
  drop_unproved();
  if (timed_ && (lost_ || !flowing_) && end != kTimeMin && end != kTimeMax) put_out(dates_.anchor(end));
  if (next_cut_ != kTimeMax && dates_.timed() && held_count() != 0) put_cut(dates_.anchor_position());
  FlowStep step;
  step.kind = FlowKind::switch_out;
  push(step);
  put_out(dates_.anchor_undated(true));
}

}  // namespace ptd
