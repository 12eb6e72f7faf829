// BranchCode: what the code of a block says about the branch at its end, in the terms of calls.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ptdecode/flow.h"
#include "ptdecode/insn.h"

namespace ptd {

/// What a taken branch does to the stack of calls.
enum class Way : uint8_t {
  none,         ///< no branch, or one that calls nothing and goes nowhere else
  jump,         ///< within the function, or to another one that takes its place
  call_direct,  ///< near
  call,         ///< near and indirect, or a far CALL: a program that has no call gates stays in its mode
  far_call,     ///< system call, software interrupt and the like
  ret,          ///< near
  far_ret,
};

[[nodiscard]] constexpr bool is_return(Way way) { return way == Way::ret || way == Way::far_ret; }

struct BranchCode {
  Ip ip, next;               ///< the block's first address, and that after it
  Ip target;                 ///< of a direct jump, conditional or not; else 0
  Way way = Way::none;       ///< of its last instruction
  bool bare_return = false;  ///< nothing but a RET: what return thunks are made of
  bool bare_jump = false;    ///< nothing but a jump that is always taken: a stub that stands for what it jumps to
  bool indirect = false;     ///< a near jump that is indirect
  bool halts = false;        ///< it ends in HLT, MWAIT or the like
};

[[nodiscard]] constexpr Way way_of(InsnClass cls, InsnDetail detail) {
  if (detail == InsnDetail::vmlaunch || detail == InsnDetail::vmresume) return Way::jump;
  if (detail == InsnDetail::far_call) return Way::call;
  switch (cls) {
    case InsnClass::jump_direct:
    case InsnClass::jump_indirect:
    case InsnClass::jcc:
    case InsnClass::far_jump:
    case InsnClass::jmpabs:
      return Way::jump;
    case InsnClass::call_direct:
      return Way::call_direct;
    case InsnClass::call_indirect:
      return Way::call;
    case InsnClass::far_call:
      return Way::far_call;
    case InsnClass::ret:
      return Way::ret;
    case InsnClass::far_ret:
      return Way::far_ret;
    default:
      return Way::none;
  }
}

/// Reads a block's code. `bytes` as BlockTable::bytes.
[[nodiscard]] inline BranchCode branch_code(const BlockInfo& info, Bytes bytes) {
  Insn last;
  Ip at = info.ip;
  for (uint16_t i = 0; i < info.instructions && !bytes.empty(); ++i) {
    at = info.ip + (info.size_bytes - bytes.size());
    last = classify(bytes, info.mode);
    if (last.cls == InsnClass::bad) break;
    bytes = bytes.subspan(std::min<size_t>(last.length_bytes, bytes.size()));
  }
  const bool jumps = last.cls == InsnClass::jump_direct || last.cls == InsnClass::jcc;
  const Ip target = jumps ? direct_target(last, at, info.mode) : Ip{};
  const bool halts = last.detail == InsnDetail::hlt || last.detail == InsnDetail::mwait || last.detail == InsnDetail::umwait;
  const bool bare_return = last.cls == InsnClass::ret && info.instructions == 1;
  const bool indirect = last.cls == InsnClass::jump_indirect;
  const bool bare_jump = (last.cls == InsnClass::jump_direct || indirect) && info.instructions == 1;
  return {info.ip, info.ip + info.size_bytes, target, way_of(last.cls, last.detail), bare_return, bare_jump, indirect, halts};
}

}  // namespace ptd
