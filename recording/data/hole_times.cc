// HoleTimes: see hole_times.h.
#include "recording/data/hole_times.h"

#include <algorithm>
#include <functional>

namespace ptd {

void HoleTimes::add(int32_t cpu, TimeNs time, size_t holes, const CpuTimes& latest) {
  if (holes == 0 && first_.empty()) return;
  while (first_.size() < holes) open(latest);
  const auto [closed, is_new] = closed_.try_emplace(cpu, 0);
  if (is_new) {
    least_.emplace_back(time, cpu);
    std::ranges::push_heap(least_, std::greater{});
  }
  raise(closed->second, holes, time);
  closed->second = std::max(closed->second, holes);
}

void HoleTimes::open(const CpuTimes& latest) {
  if (first_.empty()) {
    for (const auto& [cpu, time] : latest) {
      least_.emplace_back(time, cpu);
      closed_.emplace(cpu, 0);
    }
    std::ranges::make_heap(least_, std::greater{});
  }
  while (!least_.empty()) {
    const auto [time, cpu] = least_.front();
    const TimeNs now = latest.at(cpu);
    if (now == time) break;
    std::ranges::pop_heap(least_, std::greater{});
    least_.back().first = now;
    std::ranges::push_heap(least_, std::greater{});
  }
  first_.push_back(least_.empty() ? kTimeMin : least_.front().first);
}

// Raises the holes [first, end), as few blocks.
void HoleTimes::raise(size_t first, size_t end, TimeNs time) {
  const auto raise_block = [&](size_t level, size_t block) {
    if (raised_.size() <= level) raised_.resize(level + 1);
    if (raised_[level].size() <= block) raised_[level].resize(block + 1, kTimeMin);
    raised_[level][block] = std::max(raised_[level][block], time);
  };
  for (size_t level = 0; first < end; ++level, first /= 2, end /= 2) {
    if (first % 2 != 0) raise_block(level, first++);
    if (end % 2 != 0) raise_block(level, --end);
  }
}

TimeNs HoleTimes::raised(size_t hole) const {
  TimeNs last = kTimeMin;
  for (size_t level = 0; level < raised_.size(); ++level) {
    const size_t block = hole >> level;
    if (block < raised_[level].size()) last = std::max(last, raised_[level][block]);
  }
  return last;
}

std::vector<Interval> HoleTimes::windows() const {
  size_t followed = first_.size();  // by records of all cpus
  for (const auto& [cpu, holes] : closed_) followed = std::min(followed, holes);
  std::vector<Interval> out;
  for (size_t hole = 0; hole < first_.size(); ++hole)
    out.push_back({first_[hole], hole < followed ? std::max(first_[hole], raised(hole)) : kTimeMax});
  return out;
}

}  // namespace ptd
