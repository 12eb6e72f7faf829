// Length and branch class of one instruction, as needed to follow a trace. This file: x86; arm_insn.h: Arm.
#pragma once

#include <cstdint>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// How an instruction changes the flow, in the terms of [SDM] "Change of Flow Instructions" (COFI) for Intel PT.
enum class InsnClass : uint8_t {
  other,          ///< sequential
  jump_direct,    ///< JMP rel
  jump_indirect,  ///< JMP r/m (near)
  jcc,            ///< conditional: Jcc, JCXZ/JECXZ/JRCXZ, LOOPcc
  call_direct,    ///< CALL rel
  call_indirect,  ///< CALL r/m (near)
  ret,            ///< near RET
  far_call,       ///< far CALL (direct or indirect), SYSCALL, SYSENTER, INT n, INT3, INT1, INTO, VMCALL-like: see InsnDetail
  far_jump,       ///< far JMP
  far_ret,        ///< far RET, IRET, SYSRET, SYSEXIT, ERETU, ERETS, UIRET, RSM, VMLAUNCH, VMRESUME
  jmpabs,         ///< JMPABS (APX): direct 64-bit target, but produces a TIP
  mov_cr3,        ///< MOV to CR3: PIP binds here; sequential
  ptwrite,        ///< PTWRITE: PTW binds here; sequential
  bad,            ///< not a valid instruction, or not all bytes are given (see classify)
};

/// Finer distinctions that some bindings need.
enum class InsnDetail : uint8_t {
  none,
  syscall,
  sysenter,
  sysret,
  sysexit,
  iret,
  int_n,
  int3,
  int1,
  into,
  far_call,
  far_ret,
  far_jump,
  vmlaunch,
  vmresume,
  vmcall,
  vmptrld,
  eretu,
  erets,
  uiret,
  rsm,
  wrmsr,
  xbegin,
  xend,
  xabort,
  hlt,
  mwait,
  umwait,
  ud,
  loop,
  jcxz,
  senduipi,
  endbr,
  eret,
  svc,
  blx,  // eret, svc, blx (immediate): Arm. umwait: also TPAUSE; wrmsr: also WRMSRNS
};

struct Insn {
  InsnClass cls = InsnClass::bad;
  InsnDetail detail = InsnDetail::none;
  uint8_t length_bytes = 0;  ///< 1..15; 0 if cls == bad
  uint8_t operand_bits = 0;  ///< effective operand size of a near branch (16: target is truncated to 16 bits), else 0
  int64_t displacement = 0;  ///< of direct branches, relative to the next instruction; jmpabs: the absolute target
  friend constexpr bool operator==(const Insn&, const Insn&) = default;
};

/// Returns true if the instruction ends a block.
constexpr bool is_branch(InsnClass cls) { return cls >= InsnClass::jump_direct && cls <= InsnClass::jmpabs && cls != InsnClass::other; }
/// Returns true for a far transfer, which produces a TIP and may change mode, privilege level or CR3.
constexpr bool is_far(InsnClass cls) { return cls == InsnClass::far_call || cls == InsnClass::far_jump || cls == InsnClass::far_ret; }

/// Decodes one instruction at the start of `bytes`. 15 bytes are always enough; fewer are fine if the instruction fits. Never reads past
/// `bytes`. cls == bad: an encoding that no processor executes, or the instruction extends past `bytes` (length_bytes == 0 in both cases;
/// needs_more_bytes() distinguishes them). In ExecMode::unknown everything is bad. The table in decoder/insn/opcode_table.h lists which
/// encodings are bad and which only fault. Prefix 66 on a near branch is ignored in 64-bit mode, as on Intel processors. Source: [SDM]
/// volume 2, "Opcode Map". Arm instructions (arm_insn.h) use the same classes: ISB and other P0 instructions that do not branch are
/// `other`, ERET and RFE are far_ret.
[[nodiscard]] PTD_API Insn classify(Bytes bytes, ExecMode mode);
/// Returns true if classify() fails only because the bytes end early.
[[nodiscard]] PTD_API bool needs_more_bytes(Bytes bytes, ExecMode mode);

/// Returns the target of a direct branch (jump_direct, jcc taken, call_direct, jmpabs) at `ip`. Addresses are linear; outside 64-bit mode
/// they wrap at 32 bits. A 16-bit operand truncates EIP to 16 bits. This is done only for a CS base of 0, which in 16-bit code is assumed
/// for addresses below 64 KiB (above that, base and offset cannot be separated).
[[nodiscard]] PTD_API Ip direct_target(const Insn& insn, Ip ip, ExecMode mode);
/// Returns the address of the next sequential instruction; wraps at 32 bits outside 64-bit mode.
[[nodiscard]] PTD_API Ip next_sequential(const Insn& insn, Ip ip, ExecMode mode);

}  // namespace ptd
