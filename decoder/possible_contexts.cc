// PossibleContexts: lookups in the records of threads and cpus.
#include "decoder/possible_contexts.h"

#include <algorithm>

namespace ptd {

using Switches = std::vector<ContextTrack::Switch>;

void PossibleContexts::begin(Interval bounds) {
  list_.clear();
  now_ = 0;
  bounds_ = bounds;
  is_cut_ = has_threads_ = is_ordered_ = false;
}

void PossibleContexts::add(Context context) {
  if (std::ranges::find(list_, context) != list_.end()) return;
  has_threads_ = has_threads_ || (!list_.empty() && context.tid != list_.front().tid);
  if (list_.size() == kMost) {
    is_cut_ = true;
  } else {
    list_.push_back(context);
  }
}

void PossibleContexts::add_thread(const ContextTrack& contexts, int32_t tid, Interval within) {
  const Switches& changes = contexts.thread_changes(tid);
  auto change = std::ranges::upper_bound(changes, within.first, {}, &ContextTrack::Switch::time);
  if (change != changes.begin()) --change;
  for (; change != changes.end() && change->time <= within.last && !is_cut_; ++change) add(change->to);
}

void PossibleContexts::list_thread(const ContextTrack& contexts, int32_t tid, Interval bounds) {
  begin(bounds);
  add_thread(contexts, tid, bounds);
  if (list_.empty()) add(contexts.at_thread(tid, bounds.first));
  is_ordered_ = true;
}

void PossibleContexts::list_cpu(const ContextTrack& contexts, int32_t cpu, Interval bounds) {
  constexpr size_t kMostSwitches = 1024;
  begin(bounds);
  if (cpu < 0) return;
  const Switches& switches = contexts.switches(cpu);
  auto at = std::ranges::upper_bound(switches, bounds.first, {}, &ContextTrack::Switch::time);
  if (at != switches.begin()) --at;
  for (size_t count = 0; at != switches.end() && at->time <= bounds.last && !is_cut_; ++at) {
    if (at->to.tid == 0) continue;
    const auto next = std::next(at);
    const size_t before = list_.size();
    add_thread(contexts, at->to.tid,
               {std::max(at->time, bounds.first), next == switches.end() ? bounds.last : std::min(next->time, bounds.last)});
    if (list_.size() == before && contexts.thread_changes(at->to.tid).empty()) add(at->to);
    if (++count == kMostSwitches) is_cut_ = has_threads_ = true;
  }
  if (!list_.empty() || bounds == Interval{}) return;
  list_cpu(contexts, cpu, {});
  if (has_threads_) begin(bounds);
}

bool PossibleContexts::maps(const Timeline& timeline, const Context& context, Ip ip) const {
  if (context.space == kNoSpace) return false;
  return std::ranges::any_of(timeline.sections_at(context.space, ip),
                             [&](SectionId id) { return timeline.section(id).live.overlaps(bounds_); });
}

bool PossibleContexts::choose(const Timeline& timeline, Ip ip, bool leaves) {
  std::vector<size_t> mapped;  // in order from the present one on
  for (size_t i = 0; i < list_.size(); ++i) {
    const size_t place = (now_ + i) % list_.size();
    if (maps(timeline, list_[place], ip)) mapped.push_back(place);
  }
  if (mapped.empty()) return true;  // no code, or that of the kernel
  now_ = mapped.size() > 1 && leaves && mapped.front() == now_ ? mapped[1] : mapped.front();
  const bool is_sure = mapped.size() == 1 && !is_cut_ && std::ranges::find(list_, kNoSpace, &Context::space) == list_.end();
  if (is_sure && is_ordered_) {
    list_.erase(list_.begin(), list_.begin() + static_cast<std::ptrdiff_t>(now_));
    now_ = 0;
  }
  return is_sure;
}

bool PossibleContexts::is_elsewhere(const Timeline& timeline, Ip ip) const {
  const auto maps_it = [&](const Context& context) { return maps(timeline, context, ip); };
  return !list_.empty() && !maps_it(list_[now_]) && std::ranges::any_of(list_, maps_it);
}

}  // namespace ptd
