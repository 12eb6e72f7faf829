// PtClock: turns TSC, TMA, MTC, CYC and CBR packets into a time with bounds.
#pragma once

#include "decoder/pt/config.h"
#include "decoder/pt/packet.h"

namespace ptd::pt {

/// Follows the timing packets of one stream in order. Plain state, cheap to copy (POD-like), no allocation.
/// Method: TSC sets the time; TMA ties it to the CTC; each MTC advances by whole CTC periods (8-bit, wraps); CYC advances by
/// core cycles, scaled by the ratio calibrated between MTCs or TSCs, or by CBR before that. [SDM] "Timing Packets".
class PtClock {
 public:
  PtClock() = default;
  explicit PtClock(const Config& config);

  /// Updates the clock. Returns true if `now()` moved or its bounds changed.
  bool on_packet(const Packet& packet);
  /// Forgets everything but the configuration and calibration (loss of flow, PSB of an unjoined segment).
  void reset();

  [[nodiscard]] bool known() const { return known_; }
  /// Best estimate of the moment of the last timing packet.
  [[nodiscard]] Tsc now() const { return Tsc{tsc_}; }
  /// Bounds of the moment of the last timing packet, outward: rounding of CTC and error of the cycle ratio included.
  [[nodiscard]] Tsc earliest() const { return Tsc{earliest_}; }
  [[nodiscard]] Tsc latest() const { return Tsc{latest_}; }
  /// Core cycles counted by CYC so far (for IPC); 0 without CYC.
  [[nodiscard]] uint64_t cycles() const { return cycles_; }
  /// Core-to-bus ratio of the last CBR, 0 if none.
  [[nodiscard]] uint8_t cbr() const { return cbr_; }

 private:
  uint64_t tsc_ = 0, earliest_ = 0, latest_ = 0, cycles_ = 0;
  // ... the owner of this file adds the state that the method needs
  uint8_t cbr_ = 0;
  bool known_ = false;
};

}  // namespace ptd::pt
