// End of an emulated process: stops its threads, so that the last instruction of each is known.
#include <fcntl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <string>

#include "capture/emulate/plugin/user_process.h"

namespace ptd::emulate {
namespace {

constexpr long kPollNs = 200'000;
constexpr int kMostPolls = 5000;  // about a second

void pause_briefly() {
  const timespec pause{0, kPollNs};
  nanosleep(&pause, nullptr);
}

// Signals of which QEMU writes a core dump of the program. It stops all threads at the start of a block first (linux-user/signal.c,
// "dump_core_and_abort").
bool dumps_core(int number) {
  return number == SIGABRT || number == SIGFPE || number == SIGILL || number == SIGQUIT || number == SIGSEGV || number == SIGTRAP ||
         number == SIGBUS;
}

// The thread sleeps in futex(): of a thread that is not in a system call of the program, the emulator made it wait.
bool is_stopped_by_emulator(pid_t tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/syscall";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  char text[32] = {};
  const ssize_t size = read(file, text, sizeof text - 1);
  close(file);
  char* end = nullptr;
  return size > 0 && std::strtol(text, &end, 10) == SYS_futex && end != text;
}

}  // namespace

template <class Stopped>
bool UserProcess::wait_for_others(const UserThread* self, Stopped&& stopped) {
  bool others = false;
  for (int poll = 0; poll < kMostPolls; ++poll) {
    bool all = true;
    if (!lock_.test_and_set(std::memory_order_acquire)) {
      all = threads_starting_ == 0;
      for (const std::unique_ptr<UserThread>& thread : owned_) {
        if (thread.get() == self) continue;
        others = true;
        all = (thread->published().is_settled() || stopped(*thread)) && all;
      }
      lock_.clear(std::memory_order_release);
      if (all) break;
    }
    pause_briefly();
  }
  return others;
}

bool UserProcess::hold_others(const UserThread* self) {
  holding_ = true;
  return wait_for_others(self, [](const UserThread&) { return false; });
}

void UserProcess::wait_for_release(UserThread& thread) {
  thread.set_held(true);
  while (holding_) pause_briefly();
  thread.set_held(false);
}

void UserProcess::die_by_signal(int number, bool fault, size_t program_counter) {
  UserThread* self = current_thread();
  if (self != nullptr && self->registers != nullptr) self->end_at_registers(self->registers + program_counter, fault);
  if (!dumps_core(number)) {
    (void)hold_others(self);
    return;
  }
  holding_ = true;
  std::map<const UserThread*, TraceStep> asleep;  // in the poll before
  (void)wait_for_others(self, [&](UserThread& thread) {
    if (thread.registers == nullptr || !is_stopped_by_emulator(thread.tid)) return false;
    const TraceStep now = thread.published();
    const auto [before, first] = asleep.try_emplace(&thread, now);
    const bool moved = now.insns != before->second.insns || now.ip != before->second.ip;
    before->second = now;
    if (first || moved) return false;
    thread.end_at_registers(thread.registers + program_counter, false);
    return true;
  });
}

}  // namespace ptd::emulate
