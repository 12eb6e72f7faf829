// Makes random x86 programs from templates of known length.
#include "tests/differential/program.h"

#include <algorithm>
#include <cstdio>
#include <string_view>

namespace ptd::test {
namespace {

// Sequential instructions; "??" is a random byte. Their lengths follow from the text, without a decoder.
constexpr std::string_view kFiller64[] = {
    "90",
    "6690",
    "0f1f00",
    "0f1f80????????",
    "660f1f8400????????",
    "662e0f1f8400????????",
    "6666666666662e0f1f8400????????",
    "4889e5",
    "4883c0??",
    "4881c1????????",
    "8b45??",
    "8b85????????",
    "488d05????????",
    "488d8424????????",
    "b8????????",
    "48b8????????????????",
    "c745??????????",
    "66c745??????",
    "0fafc1",
    "0fb6c0",
    "f30f1045??",
    "660f6f05????????",
    "c5f877",
    "c5fc28c1",
    "c4e27d1805????????",
    "c4e37d19c1??",
    "62f17c4828c1",
    "62f17c481045??",
    "f0480fb10d????????",
    "64488b0425????????",
    "9b",
    "50",
    "4157",
    "5d",
    "415f",
    "6a??",
    "68????????",
    "c8??????",
    "c9",
    "a8??",
    "a9????????",
    "f645????",
    "f7c0????????",
    "48f7d8",
    "d1e0",
    "c1e0??",
    "0fbae0??",
    "0f38f045??",
    "660f3a0fc1??",
    "f30f1efa",
    "f3a4",
    "f2ae",
    "0f0d08",
    "48a1????????????????",
    "a0????????????????",
    "678b45??",
    "480fc8",
    "0f94c0",
    "4863c8",
    "99",
    "4899",
    "f6d0",
    "0fa2",
    "0f31",
    "d9c0",
    "dd45??",
};
// 32-bit code. In 64-bit mode, several of these have another length or are not instructions.
constexpr std::string_view kFiller32[] = {
    "90", "89e5",     "83c0??",     "81c1????????", "8b45??",     "8b85????????", "b8????????", "66b8????", "40",
    "48", "4f",       "a1????????", "6645",         "c545??",     "c445??",       "06",         "60",       "61",
    "27", "678b47??", "0fafc1",     "6a??",         "68????????", "d50a",         "6245??",     "82c0??",   "1e",
};

struct Builder {
  const ProgramOptions& options;
  Random& random;
  Program program;

  std::vector<uint8_t> bytes_of(std::string_view text) {
    std::vector<uint8_t> out;
    const auto nibble = [](char c) { return static_cast<uint8_t>(c <= '9' ? c - '0' : c - 'a' + 10); };
    for (size_t i = 0; i + 1 < text.size(); i += 2) {
      out.push_back(text[i] == '?' ? static_cast<uint8_t>(random.next())
                                   : static_cast<uint8_t>(nibble(text[i]) << 4 | nibble(text[i + 1])));
    }
    return out;
  }
  std::string_view pick(std::initializer_list<std::string_view> choices) {
    return *(choices.begin() + random.below(static_cast<uint32_t>(choices.size())));
  }

  Op op(OpKind kind, std::string_view text, uint8_t rel_bytes = 0) {
    Op out;
    out.kind = kind;
    out.code = bytes_of(text);
    out.rel_bytes = rel_bytes;
    out.length_bytes = static_cast<uint8_t>(out.code.size() + rel_bytes);
    return out;
  }
  Op filler(ExecMode mode) {
    return op(OpKind::filler,
              mode == ExecMode::bits64 ? kFiller64[random.below(std::size(kFiller64))] : kFiller32[random.below(std::size(kFiller32))]);
  }
  Op conditional(bool is_short) {
    char text[8];
    const unsigned cc = random.below(16);
    if (!is_short) {
      std::snprintf(text, sizeof text, "%s0f%02x", random.chance(10) ? "3e" : "", 0x80 + cc);
      return op(OpKind::jcc, text, 4);
    }
    if (random.chance(20)) return op(OpKind::jcc, pick({"e3", "e2", "e1", "e0"}), 1);
    std::snprintf(text, sizeof text, "%02x", 0x70 + cc);
    return op(OpKind::jcc, text, 1);
  }

  enum class Role : uint8_t { plain, handler, syscall_entry };
  struct Region {
    bool kernel;
    ExecMode mode;
    uint64_t base;
  };
  // A call or jump to a later function of the region keeps direct flow free of cycles. It is patched when all starts are known.
  struct Later {
    OpId op;
    uint32_t function;
  };

  Op terminator(Role role, const Region& region) {
    if (role == Role::handler) return op(OpKind::iret, "48cf");
    if (role == Role::syscall_entry) return op(OpKind::sysret, "480f07");
    if (region.mode != ExecMode::bits64) return random.chance(50) ? op(OpKind::far_ret, "cb") : op(OpKind::ret, "c3");
    if (random.chance(12)) return op(OpKind::jump_indirect, pick({"ffe0", "41ffe3", "ff25????????", "ff24c5????????", "3effe0"}));
    return op(OpKind::ret, pick({"c3", "c3", "c3", "f3c3", "f2c3", "c2??00"}));
  }

  Op special(const Region& region) {
    if (region.mode == ExecMode::bits64 && !region.kernel) {
      if (options.kernel && random.chance(30)) return op(OpKind::syscall, "0f05");
      if (options.bits32 && random.chance(30)) return op(OpKind::far_jump, "ff2d????????");
      if (options.tsx && random.chance(50)) return op(OpKind::xbegin, "c7f8", 4);
      if (options.tsx && random.chance(60)) return random.chance(70) ? op(OpKind::xend, "0f01d5") : op(OpKind::xabort, "c6f8??");
    }
    if (options.ptwrite && region.mode == ExecMode::bits64 && random.chance(50))
      return op(OpKind::ptwrite, pick({"f30faee0", "f3480faee1"}));
    if (options.soft_int && options.kernel && random.chance(40)) return op(OpKind::soft_int, pick({"cc", "cd80"}));
    if (region.kernel && random.chance(50)) return op(OpKind::mov_cr3, pick({"0f22d8", "0f22d9", "410f22d8"}));
    return filler(region.mode);
  }

  Op random_op(const Region& region, uint32_t index, uint32_t count, uint32_t function, uint32_t functions, OpId first,
               std::vector<Later>& later) {
    const OpId here = first + index;
    const uint32_t dice = random.below(100);
    if (dice < 58) return filler(region.mode);
    if (dice < 74) {
      // Short forms reach six instructions in either direction: at most 6 * 15 bytes.
      const bool is_short = random.chance(60);
      const uint32_t low = is_short ? (index > 6 ? index - 6 : 0) : 0;
      const uint32_t high = is_short ? std::min(count - 1, index + 6) : count - 1;
      Op out = conditional(is_short);
      out.target = first + low + random.below(high - low + 1);
      return out;
    }
    if (dice < 80) {
      const bool is_short = random.chance(60);
      Op out = op(OpKind::jump, is_short ? "eb" : region.mode == ExecMode::bits64 && random.chance(10) ? "f2e9" : "e9", is_short ? 1 : 4);
      out.target = here + 1 + random.below(std::min(count - 1 - index, 6U));
      return out;
    }
    if (dice < 83) {
      Op out = op(OpKind::jump_indirect, pick({"ffe0", "ff2485????????", "ff23"}));
      for (int i = 0; i < 3; ++i) out.targets.push_back(first + random.below(count));
      return out;
    }
    if (dice < 91 && function + 1 < functions) {
      later.push_back({here, function + 1 + random.below(functions - function - 1)});
      return op(OpKind::call, region.mode == ExecMode::bits64 && random.chance(10) ? "f2e8" : "e8", 4);
    }
    if (dice < 92) return op(OpKind::call_next, "e800000000");
    if (dice < 95) return op(OpKind::call_indirect, pick({"ffd0", "ff15????????", "ff9424????????", "ff53??"}));
    return special(region);
  }

  void add_region(const Region& region, uint32_t functions, std::vector<OpId>& starts, Role role, uint64_t& address) {
    std::vector<Later> later;
    const size_t first_start = starts.size();
    for (uint32_t f = 0; f < functions; ++f) {
      address = (address + 15) & ~15ULL;
      const auto first = static_cast<OpId>(program.ops.size());
      const uint32_t count = 4 + random.below(28);
      starts.push_back(first);
      for (uint32_t i = 0; i < count; ++i) {
        Op out = i + 1 == count ? terminator(role, region) : random_op(region, i, count, f, functions, first, later);
        if (out.kind == OpKind::xbegin) out.target = first + random.below(count);
        out.kernel = region.kernel;
        out.mode = region.mode;
        out.ip = address;
        address += out.length_bytes;
        program.ops.push_back(std::move(out));
      }
      address += random.below(40);
    }
    for (const Later& call : later) program.ops[call.op].target = starts[first_start + call.function];
  }

  void give_targets() {
    for (Op& op : program.ops) {
      const auto& region = op.kernel                     ? program.kernel_functions
                           : op.mode == ExecMode::bits32 ? program.functions32
                                                         : program.user_functions;
      if ((op.kind == OpKind::jump_indirect || op.kind == OpKind::call_indirect) && op.targets.empty()) {
        for (int i = 0; i < 3; ++i) op.targets.push_back(region[random.below(static_cast<uint32_t>(region.size()))]);
      }
      if (op.kind == OpKind::far_jump) op.targets = program.functions32;
      if (op.kind == OpKind::far_ret) op.targets = program.user_functions;
    }
  }

  void encode() {
    for (const Op& op : program.ops) {
      std::vector<std::byte> bytes;
      for (const uint8_t b : op.code) bytes.push_back(std::byte{b});
      const uint64_t displacement = op.rel_bytes == 0 ? 0 : program.ops[op.target].ip - (op.ip + op.length_bytes);
      for (unsigned i = 0; i < op.rel_bytes; ++i) bytes.push_back(static_cast<std::byte>(displacement >> (8 * i)));
      program.memory.add(op.ip, bytes);
    }
  }
};

}  // namespace

Program make_program(const ProgramOptions& options, Random& random) {
  Builder builder{options, random, {}};
  uint64_t user = 0x401000 + (random.next() & 0x7fff'f000ULL);
  if (options.bits32 || random.chance(30)) user += 0x7f00'0000'0000ULL;
  const Builder::Region user_region{false, ExecMode::bits64, user};
  builder.add_region(user_region, options.functions, builder.program.user_functions, Builder::Role::plain, user);
  if (options.kernel) {
    uint64_t kernel = 0xffffffff81000000ULL + (random.next() & 0x0fff'f000ULL);
    const Builder::Region region{true, ExecMode::bits64, kernel};
    builder.add_region(region, options.functions, builder.program.kernel_functions, Builder::Role::plain, kernel);
    builder.add_region(region, 2, builder.program.interrupt_handlers, Builder::Role::handler, kernel);
    builder.add_region(region, 2, builder.program.syscall_entries, Builder::Role::syscall_entry, kernel);
  }
  if (options.bits32) {
    uint64_t low = 0x08048000;
    builder.add_region({false, ExecMode::bits32, low}, 3, builder.program.functions32, Builder::Role::plain, low);
  }
  builder.give_targets();
  builder.encode();
  return std::move(builder.program);
}

}  // namespace ptd::test
