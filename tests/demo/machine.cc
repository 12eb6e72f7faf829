// A very small x86-64 machine: memory, instructions, assembler.
#include "tests/demo/machine.h"

namespace ptd::demo {
namespace {

constexpr uint64_t kCodeSegment = 0x10, kStackSegment = 0x18, kFlagZero = 0x40, kFlagInterrupts = 0x200;

uint64_t sign_extend(uint64_t value, unsigned bytes) {
  const unsigned shift = 64 - 8 * bytes;
  return static_cast<uint64_t>(static_cast<int64_t>(value << shift) >> shift);
}

uint64_t flags_of(const Cpu& cpu) { return (cpu.zero ? kFlagZero : 0) | (cpu.interrupts ? kFlagInterrupts : 0); }

/// One instruction being run: how far its bytes were taken, and what they do.
class Execution {
 public:
  Execution(Memory& memory, Cpu& cpu, uint64_t breakpoint_entry)
      : memory_(memory), cpu_(cpu), at_(cpu.ip), breakpoint_entry_(breakpoint_entry) {}

  Step run() {
    step_.ip = cpu_.ip;
    const bool known = one_byte(take(1));
    if (!known) {
      step_.did = Did::stuck;
      return step_;
    }
    if (!jumped_) cpu_.ip = at_;
    return step_;
  }

 private:
  uint64_t take(unsigned bytes) {
    const uint64_t value = memory_.value(at_, bytes);
    at_ += bytes;
    step_.length_bytes += bytes;
    return value;
  }
  uint64_t take_signed(unsigned bytes) { return sign_extend(take(bytes), bytes); }

  void jump(uint64_t target) {
    cpu_.ip = target;
    jumped_ = true;
  }
  void jump_indirect(uint64_t target) {
    step_.did = Did::indirect;
    jump(target);
  }
  bool conditional(bool taken, unsigned bytes) {
    const uint64_t distance = take_signed(bytes);
    step_.did = Did::conditional;
    step_.taken = taken;
    if (taken) jump(at_ + distance);
    return true;
  }
  void set32(unsigned reg, uint64_t value) { cpu_.regs[reg] = value & 0xffffffff; }

  bool one_byte(uint64_t op) {
    if (op >= 0x50 && op <= 0x57) return push(memory_, cpu_, cpu_.regs[op & 7]), true;
    if (op >= 0x58 && op <= 0x5f) return cpu_.regs[op & 7] = pop(memory_, cpu_), true;
    if (op >= 0xb8 && op <= 0xbf) return set32(op & 7, take(4)), true;
    switch (op) {
      case 0x0f:
        return two_byte(take(1));
      case 0x48:
        return wide(take(1));
      case 0x65:
        segment_ = cpu_.gs_base;
        return one_byte(take(1));
      case 0x68:
        return push(memory_, cpu_, take_signed(4)), true;
      case 0x6a:
        return push(memory_, cpu_, take_signed(1)), true;
      case 0x74:
        return conditional(cpu_.zero, 1);
      case 0x75:
        return conditional(!cpu_.zero, 1);
      case 0x90:
        return true;
      case 0x9c:
        return push(memory_, cpu_, flags_of(cpu_)), true;
      case 0xcc:
        return breakpoint();
      case 0xc3:
        return jump_indirect(pop(memory_, cpu_)), true;
      case 0xe8: {
        const uint64_t distance = take_signed(4);
        push(memory_, cpu_, at_);
        return jump(at_ + distance), true;
      }
      case 0xe9: {
        const uint64_t distance = take_signed(4);
        return jump(at_ + distance), true;
      }
      case 0xeb: {
        const uint64_t distance = take_signed(1);
        return jump(at_ + distance), true;
      }
      case 0xf3:
        return take(1) == 0x90;  // pause
      default:
        return with_operand(op, take(1));
    }
  }

  bool two_byte(uint64_t op) {
    if (op == 0x84) return conditional(cpu_.zero, 4);
    if (op == 0x85) return conditional(!cpu_.zero, 4);
    if (op != 0x1f) return false;
    const uint64_t modrm = take(1);  // the NOPs 0f 1f 00 and 0f 1f 44 00 00
    if (modrm == 0x44) take(2);
    return modrm == 0x44 || modrm == 0x00;
  }

  bool wide(uint64_t op) {
    if (op == 0xcf) return return_from_interrupt();
    const uint64_t modrm = take(1);
    if (modrm < 0xc0) return false;
    if (op == 0x89) return cpu_.regs[modrm & 7] = cpu_.regs[(modrm >> 3) & 7], true;
    if (op == 0xc7 && modrm < 0xc8) return cpu_.regs[modrm & 7] = take_signed(4), true;
    return false;
  }

  bool with_operand(uint64_t op, uint64_t modrm) {
    const unsigned reg = modrm & 7;
    if (op == 0xff && modrm >= 0xc8 && modrm < 0xd0) {
      set32(reg, cpu_.regs[reg] - 1);
      return cpu_.zero = cpu_.regs[reg] == 0, true;
    }
    if (op == 0xff && modrm >= 0xd0 && modrm < 0xd8) {
      push(memory_, cpu_, at_);
      return jump_indirect(cpu_.regs[reg]), true;
    }
    if (op == 0xff && modrm >= 0xe0 && modrm < 0xe8) return jump_indirect(cpu_.regs[reg]), true;
    if (op == 0x69 && modrm >= 0xc0) return set32((modrm >> 3) & 7, cpu_.regs[reg] * take(4)), true;
    if (op == 0x81 && modrm >= 0xc0 && modrm < 0xc8) return set32(reg, cpu_.regs[reg] + take(4)), true;
    if (op == 0xf7 && modrm >= 0xc0 && modrm < 0xc8) return cpu_.zero = (cpu_.regs[reg] & take(4)) == 0, true;
    if ((op == 0x83 && modrm == 0x3c) || (op == 0xc7 && modrm == 0x04)) {
      if (take(1) != 0x25) return false;
      const uint64_t address = take_signed(4) + segment_;
      if (op == 0xc7) return memory_.set_value(address, 4, take(4)), true;
      const uint64_t immediate = take_signed(1) & 0xffffffff;
      return cpu_.zero = memory_.value(address, 4) == immediate, true;
    }
    return false;
  }

  bool breakpoint() {
    const uint64_t stack = cpu_.regs[rsp];
    cpu_.ip = at_;  // an INT3's frame holds the address after it
    cpu_.regs[rsp] = cpu_.trap_stack;
    enter_interrupt(memory_, cpu_, breakpoint_entry_);
    memory_.set_value(cpu_.regs[rsp] + 24, 8, stack);
    step_.did = Did::breakpoint;
    jumped_ = true;
    return true;
  }

  bool return_from_interrupt() {
    const uint64_t target = pop(memory_, cpu_);
    (void)pop(memory_, cpu_);  // code segment
    const uint64_t flags = pop(memory_, cpu_);
    const uint64_t stack = pop(memory_, cpu_);
    cpu_.regs[rsp] = stack;
    cpu_.zero = (flags & kFlagZero) != 0;
    cpu_.interrupts = (flags & kFlagInterrupts) != 0;
    return jump_indirect(target), true;
  }

  Memory& memory_;
  Cpu& cpu_;
  uint64_t at_, breakpoint_entry_, segment_ = 0;
  Step step_;
  bool jumped_ = false;
};

}  // namespace

uint8_t Memory::byte(uint64_t address) const {
  const auto page = pages_.find(address / kPageBytes);
  return page == pages_.end() ? 0 : page->second[address % kPageBytes];
}

uint64_t Memory::value(uint64_t address, unsigned bytes) const {
  uint64_t out = 0;
  for (unsigned i = bytes; i-- > 0;) out = out << 8 | byte(address + i);
  return out;
}

std::vector<std::byte> Memory::copy(uint64_t address, size_t bytes) const {
  std::vector<std::byte> out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = std::byte{byte(address + i)};
  return out;
}

void Memory::set_value(uint64_t address, unsigned bytes, uint64_t value) {
  for (unsigned i = 0; i < bytes; ++i, value >>= 8)
    pages_[(address + i) / kPageBytes][(address + i) % kPageBytes] = static_cast<uint8_t>(value);
}

void Memory::write(uint64_t address, const std::vector<std::byte>& bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) set_value(address + i, 1, static_cast<uint64_t>(bytes[i]));
}

void push(Memory& memory, Cpu& cpu, uint64_t value) {
  cpu.regs[rsp] -= 8;
  memory.set_value(cpu.regs[rsp], 8, value);
}

uint64_t pop(Memory& memory, Cpu& cpu) {
  cpu.regs[rsp] += 8;
  return memory.value(cpu.regs[rsp] - 8, 8);
}

void enter_interrupt(Memory& memory, Cpu& cpu, uint64_t handler) {
  const uint64_t stack = cpu.regs[rsp];
  push(memory, cpu, kStackSegment);
  push(memory, cpu, stack);
  push(memory, cpu, flags_of(cpu));
  push(memory, cpu, kCodeSegment);
  push(memory, cpu, cpu.ip);
  cpu.interrupts = false;
  cpu.ip = handler;
}

Step run_one(Memory& memory, Cpu& cpu, uint64_t breakpoint_entry) { return Execution(memory, cpu, breakpoint_entry).run(); }

std::vector<std::byte> from_hex(std::string_view hex) {
  std::vector<std::byte> out;
  const auto digit = [](char c) { return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10); };
  for (size_t i = 0; i + 1 < hex.size(); i += 3) out.push_back(static_cast<std::byte>(digit(hex[i]) << 4 | digit(hex[i + 1])));
  return out;
}

void Assembler::function(const std::string& name) {
  while (code_.size() % 16 != 0) code_.push_back(std::byte{0xcc});
  label(name);
}

void Assembler::bytes(std::string_view hex) {
  for (const std::byte b : from_hex(hex)) code_.push_back(b);
}

void Assembler::relative(std::string_view hex, const std::string& target, unsigned size_bytes) {
  bytes(hex);
  fixups_.push_back({code_.size(), size_bytes, true, target});
  code_.resize(code_.size() + size_bytes);
}

void Assembler::absolute(std::string_view hex, const std::string& target) {
  bytes(hex);
  fixups_.push_back({code_.size(), 4, false, target});
  code_.resize(code_.size() + 4);
}

bool Assembler::link() {
  for (const Fixup& fixup : fixups_) {
    const auto target = labels_.find(fixup.target);
    if (target == labels_.end()) return false;
    uint64_t value = target->second;
    if (fixup.is_relative) value -= base_ + fixup.at + fixup.size_bytes;
    if (sign_extend(value, fixup.size_bytes) != value) return false;
    for (unsigned i = 0; i < fixup.size_bytes; ++i, value >>= 8) code_[fixup.at + i] = static_cast<std::byte>(value & 0xff);
  }
  fixups_.clear();
  return true;
}

}  // namespace ptd::demo
