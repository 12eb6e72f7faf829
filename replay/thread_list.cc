// ThreadList: see thread_list.h.
#include "replay/thread_list.h"

#include <set>

#include "replay/text.h"

namespace ptd::replay {

ThreadList::ThreadList(const Recording& recording, const ReplayFilter& filter) : recording_(&recording) {
  const std::vector<StreamInfo>& streams = recording.streams();
  for (uint32_t i = 0; i < streams.size(); ++i) {
    const StreamInfo& stream = streams[i];
    if (!chosen(filter.cpus, stream.cpu)) continue;
    if (stream.cpu < 0) {
      add(recording.contexts().at_thread(stream.tid, stream.time.first), stream.cpu, i, filter);
      continue;
    }
    const Interval traced = intersect(stream.time, filter.time);
    const auto& switches = recording.contexts().switches(stream.cpu);
    for (size_t k = 0; k < switches.size(); ++k) {
      const TimeNs until = k + 1 < switches.size() ? switches[k + 1].time : kTimeMax;
      if (switches[k].time <= traced.last && traced.first <= until) add(switches[k].to, stream.cpu, i, filter);
    }
  }
}

void ThreadList::add(const Context& context, int32_t cpu, uint32_t stream, const ReplayFilter& filter) {
  const int32_t tid = context.tid == -1 && cpu < 0 ? recording_->streams()[stream].tid : context.tid;
  if (tid == -1 || threads_.size() >= kMostThreads) return;
  if (!chosen(filter.pids, context.pid) || !chosen(filter.tids, tid)) return;
  threads_.try_emplace(thread_key(tid, cpu, stream), Thread{context.pid, tid, stream});
}

void ThreadList::see(const ReplayPlace& place) {
  if (threads_.size() < kMostThreads) threads_.try_emplace(place.thread, Thread{place.pid, place.tid, place.stream});
}

std::vector<int32_t> ThreadList::pids() const {
  std::set<int32_t> pids;
  for (const auto& [key, thread] : threads_) pids.insert(thread.pid);
  return {pids.begin(), pids.end()};
}

std::string ThreadList::name(ThreadKey key, TimeNs when) const {
  const auto found = threads_.find(key);
  if (key >= kUnknownThreads || found == threads_.end()) {
    const uint64_t stream = key >= kUnknownThreads ? static_cast<uint64_t>(key - kUnknownThreads) : 0;
    return "unknown thread of stream " + std::to_string(stream);
  }
  if (key >= kIdleThreads) return "idle, cpu " + std::to_string(key - kIdleThreads);
  const std::string comm = plain(recording_->comm_at(found->second.tid, when));
  return (comm.empty() ? std::string("?") : comm) + " (pid " + std::to_string(found->second.pid) + ")";
}

}  // namespace ptd::replay
