// A child sends SIGSEGV, for a handler without SA_SIGINFO, while a block that loops to itself runs: its rounds are known.
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kRounds = 3000000 };
static volatile int taken;
static void on_segv(int number) { taken += number == SIGSEGV; }
__attribute__((noinline)) void spin(long rounds) { __asm__ volatile("1: dec %0\n jne 1b" : "+r"(rounds)::"cc"); }

int main(void) {
  const struct sigaction action = {.sa_handler = on_segv};
  sigaction(SIGSEGV, &action, NULL);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) {
    while (getppid() == parent) {
      kill(parent, SIGSEGV);
      usleep(300);
    }
    return 0;
  }
  spin(kRounds);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
  printf("%d\n", taken);
  return taken < 5;
}
