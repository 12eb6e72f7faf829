// TimeMerge: merges sources, each in order of time, into one sequence in order of time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// A Source has `bool advance()`, which moves to its next item and returns false at its end, and `TimeNs time() const` of that item, which
/// never goes back. Of items with equal times, the source that was added first comes first. Not thread-safe.
template <typename Source>
class TimeMerge {
 public:
  void reserve(size_t count) { sources_.reserve(count); }
  /// Must precede the first next(). No item of the source is before `begins`: it is not advanced until that time comes.
  void add(Source source, TimeNs begins = kTimeMin) {
    sources_.push_back(std::move(source));
    waits_until_.emplace_back(begins);
  }

  /// Moves to the next item and returns its source; null if all sources have ended. Valid until the next call.
  Source* next() {
    ended_.clear();
    if (started_) {
      if (!order_.empty()) advance_first();
    } else {
      start();
    }
    while (!order_.empty() && waits_until_[order_.front()]) advance_first();
    return order_.empty() ? nullptr : &sources_[order_.front()];
  }

  /// Returns the indexes of the sources that ended in the last next().
  [[nodiscard]] const std::vector<uint32_t>& ended() const { return ended_; }

  /// Returns the source of the last next(), which was not null.
  [[nodiscard]] const Source& current() const { return sources_[order_.front()]; }
  [[nodiscard]] std::vector<Source>& sources() { return sources_; }
  [[nodiscard]] const std::vector<Source>& sources() const { return sources_; }

 private:
  [[nodiscard]] TimeNs time_of(uint32_t source) const { return waits_until_[source] ? *waits_until_[source] : sources_[source].time(); }
  [[nodiscard]] bool later(uint32_t a, uint32_t b) const {
    const TimeNs first = time_of(a), second = time_of(b);
    return first != second ? first > second : a > b;
  }
  [[nodiscard]] bool stays_first() const {
    return (order_.size() < 2 || !later(order_[0], order_[1])) && (order_.size() < 3 || !later(order_[0], order_[2]));
  }
  void start() {
    started_ = true;
    for (uint32_t i = 0; i < sources_.size(); ++i) order_.push_back(i);
    std::make_heap(order_.begin(), order_.end(), [this](uint32_t a, uint32_t b) { return later(a, b); });
  }
  // The source of the last item usually stays the earliest, so it leaves the heap's front only if it must.
  void advance_first() {
    waits_until_[order_.front()].reset();
    const bool more = sources_[order_.front()].advance();
    if (!more) ended_.push_back(order_.front());
    if (!more || !stays_first()) reorder(more);
  }
  void reorder(bool more) {
    const auto after = [this](uint32_t a, uint32_t b) { return later(a, b); };
    const uint32_t index = order_.front();
    std::pop_heap(order_.begin(), order_.end(), after);
    order_.pop_back();
    if (!more) return;
    order_.push_back(index);
    std::push_heap(order_.begin(), order_.end(), after);
  }

  std::vector<Source> sources_;
  std::vector<std::optional<TimeNs>> waits_until_;  // of each source: none once it was advanced
  std::vector<uint32_t> order_;                     // a heap of indexes into sources_; the earliest first
  std::vector<uint32_t> ended_;
  bool started_ = false;
};

}  // namespace ptd
