// PtEncoder: the packets of one processor.
#include "capture/emulate/unit/pt_encoder.h"

#include <algorithm>
#include <limits>

namespace ptd::emulate {
namespace {

constexpr unsigned kLongTntBranches = 47, kShortTntBranches = 6;
// MTC has 8 bits: a pause of as many periods cannot be counted. A recorder's thread that sleeps is switched off and on again, which writes
// a PSB+; so does a pause half as long here.
constexpr uint64_t kMaxMtcRun = 100;
constexpr uint32_t kMaxFastCounter = 511;

}  // namespace

PtEncoder::PtEncoder(const PtEncoderOptions& options, std::vector<std::byte>& out) : options_(options), out_(out), writer_(out) {
  options_.tsc_per_ctc = std::clamp(options_.tsc_per_ctc, 1U, kMaxFastCounter);
  options_.mtc = options_.mtc && options_.tsc;
  options_.mtc_period &= 15U;
  tnt_limit_ = options_.long_tnt ? kLongTntBranches : kShortTntBranches;
  writer_.set_compression(options_.ip_compression);
  set_mtc_due();
  if (options_.pause_every_bytes == 0) options_.pause_every_bytes = std::numeric_limits<uint64_t>::max() / 2;
  pause_at_bytes_ = options_.pause_every_bytes;
}

void PtEncoder::set_mtc_due() {
  mtc_due_ = options_.mtc ? ((mtc_ + 1) << options_.mtc_period) * options_.tsc_per_ctc : std::numeric_limits<uint64_t>::max();
}

void PtEncoder::timing() {
  const uint64_t now = tsc_ / options_.tsc_per_ctc >> options_.mtc_period;
  if (!started_ || losing_ || now - mtc_ > kMaxMtcRun) {
    mtc_ = now;
    cyc_at_ = tsc_;  // the processor did not run in a pause, so it counted no cycles
    request_psb();
  } else {
    while (mtc_ < now) {
      ++mtc_;
      if (options_.cyc) {  // the CYC before an MTC counts up to its edge
        const uint64_t edge = (mtc_ << options_.mtc_period) * options_.tsc_per_ctc;
        if (edge > cyc_at_) writer_.cyc(edge - cyc_at_), cyc_at_ = edge;
      }
      writer_.mtc(static_cast<uint8_t>(mtc_));
    }
  }
  set_mtc_due();
}

// The CYC that goes ahead of a packet that may carry one.
void PtEncoder::cycles() {
  if (!options_.cyc || tsc_ <= cyc_at_) return;
  const uint64_t passed = tsc_ - cyc_at_;
  if (options_.cyc_threshold != 0 && passed < uint64_t{1} << (options_.cyc_threshold - 1)) return;
  writer_.cyc(passed);
  cyc_at_ = tsc_;
}

void PtEncoder::flush() {
  if (tnt_count_ == 0) return;
  if (!losing_) {
    cycles();
    writer_.tnt(tnt_, tnt_count_);
  }
  tnt_ = 0;
  tnt_count_ = 0;
}

void PtEncoder::psb(uint64_t ip) {
  if (losing_) return;
  flush();
  cycles();
  started_ = true;
  forget_calls();
  last_psb_ = written();
  psb_at_bytes_ = last_psb_ + options_.psb_period_bytes;
  ++counts_.psb;
  writer_.psb();
  if (options_.tsc) writer_.tsc(tsc_);
  if (options_.mtc) {
    const uint64_t ctc = tsc_ / options_.tsc_per_ctc;
    mtc_ = ctc >> options_.mtc_period;
    set_mtc_due();
    writer_.tma(static_cast<uint16_t>(ctc & 0xffff), static_cast<uint16_t>(tsc_ % options_.tsc_per_ctc));
  }
  cyc_at_ = tsc_;
  writer_.cbr(options_.bus_ratio);
  if (options_.pip) writer_.pip(cr3_, non_root_);
  if (enabled_) {
    writer_.mode_exec(mode_);
    told_mode_ = mode_;
    writer_.fup(ip);
  } else {
    told_mode_ = ExecMode::unknown;  // who starts to read here hears of it before the TIP.PGE
  }
  writer_.psbend();
}

void PtEncoder::tell_mode(ExecMode mode) {
  mode_ = mode;
  if (mode == told_mode_) return;
  writer_.mode_exec(mode);
  told_mode_ = mode;
}

void PtEncoder::enable(uint64_t ip) {
  if (enabled_) return;
  if (!started_ || psb_due()) psb(ip);
  enabled_ = true;
  forget_calls();
  if (losing_) return;
  cycles();
  tell_mode(mode_);
  writer_.tip_pge(ip);
}

void PtEncoder::disable_at_branch(std::optional<uint64_t> target) {
  if (!enabled_) return;
  flush();
  enabled_ = false;
  if (losing_) return;
  cycles();
  if (target) {
    writer_.tip_pgd(*target);
  } else {
    writer_.tip_pgd_suppressed();
  }
}

void PtEncoder::disable_async(uint64_t ip) {
  if (!enabled_) return;
  flush();
  enabled_ = false;
  if (losing_) return;
  cycles();
  writer_.fup(ip);
  writer_.tip_pgd_suppressed();
  if (written() >= pause_at_bytes_) pause_at_bytes_ = written() + options_.pause_every_bytes;
}

void PtEncoder::indirect(uint64_t target) {
  if (silent()) return;
  flush();
  cycles();
  ++counts_.tips;
  writer_.tip(target);
}

// Where the stack and the flow part, decoders disagree on what an uncompressed RET does to it. Nothing that was pushed before such a RET is
// used again, so that they all find the same on top.
void PtEncoder::ret(uint64_t target) {
  if (silent()) return;
  if (options_.return_compression && stack_count_ != 0) {
    --stack_count_;
    if (stack_[--stack_top_ & kStackMask] == target) {
      ++counts_.compressed_returns;
      return conditional(true);
    }
    forget_calls();
  }
  indirect(target);
}

void PtEncoder::far_transfer(uint64_t target, ExecMode mode) {
  if (silent()) {
    mode_ = mode;
    return;
  }
  flush();
  cycles();
  tell_mode(mode);
  ++counts_.tips;
  writer_.tip(target);
}

void PtEncoder::async_branch(uint64_t from, uint64_t to, ExecMode mode) {
  if (silent()) {
    mode_ = mode;
    return;
  }
  flush();
  cycles();
  writer_.fup(from);
  tell_mode(mode);
  writer_.tip(to);
}

void PtEncoder::cr3_written(uint64_t cr3, bool non_root) {
  cr3_ = cr3;
  non_root_ = non_root;
  if (silent() || !options_.pip) return;
  flush();
  cycles();
  writer_.pip(cr3, non_root);
}

void PtEncoder::set_cr3(uint64_t cr3, bool non_root) {
  cr3_ = cr3;
  non_root_ = non_root;
}

void PtEncoder::lose() {
  if (losing_ || !started_) return;
  flush();
  losing_ = true;
}

void PtEncoder::recover(uint64_t ip) {
  if (!losing_) return;
  losing_ = false;
  tnt_ = 0;
  tnt_count_ = 0;
  forget_calls();
  ++counts_.overflow;
  writer_.ovf();
  if (enabled_) {  // readers disagree on whether OVF clears the last ip: the next one goes out in full
    writer_.set_compression(false);
    writer_.fup(ip);
    writer_.set_compression(options_.ip_compression);
  }
  cyc_at_ = tsc_;
  request_psb();
}

void PtEncoder::stop() {
  flush();
  enabled_ = false;
  recover(0);
}

}  // namespace ptd::emulate
