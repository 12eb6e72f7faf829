// ContextTrack: the thread and address space that a cpu ran at a given time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// A thread and its address space: pid/tid 0/0 is the idle task, -1 unknown. space is the mm of its user half.
struct Context {
  int32_t pid = -1;
  int32_t tid = -1;
  SpaceId space = kNoSpace;
  friend constexpr bool operator==(const Context&, const Context&) = default;
};

/// Any number of threads may read after the last add_*() and sort(). References are valid until the next add_*() or sort().
class PTD_API ContextTrack {
 public:
  struct Switch {
    TimeNs time;
    Context to;
  };
  static constexpr uint64_t kClockErrorNs = 1U << 14;  ///< by which a trace's clock that is right may differ from the times of records

  /// Adds a switch: `to` runs on `cpu` from `time` on. Switches may be added in any order; call sort() after the last one.
  void add_switch(int32_t cpu, TimeNs time, Context to);
  /// Adds a change of space: thread `tid` is in `space` from `time` on (start, exec). For per-thread streams.
  void add_thread(int32_t tid, TimeNs time, Context to);
  /// Adds the moment at which a thread left `cpu` whose trace stops soon after it. The trace of the next one starts before its own switch,
  /// so that what starts between the two is of the next one. For events that are attached to threads and traced by cpu.
  void add_leave(int32_t cpu, TimeNs time);
  /// Sorts the switches. An exec that moves a running thread to another space is added with add_thread() and applied to switches on lookup.
  void sort();

  /// Returns the context of a per-cpu stream at `time`; it is unknown before the first switch.
  [[nodiscard]] Context at_cpu(int32_t cpu, TimeNs time) const;
  /// Returns the context of a per-thread stream at `time`.
  [[nodiscard]] Context at_thread(int32_t tid, TimeNs time) const;
  /// Returns the switches of `cpu` in time order; may be empty.
  [[nodiscard]] const std::vector<Switch>& switches(int32_t cpu) const;
  [[nodiscard]] const std::vector<Switch>& thread_changes(int32_t tid) const;
  /// Returns the moments of add_leave() in time order; may be empty.
  [[nodiscard]] const std::vector<TimeNs>& leaves(int32_t cpu) const;
  /// Return the cpus that have switches and the threads that have changes, sorted.
  [[nodiscard]] std::vector<int32_t> cpus() const;
  [[nodiscard]] std::vector<int32_t> threads() const;

 private:
  std::map<int32_t, std::vector<Switch>> by_cpu_;
  std::map<int32_t, std::vector<Switch>> by_tid_;
  std::map<int32_t, std::vector<TimeNs>> leaves_;
};

}  // namespace ptd
