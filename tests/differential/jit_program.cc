// A JIT whose functions are tests of bits with branches. All changes are made between two calls; their times are those of announcements:
// from the begin of a change to its end.
#include "tests/differential/jit_program.h"

#include <algorithm>
#include <memory>

#include "ptdecode/timeline_builder.h"
#include "tests/differential/branch_packets.h"
#include "tests/differential/program.h"

namespace ptd::test {
namespace {

constexpr uint64_t kCaller = 0xffffffff81000000, kPlaces = 0xffffffffc0000000, kPlaceBytes = 320;
constexpr uint64_t kBegin = 1'000'000;

class JitMachine {
 public:
  JitMachine(const JitOptions& options, JitRun& out)
      : options_(options), out_(out), random_(options.seed), packets_(out.trace), places_(options.places) {}

  void run() {
    add_section(kCaller, {std::byte{0xff}, std::byte{0xd0}, std::byte{0xeb}, std::byte{0xfc}}, 0);  // CALL RAX; JMP back
    psb(false);
    packets_.begin(kCaller);
    for (uint32_t i = 0; i < options_.changes; ++i) {
      change();
      for (uint32_t calls = random_.below(options_.calls + 1); calls > 0; --calls) call(random_.below(options_.places));
    }
    if (lost_ != 0) end_overflow(kCaller);
    packets_.end(kCaller);
    psb(false);
    out_.timeline = builder_.build();
  }

 private:
  using Code = std::vector<std::byte>;
  struct Place {
    bool live = false;
    Code code;
  };

  // --- changes ---

  uint64_t address_of(size_t place) const { return kPlaces + place * kPlaceBytes; }
  uint64_t tick() { return tsc_ += 1 + random_.below(options_.ticks); }

  void change() {
    const size_t i = random_.below(options_.places), j = random_.below(options_.places);
    ++out_.changes;
    if (!places_[i].live) {
      places_[i].code = any_function();
      load(i, tick());
      tick();
    } else if (!places_[j].live && random_.chance(30)) {
      places_[j] = places_[i];
      load(j, tick());
      unload(i);
    } else if (random_.chance(50)) {
      patch(i);
    } else {
      unload(i);
    }
  }

  // TEST DIL, bit; Jcc over one to five NOPs; and so on; RET.
  Code any_function() {
    Code code;
    const uint32_t tests = 1 + random_.below(options_.tests);
    for (uint32_t i = 0; i < tests; ++i) {
      const uint32_t skipped = 1 + random_.below(5);
      for (const uint32_t byte : {0x40U, 0xf6U, 0xc7U, 1U << random_.below(8), random_.chance(50) ? 0x74U : 0x75U, skipped})
        code.push_back(std::byte(byte));
      code.insert(code.end(), skipped, std::byte{0x90});
    }
    code.push_back(std::byte{0xc3});
    return code;
  }

  void add_section(uint64_t ip, Code code, uint64_t from) {
    Section section;
    section.space = kKernelSpace;
    section.ip = Ip{ip};
    section.size_bytes = code.size();
    section.live = {TimeNs{from}, kTimeMax};
    const auto owner = std::make_shared<Code>(std::move(code));
    section.code = {owner, Bytes(*owner)};
    section.path = "jit";
    builder_.add_section(std::move(section));
  }

  void load(size_t place, uint64_t from) {
    places_[place].live = true;
    add_section(address_of(place), places_[place].code, from);
  }

  void unload(size_t place) {
    places_[place].live = false;
    builder_.remove(kKernelSpace, Ip{address_of(place)}, places_[place].code.size(), TimeNs{tick()});
  }

  void patch(size_t place) {  // JE becomes JNE, or the other way round
    constexpr size_t kBranch = 4;
    std::byte& opcode = places_[place].code[kBranch];
    Edit edit;
    edit.ip = Ip{address_of(place) + kBranch};
    edit.old_bytes = {opcode};
    opcode ^= std::byte{1};
    edit.new_bytes = {opcode};
    edit.time.first = TimeNs{tick()};
    edit.time.last = TimeNs{tick()};
    edit.origin = EditOrigin::announced;
    builder_.add_edit(std::move(edit));
  }

  // --- the flow ---

  void psb(bool running) {
    if (lost_ != 0) return;
    has_return_ = false;
    packets_.psb(tick(), running ? std::optional(ip_) : std::nullopt);
  }
  void bit(bool taken) {
    if (lost_ == 0) packets_.bit(taken);
  }
  void tip(uint64_t target) {
    if (lost_ == 0) packets_.tip(target);
  }

  // The packets between two instructions, and the time that one takes.
  void pass() {
    tick();
    overflow();
    if (lost_ != 0) return;
    if (random_.below(options_.psb_every) == 0) psb(true);
    if (options_.tsc_every != 0 && random_.below(options_.tsc_every) == 0) packets_.tsc(tsc_);
  }

  // Packets are lost from one instruction to another one, at which the trace goes on ([SDM] "Overflow (OVF) Packet").
  void overflow() {
    constexpr uint32_t kMostLost = 200;
    if (lost_ != 0 && --lost_ == 0) {
      end_overflow(ip_);
    } else if (lost_ == 0 && options_.overflow_every != 0 && random_.below(options_.overflow_every) == 0) {
      packets_.flush();
      lost_ = 1 + random_.below(kMostLost);
      has_return_ = false;
    }
  }

  void end_overflow(uint64_t ip) {
    lost_ = 0;
    packets_.overflow(ip);
  }

  void ran(std::vector<std::byte> bytes) {
    const size_t size = bytes.size();
    out_.truth.push_back({ip_, std::move(bytes)});
    ip_ += size;
  }

  void call(size_t place) {
    if (!places_[place].live) return;
    ip_ = kCaller;
    pass();
    ran({std::byte{0xff}, std::byte{0xd0}});
    tip(address_of(place));
    has_return_ = lost_ == 0;
    run_function(places_[place].code, address_of(place));
    ip_ = kCaller + 2;
    pass();
    ran({std::byte{0xeb}, std::byte{0xfc}});
  }

  void run_function(const Code& code, uint64_t base) {
    constexpr size_t kTestBytes = 4;
    for (ip_ = base;;) {
      const auto here = code.begin() + static_cast<std::ptrdiff_t>(ip_ - base);
      pass();
      if (*here == std::byte{0xc3}) break;
      if (*here == std::byte{0x90}) {
        ran({*here});
      } else if (*here == std::byte{0x40}) {
        ran({here, here + kTestBytes});
      } else {
        const bool taken = random_.chance(50);
        bit(taken);
        ran({here, here + 2});
        if (taken) ip_ += std::to_integer<uint64_t>(here[1]);
      }
    }
    ran({std::byte{0xc3}});
    if (options_.return_compression && has_return_ && lost_ == 0) {
      bit(true);
    } else {
      tip(kCaller + 2);
    }
    has_return_ = false;
  }

  const JitOptions& options_;
  JitRun& out_;
  Random random_;
  BranchPackets packets_;
  TimelineBuilder builder_;
  std::vector<Place> places_;
  uint64_t ip_ = 0, tsc_ = kBegin;
  uint32_t lost_ = 0;        ///< instructions until the overflow ends; 0: there is none
  bool has_return_ = false;  ///< the call came after the last PSB or overflow, so that its RET may be compressed
};

}  // namespace

JitOptions jit_options_of_seed(uint64_t seed) {
  Random random(seed ^ 0x6a6974ULL);
  JitOptions out;
  out.seed = seed;
  out.places = 1 + random.below(random.chance(50) ? 3 : 12);
  out.tests = 1 + random.below(24);
  out.changes = 2 + random.below(80);
  out.calls = 1 + random.below(6);
  out.ticks = 1 + random.below(20);
  out.tsc_every = random.chance(10) ? 0 : 2 + random.below(150);
  out.psb_every = 20 + random.below(500);
  out.return_compression = random.chance(50);
  out.overflow_every = random.chance(70) ? 0 : 100 + random.below(1000);
  out.exact_only = random.chance(25);
  return out;
}

std::string describe(const JitOptions& options) {
  return "seed " + std::to_string(options.seed) + ", " + std::to_string(options.places) + " places, " + std::to_string(options.changes) +
         " changes, a TSC in " + std::to_string(options.tsc_every) + (options.overflow_every != 0 ? ", overflows" : "") +
         (options.return_compression ? ", compressed returns" : "") + (options.exact_only ? ", exact walker" : "");
}

JitRun run_jit(const JitOptions& options) {
  JitRun out;
  JitMachine(options, out).run();
  return out;
}

}  // namespace ptd::test
