// PatchedUnit: packets by their patterns in [ETMv4], [PFT] and [ETMv3].
#include "tests/coresight/support/patched_unit.h"

#include <algorithm>

#include "tests/differential/program.h"

namespace ptd::test {
namespace {

class Etmv4 final : public PatchedUnit {
 public:
  Etmv4(const arm::TraceConfig& config, uint64_t seed) : depth_(config.max_speculation()), random_(seed) {}

  void sync(uint64_t ip, bool start) override {
    end();
    put({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00});
    if (start) put({0x04});
    address(ip, true);
  }
  void atom(bool executed) override {
    atoms_ |= (executed ? 1U : 0U) << count_;
    if (++count_ == 3 || random_.chance(20)) flush();
    p0();
  }
  void branch(uint64_t target) override {
    atom(true);
    flush();
    address(target, false);
  }
  bool other(uint64_t) override { return false; }
  void exception(uint64_t ip, uint64_t handler) override {
    constexpr uint64_t kIrq = 0xe;
    flush();
    put({0x06, kIrq << 1 | 1});
    address(ip, false);
    p0();
    address(handler, false);
  }
  void timestamp(uint64_t time) override {
    flush();
    put({0x02});
    number(time);
  }
  void end() override {
    flush();
    if (in_flight_ == 0) return;
    put({0x2d});  // commit
    number(in_flight_);
    in_flight_ = 0;
  }

 private:
  // A 64-bit address, with a context of EL1 (AArch64, non-secure) or without.
  void address(uint64_t ip, bool with_context) {
    put({with_context ? 0x85U : 0x9dU, ip >> 2 & 0x7f, ip >> 9 & 0x7f});
    for (unsigned shift = 16; shift < 64; shift += 8) put({ip >> shift & 0xff});
    if (with_context) put({0x31});
  }
  void flush() {
    constexpr unsigned kHeaders[] = {0, 0xf6, 0xd8, 0xf8};  // atom packets of formats 1 to 3
    if (count_ != 0) put({kHeaders[count_] | atoms_});
    atoms_ = count_ = 0;
  }
  void p0() { in_flight_ = std::min(in_flight_ + 1, depth_); }

  const uint64_t depth_;
  Random random_;
  unsigned atoms_ = 0, count_ = 0;
  uint64_t in_flight_ = 0;
};

class Legacy final : public PatchedUnit {
 public:
  Legacy(const arm::TraceConfig& config, uint64_t seed)
      : ptm_(config.protocol == arm::Protocol::ptm), cycles_(!ptm_ && (config.configr & kCycleAccurate) != 0), random_(seed) {}

  void sync(uint64_t ip, bool start) override {
    flush();
    if (start || random_.chance(50)) put({0, 0, 0, 0, 0, 0x80});
    isync(ip, start);
  }
  void isync(uint64_t ip, bool start) {
    const uint64_t information = start ? 0x29 : 0x09;
    put({0x08});
    if (!ptm_) put({information});
    for (unsigned shift = 0; shift < 32; shift += 8) put({ip >> shift & 0xff});
    if (ptm_) put({information});
  }
  void atom(bool executed) override {
    ran_ = false;
    // PTM: 1, zeros, a one, one atom (0 is E), 0. ETMv3: 1neeee00.
    if (ptm_) return put({executed ? 0x84U : 0x86U});
    if (cycles_) return cycle_atom(executed);
    if (executed && random_.chance(50) && executed_ < 14) {
      ++executed_;
      return;
    }
    put({0x80U | (executed_ + (executed ? 1 : 0)) << 2 | (executed ? 0 : 0x40U)});
    executed_ = 0;
  }
  void branch(uint64_t target) override {
    if (!ptm_) atom(true);
    flush();
    address(target, 0);
    ran_ = false;
  }
  bool other(uint64_t ip) override {
    ran_ = true;
    before_ = ip;
    if (!ptm_) atom(true);
    return !ptm_;
  }
  void exception(uint64_t ip, uint64_t handler) override {
    flush();
    if (ran_ && ptm_) {
      put({0x72});  // waypoint update
      address(before_, 0);
    }
    ran_ = false;
    constexpr uint64_t kIrq = 14, kCancels = 0x20;
    const bool cancels = !ptm_ && random_.chance(50);
    if (cancels) cancelled(ip);
    address(handler, 0x40);
    put({kIrq << 1 | 1 | (cancels ? kCancels : 0)});
  }
  void timestamp(uint64_t time) override {
    flush();
    put({0x42});
    number(time);
  }
  void end() override { flush(); }

 private:
  void flush() {
    if (executed_ != 0) put({0x80U | executed_ << 2});
    executed_ = 0;
  }
  // [ETMv3] "P-header encodings in cycle-accurate mode": 1N0EEE00 (each after a cycle), 1E1WWW00 (after WWW + 1 cycles), 10010N10 (at
  // once).
  void cycle_atom(bool executed) {
    if (random_.chance(20)) put({random_.chance(50) ? 0x80U : 0xa0U | random_.below(8) << 2});
    if (random_.chance(30)) return put({executed ? 0x92U : 0x96U});
    if (!executed) return put({0xc0});
    put({random_.chance(50) ? 0x84U : 0xe0U | random_.below(8) << 2});
  }
  // The instruction at `ip`, which the next exception cancels, and what can come between the two.
  void cancelled(uint64_t ip) {
    atom(random_.chance(70));
    flush();
    while (random_.chance(30)) put({random_.chance(50) ? 0x0cU : 0x66U});
    if (random_.chance(15)) put({0x76});  // it was an exception return
    if (random_.chance(20)) address(ip + 8, 0);
    if (random_.chance(20)) put({0x42, 0});
    if (cycles_ && random_.chance(50)) put({0xa0U | random_.below(8) << 2});
    if (random_.chance(20)) isync(ip + 4, false);
  }
  // All five bytes of an A32 address. `follows`: a bit of the last byte.
  void address(uint64_t ip, uint64_t follows) {
    put({0x81 | (ip >> 2 & 0x3f) << 1, 0x80 | (ip >> 8 & 0x7f), 0x80 | (ip >> 15 & 0x7f), 0x80 | (ip >> 22 & 0x7f),
         0x08 | (ip >> 29 & 7) | follows});
  }

  static constexpr uint32_t kCycleAccurate = 1U << 12;  // ETMCR
  const bool ptm_, cycles_;
  Random random_;
  unsigned executed_ = 0;  ///< ETMv3: E atoms that have no packet yet
  bool ran_ = false;       ///< PTM: instructions ran since the last waypoint
  uint64_t before_ = 0;    ///< the last of them
};

}  // namespace

std::unique_ptr<PatchedUnit> make_patched_unit(const arm::TraceConfig& config, uint64_t seed) {
  if (config.protocol == arm::Protocol::etmv4) return std::make_unique<Etmv4>(config, seed);
  return std::make_unique<Legacy>(config, seed);
}

}  // namespace ptd::test
