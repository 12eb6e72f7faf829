// StreamClock: checks the TSCs of a stream's PSBs against its crystal clock and their order. Private to recording.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "decoder/pt/packet/fast_counter.h"
#include "ptdecode/aux_segment.h"
#include "recording/trace/psb_entry.h"

namespace ptd {

/// The relation between TSC and crystal clock: TSC = CTC * n / d + a constant ([SDM] "Invariant Timekeeping", "TMA Packet"). Every TSC with
/// its TMA yields that constant, here called phase, times d and modulo a wrap of the TMA's 16 bits.
struct ClockRatio {
  static constexpr uint64_t kCtcValues = uint64_t{1} << 16;  ///< of TMA's CTC
  static constexpr uint64_t kSlackTicks = 2;                 ///< of the CTC: error of a TMA
  static constexpr unsigned kTscBits = 56;                   ///< of a TSC packet
  static constexpr uint64_t kTscMask = (uint64_t{1} << kTscBits) - 1;

  uint32_t n = 0, d = 0;  ///< TSC ticks per CTC tick; 0: unknown

  [[nodiscard]] bool known() const { return n != 0 && d != 0; }
  [[nodiscard]] uint64_t modulus() const { return kCtcValues * n; }
  [[nodiscard]] uint64_t slack() const { return kSlackTicks * n; }
  [[nodiscard]] uint64_t phase_of(const PsbEntry& psb) const { return phase_of(psb.tsc, psb); }
  /// Returns the phase that `psb` would have with another TSC.
  [[nodiscard]] uint64_t phase_of(uint64_t tsc, const PsbEntry& psb) const {
    const auto ticks = static_cast<uint64_t>(static_cast<unsigned __int128>(tsc - pt::likely_fast_counter(psb.fast, n, d)) * d % modulus());
    const uint64_t counted = uint64_t{psb.ctc} * n;
    return ticks >= counted ? ticks - counted : ticks + modulus() - counted;
  }
  /// Returns whether two phases are equal within the error of a TMA.
  [[nodiscard]] bool is_near(uint64_t a, uint64_t b) const {
    const uint64_t far = a > b ? a - b : b - a;
    return far <= slack() || modulus() - far <= slack();
  }
  /// Same as is_near(), but also true if the 56 bits of the TSC wrapped between the two.
  [[nodiscard]] bool fits(uint64_t a, uint64_t b) const {
    const auto wrap = static_cast<uint64_t>((static_cast<unsigned __int128>(d) << kTscBits) % modulus());
    return is_near(a, b) || is_near((a + wrap) % modulus(), b) || is_near(a, (b + wrap) % modulus());
  }
};

/// The known properties of a stream's clock. The default checks nothing.
///
/// A TSC that contradicts the crystal clock is corrected if it is one of `shifts`, else it is not used: its neighbours then bound the time.
/// A thread may move to a socket with another crystal clock. A TSC of its stream is wrong only if it is one of `shifts`, if the trace is
/// continuous from the previous PSB to the next one, and both are right, or, unless `may_move`, if one wrong byte explains it.
struct StreamClock {
  /// TSCs with phase `phase` are late by `late_by` ticks, modulo 2^56.
  struct Shift {
    uint64_t phase = 0, late_by = 0;
  };
  /// A TSC with the right phase may be wrong by a multiple of a wrap of the TMA's 16 bits. By so many ticks no order of the trace explains
  /// it.
  static constexpr uint64_t kFarTicks = uint64_t{1} << 32;
  ClockRatio ratio;
  std::optional<uint64_t> phase;  ///< of TSCs that are right
  std::vector<Shift> shifts;      ///< at most 255
  bool in_order = false;          ///< TSCs are known to grow: one that does not is wrong
  bool of_thread = false;
  bool may_move = false;   ///< of a thread: the PSBs of all threads do not have one phase
  bool needs_tsc = false;  ///< each PSB+ has a TSC packet; `tma_needs_tsc`: each that has a TMA packet
  bool tma_needs_tsc = false;
  bool of_arm = false;  ///< TSCs are timestamps of 64 bits
  /// Returns whether AUX records prove that a PSB was written at another time than its TSC. Empty: the records say nothing.
  std::function<bool(const PsbEntry&)> contradicts_records;
  /// Returns whether AUX records contradict a TSC by so much that it is wrong even if the crystal clock agrees with it. May be empty.
  std::function<bool(const PsbEntry&)> is_far_off_records;

  /// Checks the PSBs of one part, as read from the trace; of Arm trace, all sync points.
  void judge(std::vector<PsbEntry>& entries) const;
  /// Returns how the decoder must interpret the TSC of `entry`, which was checked.
  [[nodiscard]] TscCheck check_of(const PsbEntry& entry) const;

 private:
  [[nodiscard]] bool is_right(const PsbEntry& entry) const;
  void judge_missing(std::vector<PsbEntry>& entries) const;
  [[nodiscard]] bool is_one_byte_off(const PsbEntry& entry) const;
  void judge_phase(std::vector<PsbEntry>& entries) const;
  void judge_records(std::vector<PsbEntry>& entries) const;
  void judge_order(std::vector<PsbEntry>& entries) const;
  static void judge_timestamps(std::vector<PsbEntry>& entries);
};

}  // namespace ptd
