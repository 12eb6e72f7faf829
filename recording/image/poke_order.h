// PokeOrder: text pokes whose times contradict the order in which their cpu wrote its records.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// A cpu writes context switches, text pokes and names of functions to its ring in the order of their times, because nothing preempts it meanwhile
/// (linux kernel/events/core.c, "perf_iterate_sb"), and perf keeps the order of each ring in the file. Not thread-safe.
class PokeOrder {
 public:
  struct Record {
    TimeNs time;
    uint64_t offset_bytes = 0;  ///< in the file
    bool is_poke = false;
  };
  struct Doubt {
    Interval window;  ///< holds the poke's own time and those of the records next to it in the file
    uint64_t offset_bytes = 0;
    int32_t cpu = -1;
  };
  /// Adds a record of one of these kinds, in the order of time.
  void add(int32_t cpu, const Record& record) {
    Ring& ring = rings_[cpu];
    if (ring.open && record.offset_bytes > doubts_[*ring.open].offset_bytes) {
      doubts_[*ring.open].window.last = record.time;
      ring.open.reset();
    }
    std::vector<Record>& recent = ring.recent;
    if (!recent.empty() && record.offset_bytes < recent.back().offset_bytes) {
      const Record last = recent.back();
      if (last.is_poke) {  // it claims to be earlier than it is, up to a record that follows it in the file
        recent.pop_back();
        ring.open = doubt({{last.time, kTimeMax}, last.offset_bytes, cpu});
      }
      if (record.is_poke) {  // it claims to be later
        const auto before = std::find_if(recent.rbegin(), recent.rend(), [&](const Record& each) { return each.offset_bytes < record.offset_bytes; });
        (void)doubt({{before == recent.rend() ? kTimeMin : before->time, record.time}, record.offset_bytes, cpu});
        return;
      }
    }
    if (recent.size() >= kMostRecent) recent.erase(recent.begin(), recent.begin() + kMostRecent / 2);
    recent.push_back(record);
  }
  [[nodiscard]] const std::vector<Doubt>& doubts() const { return doubts_; }

 private:
  static constexpr size_t kMostDoubts = 1000;  // the last one then stands for further ones too
  static constexpr size_t kMostRecent = 64;
  struct Ring {
    std::vector<Record> recent;
    std::optional<size_t> open;  ///< a doubt whose window is not complete
  };
  size_t doubt(const Doubt& made) {
    if (doubts_.size() < kMostDoubts) {
      doubts_.push_back(made);
    } else {
      doubts_.back().window = hull(doubts_.back().window, made.window);
    }
    return doubts_.size() - 1;
  }
  std::unordered_map<int32_t, Ring> rings_;
  std::vector<Doubt> doubts_;
};

}  // namespace ptd
