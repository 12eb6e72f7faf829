// touch() faults at its first instruction in 200 of its 300 calls, and returns from the others.
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>

enum { kGood = 100, kFaults = 200 };
static sigjmp_buf back;
static int value;

void on_fault(int number) {
  (void)number;
  siglongjmp(back, 1);
}

__attribute__((noinline)) int touch(volatile int* place) { return *place; }
__attribute__((noinline)) int never_called(volatile int* place) { return 1 + *place; }

int main(void) {
  struct sigaction action = {.sa_handler = on_fault};
  sigaction(SIGSEGV, &action, NULL);
  long sum = 0;
  for (int i = 0; i < kGood; ++i) sum += touch(&value);
  for (int i = 0; i < kFaults; ++i) {
    if (!sigsetjmp(back, 1)) sum += touch(NULL);
  }
  if (sum == 1) sum += never_called(&value);
  printf("%ld\n", sum);
  return 0;
}
