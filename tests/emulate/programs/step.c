// step PROGRAM: runs it on the processor, one instruction at a time, and writes the address of each (8 bytes) to standard error.
#include <stdint.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char** argv) {
  const pid_t pid = argc > 1 ? fork() : -1;
  if (pid < 0) return 2;
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, 0, 0);
    execv(argv[1], argv + 1);
    _exit(127);
  }
  int status = 0;
  while (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status)) {
    struct user_regs_struct registers;
    if (ptrace(PTRACE_GETREGS, pid, 0, &registers) != 0) return 1;
    const uint64_t ip = registers.rip;
    fwrite(&ip, sizeof(ip), 1, stderr);
    if (ptrace(PTRACE_SINGLESTEP, pid, 0, 0) != 0) return 1;
  }
  return 0;
}
