// Density: how much ran, was lost and was interrupted in each part of the recording's time, by stream and by thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <utility>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd::cli {

inline constexpr size_t kTimeBins = 240;
using TimeBins = std::array<uint64_t, kTimeBins>;

/// Returns the bin of a moment; kTimeBins if `span` is not bounded or does not contain it.
[[nodiscard]] size_t bin_of(TimeNs time, Interval span);

/// The counts of one stream, fed with its batches in order. Not thread-safe. Counts at most kMostThreads threads separately, and all others
/// together.
class StreamDensity {
 public:
  using Thread = std::pair<int32_t, int32_t>;  ///< pid, tid
  static constexpr size_t kMostThreads = 1024;
  static constexpr Thread kOtherThreads{-2, -2};

  explicit StreamDensity(Interval span) : span_(span) {}
  void take(const Batch& batch);

  TimeBins instructions{}, gaps{}, interrupts{};
  uint64_t all_instructions = 0, all_gaps = 0, all_interrupts = 0;  ///< with those of unknown time
  struct Counts {
    TimeBins instructions{};
    uint64_t all = 0;
  };
  std::map<Thread, Counts> threads;

 private:
  void add_blocks(std::span<const Block> blocks);
  Interval span_;
  Mark now_;
  size_t bin_ = kTimeBins;
  Counts* thread_ = nullptr;
};

/// Rows for the page: one for each stream, and for the threads that executed most. `most`: rows of each kind.
[[nodiscard]] nlohmann::json density_json(const Recording& recording, const std::vector<StreamDensity>& streams, size_t most);

}  // namespace ptd::cli
