// EventNames: perf's names of the events that it synthesises from a trace, for listings in perf's columns.
// Origin: where and by what a recording was made.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "perfio/perf_reader.h"

namespace ptd {

class Recording;

struct EventNames {
  std::string modifiers;       ///< of the trace's event, with the colon: ":u" for user code only; "" for all or where it is not known
  uint32_t width_columns = 0;  ///< of the longest name of a recorded event; 0: not recorded by perf
  /// Returns whether the modifiers leave in the code of this level: 'u', 'k' or 'h'.
  [[nodiscard]] bool trace(char level) const {
    return modifiers.find_first_of("ukh") == std::string::npos || modifiers.find(level) != std::string::npos;
  }
};

/// Returns the name of an event in listings of samples; of an event without a name, the numbers of its type and its config: "event:0:0",
/// "tracepoint:777". (perf prints names for such events that several of them share.)
[[nodiscard]] std::string event_name(const perfio::EventAttr& attr);
/// Returns a sentence on the events that pause and resume the trace (aux-action), "" if none does.
[[nodiscard]] std::string pauses_text(const std::vector<perfio::EventAttr>& attrs);
/// Returns the names of perf(1) for the events `attrs`, of which those of type `trace_type` trace.
[[nodiscard]] EventNames event_names_of(const std::vector<perfio::EventAttr>& attrs, uint32_t trace_type);
/// Returns those of an opened recording, valid as long as the recording.
[[nodiscard]] const EventNames& event_names(const Recording& recording);

/// What the header of a perf.data file says of its recording; all empty for other forms. A bundle keeps it.
struct Origin {
  std::string hostname, kernel, cpu, cpuid, perf_version;
  std::vector<std::string> command;
  uint32_t cpus_online = 0;
  std::string clock;                      ///< "perf's own", "monotonic", ...
  std::optional<int64_t> wall_offset_ns;  ///< time of day = time + this; none: not recorded
};

/// Returns what the file's header says, and its events of their clock.
[[nodiscard]] Origin origin_of(const perfio::PerfReader& reader);
/// Returns that of an opened recording, valid as long as the recording.
[[nodiscard]] const Origin& origin_of(const Recording& recording);
/// Returns `path` and what is known of the recording, in one line.
[[nodiscard]] std::string describe(const Origin& origin, const std::string& path);

}  // namespace ptd
