// Follower: executes atoms and addresses against code.
#include "decoder/arm/follower.h"

#include <algorithm>

#include "decoder/aux_loss.h"

namespace ptd::arm {
namespace {

constexpr size_t kMostHeld = 64;  // contexts held until their exception is output

/// [ETMv4] "Context packet": EL, SF, NS. [ETE] adds NSE, which together with NS distinguishes realm and root.
World world_of(const PacketContext& context, Protocol protocol) {
  if ((protocol == Protocol::etmv3 || protocol == Protocol::ptm) && context.level != 2) {
    return context.non_secure ? World::any_non_secure : World::any_secure;
  }
  if (context.level == 3) return context.root_or_realm ? World::root : World::el3;
  const bool el2 = context.level == 2;
  if (context.root_or_realm) return el2 ? World::el2_realm : World::el1_realm;
  if (context.non_secure) return el2 ? World::el2_non_secure : World::el1_non_secure;
  return el2 ? World::el2_secure : World::el1_secure;
}

}  // namespace

bool ReturnStack::equals(const ReturnStack& other) const {
  if (count_ != other.count_) return false;
  for (uint32_t i = 0; i < count_; ++i) {
    const Entry &a = entries_[(top_ + kDepth - i) % kDepth], &b = other.entries_[(other.top_ + kDepth - i) % kDepth];
    if (a.ip != b.ip || a.mode != b.mode) return false;
  }
  return true;
}

Follower::Follower(RunCache& runs, const ContextTrack& contexts, const TraceConfig& config, const FollowOptions& options,
                   ForkScript& script)
    : runs_(&runs), contexts_(&contexts), config_(config), options_(options), choices_(script) {}

void Follower::begin(const AuxSegment& segment, std::span<const WrongContext> wrong, TimestampIndex* times) {
  Batch* out = out_;
  const size_t most = most_;
  const Choices choices = choices_;
  *this = Follower(*runs_, *contexts_, config_, options_, choices.script());
  out_ = out;
  most_ = most;
  segment_ = segment;
  earliest_ = segment.time.first;
  latest_ = segment.time.last;
  time_ = segment.time;
  time_known_ = segment.time.first != kTimeMin || segment.time.last != kTimeMax;
  undated_ = !options_.use_time || segment.written != Interval{};
  if (undated_) {
    earliest_ = std::max(earliest_, segment.written.first);
    latest_ = std::min(latest_, segment.written.last);
  }
  const bool by_cpu = !has_ids(options_.names) && segment.tid < 0 && segment.cpu >= 0;
  wrong_ = wrong;
  by_time_ = !wrong.empty() || (by_cpu && !contexts_->switches(segment.cpu).empty());
  times_ = times;
  lost_before_ = is_loss(segment.break_before);
  update_context();
}

void Follower::into(BatchTarget target) {
  out_ = &target.batch;
  most_ = target.most;
  if (!lost_before_) return;
  lost_before_ = false;
  lose(GapReason::aux_lost, 0, 0);
}

void Follower::end(uint64_t uncommitted) {
  flush_exception(false, {});
  if (is_loss(segment_.lost_after)) return lose(GapReason::aux_lost, segment_.bytes.size(), 0);
  if (uncommitted != 0) lose(GapReason::uncommitted, segment_.bytes.size(), 0);
}

// --- output

void Follower::put_mark(size_t before_block) {
  Mark mark;
  mark.before_block = static_cast<uint32_t>(before_block);
  mark.time = time_;
  mark.time_known = time_known_;
  mark.pid = software_.pid;
  mark.tid = software_.tid;
  mark.space = space_;
  mark.mode = mode_;
  if (time_known_) mark.about = time_.first;
  mark.cycles = cycles_;
  push(out_->marks, mark);
  mark_due_ = false;
  is_marked_ = true;
  marked_mode_ = mode_;
  marked_ = software_;
}

/// An event without a block after the context needs the mark of its thread, too.
void Follower::mark_thread() {
  if (is_marked_ && (marked_.tid != software_.tid || marked_.pid != software_.pid)) put_mark(out_->blocks.size());
}

void Follower::give_block(const WaypointRun& run, uint16_t flags) {
  if (run.has_bad && !doubtful_) {
    const bool was_flowing = flowing_;
    const uint32_t at = run_, left = left_;
    doubt(GapReason::bad_insn, run.bad_ip, offset_);
    flowing_ = was_flowing;
    run_ = at;
    left_ = left;
  }
  if (mark_due_ || mode_ != marked_mode_) put_mark(out_->blocks.size());
  if (doubtful_ || is_unsure()) flags |= static_cast<uint16_t>(BlockFlag::suspect);
  out_->blocks.push_back({run.node, run.instructions, static_cast<uint16_t>(run.block_flags | flags)});
  flowing_ = true;
}

void Follower::give_gap(GapReason reason, Ip ip, SectionId section, uint64_t offset) {
  flush_exception(false, {});
  contradicted_ = contradicted_ || reason == GapReason::image_mismatch;
  const Gap gap = gap_of(reason, ip, section, offset, out_->blocks.size());
  push(out_->gaps, gap);
  flowing_ = false;
  run_ = left_ = call_ = 0;
}

Event Follower::event_of(EventKind kind, uint8_t flags, Ip from, uint64_t payload, uint64_t offset) const {
  Event event;
  event.kind = kind;
  event.flags = flags;
  event.before_block = static_cast<uint32_t>(out_->blocks.size());
  event.from = from;
  event.payload = payload;
  event.stream_offset_bytes = segment_.stream_offset_bytes + offset;
  event.time = time_;
  if (time_known_) event.about = time_.first;
  event.cycles = cycles_;
  return event;
}

void Follower::give_event(EventKind kind, uint8_t flags, Ip from, Ip to, uint64_t payload, uint64_t aux, uint64_t offset) {
  Event event = event_of(kind, flags, from, payload, offset);
  event.to = to;
  event.aux = aux;
  push(out_->events, event);
}

// Holds an exception until the address of its handler is known.
void Follower::hold_exception(uint8_t flags, Ip from, uint64_t number, uint64_t offset) {
  mark_thread();
  exception_ = event_of(EventKind::async_branch, flags, from, number, offset);
  has_exception_ = true;
  exception_dated_ = false;
  walked_ = false;
}

void Follower::flush_exception(bool has_to, Ip to) {
  if (!has_exception_) return;
  has_exception_ = false;
  if (!std::exchange(is_marked_, true)) {  // no block comes before it, and its thread is needed, too
    const bool was_due = mark_due_;
    put_mark(out_->blocks.size());
    Mark& mark = out_->marks.back();
    mark.time = exception_.time;
    mark.about = exception_.about;
    mark_due_ = was_due;
  }
  exception_.before_block = static_cast<uint32_t>(out_->blocks.size());
  if (has_to) {
    exception_.to = to;
    exception_.flags |= kEventHasTo;
  }
  push(out_->events, exception_);
  for (Event& context : held_contexts_) {
    context.before_block = exception_.before_block;
    push(out_->events, context);
  }
  held_contexts_.clear();
}

/// Empties the return stack where flow is lost: the lost calls and returns changed that of the trace unit.
void Follower::forget_calls() {
  returns_.clear();
  calls_unseen_ = true;
  anchored_ = !config_.has_return_stack();
  if (undated_ && possible().has_several()) entry_ = refuted_ = true;
}

/// The packets do not fit the code at `ip`.
void Follower::contradict(Ip ip, uint64_t offset, GapReason reason) {
  give_gap(reason, ip, runs_->section_at(space_, ip, when()), offset);
  choices_.bounds() = {};  // the versions that the flow took may be wrong
  forget_calls();
  need_address_ = true;
  gap_given_ = true;
  pop_pending_ = false;
  walked_ = false;
}

/// The packets do not fit the code at `ip` but give the address where the flow continues. Follows it, marking blocks up to the next
/// address.
void Follower::doubt(GapReason reason, Ip ip, uint64_t offset) {
  give_gap(reason, ip, runs_->section_at(space_, ip, when()), offset);
  doubtful_ = true;
}

void Follower::tell_start(Ip ip, uint64_t offset) {
  starting_ = false;
  give_event(EventKind::enabled, kEventHasTo, {}, ip, 0, 0, offset);
}

// --- place

void Follower::set_place(Ip ip, uint8_t isa) {
  isa_ = isa;
  mode_ = mode_of(isa);
  ip_ = ip;
  need_address_ = gap_given_ = doubtful_ = fresh_ = pop_pending_ = false;
  run_ = left_ = call_ = 0;
}

void Follower::address(Ip ip, uint8_t isa, uint64_t offset) {
  anchored_ = !need_context_ && (!config_.has_return_stack() || !push_allowed_);
  const bool had_place = known() && walked_ && !starting_ && !has_exception_;
  const bool from_indirect = need_address_ && walked_ && from_branch_;
  const Ip before = ip_;
  const ExecMode mode_before = mode_;
  const uint32_t run = run_, left = left_;
  set_place(ip, isa);
  if (had_place && ip_ == before && mode_ == mode_before) {
    run_ = run;
    left_ = left;
  } else if (had_place) {
    // The flow was at another ip or in another mode, so the code lacks the branch that led here.
    contradict(from_branch_ ? branch_ip_ : before, offset);
    need_address_ = gap_given_ = false;
  } else if (from_indirect && left != 0) {
    left_ = left;
    const uint32_t last = runs_->step(left).next[1];  // the target of its last execution
    const Step& target = runs_->step(last);
    const bool same = last != 0 && target.ip == ip_ && target.mode == mode_ && target.space == runs_->home(space_, ip_);
    if (same && (!runs_->changes() || target.certain.contains(when()))) run_ = last;
  }
  pop_pending_ = false;
  push_allowed_ = true;
  walked_ = false;
  flush_exception(true, ip_);
  if (starting_) tell_start(ip_, offset);
}

void Follower::update_context() {
  software_ = {};
  next_change_ = kTimeMax;
  is_one_of_two_ = false;
  undated_ ? take_possible() : take_dated();
  time_tells_context_ = (undated_ && options_.use_time) || by_time_ || (next_change_ != kTimeMax && next_change_ <= latest_);
  space_ = software_.space == kNoSpace ? options_.default_space : software_.space;
  const SpaceId world = context_.present ? options_.worlds[static_cast<size_t>(world_of(context_, config_.protocol))] : kNoSpace;
  if (world != kNoSpace) space_ = world;
  mark_due_ = true;
  run_ = left_ = call_ = 0;
}

/// Returns whether parts that name a wrong thread begin or end at the packet at `offset`.
bool Follower::enter_wrong(uint64_t offset) {
  if (wrong_.empty() || offset < wrong_.front().from_bytes) return false;
  const bool was_wrong = is_wrong_;
  const size_t left = wrong_.size();
  while (!wrong_.empty() && wrong_.front().to_bytes <= offset) wrong_ = wrong_.subspan(1);
  is_wrong_ = !wrong_.empty() && wrong_.front().from_bytes <= offset;
  return is_wrong_ != was_wrong || wrong_.size() != left;
}

void Follower::context(const PacketContext& context, uint64_t offset) {
  if (!context.present) return;
  const bool enters = enter_wrong(offset);
  const PacketContext before = context_;
  context_.present = true;
  context_.level = context.level;
  context_.is64 = context.is64;
  context_.non_secure = context.non_secure;
  context_.root_or_realm = context.root_or_realm;
  if (context.has_vmid) {
    context_.has_vmid = true;
    context_.vmid = context.vmid;
  }
  if (context.has_context_id) {
    context_.has_context_id = true;
    context_.context_id = context.context_id;
  }
  is64_ = context.is64;
  need_context_ = false;
  mode_ = mode_of(isa_);
  if (enters) update_context();
  if (before == context_) return;
  const uint64_t state = context_.level | (context_.non_secure ? 4U : 0U) | (context_.root_or_realm ? 8U : 0U) | (is64_ ? 16U : 0U);
  give_event(EventKind::context, 0, {}, {}, context_.context_id, context_.vmid | (state << 32), offset);
  if (has_exception_) {
    held_contexts_.push_back(out_->events.back());
    out_->events.pop_back();
    if (held_contexts_.size() == kMostHeld) flush_exception(false, {});
  }
  // A thread that called exec keeps its name, and has another space when it returns from the kernel.
  const bool may_have_execed = (has_ids(options_.names) || undated_) && before.level != context_.level;
  if (before.context_id != context_.context_id || before.vmid != context_.vmid || !before.present || may_have_execed) {
    update_context();
  } else if (world_of(before, config_.protocol) != world_of(context_, config_.protocol) && options_.worlds[0] != kNoSpace) {
    update_context();
  }
  const bool is_other = before.context_id != context_.context_id || before.vmid != context_.vmid;
  entry_ = context_.level == 0 && (entry_ || is_other || !before.present || before.level != 0);
  run_ = left_ = call_ = 0;
}

void Follower::trace_on(uint64_t offset) {
  flush_exception(false, {});
  if (flowing_) give_event(EventKind::disabled, 0, {}, {}, 0, 0, offset);
  flowing_ = false;
  returns_.clear();
  starting_ = entry_ = true;
  walked_ = false;
}

// --- atoms

/// Continues at the address from the return stack if a taken indirect branch has no address packet.
void Follower::take_return() {
  if (!pop_pending_) return;
  pop_pending_ = false;
  ReturnStack::Entry entry;
  // A call made in the other register width does not return here.
  if (!returns_.pop(entry) || (entry.mode == ExecMode::a64) != is64_) return;
  ip_ = entry.ip;
  mode_ = entry.mode;
  isa_ = mode_ == ExecMode::t32 ? 1 : 0;
  need_address_ = false;
  run_ = 0;
  call_ = entry.call;
}

/// Returns whether run `from` still leads to `ip`: after its end, or at the target of its branch if `taken`. Its bytes may have been read
/// again since and lead elsewhere.
bool Follower::leads_to(uint32_t from, bool taken, Ip ip, ExecMode mode) const {
  const WaypointRun& run = runs_->run(from);
  if (taken) return run.last.cls == ArmClass::indirect || run.target == ip;
  return run.end == ip && run.mode == mode;
}

/// Finds the run at ip_, reading it if needed, and links its predecessors to it.
void Follower::find_run() {
  if (!is64_) ip_.value &= 0xffffffffU;
  run_ = runs_->find(space_, ip_, mode_, when(), choices_);
  fresh_ = true;
  if (call_ != 0 && leads_to(call_, false, ip_, mode_)) runs_->link(call_, false, run_);
  call_ = 0;
  if (left_ != 0 && leads_to(left_, left_taken_, ip_, mode_)) runs_->link(left_, left_taken_, run_);
}

void Follower::atom(uint64_t atoms, uint64_t offset) {
  const bool executed = (atoms & 1) != 0;
  offset_ = offset;
  take_return();
  if (!known()) {
    // The code has an indirect branch but the trace gives no target: the code is not the one that was executed, or the call is unknown.
    if (!gap_given_ && !need_context_ && from_branch_) {
      contradict(branch_ip_, offset, no_target());
    } else if (!gap_given_) {
      give_gap(GapReason::bad_packet, {}, kNoSection, offset);
      gap_given_ = true;
    }
    return;
  }
  if (entry_) enter_user(offset);
  if (has_exception_) flush_exception(true, ip_);
  if (starting_) tell_start(ip_, offset);
  // If the bytes of the run have changed since, read it again.
  if (run_ != 0 && !fresh_ && runs_->changes() && !runs_->run(run_).certain.contains(when())) run_ = 0;
  for (uint64_t silent = 0;;) {
    if (run_ == 0) find_run();
    const WaypointRun& run = runs_->run(run_);
    if (run.stop == RunStop::waypoint) {
      if (!executed && run.is_always_taken()) {
        const uint32_t index = run_;
        leave(index, executed);
        return doubt(GapReason::image_mismatch, runs_->run(index).last_ip, offset);
      }
      return leave(run_, executed);
    }
    silent += run.instructions;
    if (run.stop != RunStop::cut || silent > options_.max_silent_instructions) return stop_at(run, offset);
    give_block(run, 0);
    ip_ = run.end;
    run_ = left_ = call_ = 0;
  }
}

/// Outputs the run, which ends in a P0 instruction, and moves to the instruction after it or to the branch target.
void Follower::leave(uint32_t index, bool executed) {
  const WaypointRun& run = runs_->run(index);
  const bool is_branch = run.last.cls == ArmClass::direct || run.last.cls == ArmClass::indirect;
  const bool taken = executed && is_branch;
  uint16_t flags = 0;
  if (is_branch || !executed) flags |= static_cast<uint16_t>(BlockFlag::ends_in_branch);
  if (taken) flags |= static_cast<uint16_t>(BlockFlag::taken);
  give_block(run, flags);
  walked_ = true;
  fresh_ = false;
  from_branch_ = taken;
  left_ = index;
  left_taken_ = taken;
  ip_ = run.end;
  const std::array<uint32_t, 2> next = runs_->step(index).next;
  if (!taken) {
    run_ = next[0];
  } else {
    branch_ip_ = run.last_ip;
    if (run.last.link && config_.has_return_stack() && push_allowed_) returns_.push({run.end, run.mode, index});
    if (run.last.cls == ArmClass::direct) {
      ip_ = run.target;
      mode_ = run.target_mode;
      isa_ = mode_ == ExecMode::t32 ? 1 : 0;
      run_ = next[1];
    } else {
      need_address_ = true;
      pop_pending_ = config_.has_return_stack();
      run_ = 0;
    }
  }
}

/// Handles a run that ends before any P0 instruction.
void Follower::stop_at(const WaypointRun& run, uint64_t offset) {
  const bool is_elsewhere =
      run.stop == RunStop::no_image && undated_ && context_.level == 0 && possible().is_elsewhere(runs_->timeline(), run.end);
  const GapReason reason = is_elsewhere                    ? GapReason::image_mismatch
                           : run.stop == RunStop::no_image ? GapReason::no_image
                           : run.stop == RunStop::bad_insn ? GapReason::bad_insn
                                                           : GapReason::limit;
  const Ip end = run.end;
  const SectionId section = run.section;
  if (run.instructions != 0) {
    give_block(run, 0);
    walked_ = true;
  }
  mark_thread();
  give_gap(reason, end, section, offset);
  forget_calls();
  need_address_ = true;
  gap_given_ = true;
  from_branch_ = false;
  walked_ = false;
}

/// Walks from ip_ to `stop` without consuming an atom. Returns false, after a gap with the reason, if `stop` cannot be reached. Every P0
/// instruction that is executed has an atom ([ETMv4] "Atom elements"), so one on the way contradicts the code and nothing is walked. If the
/// place is a guess whose blocks are marked, the walk passes it.
bool Follower::walk_to(Ip stop, uint64_t offset) {
  if (!is64_) ip_.value &= 0xffffffffU;
  for (uint64_t silent = 0; ip_ != stop;) {
    const WaypointRun run = runs_->read_to(space_, ip_, mode_, when(), stop, passes_p0(), choices_);
    if (run.stop == RunStop::waypoint && !doubtful_) {
      contradict(run.last_ip, offset);
      return false;
    }
    silent += run.instructions;
    if ((run.stop != RunStop::stop && run.stop != RunStop::cut && run.stop != RunStop::waypoint) ||
        silent > options_.max_silent_instructions) {
      stop_at(run, offset);
      return false;
    }
    give_block(run, 0);
    ip_ = run.end;
  }
  run_ = left_ = call_ = 0;
  return true;
}

}  // namespace ptd::arm
