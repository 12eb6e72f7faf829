// CycleShare: see cycle_share.h.
#include "analysis/base/cycle_share.h"

#include <algorithm>
#include <utility>

namespace ptd {

uint64_t CycleShare::usual(uint64_t instructions) const {
  if (measured_.instructions == 0) return 0;
  return static_cast<uint64_t>(static_cast<unsigned __int128>(instructions) * measured_.cycles / measured_.instructions);
}

void CycleShare::begin_segment() {
  base_ = given_ = 0;
  fresh_ = true;
  if (rates_[segment_].instructions == 0) return;
  segment_ = (segment_ + 1) % kRateSegments;
  const Measured oldest = std::exchange(rates_[segment_], {});
  measured_.instructions -= oldest.instructions;
  measured_.cycles -= oldest.cycles;
}

uint64_t CycleShare::take_measured(uint64_t instructions, bool paused, std::optional<uint64_t> counted) {
  const uint64_t count = counted.value_or(0);
  const bool is_counted = counted && count >= base_;  // counts of a segment only grow
  const uint64_t expected = usual(instructions);
  instructions_ += instructions;
  paused_ = paused_ || paused;
  if (!is_counted) {
    given_ += expected;
    return expected;
  }
  if (std::exchange(fresh_, false) && count == 0) {
    instructions_ = 0;
    paused_ = false;
    given_ = 0;
    return expected;
  }
  const uint64_t passed = count - base_;
  uint64_t due = passed - std::min(passed, given_);
  given_ -= std::min(passed, given_);
  if (!std::exchange(started_, true)) due = 0;  // what was counted before anything ran
  if (!paused_ && instructions_ != 0) {
    for (Measured* each : {&measured_, &rates_[segment_]}) {
      each->instructions += instructions_;
      each->cycles += passed;
    }
  }
  if (paused_) {
    if (measured_.instructions != 0) due = std::min(due, expected);
    given_ = 0;
  }
  base_ = count;
  instructions_ = 0;
  paused_ = false;
  return due;
}

}  // namespace ptd
