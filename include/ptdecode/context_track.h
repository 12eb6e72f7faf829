// ContextTrack: which thread, and so which address space, a cpu ran at a time.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// What ran: pid/tid 0/0 is the idle task, -1 unknown. space is the mm of its user half.
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

  /// Declares that `to` runs on `cpu` from `time` on. Any order; sort() must follow the last add.
  void add_switch(int32_t cpu, TimeNs time, Context to);
  /// Declares that thread `tid` lives in `space` from `time` on (start, exec). For per-thread streams.
  void add_thread(int32_t tid, TimeNs time, Context to);
  /// A later exec moves a running thread to another space: applied to switches on lookup through add_thread.
  void sort();

  /// Context of a per-cpu stream at `time`; unknown before the first switch.
  [[nodiscard]] Context at_cpu(int32_t cpu, TimeNs time) const;
  /// Context of a per-thread stream at `time`.
  [[nodiscard]] Context at_thread(int32_t tid, TimeNs time) const;
  /// Switches of `cpu` in order of time; may be empty.
  [[nodiscard]] const std::vector<Switch>& switches(int32_t cpu) const;
  [[nodiscard]] const std::vector<Switch>& thread_changes(int32_t tid) const;
  /// The cpus that have switches, the threads that have changes; in order.
  [[nodiscard]] std::vector<int32_t> cpus() const;
  [[nodiscard]] std::vector<int32_t> threads() const;

 private:
  std::map<int32_t, std::vector<Switch>> by_cpu_;
  std::map<int32_t, std::vector<Switch>> by_tid_;
};

}  // namespace ptd
