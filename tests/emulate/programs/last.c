// last PROGRAM ARGUMENTS: runs it on the processor and writes, for each thread and process in the order of their start, where it ended:
// "ADDRESS CALL" to standard error, the address of the next instruction and the number of its pending system call, or -1.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kMostTasks = 64 };
static pid_t tasks[kMostTasks];
static struct {
  uint64_t ip;
  int64_t call;
} ends[kMostTasks];
static int task_count;

static int index_of(pid_t pid) {
  for (int i = 0; i < task_count; ++i) {
    if (tasks[i] == pid) return i;
  }
  tasks[task_count] = pid;
  return task_count < kMostTasks - 1 ? task_count++ : task_count;
}

int main(int argc, char** argv) {
  const pid_t pid = argc > 1 ? fork() : -1;
  if (pid < 0) return 2;
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(argv[1], argv + 1);
    _exit(127);
  }
  int status = 0;
  if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status)) return 1;
  index_of(pid);
  const long options = PTRACE_O_TRACEEXIT | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC | PTRACE_O_EXITKILL;
  if (ptrace(PTRACE_SETOPTIONS, pid, 0, options) != 0 || ptrace(PTRACE_CONT, pid, 0, 0) != 0) return 1;
  for (pid_t task = 0; (task = waitpid(-1, &status, __WALL)) > 0;) {
    if (!WIFSTOPPED(status)) continue;
    const int event = status >> 16, index = index_of(task);
    if (event == PTRACE_EVENT_EXIT) {
      struct user_regs_struct registers;
      if (ptrace(PTRACE_GETREGS, task, 0, &registers) == 0) {
        ends[index].ip = registers.rip;
        ends[index].call = (int64_t)registers.orig_rax;
      }
    }
    const int signal = WSTOPSIG(status);
    ptrace(PTRACE_CONT, task, 0, event != 0 || signal == SIGSTOP ? 0 : signal);
  }
  for (int i = 0; i < task_count; ++i) fprintf(stderr, "%llx %lld\n", (unsigned long long)ends[i].ip, (long long)ends[i].call);
  return 0;
}
