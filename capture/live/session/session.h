// Detached sessions: recordings that outlive the program that started them and can be read at any time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "capture/live/events/event_set.h"
#include "perfio/format/records.h"

namespace ptd::live {

struct SessionChoice {
  std::string name;
  TargetChoice target;
  std::optional<TraceChoice> trace;  ///< its area goes round (AuxMode::overwrite)
  RingWishes wishes;
  std::function<Result<perfio::AuxtraceInfoRecord>(const perfio::TimeConvRecord* clock)> make_info;
  std::vector<std::string> command;  ///< to be started; it runs on by itself
  std::string what;                  ///< in words, for lists
  uint64_t log_bytes = 8U << 20;     ///< of sideband that is kept; twice as much memory
};

/// What a session says of itself.
struct SessionStatus {
  std::string name, what;
  int32_t keeper_pid = -1, holder_pid = -1;
  uint64_t started_s = 0;  ///< wall clock
  uint64_t snapshots = 0, records = 0, lost_records = 0, log_used_bytes = 0, log_folds = 0, forgotten = 0, aux_bytes = 0;
  uint64_t takeovers = 0;      ///< how often a keeper was killed and another went on
  uint64_t trace_stop_ns = 0;  ///< how long the trace stood still for the last snapshot
  bool target_ended = false, alive = false;
};

/// Starts a session and returns: a process of its own keeps the events ("keeper"), another one holds the same descriptors and mappings.
/// Errors: of the kernel, usage for a name that is taken.
[[nodiscard]] Result<std::vector<std::string>> start_session(const SessionChoice& choice);
/// Sessions of this user; of one that does not answer within a short time only the name, `alive` false. Files that nobody holds any more
/// (both processes were killed) are removed.
[[nodiscard]] Result<std::vector<SessionStatus>> list_sessions();
/// What the session holds now, as perf.data, to `output` ("-": standard output, file form all the same). The session goes on.
/// Errors: usage if there is no such session; of the file system, then nothing is left under the name.
[[nodiscard]] Result<SessionStatus> take_snapshot(const std::string& name, const std::string& output);
/// Ends a session. What is recorded runs on.
[[nodiscard]] Status stop_session(const std::string& name);

}  // namespace ptd::live
