// Signals that interrupt system calls and code. Prints how often each function was called.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define COUNTED __attribute__((noinline, noclone))

static struct {
  int handler, tail_handler, tail_inner, outer_handler, writes, skips, work, raiser, blocked, restarted, skipped, helper;
} calls;
static int pipe_ends[2];

COUNTED static void handler(int number) { calls.handler++; (void)number; }

COUNTED static void tail_inner(int number) { calls.tail_inner++; __asm__ volatile("" : : "r"(number)); }
COUNTED static void tail_handler(int number) {
  calls.tail_handler++;
  tail_inner(number);
}

// Calls something, and is interrupted by another signal itself.
COUNTED static void outer_handler(int number) {
  calls.outer_handler++;
  raise(SIGUSR2);
  __asm__ volatile("" : : "r"(number));
}

// Lets the system call go on that it interrupts.
COUNTED static void writes(int number) {
  calls.writes++;
  if (write(pipe_ends[1], "", 1) != 1) _exit(number);
}

// Returns to another place than was interrupted: after UD2.
COUNTED static void skips(int number, siginfo_t* info, void* context) {
  calls.skips++;
  ((ucontext_t*)context)->uc_mcontext.gregs[REG_RIP] += 2;
  (void)number;
  (void)info;
}

COUNTED static int helper(int x) { calls.helper++; return x * 7 + 3; }

// The code after a system call that a signal interrupts.
COUNTED static unsigned work(int rounds) {
  calls.work++;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_pause) : "rcx", "r11", "memory");
  unsigned x = 1;
  for (int i = 0; i < rounds; i++) {
    x = x * 1103515245 + 12345;
    if (x & 0x10000) x ^= (unsigned)i;
  }
  for (int i = 0; i < 100; i++) x += (unsigned)helper(i);
  return x;
}

COUNTED static void raiser(int number) {
  calls.raiser++;
  raise(number);
  __asm__ volatile("");
}

// Two signals become due at once: one handler begins where the other returns to.
COUNTED static void blocked(void) {
  calls.blocked++;
  sigset_t both, old;
  sigemptyset(&both);
  sigaddset(&both, SIGUSR1);
  sigaddset(&both, SIGUSR2);
  sigprocmask(SIG_BLOCK, &both, &old);
  raise(SIGUSR1);
  raise(SIGUSR2);
  sigprocmask(SIG_SETMASK, &old, 0);
  __asm__ volatile("");
}

// The kernel executes read again.
COUNTED static int restarted(void) {
  calls.restarted++;
  char byte;
  const int count = (int)read(pipe_ends[0], &byte, 1);
  return count + helper(count);
}

COUNTED static int skipped(int x) {
  calls.skipped++;
  __asm__ volatile("ud2");
  return helper(x) + 1;
}

static void on(int number, void (*handle)(int), int flags) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = handle;
  action.sa_flags = flags;
  sigaction(number, &action, 0);
}

// Again and again: the first one may come before the system call.
static void alarms(int on) {
  struct itimerval every = {{0, on * 20000}, {0, on * 4000}};
  setitimer(ITIMER_REAL, &every, 0);
}

int main(void) {
  unsigned sum = 0;
  on(SIGALRM, handler, 0);
  for (int i = 0; i < 3; i++) {
    alarms(1);
    sum += work(200000);
    alarms(0);
  }
  on(SIGUSR1, handler, 0);
  on(SIGUSR2, tail_handler, 0);
  for (int i = 0; i < 5; i++) raiser(i % 2 ? SIGUSR1 : SIGUSR2);
  for (int i = 0; i < 4; i++) blocked();
  on(SIGHUP, outer_handler, 0);
  for (int i = 0; i < 3; i++) raiser(SIGHUP);
  if (pipe(pipe_ends) != 0) return 1;
  on(SIGALRM, writes, SA_RESTART);
  for (int i = 0; i < 3; i++) {
    alarms(1);
    sum += (unsigned)restarted();
    alarms(0);
  }
  on(SIGILL, (void (*)(int))skips, SA_SIGINFO);
  for (int i = 0; i < 6; i++) sum += (unsigned)skipped(i);
  printf("handler %d\ntail_handler %d\ntail_inner %d\nouter_handler %d\nwrites %d\nskips %d\nwork %d\nraiser %d\nblocked %d\nrestarted %d\n"
         "skipped %d\nhelper %d\nmain 1\n",
         calls.handler, calls.tail_handler, calls.tail_inner, calls.outer_handler, calls.writes, calls.skips, calls.work, calls.raiser,
         calls.blocked, calls.restarted, calls.skipped, calls.helper);
  return sum == 1;
}
