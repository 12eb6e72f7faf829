// EventAttr: one event of a recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace ptd::perfio {

/// Bits of perf_event_attr.aux_action (Linux 6.13).
inline constexpr uint32_t kAuxStartPaused = 1, kAuxPause = 2, kAuxResume = 4;

/// The fields of perf_event_attr that ptdecode uses, and the ids of its records.
struct EventAttr {
  uint32_t type = 0;
  uint64_t config = 0, config1 = 0, config2 = 0, sample_type = 0, read_format = 0,
           flags = 0;  ///< flags: the bit field word after read_format
  bool sample_id_all = false, exclude_kernel = false, exclude_user = false, exclude_hv = false, use_clockid = false;
  int32_t clockid = 0;
  uint64_t sample_period = 0;  ///< period or frequency
  uint64_t branch_sample_type = 0, sample_regs_user = 0, sample_regs_intr = 0;
  uint32_t aux_sample_bytes = 0;  ///< of trace that a sample holds
  uint32_t aux_action = 0;        ///< kAuxStartPaused, kAuxPause, kAuxResume
  std::string name;               ///< from EVENT_DESC / EVENT_UPDATE, may be empty
  std::vector<uint64_t> ids;
  std::vector<std::byte> raw;  ///< the perf_event_attr as in the file

  /// Returns whether samples of the event hold trace (PERF_SAMPLE_AUX).
  [[nodiscard]] bool holds_trace() const {
    constexpr uint64_t kAux = 1U << 20;
    return (sample_type & kAux) != 0;
  }
};

}  // namespace ptd::perfio
