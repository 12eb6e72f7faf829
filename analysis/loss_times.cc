// Gaps -> lost time. See loss_times.h.
#include "analysis/loss_times.h"

#include <algorithm>

namespace ptd {

LossTimes::LossTimes(const ContextTrack& contexts, int32_t cpu, int32_t tid, Interval span)
    : contexts_(contexts), cpu_(cpu), stream_tid_(tid), span_(span), tid_(cpu >= 0 ? -1 : tid) {
  if (cpu >= 0) return;
  for (const int32_t each : contexts.cpus()) {
    const std::vector<ContextTrack::Switch>& switches = contexts.switches(each);
    for (size_t i = 0; i < switches.size(); ++i) {
      if (switches[i].to.tid == tid) runs_.push_back({switches[i].time, i + 1 < switches.size() ? switches[i + 1].time : kTimeMax});
    }
  }
  std::sort(runs_.begin(), runs_.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
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

void LossTimes::pass(TimeNs time) {
  if (has_time_ && state_ == State::flowing && now_ < time) {
    thread().traced_ns += time.value - now_.value;
    add_to_bins(now_, time, &Bin::traced_ns);
  }
  now_ = has_time_ ? std::max(now_, time) : time;
  has_time_ = true;
}

void LossTimes::begin_loss(const Gap& gap) {
  if (gap.time.first != kTimeMin) pass(gap.time.first);
  if (state_ != State::lost) {
    lost_since_ = now_;
    reason_ = gap.reason;
  }
  state_ = State::lost;
  ++thread().gaps[static_cast<size_t>(gap.reason) % kGapReasons];
}

void LossTimes::add_lost(TimeNs first, TimeNs last, const Context& whose) {
  if (last <= first) return;
  ThreadLoss& loss = threads_[{whose.pid, whose.tid}];
  loss.lost_ns += last.value - first.value;
  loss.lost_by_reason_ns[static_cast<size_t>(reason_) % kGapReasons] += last.value - first.value;
  add_to_bins(first, last, &Bin::lost_ns);
}

void LossTimes::end_loss() {
  if (!has_time_ || now_ <= lost_since_) return;
  const Context before{pid_, tid_, kNoSpace};
  if (cpu_ < 0) {
    if (runs_.empty()) return add_lost(lost_since_, now_, before);
    for (const Run& run : runs_) add_lost(std::max(run.first, lost_since_), std::min(run.last, now_), before);
    return;
  }
  const std::vector<ContextTrack::Switch>& switches = contexts_.switches(cpu_);
  TimeNs from = lost_since_;
  Context whose = contexts_.at_cpu(cpu_, from);
  if (whose.tid < 0) whose = before;
  auto next = std::upper_bound(switches.begin(), switches.end(), from, [](TimeNs t, const ContextTrack::Switch& s) { return t < s.time; });
  for (; next != switches.end() && next->time < now_; ++next) {
    add_lost(from, next->time, whose);
    from = next->time;
    whose = next->to;
  }
  add_lost(from, now_, whose);
}

void LossTimes::take_event(const Event& event) {
  const bool stops = event.kind == EventKind::disabled || event.kind == EventKind::async_disabled;
  if (!stops && event.kind != EventKind::enabled) return;
  if (event.time.first != kTimeMin) pass(event.time.first);
  if (stops && state_ == State::flowing) state_ = State::off;
  if (!stops && state_ == State::off) state_ = State::flowing;
}

void LossTimes::take(const Batch& batch) {
  size_t mark = 0, event = 0, gap = 0;
  const auto count = static_cast<uint32_t>(batch.blocks.size());
  for (uint32_t at = 0;;) {
    const auto here = [at](const auto& list, size_t index) { return index < list.size() && list[index].before_block <= at; };
    while (here(batch.marks, mark) || here(batch.events, event) || here(batch.gaps, gap)) {
      // In order of time; of one time the gap first.
      const TimeNs mark_time = here(batch.marks, mark) ? batch.marks[mark].time.first : kTimeMax;
      const TimeNs event_time = here(batch.events, event) ? batch.events[event].time.first : kTimeMax;
      if (here(batch.gaps, gap) && batch.gaps[gap].time.first <= std::min(mark_time, event_time)) {
        begin_loss(batch.gaps[gap++]);
      } else if (here(batch.events, event) && (event_time <= mark_time || !here(batch.marks, mark))) {
        take_event(batch.events[event++]);
      } else if (here(batch.marks, mark)) {
        const Mark& now = batch.marks[mark++];
        if (now.time_known) pass(now.time.first);
        if (state_ == State::lost) end_loss(), lost_since_ = now_;
        pid_ = now.pid;
        tid_ = now.tid;
      } else {
        begin_loss(batch.gaps[gap++]);
      }
    }
    if (at >= count) break;
    if (state_ == State::lost) end_loss();
    state_ = State::flowing;
    uint32_t next = count;
    if (mark < batch.marks.size()) next = std::min(next, batch.marks[mark].before_block);
    if (event < batch.events.size()) next = std::min(next, batch.events[event].before_block);
    if (gap < batch.gaps.size()) next = std::min(next, batch.gaps[gap].before_block);
    at = std::max(next, at + 1);
  }
}

void LossTimes::finish(TimeNs end) {
  if (end != kTimeMin && end != kTimeMax) pass(end);
  if (state_ == State::lost) end_loss();
}

}  // namespace ptd
