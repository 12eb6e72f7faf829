// TaskSwitches: which task is on each cpu, by SWITCH records, and whether other records contradict them. Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "perfio/format/records.h"
#include "ptdecode/types.h"

namespace ptd {

/// "thread 12 of process 10", for findings.
[[nodiscard]] inline std::string name_of_task(int32_t pid, int32_t tid) {
  return "thread " + std::to_string(tid) + " of process " + std::to_string(pid);
}

/// Checks the records of events that are attached to tasks, in rings of cpus: `perf record -e intel_pt//u` of a user without privileges.
/// The kernel writes them in this order ([Linux] kernel/events/core.c):
/// - SWITCH IN after the task's trace starts, SWITCH OUT before it stops. They name the task that writes them, not the other one.
/// - A new program starts without IN: enable_on_exec. ITRACE_START is the first record of the first task of each cpu.
/// - EXIT is the last record of a task: no OUT follows.
/// - AUX: its task is the one that runs, or that has just written OUT.
/// A thread that calls exec takes the number of its process, whose first thread ended before.
///
/// Not thread-safe. Records of a cpu that cpu-wide events report are ignored.
class TaskSwitches {
 public:
  /// Called where the records say which task the flow of a cpu is of from a time on; a thread of -1 is unknown.
  using Runs = std::function<void(int32_t cpu, TimeNs from, int32_t pid, int32_t tid)>;
  explicit TaskSwitches(Runs runs) : runs_(std::move(runs)) {}

  /// A SWITCH record. `is_only_event`: the recording has one event, so that its records need no id.
  void on_switch(const perfio::Record& record, bool out, bool is_only_event);
  /// ITRACE_START and EXIT of a task, and AUX records: the task was on the cpu then.
  void on_start(const perfio::Record& record);
  void on_exit(const perfio::Record& record);
  void on_aux(const perfio::Record& record);
  void on_fork(int32_t tid, TimeNs time) {
    lives_[tid] = Life();
    lives_[tid].from = time;
  }
  /// A COMM record of a thread that called exec: it may have had another number.
  void on_exec(const perfio::Record& record);
  /// Records of this cpu were lost, of all cpus if it is less than 0.
  void on_lost(int32_t cpu);
  /// Other events report the switches of this cpu.
  void ignore(int32_t cpu) { cpus_[cpu].is_ignored = true; }

  struct Doubt {
    int32_t cpu = -1;
    std::vector<Interval> windows;
    std::string what;
    bool has_switches = false;  ///< the cpu has SWITCH records
  };
  /// Returns what contradicts each cpu's records.
  [[nodiscard]] std::vector<Doubt> finish();

 private:
  struct Task {
    int32_t pid = -1, tid = -1;
  };
  struct Seen {
    Task task;
    TimeNs time;
  };
  enum class State : uint8_t { unknown, on, off, ended };
  struct Cpu {
    Task task;  // the latest
    State state = State::unknown;
    TimeNs since;
    uint64_t event = 0;  // that wrote the latest SWITCH; two events both report a switch
    Seen early;          // a task whose AUX record may come directly before its IN
    bool is_early = false, is_ignored = false, has_switches = false, is_of_event = false;
    uint64_t doubts = 0, losses_of_all = 0;  // those before the latest record
    Doubt doubt;                             // the first, and the windows of all
  };
  struct Life {
    TimeNs from;  // its FORK or its latest OUT
    bool ended = false;
    int32_t cpu = -1;  // on which it is since `on`
    TimeNs on;
  };
  Cpu* cpu_of(const perfio::Record& record);
  /// Applies losses of all cpus since the cpu's latest record.
  void forget_lost(Cpu& cpu) const;
  static void forget(Cpu& cpu);
  static Seen seen_in(const perfio::Record& record);
  void set(Cpu& cpu, State state, const Seen& seen);
  void on_in(Cpu& cpu, const Seen& seen, bool is_of_event);
  void on_out(Cpu& cpu, const Seen& seen, bool is_of_event);
  void on_seen(Cpu& cpu, const Seen& seen);
  void settle(Cpu& cpu, const Seen* in);
  [[nodiscard]] bool is_same(const Cpu& cpu, const Task& task) const;
  [[nodiscard]] static std::string latest_of(const Cpu& cpu);
  void doubt(Cpu& cpu, const Seen& seen, const std::string& what);
  void assign(Cpu& cpu, const Seen& seen);

  Runs runs_;
  uint64_t losses_of_all_ = 0;
  std::map<int32_t, Cpu> cpus_;
  std::unordered_map<int32_t, Life> lives_;  // by thread
};

}  // namespace ptd
