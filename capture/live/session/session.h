// Detached sessions: recordings that outlive the program that started them and can be read at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/live/events/event_set.h"
#include "capture/live/events/trigger_event.h"
#include "perfio/format/records.h"

namespace ptd::live {

/// The snapshots that a session writes when its trigger is hit.
struct SelfSnapshots {
  TriggerChoice trigger;
  std::string output;  ///< absolute; the second one is OUTPUT.2, and so on
  uint64_t most = 1;
};

struct SessionChoice {
  std::string name;
  TargetChoice target;
  std::optional<TraceChoice> trace;  ///< its area goes round (AuxMode::overwrite)
  RingWishes wishes;
  std::function<Result<perfio::AuxtraceInfoRecord>(const perfio::TimeConvRecord* clock)> make_info;
  std::vector<std::string> command;  ///< to be started; it continues without the recorder
  bool announcements = true;         ///< also what run-times announce of their code
  std::optional<SelfSnapshots> self_snapshots;
  std::string what;               ///< in words, for lists
  uint64_t log_bytes = 8U << 20;  ///< of sideband that is kept; twice as much memory
};

/// The status of a session.
struct SessionStatus {
  std::string name, what;
  std::string trouble;  ///< what is wrong with a session that is not alive; "": it does not answer in time
  int32_t keeper_pid = -1, backup_pid = -1;
  uint64_t started_s = 0;  ///< wall clock
  uint64_t snapshots = 0, records = 0, lost_records = 0, log_used_bytes = 0, log_folds = 0, forgotten = 0, aux_bytes = 0;
  uint64_t takeovers = 0;                                          ///< how often a keeper was killed and another went on
  uint64_t trigger_hits = 0, triggered = 0, trigger_failures = 0;  ///< triggered: snapshots that the trigger took
  uint64_t trace_stop_ns = 0;                                      ///< how long the trace was stopped for the last snapshot
  bool target_ended = false, alive = false;
};

/// Starts a session and returns: one process keeps the events open (the keeper), another one holds the same descriptors and mappings.
/// Errors: of the kernel; usage for a name in use.
[[nodiscard]] Result<std::vector<std::string>> start_session(const SessionChoice& choice);
/// Returns the sessions of this user. A session that does not answer within a short time has only a name, with `alive` false. Files of dead
/// sessions (both processes were killed) are removed.
[[nodiscard]] Result<std::vector<SessionStatus>> list_sessions();
/// Writes the current content of the session as perf.data to `output` ("-": standard output, also in file form). The session continues.
/// Errors: usage if there is no such session; of the file system, in which case no partial file is left.
[[nodiscard]] Result<SessionStatus> take_snapshot(const std::string& name, const std::string& output);
/// Ends a session. Recorded processes continue to run.
[[nodiscard]] Status stop_session(const std::string& name);

}  // namespace ptd::live
