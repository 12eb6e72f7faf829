// Packets with times, for traces of tests: an MTC each 16 ns, at 1 GHz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ptdecode/aux_segment.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::pt {

class TimedPackets {
 public:
  TimedPackets() : writer_(bytes_) {}
  TimedPackets(const TimedPackets&) = delete;
  TimedPackets& operator=(const TimedPackets&) = delete;

 protected:
  static void set_clock(Config& config) {
    config.max_nonturbo_ratio = 10;
    config.mtc_period = 3;
    config.tsc_ctc_ratio_n = 2;
    config.tsc_ctc_ratio_d = 1;
    config.has_mtc = true;
  }
  void time(uint64_t tsc) {
    writer_.tsc(tsc);
    writer_.tma(0, 0);
    writer_.cbr(10);
    mtc_ = 0;
  }
  void mtcs(unsigned count) {  // each is 16 ns after the one before it, the first after the TSC
    while (count-- != 0) writer_.mtc(++mtc_);
  }
  /// The packets as the first segment of a stream, of cpu 0 or of thread 1.
  [[nodiscard]] AuxSegment segment(bool per_cpu) const {
    AuxSegment segment;
    segment.bytes = bytes_;
    segment.time = {TimeNs{1000}, TimeNs{5000}};
    segment.tsc.use = true;
    segment.break_before = AuxBreak::stream_start;
    segment.cpu = per_cpu ? 0 : -1;
    segment.tid = per_cpu ? -1 : 1;
    return segment;
  }

  std::vector<std::byte> bytes_;
  PacketWriter writer_;
  uint8_t mtc_ = 0;
};

}  // namespace ptd::pt
