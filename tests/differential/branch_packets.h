// BranchPackets: the packets of a generated flow. Branch results are gathered to TNT packets, which are written before any other packet.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ptdecode/pt/packet_writer.h"

namespace ptd::test {

class BranchPackets {
 public:
  explicit BranchPackets(std::vector<std::byte>& trace) : writer_(trace) {}

  void bit(bool taken) {
    constexpr unsigned kMost = 6;  // of a short TNT
    tnt_ = tnt_ << 1 | (taken ? 1 : 0);
    if (++count_ == kMost) flush();
  }
  void tip(uint64_t target) { flushed().tip(target); }
  void tsc(uint64_t time) { flushed().tsc(time); }
  /// `ip`: where the flow is, if tracing is on.
  void psb(uint64_t time, std::optional<uint64_t> ip) {
    pt::PacketWriter& out = flushed();
    out.psb();
    out.reset_last_ip();
    out.tsc(time);
    out.mode_exec(ExecMode::bits64);
    if (ip) out.fup(*ip);
    out.psbend();
  }
  /// Tracing begins at `ip`.
  void begin(uint64_t ip) { flushed().tip_pge(ip); }
  /// Tracing ends before the instruction at `ip`.
  void end(uint64_t ip) {
    flushed().fup(ip);
    writer_.tip_pgd_suppressed();
  }
  /// Packets were lost up to the instruction at `ip`.
  void overflow(uint64_t ip) {
    flushed().ovf();
    writer_.reset_last_ip();
    writer_.fup(ip);
  }
  void flush() {
    if (count_ != 0) writer_.tnt(tnt_, count_);
    tnt_ = count_ = 0;
  }

 private:
  pt::PacketWriter& flushed() {
    flush();
    return writer_;
  }
  pt::PacketWriter writer_;
  uint64_t tnt_ = 0;
  unsigned count_ = 0;
};

}  // namespace ptd::test
