// EventJoin: interprets events across segments, which are decoded independently of each other.
#pragma once

#include "ptdecode/flow.h"

namespace ptd {

/// Fed with a stream's batches in order. Says of exec_mode whether it is a change or a status (only changes lose kEventStatus), and of
/// `enabled` whether tracing resumes where it was disabled (kEventResumed). Needed once a stream; plain state.
class EventJoin {
 public:
  /// Flow is not known to join what came before (start, seam).
  void reset();
  void apply(Batch& batch);

 private:
  uint64_t mode_ = 0;        ///< ExecMode as a payload; 0: unknown
  uint64_t interrupts_ = 0;  ///< RFLAGS.IF
  Ip resume_;
};

}  // namespace ptd
