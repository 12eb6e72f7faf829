// OtherEvents: samples of a recording's other events (cycles, tracepoints, probes), for listing next to the flow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd {

/// One field of a tracepoint's payload. Text of the recording: control characters are replaced.
struct TracepointField {
  std::shared_ptr<const std::string> name;  ///< never null; one for all events of a tracepoint
  std::string value;
  bool number = false;  ///< value is a decimal number
};

struct OtherEvent {
  TimeNs time;  ///< 0: not recorded
  int32_t pid = -1, tid = -1, cpu = -1;
  uint32_t name = 0;  ///< index into OtherEvents::names
  Ip ip;              ///< 0: not recorded
  uint64_t period = 0;
  std::vector<TracepointField> fields;  ///< as the recording's own formats lay them out
  std::vector<std::byte> raw;           ///< the payload, where no format is recorded
};

struct OtherEvents {
  std::vector<std::string> names;  ///< "cycles", "sched:sched_wakeup"
  std::vector<OtherEvent> events;  ///< in order of time
  uint64_t left_out = 0;           ///< more than requested, or than kMostEventBytes hold
};

/// Limit of the memory for events, independent of the sizes in a recording.
inline constexpr uint64_t kMostEventBytes = 512ULL << 20;
/// What one takes.
[[nodiscard]] uint64_t bytes_of(const OtherEvent& event);

/// Whether `path` is a pipe, a terminal or the like: once a recording was opened from it, its bytes are gone.
[[nodiscard]] bool is_read_once(const std::string& path);

/// Reads the samples of `path` (empty: none) in `times` (empty: all), at most `most` and `most_bytes`. Switches of threads
/// (sched:sched_switch) are none:
/// the flow has them. Empty for forms without such events. Errors: those of opening a perf.data file or a bundle, which holds its
/// recording's samples.
[[nodiscard]] Result<OtherEvents> read_other_events(const std::string& path, const std::vector<Interval>& times, size_t most,
                                                    uint64_t most_bytes = kMostEventBytes);

}  // namespace ptd
