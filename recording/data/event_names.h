// EventNames: perf's names of the events that it synthesises from a trace, for listings in perf's columns.
#pragma once

#include <cstdint>
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
/// Returns the names of perf(1) for the events `attrs`, of which those of type `trace_type` trace.
[[nodiscard]] EventNames event_names_of(const std::vector<perfio::EventAttr>& attrs, uint32_t trace_type);
/// Returns those of an opened recording, valid as long as the recording.
[[nodiscard]] const EventNames& event_names(const Recording& recording);

}  // namespace ptd
