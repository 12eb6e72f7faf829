// Fills memory with one instruction, which a timer's signals interrupt. Prints how long that took by the clock, in ns, and how often the handler ran.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile long runs;

static long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

void handler(int number) {
  (void)number;
  ++runs;
}

// The packet of the call leads to the instruction.
void fill(char* at, long unused, long unused_too, long count);
__asm__(".globl fill\n.type fill, @function\nfill: rep stosb\n\tret\n.size fill, . - fill");
static void (*volatile filler)(char*, long, long, long) = fill;

void enter(char* at, long count) { filler(at, 0, 0, count); }

int main(void) {
  const long size = 12L << 20;
  char* const memory = malloc((size_t)size);
  signal(SIGALRM, handler);
  struct itimerval timer = {{0, 3000}, {0, 3000}};
  setitimer(ITIMER_REAL, &timer, NULL);
  const long begin = now_ns();
  enter(memory, size);
  const long end = now_ns();
  timer.it_interval.tv_usec = timer.it_value.tv_usec = 0;
  setitimer(ITIMER_REAL, &timer, NULL);
  printf("%ld %ld\n", end - begin, runs);
  return 0;
}
