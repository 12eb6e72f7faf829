// PtEncoder: writes the Intel PT packets that a processor would write, independently of the source of the flow.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ptdecode/pt/packet_writer.h"

namespace ptd::emulate {

/// The trace unit's configuration; the fields follow IA32_RTIT_CTL ([SDM] "IA32_RTIT_CTL MSR").
struct PtEncoderOptions {
  bool return_compression = true;     ///< not DisRETC
  bool long_tnt = true;               ///< branches wait until 47 are there, else until 6 are
  bool ip_compression = true;         ///< off: every ip in full, which is legal and longer
  bool tsc = true, mtc = true;        ///< TSCEn, MTCEn (MTC needs TSC)
  bool cyc = false;                   ///< CYCEn
  bool pip = false;                   ///< the kernel is traced: PSB+ tells CR3
  uint8_t mtc_period = 9;             ///< MTCFreq: an MTC every 2^mtc_period ticks of the crystal clock
  uint8_t cyc_threshold = 0;          ///< CycThresh: 0 none, n: at least 2^(n-1) cycles between two CYC packets
  uint32_t tsc_per_ctc = 256;         ///< TSC ticks a tick of the crystal clock; at most 511, as FastCounter has 9 bits
  uint8_t bus_ratio = 26;             ///< CBR; the core runs at the TSC's frequency, so a cycle is a tick
  uint32_t psb_period_bytes = 16384;  ///< bytes of packets between two PSB
  uint64_t pause_every_bytes = 0;     ///< an interrupt that is not traced, each time after as many bytes of packets; 0: none
};

/// Writes one stream. Calls come in the order of execution; each describes an instruction that retired or an event between two. What is
/// called while tracing is off, or between lose() and recover(), writes nothing. The bytes go to the end of `out`, which the caller may
/// empty at any time; `out` must outlive the encoder. Times never go back: an earlier one is taken as the last. One thread.
/// Source: [SDM] "Packet Definitions", "Packet Generation Enable Controls", "Return Compression".
class PtEncoder {
 public:
  PtEncoder(const PtEncoderOptions& options, std::vector<std::byte>& out);
  PtEncoder(const PtEncoder&) = delete;
  PtEncoder& operator=(const PtEncoder&) = delete;

  /// The time of all that follows, in TSC ticks. Writes the MTC packets that are due; after a long pause a PSB+ is due instead.
  void set_time(uint64_t tsc) {
    if (tsc > tsc_) tsc_ = tsc;
    if (tsc_ >= mtc_due_) timing();
  }
  [[nodiscard]] uint64_t time() const { return tsc_; }

  /// Tracing goes on at `ip` (TIP.PGE): entry to what is traced. The first call, and one after a long pause, is preceded by a PSB+.
  void enable(uint64_t ip);
  /// A far transfer or branch leaves what is traced (TIP.PGD): with its target if that may be shown (an address filter), without if the
  /// privilege level hides it.
  void disable_at_branch(std::optional<uint64_t> target = {});
  /// An event before the instruction at `ip` leaves what is traced (FUP, TIP.PGD). `ip`: of a software interrupt the instruction itself.
  void disable_async(uint64_t ip);
  [[nodiscard]] bool enabled() const { return enabled_; }

  void conditional(bool taken) {
    if (!enabled_) return;
    tnt_ = tnt_ << 1 | (taken ? 1U : 0U);
    if (++tnt_count_ == tnt_limit_) flush();
  }
  /// A near CALL; not for a direct CALL to the next instruction, which no return stack sees.
  void call(uint64_t return_ip) {
    stack_[stack_top_++ & kStackMask] = return_ip;
    if (stack_count_ < kStackDepth) ++stack_count_;
  }
  void indirect(uint64_t target);  ///< JMP or CALL r/m
  void ret(uint64_t target);       ///< near RET: a branch bit if the return stack says the same, else a TIP
  /// SYSCALL, IRET, far branches within what is traced: MODE.Exec if the mode changes, then TIP.
  void far_transfer(uint64_t target, ExecMode mode);
  /// No call so far has a compressed return: after a far CALL or RET, which perf takes for near ones and others do not.
  void forget_calls() { stack_count_ = 0; }
  /// An interrupt, exception or software interrupt within what is traced: FUP(from), TIP(to); PIP or MODE.Exec between, if enabled.
  void async_branch(uint64_t from, uint64_t to, ExecMode mode);
  /// CR3 was written (PIP if tracing is on). After MOV CR3 and before the next instruction; a PSB must not come between.
  void cr3_written(uint64_t cr3, bool non_root = false);
  /// CR3 as it is from now on, without a packet: for PSB+ (what happened while tracing was off).
  void set_cr3(uint64_t cr3, bool non_root = false);
  /// The mode as it is from now on, without a packet: for PSB+ and TIP.PGE (what happened while tracing was off, or packets were lost).
  void set_mode(ExecMode mode) { mode_ = mode; }

  [[nodiscard]] bool psb_due() const { return written() >= psb_at_bytes_; }
  /// PSB+ before the instruction at `ip` if tracing is on, else without an ip.
  void psb(uint64_t ip);
  /// Requests a PSB+ at the next opportunity.
  void request_psb() { psb_at_bytes_ = 0; }
  /// Whether PtEncoderOptions::pause_every_bytes were written since the last disable_async(); then call this again before the next
  /// instruction.
  [[nodiscard]] bool pause_due() const { return enabled_ && written() >= pause_at_bytes_; }

  /// Packets are lost from here on; what was decided before is still written.
  void lose();
  /// Packets are written again: OVF, and FUP(ip) if tracing is on; a PSB+ becomes due.
  void recover(uint64_t ip);
  /// Ends tracing. Packets that are lost at that moment are reported by OVF.
  void stop();
  [[nodiscard]] bool losing() const { return losing_; }

  /// Sends the branches that wait.
  void flush();
  /// The branches that wait for a TNT packet: results, the last one in bit 0, and how many.
  [[nodiscard]] uint64_t waiting_branches() const { return tnt_; }
  [[nodiscard]] unsigned waiting_count() const { return tnt_count_; }
  /// Bytes written so far in the stream.
  [[nodiscard]] uint64_t written() const { return base_bytes_ + out_.size(); }
  /// The caller took `out` away: the stream continues after what it held.
  void taken(size_t bytes) { base_bytes_ += bytes; }

  struct Counts {
    uint64_t psb = 0, overflow = 0, compressed_returns = 0, tips = 0;
  };
  [[nodiscard]] const Counts& counts() const { return counts_; }
  /// Stream offset of the last PSB.
  [[nodiscard]] uint64_t last_psb_offset() const { return last_psb_; }

 private:
  static constexpr unsigned kStackDepth = 64, kStackMask = kStackDepth - 1;  // [SDM] "Return Compression"
  [[nodiscard]] bool silent() const { return !enabled_ || losing_; }
  void timing();
  void set_mtc_due();
  void cycles();
  void tell_mode(ExecMode mode);

  PtEncoderOptions options_;
  std::vector<std::byte>& out_;
  pt::PacketWriter writer_;
  uint64_t tsc_ = 0, mtc_due_ = 0, mtc_ = 0, cyc_at_ = 0;
  uint64_t tnt_ = 0;
  unsigned tnt_count_ = 0, tnt_limit_ = 47;
  bool enabled_ = false, losing_ = false, started_ = false, non_root_ = false;
  ExecMode mode_ = ExecMode::bits64, told_mode_ = ExecMode::unknown;
  unsigned stack_top_ = 0, stack_count_ = 0;
  uint64_t stack_[kStackDepth] = {};
  uint64_t cr3_ = 0;
  uint64_t base_bytes_ = 0, psb_at_bytes_ = 0, pause_at_bytes_ = 0, last_psb_ = 0;
  Counts counts_;
};

}  // namespace ptd::emulate
