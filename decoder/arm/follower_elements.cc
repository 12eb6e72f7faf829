// Follower: elements that are neither atoms, addresses nor contexts.
#include <algorithm>
#include <array>
#include <tuple>

#include "decoder/arm/follower.h"

namespace ptd::arm {
namespace {

constexpr uint64_t kPeReset = 0, kPeResetOfM = 1;   // exception types
constexpr uint64_t kCallException = 2;              // not of the M profile
constexpr uint64_t kTailChainAddress = 0xfffffffe;  // M profile: an exception that follows another one directly

}  // namespace

bool Follower::continues_like(const Follower& other) const {
  const auto flags = [](const Follower& f) {
    return std::array{f.need_address_, f.need_context_, f.walked_,       f.starting_,
                      f.gap_given_,    f.pop_pending_,  f.push_allowed_, f.has_exception_};
  };
  if (flags(*this) != flags(other) || space_ != other.space_) return false;
  // The last branch matters until the address that follows it, and the place only if it is known or follows from that branch.
  const bool branched = !known() || walked_;
  if (branched && from_branch_ != other.from_branch_) return false;
  const auto place = [](const Follower& f) { return std::tuple(f.ip_, f.mode_, f.isa_, f.doubtful_); };
  const bool placed = known() || pop_pending_ || from_branch_;
  if (placed && place(*this) != place(other)) return false;
  if (has_exception_ && exception_.from != other.exception_.from) return false;
  return !config_.has_return_stack() || (calls_unseen_ == other.calls_unseen_ && returns_.equals(other.returns_));
}

/// Brings the flow to the place of an exception. Returns false, after a gap with the reason, if it cannot come there without an atom.
bool Follower::come_to(Ip back, uint64_t offset) {
  if (ip_ < back) return walk_to(back, offset);
  if (ip_ == back || doubtful_) return true;
  contradict(ip_, offset);  // only a branch leads back
  return false;
}

/// Whether the last block ends there with SVC.
bool Follower::is_after_svc(Ip place) const {
  if (out_->blocks.empty()) return false;
  const NodeId node = out_->blocks.back().node;
  const BlockInfo& info = runs_->blocks().info(node);
  if (info.ip + info.size_bytes != place) return false;
  ArmInsn last;
  for (Bytes rest = runs_->blocks().bytes(node); !rest.empty(); rest = rest.subspan(std::min<size_t>(last.length_bytes, rest.size()))) {
    last = classify_arm(rest, info.mode);
    if (last.length_bytes == 0) return false;
  }
  return last.detail == ArmDetail::svc;
}

// [ETMv4] "Exception types": Call. Its instruction may be unknown, but at EL0 only SVC causes it: HVC and SMC are undefined there.
bool Follower::is_call_of_user(uint64_t exception_type) const {
  return exception_type == kCallException && !config_.m_profile && !need_context_ && context_.level == 0;
}

void Follower::exception(const Element& element, Ip preferred_return, uint8_t isa, bool target) {
  offset_ = element.offset_bytes;
  if (!target) take_return();  // a target in the trace does not come from the return stack, so nothing is popped
  flush_exception(false, {});
  const Ip back = is64_ ? preferred_return : Ip{preferred_return.value & 0xffffffffU};
  if (target) set_place(back, isa);
  if (entry_ && known()) enter_user(element.offset_bytes);
  if (starting_ && known()) tell_start(ip_, element.offset_bytes);
  const bool tail_chain = config_.m_profile && back.value == kTailChainAddress;
  // [ETMv4] "Exception types": the preferred return address of a PE reset is UNKNOWN. ETE has a packet without one.
  const bool reset = config_.protocol == Protocol::etmv4 && element.value == (config_.m_profile ? kPeResetOfM : kPeReset);
  const bool tells_place = !tail_chain && !reset;
  if (tells_place && !known() && !need_context_ && from_branch_ && ip_ < back) {
    // The target of the previous branch is missing from the trace. Continue as if the branch was not taken, like OpenCSD, and mark the
    // blocks.
    if (!gap_given_) give_gap(GapReason::bad_packet, branch_ip_, kNoSection, element.offset_bytes);
    doubtful_ = true;
    need_address_ = false;
  }
  const bool walks = tells_place && known() && ip_ < back;
  if (tells_place && known() && !come_to(back, element.offset_bytes)) from_branch_ = false;  // the lost place is not where it branched to
  const bool calls = walks && known() ? is_after_svc(back) : is_call_of_user(element.value);
  const uint8_t flags = !tells_place ? 0 : calls ? kEventHasFrom | kEventSyscall : kEventHasFrom;
  hold_exception(flags, tells_place ? back : Ip{}, element.value, element.offset_bytes);
  if (!need_context_ && context_.level == 0) exit_ = {tells_place ? software_.tid : -1, back, element.value == kCallException};
  pop_pending_ = false;
}

void Follower::reset(const Element& element) {
  flush_exception(false, {});
  give_event(EventKind::async_branch, 0, {}, {}, element.value, 0, element.offset_bytes);
  walked_ = false;
}

void Follower::exception_here(uint32_t number, uint64_t offset) {
  take_return();
  flush_exception(false, {});
  hold_exception(known() ? kEventHasFrom : uint8_t{0}, ip_, number, offset);
}

void Follower::waypoint(Ip last, uint64_t offset) {
  offset_ = offset;
  take_return();
  if (!known()) return;
  if (starting_) tell_start(ip_, offset);
  if (!is64_) ip_.value &= 0xffffffffU;
  if (last < ip_) return contradict(ip_, offset);
  for (Ip reached{}; reached < last;) {
    const WaypointRun run = runs_->read_through(space_, ip_, mode_, when(), last, passes_p0(), choices_);
    // A P0 instruction has a packet of its own.
    contradicted_ = contradicted_ || run.stop == RunStop::waypoint;
    if (run.stop == RunStop::waypoint && run.last_ip != last && !doubtful_) return contradict(run.last_ip, offset);
    if (run.stop != RunStop::stop && run.stop != RunStop::waypoint) return stop_at(run, offset);
    give_block(run, 0);
    ip_ = run.end;
    reached = run.last_ip;
  }
  run_ = left_ = call_ = 0;
  walked_ = true;
  from_branch_ = false;
}

/// Executes a Q element: instructions without atoms, `element.aux` of them if the count is known, after which the flow is at `next`.
void Follower::q(const Element& element, Ip next, uint8_t isa) {
  offset_ = element.offset_bytes;
  if (entry_ && known()) enter_user(offset_);
  const Ip target = is64_ ? next : Ip{next.value & 0xffffffffU};
  const Ip start = ip_;
  bool told = false;
  if (known() && (element.flags & kFlagCount) != 0 && element.aux != 0 && element.aux <= 0xfff0) {
    const WaypointRun run = runs_->read_some(space_, ip_, mode_, when(), element.aux, choices_);
    const bool whole = run.instructions == element.aux;
    const bool branch = whole && run.stop == RunStop::waypoint && (run.last.cls == ArmClass::direct || run.last.cls == ArmClass::indirect);
    const bool taken = branch && (!run.conditional || run.end != target);
    told = whole && (!taken ? run.end == target : run.last.cls == ArmClass::indirect || run.target == target);
    uint16_t flags = branch ? static_cast<uint16_t>(BlockFlag::ends_in_branch) : uint16_t{0};
    if (taken) flags |= static_cast<uint16_t>(BlockFlag::taken);
    if (told) give_block(run, flags);
  }
  if (!told) {
    give_event(EventKind::skipped, known() ? kEventHasFrom | kEventHasTo : kEventHasTo, start, target, element.aux, 0,
               element.offset_bytes);
  }
  set_place(target, isa);
  walked_ = false;
  pop_pending_ = false;
}

/// Executes the branch at `source`, however the flow came there.
void Follower::leave_source(Ip source, uint8_t isa) {
  set_place(source, isa);
  const uint32_t index = runs_->find(space_, ip_, mode_, when(), choices_);
  if (runs_->run(index).stop == RunStop::waypoint && runs_->run(index).last_ip == source) return leave(index, true);
  need_address_ = true;
  gap_given_ = true;
}

/// Executes up to the branch at element.value, which was taken; all P0 instructions before it were not.
void Follower::source_address(const Element& element) {
  const uint64_t offset = offset_ = element.offset_bytes;
  const Ip source = is64_ ? Ip{element.value} : Ip{element.value & 0xffffffffU};
  if (need_context_) return;
  take_return();
  const bool had_place = known();
  if (has_exception_) flush_exception(had_place, ip_);
  if (!had_place || source < ip_) {
    if (had_place) contradict(ip_, offset);  // only a branch leads back, and it has an element
    set_place(source, element.isa);
  }
  if (entry_) enter_user(offset);
  if (starting_) tell_start(ip_, offset);
  for (uint64_t silent = 0;;) {
    const uint32_t index = runs_->find(space_, ip_, mode_, when(), choices_);
    const WaypointRun& run = runs_->run(index);
    silent += run.instructions;
    if (run.instructions != 0 && run.last_ip == source && run.stop == RunStop::waypoint) return leave(index, true);
    const bool passes = source >= ip_ && source < run.end;
    if (passes && run.last_ip < source) return contradict(source, offset);
    if (passes) {
      // The source is not a branch: it was executed, and the flow continues after it.
      const Ip after = source + (mode_ == ExecMode::t32 ? 2U : 4U);
      if (walk_to(after, offset)) walked_ = false;
      return;
    }
    if ((run.stop != RunStop::waypoint && run.stop != RunStop::cut) || silent > options_.max_silent_instructions) {
      stop_at(run, offset);
      return leave_source(source, element.isa);  // the source itself is known
    }
    if (run.stop == RunStop::waypoint && run.is_always_taken()) {
      contradict(run.last_ip, offset);
      return leave_source(source, element.isa);
    }
    give_block(run, run.stop == RunStop::waypoint ? static_cast<uint16_t>(BlockFlag::ends_in_branch) : uint16_t{0});
    ip_ = run.end;
  }
}

void Follower::trace_info() {
  push_allowed_ = false;
  calls_unseen_ = false;
  returns_.clear();
}

void Follower::timestamp(uint64_t value, uint8_t flags, uint32_t cycles, uint64_t offset) {
  if ((flags & kFlagCycles) != 0) cycles_ += cycles;
  if (!options_.use_time || (flags & kFlagNoTime) != 0 || value == 0) return;  // 0: the trace unit has no timestamp
  const Tsc ticks{value};
  Interval at = options_.time.to_interval(ticks, ticks);
  if (at.last.value < at.first.value) at.last = at.first;
  time_ = at;
  time_known_ = true;
  const uint64_t slack = options_.slack_ns;
  earliest_ = TimeNs{at.first.value > slack ? at.first.value - slack : 0};
  if (earliest_ < proven_ && proven_.value <= at.last.value + slack) earliest_ = proven_;
  unsure_ = false;
  mark_due_ = true;
  if (has_exception_ && !exception_dated_) {  // the first timestamp after an exception dates it
    exception_dated_ = true;
    exception_.time = time_;
    exception_.about = time_.first;
  }
  if (!time_tells_context_) return;
  if (std::exchange(undated_, false)) return update_context();
  const bool is_other = by_time_ && (!has_ids(options_.names) || enter_wrong(offset));
  if (is_other || earliest_ >= next_change_) update_context();
}

void Follower::cycles(uint8_t flags, uint32_t cycles) {
  if ((flags & kFlagCycles) == 0) return;
  cycles_ += cycles;
  mark_due_ = true;
}

void Follower::simple_event(EventKind kind, const Element& element) {
  give_event(kind, known() ? kEventHasFrom : uint8_t{0}, ip_, {}, element.value, element.aux, element.offset_bytes);
  if (kind == EventKind::tsx_abort) walked_ = false;
}

void Follower::forget_place() {
  need_address_ = need_context_ = true;
  gap_given_ = true;
  pop_pending_ = walked_ = from_branch_ = starting_ = false;
  exit_ = {};
  forget_calls();
  refuted_ = false;
}

void Follower::lose(GapReason reason, uint64_t offset, uint64_t lost_bytes) {
  give_gap(reason, {}, kNoSection, offset);
  out_->gaps.back().lost_bytes = lost_bytes;
  forget_place();
}

void Follower::overflow(uint64_t offset) {
  give_event(EventKind::overflow, 0, {}, {}, 0, 0, offset);
  lose(GapReason::overflow, offset, 0);
}

void Follower::discard(uint64_t offset) {
  flush_exception(false, {});
  if (flowing_) give_event(EventKind::disabled, 0, {}, {}, 0, 0, offset);
  flowing_ = false;
  forget_place();
  run_ = left_ = call_ = 0;
}

}  // namespace ptd::arm
