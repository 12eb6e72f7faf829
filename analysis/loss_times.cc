// Gaps -> lost time. See loss_times.h.
#include "analysis/loss_times.h"

#include <algorithm>
#include <utility>

#include "ptdecode/likeliest_time.h"

namespace ptd {

LossTimes::LossTimes(const ContextTrack& contexts, int32_t cpu, int32_t tid, Interval span, const FlowClock& clock)
    : contexts_(contexts), cpu_(cpu), stream_tid_(tid), span_(span), dates_(clock) {
  last_.tid = now_.tid = cpu >= 0 ? -1 : tid;
  if (cpu >= 0) return;
  runs_ = clock.schedule != nullptr ? clock.schedule->runs(tid) : ThreadSchedule(contexts).runs(tid);
}

void LossTimes::add_to_bins(TimeNs first, TimeNs last, uint64_t Bin::*what) {
  first = std::max(first, span_.first);
  last = std::min(last, span_.last);
  if (span_.first == kTimeMin || span_.last == kTimeMax || last <= first) return;
  const uint64_t width = (span_.last.value - span_.first.value) / kBins + 1;
  for (uint64_t at = first.value; at < last.value;) {
    const uint64_t bin = (at - span_.first.value) / width;
    const uint64_t end = std::min(last.value, span_.first.value + (bin + 1) * width);
    bins_[bin].*what += end - at;
    at = end;
  }
}

// Accounts for the time up to `time`, in the state that was dated last. What is not proved waits.
void LossTimes::pass(TimeNs time) {
  if (now_.unproved || time <= since_) return;
  if (now_.state == State::flowing) {
    thread(now_).traced_ns += time.value - since_.value;
    add_to_bins(since_, time, &Bin::traced_ns);
  } else if (now_.state == State::lost) {
    share_loss(since_, time);
  }
  since_ = time;
}

void LossTimes::apply(const Change& change, TimeNs at) {
  if (now_.unproved && change.unproved) return;
  pass(at);
  now_ = change;
  since_ = std::max(since_, at);
}

// Time of a flow that goes on is accounted for when its state or the batch ends; lost time at once, since its reason may still change.
void LossTimes::pass_to(TimeNs time) {
  if (!dates_.timed()) since_ = time;
  const std::span<const FlowDates::Date> dates = dates_.anchor(time);
  if (!dates.empty()) put(dates);
  if (now_.state == State::lost) pass(dates_.now());
}

void LossTimes::put(std::span<const FlowDates::Date> dates) {
  for (size_t i = 0; i < dates.size(); ++i) apply(held_[i], dates[i].time);
  held_.erase(held_.begin(), held_.begin() + static_cast<std::ptrdiff_t>(dates.size()));
}

void LossTimes::change(State state, bool resumes) {
  const bool was_lost = last_.state == State::lost;
  last_.state = state;
  last_.unproved = state == State::flowing && !proved_;
  held_.push_back(last_);
  dates_.add(resumes, resumes && was_lost);
  dates_.set_flowing(state == State::flowing);
  if (held_.size() >= kMaxHeld) put(dates_.anchor_undated(false));
}

// What waits for an instruction was none: it is in the state `becomes`.
void LossTimes::settle(State becomes) {
  proved_ = true;
  for (Change& each : held_) settle(each, becomes);
  settle(now_, becomes);
  settle(last_, becomes);
}

void LossTimes::settle(Change& change, State becomes) const {
  if (!std::exchange(change.unproved, false)) return;
  change.state = becomes;
  change.reason = last_.reason;
}

void LossTimes::resume(bool waited) {
  const bool first = !std::exchange(began_, true) && dates_.has_tick();
  resumed_from_ = last_.state;
  proved_ = false;
  change(State::flowing, waited && !first);
}

void LossTimes::add_lost(TimeNs first, TimeNs last, const Change& whose) {
  if (last <= first) return;
  ThreadLoss& loss = thread(whose);
  loss.lost_ns += last.value - first.value;
  loss.lost_by_reason_ns[static_cast<size_t>(now_.reason) % kGapReasons] += last.value - first.value;
  add_to_bins(first, last, &Bin::lost_ns);
}

void LossTimes::share_loss(TimeNs first, TimeNs last) {
  if (cpu_ < 0) {
    if (runs_.empty()) return add_lost(first, last, now_);
    auto run = std::lower_bound(runs_.begin(), runs_.end(), first, [](const ThreadSchedule::OnCpu& r, TimeNs t) { return r.last <= t; });
    for (; run != runs_.end() && run->first < last; ++run) add_lost(std::max(run->first, first), std::min(run->last, last), now_);
    return;
  }
  const std::vector<ContextTrack::Switch>& switches = contexts_.switches(cpu_);
  const auto change_of = [](const Context& context) {
    Change whose;
    whose.pid = context.pid;
    whose.tid = context.tid;
    return whose;
  };
  TimeNs from = first;
  Change whose = change_of(contexts_.at_cpu(cpu_, from));
  if (whose.tid < 0) whose = now_;
  auto next = std::upper_bound(switches.begin(), switches.end(), from, [](TimeNs t, const ContextTrack::Switch& s) { return t < s.time; });
  for (; next != switches.end() && next->time < last; ++next) {
    add_lost(from, next->time, whose);
    from = next->time;
    whose = change_of(next->to);
  }
  add_lost(from, last, whose);
}

void LossTimes::take_gap(const Gap& gap) {
  if (gap.time.first != kTimeMin && gap.time.last != kTimeMax) take_time(gap.time.first);
  if (last_.state != State::lost) last_.reason = gap.reason;
  synced_ = false;
  settle(State::lost);
  if (last_.state != State::lost) change(State::lost);
  dates_.set_flowing(false);
  ++thread(last_).gaps[static_cast<size_t>(gap.reason) % kGapReasons];
}

void LossTimes::take_event(const Event& event) {
  if (is_dated(event)) take_time(likeliest(event));
  switch (event.kind) {
    case EventKind::async_branch:
      if ((event.flags & kEventHasTo) != 0) return resume(last_.state != State::flowing);
      [[fallthrough]];  // its handler is not traced
    case EventKind::disabled:
    case EventKind::async_disabled:
      settle(State::off);
      if (last_.state == State::flowing || last_.state == State::lost) change(State::off);
      dates_.set_flowing(false);
      return;
    case EventKind::enabled:
      if (last_.state != State::flowing && (event.flags & kEventHasTo) != 0) resume(true);
      return;
    default:
      return;
  }
}

void LossTimes::take_mark(const Mark& mark) {
  synced_ = is_dated(mark);
  if (synced_) take_time(likeliest(mark));
  const int32_t tid = mark.tid < 0 && cpu_ < 0 ? stream_tid_ : mark.tid;
  if (tid == last_.tid && mark.pid == last_.pid) return;
  last_.pid = mark.pid;
  last_.tid = tid;
  change(last_.state);
}

void LossTimes::take_blocks(std::span<const Block> blocks) {
  if (last_.state != State::flowing) resume(!synced_);
  synced_ = false;
  if (!std::exchange(proved_, true)) {
    for (Change& each : held_) each.unproved = false;
    now_.unproved = last_.unproved = false;
  }
  dates_.ran(instructions_of(blocks));
}

/// Takes the marks, and the blocks between them, of a flow that goes on in one thread: only its time advances.
void LossTimes::take_steady() {
  if (!synced_ || last_.state != State::flowing || now_.state != State::flowing || !proved_ || !held_.empty() || !dates_.timed()) return;
  const std::span<const Block> blocks = cursor_.pass_marks();
  if (blocks.empty()) return;
  dates_.ran(instructions_of(blocks));
  take_time(likeliest(cursor_.mark()));
}

void LossTimes::take(const Batch& batch) {
  cursor_.begin(batch);
  for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
    switch (item) {
      case FlowItem::blocks:
        take_blocks(cursor_.blocks());
        break;
      case FlowItem::mark:
        take_mark(cursor_.mark());
        take_steady();
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
  pass(dates_.now());
}

void LossTimes::finish(TimeNs end) {
  settle(resumed_from_);
  if (end != kTimeMin && end != kTimeMax) take_time(end);
  put(dates_.anchor_undated(true));
  pass(dates_.now());
}

}  // namespace ptd
