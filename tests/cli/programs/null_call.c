/* Calls a null pointer three times, see export_test.py. */
#include <setjmp.h>
#include <signal.h>

static sigjmp_buf back;
static void (*volatile nothing)(void);
static void handle(int number) { siglongjmp(back, number); }
int main(void) {
  volatile int faults = 0;
  signal(SIGSEGV, handle);
  while (faults < 3) {
    if (sigsetjmp(back, 1) == 0) nothing();
    ++faults;
  }
  return 0;
}
