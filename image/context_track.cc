// ContextTrack: sorted switches per cpu and per thread; lookups are binary searches.
#include "ptdecode/context_track.h"

#include <algorithm>

#include "ptdecode/guest.h"

namespace ptd {
namespace {

using Switches = std::vector<ContextTrack::Switch>;

void sort_by_time(std::map<int32_t, Switches>& tracks) {
  for (auto& [key, track] : tracks) {
    std::stable_sort(track.begin(), track.end(), [](const auto& a, const auto& b) { return a.time < b.time; });
  }
}

const ContextTrack::Switch* last_at(const std::map<int32_t, Switches>& tracks, int32_t key, TimeNs time) {
  const auto track = tracks.find(key);
  if (track == tracks.end()) return nullptr;
  const auto next = std::upper_bound(track->second.begin(), track->second.end(), time, [](TimeNs t, const auto& s) { return t < s.time; });
  return next == track->second.begin() ? nullptr : &*std::prev(next);
}

const Switches& track_of(const std::map<int32_t, Switches>& tracks, int32_t key) {
  static const Switches none;
  const auto track = tracks.find(key);
  return track == tracks.end() ? none : track->second;
}

std::vector<int32_t> keys_of(const std::map<int32_t, Switches>& tracks) {
  std::vector<int32_t> keys;
  for (const auto& [key, track] : tracks) keys.push_back(key);
  return keys;
}

}  // namespace

void ContextTrack::add_switch(int32_t cpu, TimeNs time, Context to) { by_cpu_[cpu].push_back({time, to}); }
void ContextTrack::add_thread(int32_t tid, TimeNs time, Context to) { by_tid_[tid].push_back({time, to}); }

void ContextTrack::add_leave(int32_t cpu, TimeNs time) { leaves_[cpu].push_back(time); }

void ContextTrack::sort() {
  sort_by_time(by_cpu_);
  sort_by_time(by_tid_);
  for (auto& [cpu, times] : leaves_) std::sort(times.begin(), times.end());
}

Context ContextTrack::at_cpu(int32_t cpu, TimeNs time) const {
  const Switch* found = last_at(by_cpu_, cpu, time);
  if (found == nullptr) return {};
  // The thread may have called exec since the switch, so its own track is newer.
  const Switch* thread = found->to.tid > 0 ? last_at(by_tid_, found->to.tid, time) : nullptr;
  if (thread == nullptr) return found->to;
  if (thread->time >= found->time || found->to.space == kNoSpace) return thread->to;
  return found->to;
}

Context ContextTrack::at_thread(int32_t tid, TimeNs time) const {
  if (const Switch* found = last_at(by_tid_, tid, time); found != nullptr) return found->to;
  return tid == 0 ? Context{0, 0, kNoSpace} : Context{};  // no record names the idle task
}

const std::vector<ContextTrack::Switch>& ContextTrack::switches(int32_t cpu) const { return track_of(by_cpu_, cpu); }
const std::vector<ContextTrack::Switch>& ContextTrack::thread_changes(int32_t tid) const { return track_of(by_tid_, tid); }

const std::vector<TimeNs>& ContextTrack::leaves(int32_t cpu) const {
  static const std::vector<TimeNs> none;
  const auto times = leaves_.find(cpu);
  return times == leaves_.end() ? none : times->second;
}

std::vector<int32_t> ContextTrack::cpus() const {
  std::vector<int32_t> cpus = keys_of(by_cpu_);
  std::erase_if(cpus, [](int32_t cpu) { return cpu <= kGuestCpus; });
  return cpus;
}
std::vector<int32_t> ContextTrack::threads() const { return keys_of(by_tid_); }

}  // namespace ptd
