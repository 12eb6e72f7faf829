/* The same calls in every run, interrupted at other moments by a timer whose handler makes calls of its own. */
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>

static volatile unsigned sink;
__attribute__((noinline)) void tick_count(void) { sink += 1; }
static void tick(int number) {
  (void)number;
  tick_count();
}
__attribute__((noinline)) unsigned step(unsigned x) {
  for (int i = 0; i < 200; ++i) x = x * 31 + 7;
  return x;
}
int main(int count, char **words) {
  const struct itimerval often = {{0, 700}, {0, 700}};
  signal(SIGALRM, tick);
  if (count > 1) setitimer(ITIMER_REAL, &often, NULL);
  unsigned x = 1;
  for (int i = 0; i < 8000; ++i) x = step(x);
  return x == 0 || words[0] == NULL;
}
