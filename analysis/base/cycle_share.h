// CycleShare: core cycles that CYC packets count, shared out over stretches of a stream in which something ran.
#pragma once

#include <cstdint>
#include <optional>


namespace ptd {

/// A stretch lies between two moments that the trace tells. Not all of them come with a count, and cycles go on while tracing is off ([SDM]
/// "Cycle Counter"). So: up to a moment with a count, what passed since the count before is given out, once; a stretch that ends without a
/// count gets what its instructions took so far on average, and where tracing was off no stretch gets more than that.
class CycleShare {
 public:
  /// Counts start at 0 again: the stream's next segment. Code executed after the last count of the segment before gets its share by instructions.
  void begin_segment();
  /// Returns the cycles of the code executed in a stretch. `counted`: Mark::cycles at its end, if any; `paused`: tracing was off in between.
  uint64_t take(uint64_t instructions, bool paused, std::optional<uint64_t> counted) {
    if (counted || measured_instructions_ != 0) return take_measured(instructions, paused, counted);
    instructions_ += instructions;  // no count so far: most traces have none
    paused_ = paused_ || paused;
    return 0;
  }

 private:
  uint64_t take_measured(uint64_t instructions, bool paused, std::optional<uint64_t> counted);
  static constexpr uint64_t kRemembered = 1U << 24;  ///< instructions: what is older counts half
  [[nodiscard]] uint64_t usual(uint64_t instructions) const;

  uint64_t base_ = 0;          ///< the last count
  uint64_t given_ = 0;         ///< out since then
  uint64_t instructions_ = 0;  ///< since then
  bool paused_ = false;        ///< since then
  bool started_ = false;       ///< there was a count
  bool fresh_ = false;         ///< the next count is the first of its segment
  uint64_t measured_cycles_ = 0, measured_instructions_ = 0;
};

}  // namespace ptd
