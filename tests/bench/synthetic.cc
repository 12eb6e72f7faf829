// A generated program of one character and its trace.
#include "tests/bench/synthetic.h"

#include <array>
#include <cstring>

#include "ptdecode/pt/packet_writer.h"
#include "tests/differential/program.h"

namespace ptd::bench {
namespace {

constexpr uint64_t kCodeBase = 0x401000;
constexpr uint32_t kPsbPeriodBytes = 16384;
constexpr uint32_t kTscPerCtc = 125;
constexpr uint8_t kMtcShift = 3;
constexpr size_t kCompressedCalls = 64;
constexpr size_t kMaxCalls = 4096;

enum class Kind : uint8_t { branch, loop_end, jump, call, call_indirect, jump_indirect, ret };

/// A run of straight-line code and the branch that ends it.
struct Op {
  Kind kind = Kind::ret;
  uint32_t straight = 0;  ///< instructions before the branch
  uint64_t ip = 0;        ///< of the first instruction
  uint64_t branch_ip = 0, next_ip = 0;
  uint32_t target = 0;  ///< op
  uint32_t chance = 0;  ///< of a branch: taken per 1024 executions. Of a loop_end: number of rounds
  std::vector<uint32_t> targets;
};

class Maker {
 public:
  Maker(const Character& character, test::Random& random) : c_(character), random_(random) {}

  void make() {
    for (uint32_t f = 0; f < c_.functions; ++f) {
      starts_.push_back(static_cast<uint32_t>(ops_.size()));
      body(f, c_.statements, 0);
      if (f == 0) {
        end(Kind::jump).target = 0;  // the first function never returns
      } else {
        end(Kind::ret);
      }
    }
    for (Op& op : ops_) {
      if (op.kind == Kind::call || op.kind == Kind::call_indirect) {
        op.target = starts_[op.target];
        for (uint32_t& target : op.targets) target = starts_[target];
      }
    }
    place();
  }
  std::vector<Op> ops_;
  std::vector<std::byte> code_;

 private:
  Op& end(Kind kind) {
    Op op;
    op.kind = kind;
    op.straight = straight_;
    straight_ = 0;
    ops_.push_back(op);
    return ops_.back();
  }
  [[nodiscard]] uint32_t here() const { return static_cast<uint32_t>(ops_.size()); }
  uint32_t callee(uint32_t function) {
    const uint32_t left = c_.functions - 1 - function;
    return function + 1 + (left > 1 ? random_.below(std::min<uint32_t>(left, 60)) : 0);
  }

  void body(uint32_t function, uint32_t statements, uint32_t depth) {
    for (uint32_t i = 0; i < statements; ++i) {
      straight_ += 1 + random_.below(c_.straight);
      uint32_t kind = random_.below(100);
      const auto drawn = [&](uint32_t share) {
        const bool yes = kind < share;
        kind -= yes ? 0 : share;
        return yes;
      };
      const bool leaf = function + 2 >= c_.functions;
      if (drawn(c_.ifs)) {
        const uint32_t at = here();
        end(Kind::branch).chance = random_.below(100) < c_.hard_branches ? 512 : random_.below(2) == 0 ? 1000 : 24;
        if (depth < 3) body(function, 1 + random_.below(2), depth + 1);
        straight_ += 1;
        if (here() == at + 1) end(Kind::branch).chance = 24;
        ops_[at].target = here();
        if (ops_[at + 1].kind == Kind::branch && ops_[at + 1].target == 0) ops_[at + 1].target = here();
      } else if (drawn(c_.loops) && depth < 3) {
        const uint32_t head = here() + 1;
        end(Kind::jump).target = head;
        body(function, 1 + random_.below(3), depth + 1);
        straight_ += 1;
        Op& loop = end(Kind::loop_end);
        loop.chance = 2 + random_.below(2 * c_.loop_rounds);
        loop.target = head;
      } else if (drawn(c_.calls) && !leaf) {
        end(Kind::call).target = callee(function);
      } else if (drawn(c_.indirect_calls) && !leaf) {
        Op& op = end(Kind::call_indirect);
        const uint32_t count = 1 + random_.below(6);
        for (uint32_t k = 0; k < count; ++k) op.targets.push_back(callee(function));
      } else if (drawn(c_.switches)) {
        const uint32_t at = here();
        end(Kind::jump_indirect);
        std::vector<uint32_t> ends;
        const uint32_t count = 2 + random_.below(5);
        for (uint32_t k = 0; k < count; ++k) {
          ops_[at].targets.push_back(here());
          straight_ = 1 + random_.below(c_.straight);
          ends.push_back(here());
          end(Kind::jump);
        }
        for (const uint32_t e : ends) ops_[e].target = here();
      }
    }
  }

  void put(std::initializer_list<int> bytes) {
    for (const int b : bytes) code_.push_back(static_cast<std::byte>(b));
  }
  // Assigns addresses and bytes. The fall-through of op i is op i + 1.
  void place() {
    std::vector<size_t> fixups(ops_.size(), 0);
    for (size_t i = 0; i < ops_.size(); ++i) {
      Op& op = ops_[i];
      op.ip = kCodeBase + code_.size();
      for (uint32_t k = 0; k < op.straight; ++k) {
        switch (random_.below(3)) {
          case 0:
            put({0x48, 0x01, 0xd8});
            break;  // add rax, rbx
          case 1:
            put({0xb8, 1, 2, 3, 4});
            break;  // mov eax, imm32
          default:
            put({0x48, 0x8b, 0x44, 0x24, 0x08});
            break;  // mov rax, [rsp + 8]
        }
      }
      op.branch_ip = kCodeBase + code_.size();
      switch (op.kind) {
        case Kind::branch:
        case Kind::loop_end:
          put({0x0f, 0x84, 0, 0, 0, 0});
          break;
        case Kind::jump:
          put({0xe9, 0, 0, 0, 0});
          break;
        case Kind::call:
          put({0xe8, 0, 0, 0, 0});
          break;
        case Kind::call_indirect:
          put({0xff, 0xd0});
          break;
        case Kind::jump_indirect:
          put({0xff, 0xe0});
          break;
        case Kind::ret:
          put({0xc3});
          break;
      }
      op.next_ip = kCodeBase + code_.size();
      fixups[i] = code_.size() - 4;
    }
    for (size_t i = 0; i < ops_.size(); ++i) {
      const Op& op = ops_[i];
      if (op.kind == Kind::ret || op.kind == Kind::call_indirect || op.kind == Kind::jump_indirect) continue;
      const auto displacement = static_cast<int32_t>(static_cast<int64_t>(ops_[op.target].ip) - static_cast<int64_t>(op.next_ip));
      std::memcpy(code_.data() + fixups[i], &displacement, 4);
    }
  }

  const Character& c_;
  test::Random& random_;
  std::vector<uint32_t> starts_;
  uint32_t straight_ = 0;
};

/// Executes the program and writes packets as a processor does: TNT of six branches, TIPs at once, MTC and CYC without regard to the
/// pending TNT.
class Machine {
 public:
  Machine(const std::vector<Op>& ops, const Character& c, test::Random& random, Synthetic& out)
      : ops_(ops), c_(c), random_(random), out_(out), writer_(out.trace), rounds_(ops.size(), 0) {}

  void run(uint64_t instructions) {
    psb(0);
    uint32_t at = 0;
    while (out_.instructions < instructions) {
      const Op& op = ops_[at];
      out_.instructions += op.straight + 1;
      tick();
      at = branch(op, at);
      if (out_.trace.size() - last_psb_ >= kPsbPeriodBytes) psb(at);
    }
    flush();
  }

 private:
  [[nodiscard]] uint64_t tsc() const { return 1'000'000'000 + out_.instructions / 2; }

  uint32_t branch(const Op& op, uint32_t at) {
    switch (op.kind) {
      case Kind::branch:
        return bit(random_.below(1024) < op.chance) ? op.target : at + 1;
      case Kind::loop_end: {
        uint32_t& rounds = rounds_[at];
        if (rounds == 0) rounds = op.chance;
        return bit(--rounds != 0) ? op.target : at + 1;
      }
      case Kind::jump:
        return op.target;
      case Kind::call:
        call(at + 1);
        return op.target;
      case Kind::call_indirect: {
        call(at + 1);
        const uint32_t to = choose(op);
        tip(ops_[to].ip);
        return to;
      }
      case Kind::jump_indirect: {
        const uint32_t to = choose(op);
        tip(ops_[to].ip);
        return to;
      }
      case Kind::ret:
        return ret();
    }
    return 0;
  }
  uint32_t choose(const Op& op) {  // the first target more often than the others
    return op.targets[random_.chance(70) ? 0 : random_.below(static_cast<uint32_t>(op.targets.size()))];
  }
  void call(uint32_t back) {
    if (calls_.size() >= kMaxCalls) calls_.erase(calls_.begin());
    calls_.push_back(back);
    if (compressed_ < kCompressedCalls) ++compressed_;
  }
  uint32_t ret() {
    const uint32_t back = calls_.empty() ? 0 : calls_.back();
    if (!calls_.empty()) calls_.pop_back();
    if (compressed_ > 0) {
      --compressed_;
      bit(true);
    } else {
      tip(ops_[back].ip);
    }
    return back;
  }
  bool bit(bool taken) {
    ++out_.branches;
    bits_ = bits_ << 1 | (taken ? 1U : 0U);
    if (++count_ == 6) flush();
    return taken;
  }
  void flush() {
    if (count_ != 0) {
      cyc();
      writer_.tnt(bits_, count_);
    }
    bits_ = count_ = 0;
  }
  void cyc() {
    if (!c_.cyc) return;
    writer_.cyc((out_.instructions - cyc_) / 2);
    cyc_ = out_.instructions;
  }
  void tip(uint64_t ip) {
    ++out_.tips;
    flush();
    cyc();
    writer_.tip(ip);
  }
  void tick() {
    const uint64_t edge = tsc() / kTscPerCtc >> kMtcShift;
    if (edge == edge_) return;
    edge_ = edge;
    cyc();
    writer_.mtc(static_cast<uint8_t>(edge));
  }
  void psb(uint32_t at) {
    flush();
    last_psb_ = out_.trace.size();
    compressed_ = 0;
    writer_.psb();
    writer_.tsc(tsc());
    writer_.tma(static_cast<uint16_t>(tsc() / kTscPerCtc), static_cast<uint16_t>(tsc() % kTscPerCtc));
    writer_.mode_exec(ExecMode::bits64);
    writer_.fup(ops_[at].ip);
    writer_.psbend();
    edge_ = tsc() / kTscPerCtc >> kMtcShift;
    cyc_ = out_.instructions;
  }

  const std::vector<Op>& ops_;
  const Character& c_;
  test::Random& random_;
  Synthetic& out_;
  pt::PacketWriter writer_;
  std::vector<uint32_t> rounds_, calls_;
  size_t compressed_ = 0;
  uint64_t bits_ = 0, edge_ = 0, cyc_ = 0;
  unsigned count_ = 0;
  size_t last_psb_ = 0;
};

}  // namespace

std::vector<Character> characters() {
  return {
      {.name = "tnt", .ifs = 45, .loops = 12, .calls = 6},
      {.name = "tnt-cyc", .ifs = 45, .loops = 12, .calls = 6, .cyc = true},
      {.name = "hard", .ifs = 50, .loops = 8, .calls = 6, .hard_branches = 90},
      {.name = "loop", .functions = 60, .ifs = 15, .loops = 35, .calls = 3, .loop_rounds = 40},
      {.name = "call", .functions = 400, .statements = 7, .ifs = 25, .loops = 3, .calls = 35, .loop_rounds = 4},
      {.name = "tip", .functions = 300, .statements = 9, .ifs = 25, .loops = 4, .calls = 10, .indirect_calls = 15, .switches = 15},
  };
}

Synthetic make_synthetic(const Character& character, uint64_t instructions, uint64_t seed) {
  test::Random random(seed);
  Maker maker(character, random);
  maker.make();
  Synthetic out;
  out.memory.add(kCodeBase, maker.code_);
  out.config.return_compression = pt::ReturnCompression::on;
  out.config.tsc_ctc_ratio_n = kTscPerCtc;
  out.config.tsc_ctc_ratio_d = 1;
  out.config.mtc_period = kMtcShift;
  out.config.has_mtc = true;
  out.config.has_cyc = character.cyc;
  out.trace.reserve(instructions / 8);
  Machine(maker.ops_, character, random, out).run(instructions);
  return out;
}

}  // namespace ptd::bench
