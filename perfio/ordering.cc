// The bounded sort buffer.
#include "perfio/ordering.h"

#include <algorithm>

#include "perfio/damage_log.h"

namespace ptd::perfio {

bool RecordQueue::add(uint64_t time, const RawRecord& record) {
  if (time < delivered_) ++damage_->late_records;
  latest_ = std::max(latest_, time);
  Entry& entry = entries_.emplace_back();
  entry.time = time;
  entry.record = record;
  if (record.transient) {
    entry.own.assign(record.bytes.begin(), record.bytes.end());
    entry.record.bytes = entry.own;
    own_bytes_ += entry.own.size();
  }
  if (entries_.size() < limits_.max_queued_records && own_bytes_ < limits_.max_queued_bytes) return true;
  if (!overflowed_) {
    overflowed_ = true;
    add_damage_message(*damage_, "more records wait for a FINISHED_ROUND than the limit of " + std::to_string(limits_.max_queued_records) +
                                     ": from offset " + std::to_string(record.file_offset_bytes) + " on records may come out of order");
  }
  sort();
  return deliver_first((entries_.size() + 1) / 2);
}

bool RecordQueue::finish_round() {
  const bool go_on = flush_until(round_limit_);
  round_limit_ = latest_;
  return go_on;
}

bool RecordQueue::flush_until(uint64_t time) {
  if (entries_.empty()) return true;
  sort();
  const auto end = std::upper_bound(entries_.begin(), entries_.end(), time, [](uint64_t t, const Entry& e) { return t < e.time; });
  return deliver_first(static_cast<size_t>(end - entries_.begin()));
}

void RecordQueue::sort() {
  const auto by_time = [](const Entry& a, const Entry& b) { return a.time < b.time; };
  const auto middle = entries_.begin() + static_cast<std::ptrdiff_t>(sorted_);
  std::stable_sort(middle, entries_.end(), by_time);
  std::inplace_merge(entries_.begin(), middle, entries_.end(), by_time);
  sorted_ = entries_.size();
}

bool RecordQueue::deliver_first(size_t count) {
  bool go_on = true;
  for (size_t i = 0; i < count && go_on; ++i) {
    const Entry& entry = entries_[i];
    delivered_ = std::max(delivered_, entry.time);
    own_bytes_ -= entry.own.size();
    go_on = deliver_(entry.record);
  }
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(count));
  sorted_ = entries_.size();
  return go_on;
}

}  // namespace ptd::perfio
