// Follower: which thread and program the flow is of.
#include <algorithm>

#include "decoder/arm/follower.h"
#include "decoder/time_offset.h"

namespace ptd::arm {
namespace {

constexpr size_t kMostThreads = 32;  // of which the choices are kept
constexpr int kMostEqual = 64;       // records of the same context that are passed at once, and programs of a thread

}  // namespace

/// Returns the context of a thread at this point of the flow. A thread does not run before its first record.
Context Follower::context_of(int32_t tid) {
  const std::vector<ContextTrack::Switch>& changes = contexts_->thread_changes(tid);
  auto next = std::ranges::upper_bound(changes, earliest_, {}, &ContextTrack::Switch::time);
  is_new_ = next == changes.begin();
  is_of_cpu_ = false;
  const Context now = is_new_ && next != changes.end() && next->time <= latest_ ? next->to : contexts_->at_thread(tid, earliest_);
  for (int i = 0; i < kMostEqual && !is_new_ && next != changes.end() && next->to == now; ++i) ++next;
  next_change_ = next == changes.end() ? kTimeMax : next->time;
  return now;
}

/// Returns the context of the thread that the cpu runs at this point of the flow.
Context Follower::context_of_cpu() {
  const Context at = contexts_->at_cpu(segment_.cpu, earliest_);
  if (at.tid > 0) (void)context_of(at.tid);
  const std::vector<ContextTrack::Switch>& switches = contexts_->switches(segment_.cpu);
  auto next = std::ranges::upper_bound(switches, earliest_, {}, &ContextTrack::Switch::time);
  const bool is_second = next - switches.begin() > 1;
  is_one_of_two_ = options_.names == ContextNames::aux_records && is_second && std::prev(next)->to.tid != std::prev(next, 2)->to.tid;
  for (int i = 0; i < kMostEqual && next != switches.end() && next->to.tid == at.tid; ++i) ++next;
  if (next != switches.end()) next_change_ = std::min(next_change_, next->time);
  is_new_ = false;
  is_of_cpu_ = true;
  return at;
}

/// Returns the latest possible time of the packet at `offset`.
TimeNs Follower::time_after(uint64_t offset) const {
  const Tsc ticks{times_->after(offset)};
  if (ticks.value == 0) return latest_;
  const Interval at = options_.time.to_interval(ticks, ticks);
  const TimeNs last = std::max(at.first, at.last);
  return std::min(latest_, plus(last, options_.slack_ns));
}

/// Returns the earliest possible time of the last timestamp of the user code that goes on at `offset`; kTimeMin if it is left before the
/// next one.
TimeNs Follower::user_until(uint64_t offset) const {
  const Tsc ticks{times_->last_of_user(offset)};
  if (ticks.value == 0) return kTimeMin;
  const Interval at = options_.time.to_interval(ticks, ticks);
  return minus(std::min(at.first, at.last), options_.slack_ns);
}

/// Returns whether the thread that comes at `time` may run code at ip_ up to `last`: no record may name its program, or the program's code.
Follower::Runs Follower::runs_here(TimeNs time, TimeNs last) const {
  Context thread = contexts_->at_cpu(segment_.cpu, time);
  if (thread.tid == 0) return Runs::no;  // the idle task has no user code
  bool found = false, unknown = false;
  const auto add = [&](const Context& program) {
    const SpaceId space = program.space == kNoSpace ? options_.default_space : program.space;
    unknown = unknown || space == kNoSpace;
    found = found || !runs_->timeline().sections_at(space, ip_).empty();
  };
  add(thread);
  if (thread.tid > 0) {
    const std::vector<ContextTrack::Switch>& changes = contexts_->thread_changes(thread.tid);
    auto change = std::ranges::upper_bound(changes, time, {}, &ContextTrack::Switch::time);
    for (int i = 0; i < kMostEqual && change != changes.end() && change->time <= last; ++i, ++change) add(change->to);
  }
  return found ? Runs::yes : unknown ? Runs::unknown : Runs::no;
}

/// Takes the thread of the cpu after the switches that the user code at ip_ has certainly passed, as it runs on after their records.
/// Returns whether it may be of another one that comes before the next timestamp.
bool Follower::pass_switches(uint64_t offset) {
  const std::vector<ContextTrack::Switch>& switches = contexts_->switches(segment_.cpu);
  const auto first_after = [&](TimeNs time) { return std::ranges::upper_bound(switches, time, {}, &ContextTrack::Switch::time); };
  const TimeNs last = time_after(offset), until = std::min(last, user_until(offset));
  const auto end = first_after(last), from = std::min(first_after(earliest_), end),
             sure = std::max(from, first_after(minus(until, ContextTrack::kClockErrorNs)));
  bool differ = false;
  auto passed = sure;
  if (sure != from) {  // the next thread that has code here, if only an error of the clock shows that its record comes later
    const auto runs = [&](const auto& to) { return runs_here(to.time, last) != Runs::no; };
    const auto likely = std::find_if(std::prev(sure), end, runs);
    differ = std::any_of(std::prev(sure), likely, [](const auto& to) { return to.to.tid != 0; });
    if (likely != end) passed = std::next(likely);
    set_proven(std::prev(passed)->time);
  }
  const auto is_other = [&](const auto& to) { return to.to.tid != software_.tid; };
  const auto dated = std::max(passed, first_after(until));
  if (differ || (dated != passed && is_other(*std::prev(dated)))) return true;
  return std::any_of(passed, end, [&](const auto& to) { return is_other(to) && runs_here(to.time, last) != Runs::no; });
}

/// Takes the context of `time`, which has come.
void Follower::set_proven(TimeNs time) {
  earliest_ = proven_ = time;
  if (time_known_) time_ = {std::max(time_.first, proven_), std::max(time_.last, proven_)};
  update_context();
}

/// User code begins at ip_. Between the last timestamp and the next one, its thread may be made, or call exec, which returns to another
/// place than other system calls, or the cpu may switch to another thread. Limitation: a system call that ends in a handler of a signal, or
/// that returns from one, does not return to its place either.
void Follower::enter_user(uint64_t offset) {
  entry_ = false;
  if (undated_) return enter_undated();
  if (times_ == nullptr || context_.level != 0) return;
  const bool may_be_other = is_of_cpu_ && pass_switches(offset);
  const bool is_same = exit_.tid >= 0 && exit_.tid == software_.tid;
  const bool goes_on = exit_.to.value - ip_.value <= 4 || (!exit_.by_call && segment_.tid >= 0);  // a system call may be repeated
  if (is_same && goes_on && !may_be_other) return;
  if (next_change_ == kTimeMax || next_change_ > time_after(offset)) {
    unsure_ = unsure_ || may_be_other;
    return;
  }
  const bool is_past = is_new_ || (is_same && exit_.by_call && !is_of_cpu_);
  unsure_ = !is_past;  // the change may come before or after this
  if (!unsure_) set_proven(next_change_);
}

/// Same where the packets have no times: the address tells the program, if only one maps it. After exec, the flow goes on in the next one,
/// and after a contradiction in another one.
void Follower::enter_undated() {
  if (context_.level != 0 || !possible().has_several()) return;
  const bool is_other = exit_.by_call && exit_.tid >= 0 && exit_.tid == software_.tid && exit_.to.value - ip_.value > 4;
  const Context before = possible().now();
  const bool is_sure = possible().choose(runs_->timeline(), ip_, is_other || refuted_);
  if (possible().now() != before) update_context();
  const bool sees_entries = config_.protocol == Protocol::etmv4 || config_.protocol == Protocol::ete;
  unsure_ = !is_sure || (!sees_entries && possible().has_several());
  refuted_ = false;
}

/// Returns the thread that the packets name, or that is known in place of a wrong one.
std::optional<int32_t> Follower::named_thread() const {
  const bool by_vmid = options_.names == ContextNames::vmid;
  const auto id = static_cast<int32_t>(by_vmid ? context_.vmid : context_.context_id);
  const bool named = has_ids(options_.names) && (by_vmid ? context_.has_vmid : context_.has_context_id);
  if (is_wrong_) return wrong_.front().tid;
  const bool tells_level = config_.protocol == Protocol::etmv4 || config_.protocol == Protocol::ete;
  const bool is_no_id = id == 0 && tells_level && context_.level == 0;  // user code is not of the idle task
  return named && !is_no_id ? std::optional(id) : std::nullopt;
}

/// Takes the context of flow without times.
void Follower::take_possible() {
  const int32_t tid = named_thread().value_or(segment_.tid);
  if (possible_.size() == kMostThreads && !possible_.contains(tid)) possible_.clear();
  listed_ = tid;
  if (const auto [place, is_new] = possible_.try_emplace(tid); is_new) {
    const Interval bounds{earliest_, latest_};
    tid >= 0 ? place->second.list_thread(*contexts_, tid, bounds) : place->second.list_cpu(*contexts_, segment_.cpu, bounds);
  }
  software_ = possible().now();
  if (software_.tid < 0 && tid >= 0) software_.tid = tid;
  unsure_ = possible().has_threads();
}

/// Takes the context of flow with times.
void Follower::take_dated() {
  if (segment_.tid >= 0) {
    software_ = context_of(segment_.tid);
    if (software_.tid < 0) software_.tid = segment_.tid;
  } else if (segment_.cpu >= 0) {
    software_ = context_of_cpu();
  }
  if (const std::optional<int32_t> tid = named_thread()) {
    software_ = context_of(*tid);
    if (software_.tid < 0) software_.tid = *tid;
  }
}

}  // namespace ptd::arm
