// PeriodWatch: checks the period of MTC packets against the TMA packets before them. Private to recording.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "recording/trace/psb_entry.h"
#include "recording/trace/streams.h"

namespace ptd {

/// A TMA gives bits 0 to 15 of the crystal clock, and the next MTC gives bits N to N + 7 at its next tick of 2^N ([SDM] "TMA Packet", "MTC
/// Packet"). Not thread-safe.
class PeriodWatch {
 public:
  /// Reads from a PSB with a TMA to the next MTC, if that is near. Of many PSBs, the first count.
  void look(const AuxStream& stream, const PsbEntry& psb);
  /// Returns the N that at least three quarters of the MTCs fit (a processor that slept skips some); nothing if they are too few to exclude
  /// chance, or if none fits.
  [[nodiscard]] std::optional<uint8_t> found() const;
  /// Returns found(), if at most a quarter of the MTCs is possible with `period` (by chance). Nothing if `period` is likely.
  [[nodiscard]] std::optional<uint8_t> other_than(uint8_t period) const;
  [[nodiscard]] bool has_mtcs() const { return has_mtcs_; }

 private:
  void add(uint64_t ctc, uint64_t mtc);

  static constexpr size_t kPeriods = 16, kLeastPairs = 2, kLeastBits = 16, kMostPairs = 256;
  static constexpr uint64_t kLookBytes = 1024;
  bool has_mtcs_ = false;
  size_t pairs_ = 0, looks_ = 0;
  std::array<size_t, kPeriods> possible_{};  ///< MTCs at most three ticks after the TMA
  std::array<size_t, kPeriods> next_{};      ///< MTCs at the next tick
  std::vector<std::byte> scratch_;
};

}  // namespace ptd
