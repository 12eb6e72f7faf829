// Names and classes of branches: see branch_kind.h.
#include "analysis/names/branch_kind.h"

namespace ptd {

namespace {

struct Names {
  std::string_view plain, at_end;
  BranchRole role;
};

Names names_of(InsnClass cls, InsnDetail detail) {
  switch (detail) {
    case InsnDetail::syscall:
    case InsnDetail::sysenter:
      return {"syscall", "tr end  syscall", BranchRole::call};
    case InsnDetail::sysret:
    case InsnDetail::sysexit:
    case InsnDetail::erets:
    case InsnDetail::eretu:
      return {"sysret", "tr end  sysret", BranchRole::ret};
    case InsnDetail::eret:
      return {"eret", "tr end  eret", BranchRole::ret};
    case InsnDetail::iret:
    case InsnDetail::uiret:
    case InsnDetail::rsm:
      return {"iret", "tr end  iret", BranchRole::ret};
    case InsnDetail::int_n:
    case InsnDetail::int3:
    case InsnDetail::int1:
    case InsnDetail::into:
      return {"int", "tr end  int", BranchRole::call};
    case InsnDetail::vmlaunch:
    case InsnDetail::vmresume:
      return {"vmentry", "tr end  vmentry", BranchRole::jump};
    case InsnDetail::vmcall:
      return {"vmexit", "tr end  vmexit", BranchRole::jump};
    default:
      break;
  }
  switch (cls) {
    case InsnClass::jcc:
      return {"jcc", "tr end  jcc", BranchRole::jump};
    case InsnClass::call_direct:
    case InsnClass::call_indirect:
    case InsnClass::far_call:
      return {"call", "tr end  call", BranchRole::call};
    case InsnClass::ret:
    case InsnClass::far_ret:
      return {"return", "tr end  return", BranchRole::ret};
    default:
      return {"jmp", "tr end  jmp", BranchRole::jump};
  }
}

}  // namespace

BranchKind kind_of(InsnClass cls, InsnDetail detail, bool ends_trace) {
  const Names names = names_of(cls, detail);
  return BranchKind{ends_trace ? names.at_end : names.plain, names.role, false, ends_trace, false};
}

BranchKind kind_of(const Event& event) {
  if ((event.flags & kEventSyscall) != 0) return kind_of(InsnClass::far_call, InsnDetail::syscall, (event.flags & kEventHasTo) == 0);
  return {(event.flags & kEventBreakpoint) != 0 ? "int3" : "hw int", BranchRole::call, false, false, true};
}

}  // namespace ptd
