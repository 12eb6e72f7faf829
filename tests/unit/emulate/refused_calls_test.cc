// What is said of calls that qemu-user refuses.
#include "capture/emulate/shared/refused_calls.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>

#include <cerrno>

#include "capture/emulate/shared/syscall_names.h"
#include "capture/emulate/shared/user_exec.h"

namespace ptd::emulate {
namespace {

std::string refused_clone(uint64_t flags) { return refused_call({kMachineX86_64, 56, {flags}, -EINVAL}); }

TEST(RefusedCalls, HaveTheNamesOfTheirArchitecture) {
  const struct {
    int64_t x86_64, aarch64;
    const char* name;
  } kCalls[] = {{101, 117, "ptrace"},   {206, 0, "io_setup"},          {250, 219, "keyctl"},
                {328, 287, "pwritev2"}, {320, 294, "kexec_file_load"}, {425, 425, "io_uring_setup"},
                {437, 437, "openat2"},  {469, 469, "file_setattr"},    {470, 470, "system call 470"}};
  for (const auto& call : kCalls) {
    EXPECT_EQ(refused_call({kMachineX86_64, call.x86_64, {}, -ENOSYS}), call.name);
    EXPECT_EQ(refused_call({kMachineAarch64, call.aarch64, {}, -ENOSYS}), call.name);
    EXPECT_EQ(refused_call({kMachineX86_64, call.x86_64, {}, -EINVAL}), "");
    EXPECT_EQ(refused_call({kMachineX86_64, call.x86_64, {}, 0}), "");
  }
}

TEST(RefusedCalls, LinuxRefusesNumbersWithoutACall) {
  for (const int64_t number : {-1, 174, 212, 345, 423, 512, 100'000})
    EXPECT_EQ(refused_call({kMachineX86_64, number, {}, -ENOSYS}), "") << number;
  for (const int64_t number : {-1, 18, 42, 244, 259, 295, 423, 512})
    EXPECT_EQ(refused_call({kMachineAarch64, number, {}, -ENOSYS}), "") << number;
}

TEST(RefusedCalls, CLibrariesAndRuntimesDoWithoutSome) {
  for (const int64_t number : {273, 330, 334, 435, 452})
    EXPECT_EQ(refused_call({kMachineX86_64, number, {}, -ENOSYS}), "") << syscall_name(kMachineX86_64, number);
}

TEST(RefusedCalls, CloneSaysWhichPartOfItsFlagsIsRefused) {
  constexpr uint64_t kThread = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM;
  EXPECT_EQ(refused_clone(CLONE_FILES | SIGCHLD), "clone with flags 0x400");
  EXPECT_EQ(refused_clone(CLONE_VM | CLONE_VFORK | CLONE_FS | SIGCHLD), "clone with flags 0x4300");
  EXPECT_EQ(refused_clone(CLONE_NEWUSER | SIGCHLD), "clone with flags 0x10000000");
  EXPECT_EQ(refused_clone(0), "clone with exit signal 0");
  EXPECT_EQ(refused_clone(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGUSR1), "clone with exit signal 10");
  EXPECT_EQ(refused_clone(CLONE_VM | CLONE_VFORK), "clone with exit signal 0");
  EXPECT_EQ(refused_clone(kThread | CLONE_SETTLS | SIGCHLD), "clone with exit signal 17");
}

TEST(RefusedCalls, LinuxRefusesSomeFlagsOfCloneToo) {
  constexpr uint64_t kPidfd = 0x1000;
  for (const uint64_t flags : {CLONE_THREAD, CLONE_SIGHAND, CLONE_THREAD | CLONE_SIGHAND, CLONE_FS | CLONE_NEWNS, CLONE_FS | CLONE_NEWUSER,
                               CLONE_NEWIPC | CLONE_SYSVSEM, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD | CLONE_NEWPID})
    EXPECT_EQ(refused_clone(static_cast<uint64_t>(flags) | SIGCHLD), "") << flags;
  EXPECT_EQ(refused_clone(kPidfd | CLONE_DETACHED | SIGCHLD), "");
  EXPECT_EQ(refused_clone(kPidfd | CLONE_PARENT_SETTID | SIGCHLD), "");
  EXPECT_EQ(refused_clone(kPidfd | SIGCHLD), "clone with flags 0x1000");
}

TEST(RefusedCalls, PrctlIsNamedWithItsOption) {
  const auto refused = [](uint16_t machine, int64_t number, uint64_t option, uint64_t value) {
    return refused_call({machine, number, {option, value}, -EINVAL});
  };
  EXPECT_EQ(refused(kMachineX86_64, 157, 22, 1), "prctl(PR_SET_SECCOMP)");
  EXPECT_EQ(refused(kMachineAarch64, 167, 22, 2), "prctl(PR_SET_SECCOMP)");
  EXPECT_EQ(refused(kMachineX86_64, 157, 22, 3), "") << "Linux has no such mode";
  EXPECT_EQ(refused(kMachineX86_64, 157, 59, 1), "prctl(PR_SET_SYSCALL_USER_DISPATCH)");
  EXPECT_EQ(refused(kMachineAarch64, 167, 59, 1), "") << "Linux has it for x86 only";
  EXPECT_EQ(refused(kMachineX86_64, 157, 1000, 1), "");
}

}  // namespace
}  // namespace ptd::emulate
