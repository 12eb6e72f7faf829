// Runs a random program with random outcomes and writes the Intel PT packets that a processor would write.
#include "tests/differential/trace_generator.h"

#include <algorithm>

namespace ptd::test {
namespace {

constexpr size_t kReturnStackDepth = 64;  // [SDM] "Near Return Compression"
constexpr uint8_t kMtcPeriod = 3;
constexpr uint32_t kTscPerCtc = 80;

/// One run of the machine. The state of the processor (its return stack, the pending packets) is separate from that of the program (the
/// true stack).
class TracedMachine {
 public:
  TracedMachine(const TraceOptions& options, GeneratedTrace& out)
      : options_(options), out_(out), random_(options.seed * 2 + 1), program_(make_program(options.program, random_)), writer_(out.trace) {
    writer_.set_compression(options.ip_compression);
    const auto& functions = program_.user_functions;
    filter_first_ = program_.ops[functions.front()].ip;
    filter_end_ = program_.ops[functions[functions.size() / 2]].ip;
    now_ = functions.front();
    tsc_ = 1'000'000 + (random_.next() & 0xffff'ffff);
    cyc_at_ = tsc_;
    mtc_ = (tsc_ / kTscPerCtc) >> kMtcPeriod;
  }

  void run() {
    start();
    for (uint32_t i = 0; i < options_.steps; ++i) {
      between();
      step();
    }
    // The recorder stops tracing, which is the only way to end a trace at an ip that the packets give.
    if (enabled_) async_disable();
    out_.memory = std::move(program_.memory);
    if (options_.address_filter) {
      out_.filter_first = filter_first_;
      out_.filter_last = filter_end_ - 1;
    }
  }

 private:
  struct Frame {
    OpId to;
    bool interrupt;
  };

  const Op& op() const { return program_.ops[now_]; }
  uint64_t ip() const { return op().ip; }
  bool traced(OpId id) const {
    const Op& op = program_.ops[id];
    if (options_.user_only && op.kernel) return false;
    return !options_.address_filter || (op.ip >= filter_first_ && op.ip < filter_end_);
  }
  OpId any_of(const std::vector<OpId>& ids) { return ids[random_.below(static_cast<uint32_t>(ids.size()))]; }

  // --- packets ---

  void timing() {
    const uint64_t then = tsc_ + 1 + random_.below(300);
    if (lost_ || !options_.timing) {
      tsc_ = then;
      return;
    }
    const uint64_t step = then / kTscPerCtc >> kMtcPeriod;
    if (step != mtc_) {  // an edge lies between: write its MTC there, preceded by the CYC that hardware writes, which counts up to the edge
      tsc_ = std::max(tsc_, (step << kMtcPeriod) * kTscPerCtc);
      if (options_.tnt_before_timing) flush();
      mtc_ = step;
      cyc();
      writer_.mtc(static_cast<uint8_t>(mtc_));
    }
    tsc_ = then;
    if (random_.chance(10)) {
      if (options_.tnt_before_timing) flush();
      cyc();
    }
  }
  // Writes a CYC. The core runs at the nominal frequency: one cycle per TSC tick.
  void cyc() {
    writer_.cyc(tsc_ - cyc_at_);
    cyc_at_ = tsc_;
  }
  // A packet that gives a position in the flow was written: the truth is known up to here.
  void known() { known_ = out_.truth.size(); }

  void flush() {
    if (tnt_count_ != 0) {
      if (options_.timing && random_.chance(50)) cyc();
      writer_.tnt(tnt_, tnt_count_);
      known_ = pending_known_;
    }
    tnt_count_ = 0;
    tnt_ = 0;
    for (const uint64_t target : deferred_) writer_.tip(target);
    deferred_.clear();
  }
  void branch_bit(bool taken) {
    if (lost_) return;
    tnt_ = tnt_ << 1 | (taken ? 1 : 0);
    ++tnt_count_;
    pending_known_ = out_.truth.size();
    if (tnt_count_ == (options_.long_tnt ? 47U : 6U)) flush();
  }
  void tip(uint64_t target, bool may_defer) {
    if (lost_) return;
    if (may_defer && options_.deferred_tips && tnt_count_ != 0 && deferred_.size() < 8) {
      deferred_.push_back(target);
      pending_known_ = out_.truth.size();
      ++out_.deferred;
      return;
    }
    flush();
    timing();
    writer_.tip(target);
    known();
  }
  void fup_here() {
    writer_.fup(ip());
    known();
  }
  void mode_exec(ExecMode mode) {
    writer_.mode_exec(mode);
    mode_told_ = mode;
  }

  void psb() {
    if (lost_) return;
    flush();
    writer_.psb();
    ++out_.psbs;
    writer_.reset_last_ip();
    return_stack_.clear();
    writer_.tsc(tsc_);
    if (options_.timing) {
      const uint64_t ctc = tsc_ / kTscPerCtc;
      mtc_ = ctc >> kMtcPeriod;
      writer_.tma(static_cast<uint16_t>(ctc), static_cast<uint16_t>(tsc_ % kTscPerCtc));
    }
    writer_.cbr(20);
    if (!options_.user_only && options_.program.kernel) writer_.pip(cr3_, false);
    if (enabled_) {
      if (options_.program.tsx) writer_.mode_tsx(in_tx_, false);
      mode_exec(op().mode);
      fup_here();
    }
    writer_.psbend();
    psb_at_ = out_.trace.size();
  }

  // --- tracing on and off ---

  void enable() {
    enabled_ = true;
    return_stack_.clear();
    if (lost_) return;
    if (op().mode != mode_told_ || random_.chance(30)) mode_exec(op().mode);
    writer_.tip_pge(ip());
    writer_.set_compression(options_.ip_compression);
    known();
  }
  // Ends tracing because a branch to `target` leaves the traced region.
  void disable_at_branch(OpId target) {
    enabled_ = false;
    if (lost_) return;
    flush();
    if (options_.user_only && program_.ops[target].kernel) {
      writer_.tip_pgd_suppressed();
    } else {
      writer_.tip_pgd(program_.ops[target].ip);
    }
    known();
  }
  void async_disable() {
    enabled_ = false;
    if (lost_) return;
    flush();
    fup_here();
    writer_.tip_pgd_suppressed();
  }

  void start() {
    const bool on = traced(now_) && random_.chance(50);
    enabled_ = on;
    psb();
    if (!on && traced(now_)) enable();
  }

  // --- what happens between instructions ---

  void between() {
    timing();
    if (enabled_ && !lost_ && out_.trace.size() >= psb_at_ + options_.psb_period_bytes) psb();
    if (options_.overflows) overflow();
    if (options_.interrupts && options_.program.kernel && random_.chance(2)) interrupt();
    if (in_tx_ && enabled_ && random_.chance(3)) abort_transaction();
    if (options_.toggles && !lost_) {
      if (enabled_ && random_.chance(1)) {
        async_disable();
        off_for_ = random_.below(30);
      } else if (!enabled_ && off_for_ == 0 && traced(now_)) {
        enable();
      } else if (off_for_ != 0) {
        --off_for_;
      }
    }
  }

  void overflow() {
    if (!lost_) {
      if (in_tx_ || !random_.chance(1)) return;
      // Packets are lost from here on. Unwritten ones cannot be known.
      if (random_.chance(50)) flush();
      tnt_count_ = 0;
      tnt_ = 0;
      deferred_.clear();
      if (enabled_) {
        out_.truth.resize(known_);
        out_.tsc.resize(known_);
      }
      lost_ = true;
      lost_for_ = random_.below(40);
      return;
    }
    // An unseen change of mode would appear only in the next PSB+. So the overflow lasts until the old mode is back.
    if (lost_for_ != 0 || (enabled_ && op().mode != mode_told_)) {
      if (lost_for_ != 0) --lost_for_;
      return;
    }
    lost_ = false;
    ++out_.overflows;
    writer_.ovf();
    cyc_at_ = tsc_;
    return_stack_.clear();
    // Decoders disagree on whether OVF clears the last ip; a processor writes the next one in full.
    writer_.set_compression(false);
    if (enabled_) {
      fup_here();
      writer_.set_compression(options_.ip_compression);
    }
  }

  // Takes an interrupt or fault before the instruction at now_.
  void interrupt() {
    if (in_tx_) return abort_transaction();
    ++out_.interrupts;
    const OpId handler = any_of(program_.interrupt_handlers);
    stack_.push_back({now_, true});
    async_transfer(handler);
  }
  // Writes FUP(here) + TIP(to), in the form required by the traced region.
  void async_transfer(OpId to) {
    const bool was = enabled_;
    if (was && !lost_) {
      flush();
      timing();
      fup_here();
      if (traced(to)) {
        if (program_.ops[to].mode != mode_told_) mode_exec(program_.ops[to].mode);
        writer_.tip(program_.ops[to].ip);
      } else if (options_.user_only && program_.ops[to].kernel) {
        writer_.tip_pgd_suppressed();
      } else {
        writer_.tip_pgd(program_.ops[to].ip);
      }
    }
    now_ = to;
    if (was) {
      enabled_ = traced(to);
    } else if (traced(to) && off_for_ == 0 && !options_.toggles) {
      enable();
    }
  }

  void abort_transaction() {
    in_tx_ = false;
    if (enabled_ && !lost_) {
      flush();
      writer_.mode_tsx(false, true);
      fup_here();
      writer_.tip(program_.ops[fallback_].ip);
      known();
    }
    now_ = fallback_;
  }

  // --- instructions ---

  // The instruction at now_ was executed and continues at `to`; `tell` writes its packet if it stays within the traced region.
  template <class Tell>
  void go(OpId to, Tell&& tell) {
    const bool was = enabled_;
    if (was && !traced(to)) {
      disable_at_branch(to);
    } else if (was) {
      tell();
    }
    now_ = to;
    if (!was && traced(to) && off_for_ == 0 && !options_.toggles) enable();
  }
  void go_far(OpId to) {
    go(to, [&] {
      if (lost_) return;
      if (program_.ops[to].mode != mode_told_) {
        flush();
        mode_exec(program_.ops[to].mode);
      }
      tip(program_.ops[to].ip, false);
    });
  }
  void go_indirect(OpId to) {
    go(to, [&] { tip(program_.ops[to].ip, true); });
  }
  void push_call() {
    stack_.push_back({now_ + 1, false});
    if (stack_.size() > 1000) stack_.erase(stack_.begin());
    if (!enabled_) return;
    return_stack_.push_back(program_.ops[now_].ip + program_.ops[now_].length_bytes);
    if (return_stack_.size() > kReturnStackDepth) return_stack_.erase(return_stack_.begin());
  }

  void near_return() {
    OpId to = 0;
    const bool returns = !stack_.empty() && !stack_.back().interrupt && program_.ops[stack_.back().to].mode == op().mode &&
                         program_.ops[stack_.back().to].kernel == op().kernel && !random_.chance(2);
    if (returns) {
      to = stack_.back().to;
      stack_.pop_back();
    } else {
      to = any_of(op().kernel ? program_.kernel_functions : op().mode == ExecMode::bits32 ? program_.functions32 : program_.user_functions);
    }
    bool match = false, mismatch = false;
    if (options_.return_compression && enabled_ && !return_stack_.empty()) {
      match = return_stack_.back() == program_.ops[to].ip;
      mismatch = !match;
      return_stack_.pop_back();
    }
    go(to, [&] {
      if (match) {
        branch_bit(true);
        ++out_.compressed_returns;
      } else {
        tip(program_.ops[to].ip, false);
      }
    });
    // Decoders differ in whether an uncompressed return pops their stack. A PSB clears all stacks.
    if (mismatch && enabled_) psb_soon_ = true;
  }
  void return_from_interrupt() {
    while (!stack_.empty() && !stack_.back().interrupt) stack_.pop_back();
    OpId to = any_of(program_.user_functions);
    if (!stack_.empty()) {
      to = stack_.back().to;
      stack_.pop_back();
    }
    go_far(to);
  }

  void run_op() {
    const Op& here = op();
    const bool in_trace = enabled_ && !lost_;
    if (in_trace) {
      out_.truth.push_back(here.ip);
      out_.tsc.push_back(tsc_);
    }
    switch (here.kind) {
      case OpKind::filler:
      case OpKind::call_next:
        ++now_;
        break;
      case OpKind::jcc: {
        const bool taken = random_.chance(50);
        go(taken ? here.target : now_ + 1, [&] { branch_bit(taken); });
        break;
      }
      case OpKind::jump:
        go(here.target, [] {});
        break;
      case OpKind::call:
        push_call();
        go(here.target, [] {});
        break;
      case OpKind::call_indirect:
        push_call();
        [[fallthrough]];
      case OpKind::jump_indirect:
        go_indirect(any_of(here.targets));
        break;
      case OpKind::ret:
        near_return();
        break;
      case OpKind::far_jump:
      case OpKind::far_ret:
        go_far(any_of(here.targets));
        break;
      case OpKind::syscall:
        stack_.push_back({now_ + 1, true});
        go_far(any_of(program_.syscall_entries));
        break;
      case OpKind::sysret:
      case OpKind::iret:
        return_from_interrupt();
        break;
      case OpKind::mov_cr3:
        run_mov_cr3(in_trace);
        break;
      case OpKind::ptwrite:
        run_ptwrite(in_trace);
        break;
      default:
        ++now_;
        break;
    }
  }
  void run_mov_cr3(bool in_trace) {
    cr3_ = (0x1000 + random_.below(100)) << 12;
    if (in_trace) {
      flush();
      writer_.pip(cr3_, false);
      known();
    }
    ++now_;
  }
  void run_ptwrite(bool in_trace) {
    if (in_trace) {
      flush();
      writer_.ptw(random_.next(), true, options_.ptw_with_ip);
      if (options_.ptw_with_ip) writer_.fup(ip());
      known();
    }
    ++now_;
  }

  void step() {
    const Op& here = op();
    const bool far = here.kind >= OpKind::far_jump && here.kind <= OpKind::ptwrite;
    if (in_tx_ && (far || here.kind == OpKind::xabort)) return abort_transaction();
    if (here.kind == OpKind::soft_int) {
      // [SDM] "FUP Cases and IP Payload": software interrupts write FUP(their own address); they are events, not retired instructions.
      stack_.push_back({now_ + 1, true});
      return async_transfer(any_of(program_.interrupt_handlers));
    }
    if (here.kind == OpKind::xbegin && !in_tx_) {
      tell_transaction(true);
      fallback_ = here.target;
    } else if (here.kind == OpKind::xend && in_tx_) {
      tell_transaction(false);
    }
    run_op();
    if (psb_soon_) {
      psb_soon_ = false;
      psb();
    }
  }
  void tell_transaction(bool begins) {
    in_tx_ = begins;
    if (!enabled_ || lost_) return;
    flush();
    writer_.mode_tsx(begins, false);
    fup_here();
  }

  const TraceOptions& options_;
  GeneratedTrace& out_;
  Random random_;
  Program program_;
  pt::PacketWriter writer_;
  uint64_t filter_first_ = 0, filter_end_ = 0;

  OpId now_ = 0, fallback_ = 0;
  std::vector<Frame> stack_;            // the program's stack
  std::vector<uint64_t> return_stack_;  // the processor's stack
  bool enabled_ = false, in_tx_ = false, lost_ = false, psb_soon_ = false;
  uint32_t lost_for_ = 0, off_for_ = 0;
  ExecMode mode_told_ = ExecMode::unknown;
  uint64_t cr3_ = 0x1234000, tsc_ = 0, mtc_ = 0, cyc_at_ = 0;

  uint64_t tnt_ = 0;
  unsigned tnt_count_ = 0;
  std::vector<uint64_t> deferred_;
  size_t known_ = 0, pending_known_ = 0, psb_at_ = 0;
};

}  // namespace

TraceOptions options_of_seed(uint64_t seed) {
  Random random(seed ^ 0x5eed);
  TraceOptions out;
  out.seed = seed;
  out.steps = 500 + random.below(6000);
  out.return_compression = random.chance(60);
  out.long_tnt = random.chance(40);
  out.deferred_tips = random.chance(30);
  out.ip_compression = random.chance(90);
  out.program.kernel = random.chance(70);
  out.user_only = random.chance(30);
  out.interrupts = random.chance(50);
  out.overflows = random.chance(20);
  out.timing = random.chance(50);
  out.program.functions = 3 + random.below(12);
  out.program.soft_int = random.chance(30);
  out.program.bits32 = random.chance(20);
  out.program.ptwrite = random.chance(20);
  out.ptw_with_ip = random.chance(50);
  out.tnt_before_timing = out.timing && random.chance(50);
  out.address_filter = random.chance(20);
  const bool steady = !out.user_only && !out.address_filter;
  out.toggles = steady && random.chance(20);
  out.program.tsx = steady && !out.toggles && random.chance(20);
  out.psb_period_bytes = 128U << random.below(6);
  return out;
}

std::string describe(const TraceOptions& o) {
  std::string out = "seed " + std::to_string(o.seed) + ", " + std::to_string(o.steps) + " steps";
  const auto add = [&](bool on, const char* what) {
    if (on) out += std::string(", ") + what;
  };
  add(o.return_compression, "return compression");
  add(o.long_tnt, "long TNT");
  add(o.deferred_tips, "deferred TIPs");
  add(!o.ip_compression, "no ip compression");
  add(o.program.kernel, "kernel");
  add(o.user_only, "user only");
  add(o.address_filter, "address filter");
  add(o.toggles, "toggles");
  add(o.interrupts, "interrupts");
  add(o.overflows, "overflows");
  add(o.timing, o.tnt_before_timing ? "MTC and CYC behind TNT" : "MTC and CYC");
  add(o.program.soft_int, "software interrupts");
  add(o.program.bits32, "32-bit code");
  add(o.program.tsx, "TSX");
  add(o.program.ptwrite, o.ptw_with_ip ? "PTWRITE with FUP" : "PTWRITE");
  return out;
}

GeneratedTrace generate(const TraceOptions& options) {
  GeneratedTrace out;
  // With Skylake's SKD007 a CYC followed by the byte F3 looks like an OVF, so traces with CYC use a processor without it.
  out.config.cpu = options.timing ? pt::CpuId{6, 106, 6} : pt::CpuId{6, 94, 3};
  out.config.return_compression = options.return_compression ? pt::ReturnCompression::on : pt::ReturnCompression::off;
  out.config.mtc_period = kMtcPeriod;
  out.config.tsc_ctc_ratio_n = kTscPerCtc;
  out.config.tsc_ctc_ratio_d = 1;
  out.config.max_nonturbo_ratio = 20;
  out.config.has_mtc = out.config.has_cyc = options.timing;
  out.config.address_filter = options.address_filter;
  TracedMachine(options, out).run();
  return out;
}

}  // namespace ptd::test
