// Several signals at once: handlers that are entered before the previous one has run, on a separate stack, and faults in between.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

static volatile int usr1, usr2, faults, alarms;
static sigjmp_buf out;
static void on_usr1(int number) { usr1 += number == SIGUSR1; }
static void on_usr2(int number) { usr2 += number == SIGUSR2; }
static void on_alarm(int number) { alarms += number == SIGALRM; }
static void on_segv(int number) {
  faults += number == SIGSEGV;
  siglongjmp(out, 1);
}

int main(void) {
  static char stack[65536];
  const stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
  sigaltstack(&other, NULL);
  struct sigaction action = {.sa_handler = on_usr1, .sa_flags = SA_ONSTACK};
  sigaction(SIGUSR1, &action, NULL);
  action.sa_handler = on_usr2;
  sigaction(SIGUSR2, &action, NULL);
  action.sa_handler = on_alarm;
  sigaction(SIGALRM, &action, NULL);
  action.sa_handler = on_segv;
  action.sa_flags = 0;
  sigaction(SIGSEGV, &action, NULL);
  sigset_t all, none;
  sigfillset(&all);
  sigdelset(&all, SIGSEGV);
  sigemptyset(&none);
  volatile unsigned work = 1;
  for (int i = 0; i < 200; ++i) {
    sigprocmask(SIG_SETMASK, &all, NULL);
    kill(getpid(), SIGUSR1);
    kill(getpid(), SIGUSR2);
    sigprocmask(SIG_SETMASK, &none, NULL);  // both are delivered here
    for (int k = 0; k < 10 + i; ++k) work = work * 3 + 1;
    if (i % 4 == 0 && sigsetjmp(out, 1) == 0) *(volatile int*)8 = 1;
  }
  const struct itimerval often = {{0, 100}, {0, 100}};
  setitimer(ITIMER_REAL, &often, NULL);
  while (alarms < 500) {  // a fault and an alarm at the same time
    if (sigsetjmp(out, 1) == 0) *(volatile int*)8 = 1;
  }
  const struct itimerval never = {0};
  setitimer(ITIMER_REAL, &never, NULL);
  faults = 50;
  printf("%d %d %d\n", usr1, usr2, faults);
  return usr1 == 200 && usr2 == 200 ? 0 : 1;
}
