// The perf_event_attr.config of an Intel PT event with the encoder's options.
#pragma once

#include <cstdint>

#include "capture/emulate/unit/pt_encoder.h"

namespace ptd::emulate {

/// Bits of the config: the kernel's sysfs format files of intel_pt.
inline constexpr uint64_t kConfigPt = 1, kConfigCyc = 2, kConfigMtc = 0x200, kConfigTsc = 0x400, kConfigNoRetcomp = 0x800,
                          kConfigBranch = 0x2000;
inline constexpr uint64_t kMtcFreqBits = 0x3c000;

/// `psb_period` is PSBFreq: a PSB every 2^(psb_period + 11) bytes.
[[nodiscard]] inline uint64_t pt_config(const PtEncoderOptions& pt, uint8_t psb_period) {
  constexpr unsigned kMtcFreqShift = 14, kCycThreshShift = 19, kPsbFreqShift = 24;
  return kConfigPt | kConfigBranch | (pt.tsc ? kConfigTsc : 0) | (pt.mtc && pt.tsc ? kConfigMtc : 0) | (pt.cyc ? kConfigCyc : 0) |
         (pt.return_compression ? 0 : kConfigNoRetcomp) | uint64_t{pt.mtc_period} << kMtcFreqShift |
         uint64_t{pt.cyc_threshold} << kCycThreshShift | uint64_t{psb_period} << kPsbFreqShift;
}

}  // namespace ptd::emulate
