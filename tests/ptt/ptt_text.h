// A decoded flow in the format of libipt's ptxed, for tests only.
#pragma once

#include <string>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "tests/ptt/ptt_suite.h"

namespace ptd::ptt {

struct TimedEvent {
  std::string text;
  Interval time;  ///< in TSC ticks
};

/// The compared results of a run.
struct Lines {
  std::vector<std::string> flow;       ///< instructions, events and gaps in order; a gap is "[gap IP]"
  std::vector<uint64_t> block_starts;  ///< addresses at which a block begins, in order
  std::vector<TimedEvent> events;      ///< wanted: those for which ptxed prints the time
  uint64_t blocks = 0;                 ///< wanted: 0 if ptxed does not count them
  uint64_t instructions = 0;           ///< likewise
};

/// Reads ptxed's expected output. Tick events are dropped: they give the time, not the flow.
[[nodiscard]] Lines wanted(const PttRun& run, const std::vector<std::string>& output);

/// One way to decode.
struct Way {
  bool exact = false;
  size_t batch_blocks = 4096;
};
/// Decodes a run with the options that it passes to ptxed.
[[nodiscard]] Lines decoded(const PttRun& run, const Made& made, const Way& way);

}  // namespace ptd::ptt
