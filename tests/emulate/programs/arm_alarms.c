// aarch64 without a C library: a timer interrupts a loop that calls a function, first for a handler with SA_SIGINFO, then for one without, whose frame
// has no siginfo. Prints the number of calls.
#include "../data_programs/start.h"

enum { kSetitimer = 103, kAlarm = 14, kSiginfo = 4, kWholeSet = 8, kEach = 60 };

struct action {
  unsigned long handler, flags, restorer, mask;
};
struct timer {
  long interval_s, interval_us, value_s, value_us;
};

static volatile unsigned long came;

__attribute__((noinline)) void on_alarm(void) { ++came; }

__attribute__((noinline)) unsigned long leaf(unsigned long n) {
  volatile unsigned long sum = 0;
  for (unsigned long i = 0; i < n; ++i) sum += i;
  return sum;
}

static int run(void) {
  unsigned long calls = 0;
  for (unsigned long flags = kSiginfo;; flags = 0) {
    const struct action action = {(unsigned long)on_alarm, flags, 0, 0};
    const struct timer timer = {0, 500, 0, 500}, off = {0, 0, 0, 0};
    const unsigned long end = came + kEach;
    call(kSigaction, kAlarm, (long)&action, 0, kWholeSet, 0, 0);
    call(kSetitimer, 0, (long)&timer, 0, 0, 0, 0);
    for (; came < end; ++calls) leaf(calls % 32);
    call(kSetitimer, 0, (long)&off, 0, 0, 0, 0);
    if (flags == 0) break;
  }
  print_number(calls);
  return 0;
}
