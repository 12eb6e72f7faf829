// ThreadSchedule: see thread_schedule.h.
#include "analysis/thread_schedule.h"

#include <algorithm>
#include <set>

namespace ptd {

namespace {

// A recording without switches has the starts of its threads' traces (ITRACE_START): a cpu's track then has each thread once, never the
// idle task, and says nothing about when a thread left the cpu.
bool has_switches(const ContextTrack& contexts) {
  std::set<int32_t> met;
  for (const int32_t cpu : contexts.cpus()) {
    met.clear();
    int32_t last = -1;
    for (const ContextTrack::Switch& each : contexts.switches(cpu)) {
      if (each.to.tid <= 0) return true;
      if (each.to.tid != last && !met.insert(each.to.tid).second) return true;
      last = each.to.tid;
    }
  }
  return false;
}

}  // namespace

ThreadSchedule::ThreadSchedule(const ContextTrack& contexts) {
  if (!has_switches(contexts)) return;
  for (const int32_t cpu : contexts.cpus()) {
    const std::vector<ContextTrack::Switch>& switches = contexts.switches(cpu);
    for (size_t i = 0; i < switches.size(); ++i) {
      if (switches[i].to.tid <= 0) continue;
      on_cpu_[switches[i].to.tid].push_back({switches[i].time, i + 1 < switches.size() ? switches[i + 1].time : kTimeMax});
    }
  }
  for (auto& [tid, runs] : on_cpu_) {
    std::sort(runs.begin(), runs.end(), [](const OnCpu& a, const OnCpu& b) { return a.first < b.first; });
  }
}

// Calls `take` with each part of [first, last] in which the thread was on no cpu, in order of time.
template <typename Take>
void ThreadSchedule::for_each_off(int32_t tid, TimeNs first, TimeNs last, const Take& take) const {
  const auto found = on_cpu_.find(tid);
  if (found == on_cpu_.end() || last <= first) return;
  const std::vector<OnCpu>& runs = found->second;
  auto run = std::lower_bound(runs.begin(), runs.end(), first, [](const OnCpu& r, TimeNs t) { return r.last < t; });
  TimeNs covered = first;
  for (; run != runs.end() && run->first < last; ++run) {
    if (covered < run->first) take(covered, run->first);
    covered = std::max(covered, run->last);
  }
  if (covered < last) take(covered, last);
}

uint64_t ThreadSchedule::off_ns(int32_t tid, TimeNs first, TimeNs last) const {
  uint64_t off = 0;
  for_each_off(tid, first, last, [&off](TimeNs from, TimeNs to) { off += to.value - from.value; });
  return off;
}

const std::vector<ThreadSchedule::OnCpu>& ThreadSchedule::runs(int32_t tid) const {
  static const std::vector<OnCpu> none;
  const auto found = on_cpu_.find(tid);
  return found == on_cpu_.end() ? none : found->second;
}

bool ThreadSchedule::runs_after(int32_t tid, TimeNs t) const {
  const auto found = on_cpu_.find(tid);
  return found != on_cpu_.end() && t < found->second.back().first;
}

std::optional<Interval> ThreadSchedule::off_span(int32_t tid, TimeNs first, TimeNs last) const {
  std::optional<Interval> span;
  for_each_off(tid, first, last, [&span](TimeNs from, TimeNs to) { span = {span ? span->first : from, to}; });
  return span;
}

}  // namespace ptd
