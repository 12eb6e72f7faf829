// Runner::Tally: the state of in-place counting.
#pragma once

#include "decoder/pt/runner/runner.h"
#include "decoder/pt/runner/tape.h"

namespace ptd::pt {

struct Runner::Tally {
  Tape tape;
  Interval wide;      ///< holds every moment that the packets at hand can have
  ValidId valid = 0;  ///< holds then
  RunId at = kNoRun;
  uint32_t bit = 0;     ///< of the tape: taken so far
  uint32_t target = 0;  ///< the same of its targets
  uint32_t windows = 0;
  uint32_t links = 0;           ///< runs that take nothing: so many more are taken
  uint64_t last = 0;            ///< key that was counted last; 0: none
  uint64_t* journal = nullptr;  ///< where the next key is noted
  uint64_t silent = 0;          ///< see FlowState
  uint64_t position = 0;        ///< bits and targets taken on former tapes
  uint64_t last_ip = 0;         ///< before the tape
  uint64_t clock_start = 0;     ///< offset from where packets are read again to set the clock
};

}  // namespace ptd::pt
