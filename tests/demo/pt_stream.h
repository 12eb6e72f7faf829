// The Intel PT stream of one cpu, written from the machine's execution. For tests only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptdecode/pt/packet_writer.h"

namespace ptd::demo {

inline constexpr uint64_t kTscPerCtc = 125;  ///< 3 GHz TSC, 24 MHz crystal
inline constexpr uint32_t kCtcRatioN = 250, kCtcRatioD = 2;
inline constexpr uint8_t kMtcPeriod = 3;  ///< MTC every 2^3 crystal ticks
inline constexpr uint8_t kBusRatio = 30;

/// Every ip and tsc is that of the time of the call. Branches of TNT are held until six are collected or another packet requires the order;
/// MTC does not flush them, as in hardware.
class PtStream {
 public:
  PtStream() : writer_(bytes_) {}
  PtStream(const PtStream&) = delete;
  PtStream& operator=(const PtStream&) = delete;

  void start(uint64_t ip, uint64_t tsc);
  void stop(uint64_t ip);
  void timing(uint64_t tsc);  ///< writes the MTC packets that are due
  void psb_if_due(uint64_t ip, uint64_t tsc);
  void conditional(bool taken);
  void indirect(uint64_t target);
  void event(uint64_t from, uint64_t target);  ///< interrupt or exception
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  void flush();
  void psb_plus(uint64_t tsc, const uint64_t* ip);

  std::vector<std::byte> bytes_;
  pt::PacketWriter writer_;
  uint64_t branches_ = 0, mtc_ = 0;
  unsigned branch_count_ = 0;
  size_t last_psb_ = 0;
};

}  // namespace ptd::demo
