// aarch64 without a C library: prints how long a sleep and a computation took by CLOCK_MONOTONIC, in ns.
#include "../data_programs/start.h"

enum { kNanosleep = 101, kClockGettime = 113, kMonotonic = 1 };

static unsigned long now(void) {
  long time[2];
  call(kClockGettime, kMonotonic, (long)time, 0, 0, 0, 0);
  return (unsigned long)(time[0] * 1000000000 + time[1]);
}

__attribute__((noinline)) static void nap(void) {
  long time[2] = {0, 30000000};
  call(kNanosleep, (long)time, 0, 0, 0, 0, 0);
}

__attribute__((noinline)) static long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) static long compute(void) { return fib(17) + 1; }
__attribute__((noinline)) static long again(void) { return fib(20) + 2; }

static int run(void) {
  const unsigned long a = now();
  nap();
  const unsigned long b = now();
  const long first = compute();
  const unsigned long c = now();
  nap();
  const unsigned long d = now();
  const long second = again();
  const unsigned long e = now();
  print_number(d - c + b - a);
  print_number(c - b);
  print_number(e - d);
  return first + second == 0;
}
