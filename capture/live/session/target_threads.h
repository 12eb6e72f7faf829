// TargetThreads: which threads belong to the target of a session, from the threads at its start and the records of its rings.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "capture/live/events/event_set.h"
#include "capture/live/session/session_log.h"

namespace ptd::live {

/// Tells hits of the target from those of other processes. A thread that ends is remembered until forget_ended(): records of its hits can
/// be read after its EXIT. Memory: a number for each thread that lives. Not thread-safe.
class TargetThreads {
 public:
  /// `threads`: those at the start, EventSet::wanted_threads().
  TargetThreads(const TargetChoice& target, const std::vector<int32_t>& threads);
  /// Takes a record of a ring of the target: FORK, EXIT, COMM of an exec, LOST. Others change nothing.
  void on_record(Bytes record);
  /// In a process that takes over: takes an entry of the log, which may be the state that older records left.
  void on_entry(const LogEntry& entry);
  [[nodiscard]] bool contains(int32_t pid, int32_t tid) const;
  /// Marks the threads whose EXIT was read by now. The next forget_ended() removes them, and no later ones.
  void mark_ended();
  /// Removes the marked threads that no longer exist. Rings of cpus are read one after the other, so an EXIT can be older than a record
  /// that was read before it: of the same number, used again by an exec.
  void forget_ended();

 private:
  bool everything_, inherits_;
  bool by_process_;  // all threads of its processes are recorded: one whose FORK was lost too
  bool lost_ = false;
  std::set<int32_t> threads_;
  std::map<int32_t, bool> ended_;  // tid -> marked
};

}  // namespace ptd::live
