// CycleShare: core cycles that CYC packets count, shared out over stretches of a stream in which something ran.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace ptd {

/// A stretch lies between two moments that the trace tells. Not all of them come with a count, and cycles go on while tracing is off ([SDM]
/// "Cycle Counter"). So: up to a moment with a count, what passed since the count before is given out, once; a stretch that ends without a
/// count gets what its instructions take on average, and where tracing was off no stretch gets more than that. The average is that of the
/// last kRateSegments segments with counts, so a walk that begins in the middle of a stream gives the same shares.
class CycleShare {
 public:
  static constexpr size_t kRateSegments = 4;
  /// Counts start at 0 again: the stream's next segment. Code executed after the last count of the segment before gets its share by
  /// instructions.
  void begin_segment();
  /// Returns the cycles of the code executed in a stretch. `counted`: Mark::cycles at its end, if any; `paused`: tracing was off in
  /// between.
  uint64_t take(uint64_t instructions, bool paused, std::optional<uint64_t> counted) {
    if (counted || measured_.instructions != 0) return take_measured(instructions, paused, counted);
    instructions_ += instructions;  // no count so far: most traces have none
    paused_ = paused_ || paused;
    return 0;
  }

 private:
  uint64_t take_measured(uint64_t instructions, bool paused, std::optional<uint64_t> counted);
  [[nodiscard]] uint64_t usual(uint64_t instructions) const;

  uint64_t base_ = 0;          ///< the last count
  uint64_t given_ = 0;         ///< out since then
  uint64_t instructions_ = 0;  ///< since then
  bool paused_ = false;        ///< since then
  bool started_ = false;       ///< there was a count
  bool fresh_ = false;         ///< the next count is the first of its segment
  /// Stretches that counts measured, without a pause.
  struct Measured {
    uint64_t instructions = 0, cycles = 0;
  };
  Measured measured_;  ///< all of rates_
  std::array<Measured, kRateSegments> rates_;
  size_t segment_ = 0;  ///< the newest of them
};

}  // namespace ptd
