// ThreadRuns: see thread_runs.h.
#include "analysis/thread_runs.h"

#include <algorithm>

namespace ptd {

ThreadRuns::ThreadRuns(const ContextTrack& contexts) {
  for (const int32_t cpu : contexts.cpus()) {
    const std::vector<ContextTrack::Switch>& switches = contexts.switches(cpu);
    for (size_t i = 0; i < switches.size(); ++i) {
      if (switches[i].to.tid <= 0) continue;
      runs_[switches[i].to.tid].push_back({switches[i].time, i + 1 < switches.size() ? switches[i + 1].time : kTimeMax});
    }
  }
  for (auto& [tid, runs] : runs_) {
    std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.first < b.first; });
  }
}

// Calls `take` with each part of [first, last] in which the thread was on no cpu, in order of time.
template <typename Take>
void ThreadRuns::for_each_off(int32_t tid, TimeNs first, TimeNs last, const Take& take) const {
  const auto found = runs_.find(tid);
  if (found == runs_.end() || last <= first) return;
  const std::vector<Run>& runs = found->second;
  auto run = std::lower_bound(runs.begin(), runs.end(), first, [](const Run& r, TimeNs t) { return r.last < t; });
  TimeNs covered = first;
  for (; run != runs.end() && run->first < last; ++run) {
    if (covered < run->first) take(covered, run->first);
    covered = std::max(covered, run->last);
  }
  if (covered < last) take(covered, last);
}

uint64_t ThreadRuns::off_ns(int32_t tid, TimeNs first, TimeNs last) const {
  uint64_t off = 0;
  for_each_off(tid, first, last, [&off](TimeNs from, TimeNs to) { off += to.value - from.value; });
  return off;
}

bool ThreadRuns::runs_after(int32_t tid, TimeNs t) const {
  const auto found = runs_.find(tid);
  return found != runs_.end() && t < found->second.back().first;
}

std::optional<Interval> ThreadRuns::off_span(int32_t tid, TimeNs first, TimeNs last) const {
  std::optional<Interval> span;
  for_each_off(tid, first, last, [&span](TimeNs from, TimeNs to) { span = {span ? span->first : from, to}; });
  return span;
}

}  // namespace ptd
