// System calls that qemu-user refuses although Linux has them.
#include "capture/emulate/shared/refused_calls.h"

#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <sstream>
#include <string_view>

#include "capture/emulate/shared/syscall_names.h"
#include "capture/emulate/shared/user_exec.h"

namespace ptd::emulate {
namespace {

/// Calls that libraries and runtimes try at the start of any program, and do without: glibc clone3, rseq, set_robust_list and fchmodat2;
/// libnuma get_mempolicy; V8 pkey_alloc. docs/RECORDING.md lists them.
constexpr std::string_view kDoneWithout[] = {"clone3", "fchmodat2", "get_mempolicy", "pkey_alloc", "rseq", "set_robust_list"};

/// Flags of clone() that Linux refuses: all of `set` without any of `clear` (linux kernel/fork.c "copy_process", "kernel_clone";
/// kernel/nsproxy.c "copy_namespaces").
struct InvalidFlags {
  uint64_t set, clear;
};
constexpr uint64_t kPidfd = 0x1000;  // linux "CLONE_PIDFD", which old C libraries do not have
constexpr InvalidFlags kInvalidFlags[] = {
    {CLONE_THREAD, CLONE_SIGHAND},     {CLONE_SIGHAND, CLONE_VM},         {CLONE_NEWNS | CLONE_FS, 0},
    {CLONE_NEWUSER | CLONE_FS, 0},     {CLONE_NEWUSER | CLONE_THREAD, 0}, {CLONE_NEWPID | CLONE_THREAD, 0},
    {CLONE_NEWIPC | CLONE_SYSVSEM, 0}, {kPidfd | CLONE_DETACHED, 0},      {kPidfd | CLONE_PARENT_SETTID, 0},
};

// The part of clone()'s flags that qemu-user refuses (linux-user/syscall.c "do_fork"): it runs threads, and processes as of fork() and
// vfork().
std::string refused_clone(uint64_t flags) {
  constexpr uint64_t kAny = CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_DETACHED | CLONE_IO;
  constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  const auto is_invalid = [flags](const InvalidFlags& invalid) {
    return (flags & invalid.set) == invalid.set && (flags & invalid.clear) == 0;
  };
  if (std::ranges::any_of(kInvalidFlags, is_invalid)) return {};
  const uint64_t exit_signal = flags & CSIGNAL, asked = flags & UINT32_MAX & ~uint64_t{CSIGNAL};
  uint64_t sharing = asked & ~kAny;
  if ((sharing & CLONE_VFORK) != 0) sharing &= ~uint64_t{CLONE_VFORK | CLONE_VM};
  std::ostringstream text;
  if (sharing == 0 || sharing == kThread) {
    text << "clone with exit signal " << exit_signal;
  } else {
    text << "clone with flags 0x" << std::hex << asked;
  }
  return text.str();
}

/// Options of prctl() that the emulator answers with EINVAL, and Linux does not for these values.
struct RefusedOption {
  const char* name;
  uint64_t option, first_value, last_value;
  bool aarch64;  ///< Linux has it for aarch64 too
};
constexpr RefusedOption kRefusedOptions[] = {
    {"PR_SET_SECCOMP", 22, 1, 2, true}, {"PR_SET_TSC", 26, 2, 2, false}, {"PR_SET_SYSCALL_USER_DISPATCH", 59, 1, 1, false}};

std::string refused_prctl(const ReturnedCall& call) {
  for (const RefusedOption& refused : kRefusedOptions) {
    const bool valid = call.args[1] >= refused.first_value && call.args[1] <= refused.last_value;
    if (call.args[0] == refused.option && valid && (refused.aarch64 || call.machine != kMachineAarch64))
      return "prctl(" + std::string(refused.name) + ")";
  }
  return {};
}

}  // namespace

std::string refused_call(const ReturnedCall& call) {
  if (call.result != -ENOSYS && call.result != -EINVAL) return {};
  const std::string name = syscall_name(call.machine, call.number);
  if (call.result == -ENOSYS) return std::ranges::find(kDoneWithout, name) == std::end(kDoneWithout) ? name : "";
  if (name == "clone") return refused_clone(call.args[0]);
  return name == "prctl" ? refused_prctl(call) : "";
}

}  // namespace ptd::emulate
