// WorkClock: time derived from the number of executed instructions, so that equal runs give equal traces on any machine.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "capture/emulate/unit/block.h"

namespace ptd::emulate {

/// Ticks that the instruction at `ip` takes: other ones in the next 64 bytes of code, so that functions differ in instructions per cycle.
[[nodiscard]] constexpr uint64_t work_ticks(uint64_t ip) { return 1 + ((ip >> 6) & 7); }
inline constexpr uint64_t kWorkTicksOfCall = 5000;  ///< of a system call
inline constexpr uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr uint64_t kWorkTicksPerSecond = 2'000'000'000;
inline constexpr uint64_t kFirstWorkTick = 1'000'000'000;
inline constexpr const char* kWorkClockFile = "clock";

/// All processes of a recording share it: it is in a file that they map.
class WorkClock {
 public:
  /// Makes the file in `folder`. False if the system refuses.
  static bool create(const std::string& folder);
  bool open(const std::string& folder);
  [[nodiscard]] bool is_open() const { return ticks_ != nullptr; }
  [[nodiscard]] uint64_t now() const { return ticks_->load(std::memory_order_relaxed); }
  void pass(uint64_t ticks) { ticks_->fetch_add(ticks, std::memory_order_relaxed); }
  /// The first `insns` instructions of `block` ran.
  void pass(const Block& block, unsigned insns);

 private:
  std::atomic<uint64_t>* ticks_ = nullptr;  ///< mapped for the process's life
};

}  // namespace ptd::emulate
