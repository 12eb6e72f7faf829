// PokeOrder: text pokes whose times contradict the order in which their cpu wrote its records.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <vector>

#include "ptdecode/types.h"

namespace ptd {

/// A cpu writes context switches, text pokes and names of functions to a ring in the order of their times, because no thread preempts it
/// meanwhile (linux kernel/events/core.c, "perf_iterate_sb"), and perf keeps the order of each ring in the file. A ring whose other records
/// are out of order is not used: perf writes overwritable rings from the last record to the first. Not thread-safe.
class PokeOrder {
 public:
  struct Record {
    TimeNs time;
    uint64_t offset_bytes = 0;  ///< in the file
    bool is_poke = false;
    bool is_late = false;   ///< it may be written after records of later times: a recorder has read that code was created
    bool may_nest = false;  ///< an interrupt may write it between the time of another record and that record's place in the ring
  };
  struct Doubt {
    Interval window;  ///< holds the poke's own time and those of the records next to it in the file
    uint64_t offset_bytes = 0;
    int32_t cpu = -1;
    uint64_t ring_number = 0;
  };
  /// Adds a record of one of these kinds, of one ring, in the order of time.
  void add(uint64_t ring_number, int32_t cpu, const Record& record) {
    Ring& ring = rings_[ring_number];
    if (!record.is_poke) {
      ring.is_ordered = ring.is_ordered && record.offset_bytes >= ring.last_other;
      ring.last_other = record.offset_bytes;
    }
    if (ring.open && record.offset_bytes > doubts_[*ring.open].offset_bytes) {
      doubts_[*ring.open].window.last = record.time;
      ring.open.reset();
    }
    std::vector<Record>& recent = ring.recent;
    if (record.offset_bytes < ring.last_offset && doubted(ring, ring_number, cpu, record)) return;
    if (record.is_late) return;
    if (recent.size() >= kMostRecent) recent.erase(recent.begin(), recent.begin() + kMostRecent / 2);
    recent.push_back(record);
    ring.last_offset = std::max(ring.last_offset, record.offset_bytes);
  }
  /// Call it once, after all records.
  [[nodiscard]] const std::vector<Doubt>& finish() {
    std::erase_if(doubts_, [this](const Doubt& each) { return !rings_[each.ring_number].is_ordered; });
    return doubts_;
  }

 private:
  static constexpr size_t kMostDoubts = 1000;  // the last one then stands for further ones too
  static constexpr size_t kMostRecent = 64;
  static constexpr uint64_t kNestedNs = 1000;
  struct Ring {
    std::vector<Record> recent;
    std::optional<size_t> open;  ///< a doubt whose window is not complete
    uint64_t last_offset = 0;    ///< the largest
    uint64_t last_other = 0;     ///< offset of the last record that is no poke
    bool is_ordered = true;      ///< these are
  };
  // The record is before others in the file and after them by its time. Returns whether it is a poke with a wrong time.
  bool doubted(Ring& ring, uint64_t ring_number, int32_t cpu, const Record& record) {
    std::vector<Record>& recent = ring.recent;
    const auto contradicts = [&record](const Record& each) {
      const bool may_nest = each.may_nest || record.may_nest;
      return each.offset_bytes > record.offset_bytes && record.time.value - each.time.value >= (may_nest ? kNestedNs : 0);
    };
    const auto first = std::find_if(recent.begin(), recent.end(), contradicts);
    if (first == recent.end()) return false;
    const TimeNs before = first == recent.begin() ? kTimeMin : std::prev(first)->time;
    for (const Record& each : recent) {  // it claims to be earlier than it is, up to a record that follows it in the file
      if (each.is_poke && contradicts(each)) ring.open = doubt({{each.time, kTimeMax}, each.offset_bytes, cpu, ring_number});
    }
    std::erase_if(recent, [&](const Record& each) { return each.is_poke && contradicts(each); });
    if (record.is_poke) (void)doubt({{before, record.time}, record.offset_bytes, cpu, ring_number});  // it claims to be later
    return record.is_poke;
  }
  size_t doubt(const Doubt& made) {
    if (doubts_.size() < kMostDoubts) {
      doubts_.push_back(made);
    } else {
      doubts_.back().window = hull(doubts_.back().window, made.window);
    }
    return doubts_.size() - 1;
  }
  std::unordered_map<uint64_t, Ring> rings_;
  std::vector<Doubt> doubts_;
};

}  // namespace ptd
