// EventJoin: interprets events across segments, which are decoded independently of each other.
#pragma once

#include "ptdecode/flow.h"

namespace ptd {

/// Feed a stream's batches in order. Determines for exec_mode whether it is a change or a status (only changes lose kEventStatus), and for
/// `enabled` whether tracing resumes where it was disabled (kEventResumed). One per stream.
class EventJoin {
 public:
  /// Forgets the state where the flow may not continue the previous one (start, lost data).
  void reset();
  void apply(Batch& batch);

 private:
  uint64_t mode_ = 0;        ///< ExecMode as a payload; 0: unknown
  uint64_t interrupts_ = 0;  ///< RFLAGS.IF
  Ip resume_;
};

}  // namespace ptd
