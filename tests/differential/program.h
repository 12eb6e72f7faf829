// A random x86 program: its bytes and the effect of each instruction, known from its construction and not from any decoder.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/types.h"
#include "tests/support/corpus.h"

namespace ptd::test {

/// splitmix64: small, seeded, the same on all platforms.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// Returns a nearly uniform number in [0, bound); bound > 0.
  uint32_t below(uint32_t bound) { return static_cast<uint32_t>((next() >> 32) % bound); }
  bool chance(uint32_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

enum class OpKind : uint8_t {
  filler,
  jcc,
  jump,
  jump_indirect,
  call,
  call_next,
  call_indirect,
  ret,
  far_jump,
  far_ret,
  syscall,
  sysret,
  iret,
  soft_int,
  mov_cr3,
  ptwrite,
  xbegin,
  xend,
  xabort,
};

using OpId = uint32_t;

struct Op {
  OpKind kind = OpKind::filler;
  uint8_t length_bytes = 0;
  bool kernel = false;
  ExecMode mode = ExecMode::bits64;
  uint64_t ip = 0;
  std::vector<uint8_t> code;  ///< without the rel_bytes at the end
  uint8_t rel_bytes = 0;      ///< 0, 1 or 4 bytes of displacement to `target` at the end of the code
  OpId target = 0;            ///< direct branches, xbegin's fallback
  std::vector<OpId> targets;  ///< possible targets of an indirect branch or far jump
};

/// The kinds of instructions that a program may contain.
struct ProgramOptions {
  bool kernel = true;   ///< syscalls, handlers, MOV CR3
  bool bits32 = false;  ///< a region of 32-bit code, entered and left by far branches
  bool tsx = false;
  bool ptwrite = false;
  bool soft_int = false;  ///< INT3 and INT n
  uint32_t functions = 8;
};

struct Program {
  std::vector<Op> ops;                                              ///< by address within a region
  std::vector<OpId> user_functions, kernel_functions, functions32;  ///< first instruction of each
  std::vector<OpId> interrupt_handlers;                             ///< end in IRET
  std::vector<OpId> syscall_entries;                                ///< end in SYSRET
  SparseMemory memory;
};

[[nodiscard]] Program make_program(const ProgramOptions& options, Random& random);

}  // namespace ptd::test
