// A plain program: loops, recursion, calls through pointers, a sort.
#include "start.h"

typedef unsigned long (*Step)(unsigned long);
__attribute__((noinline)) static unsigned long twice(unsigned long x) { return 2 * x + 1; }
__attribute__((noinline)) static unsigned long half(unsigned long x) { return x / 2; }
__attribute__((noinline)) static unsigned long mix(unsigned long x) { return (x ^ (x >> 7)) * 0x9e3779b1UL; }
static const Step kSteps[] = {twice, half, mix};

__attribute__((noinline)) static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__attribute__((noinline)) static void sort(uint32_t* values, int count) {
  for (int i = 1; i < count; ++i) {
    const uint32_t value = values[i];
    int at = i;
    for (; at > 0 && values[at - 1] > value; --at) values[at] = values[at - 1];
    values[at] = value;
  }
}

static int run(void) {
  uint32_t values[200];
  unsigned long x = 12345;
  for (int i = 0; i < 200; ++i) {
    x = kSteps[x % 3](x) + (unsigned long)i;
    values[i] = (uint32_t)mix(x);
  }
  sort(values, 200);
  unsigned long sum = (unsigned long)fib(18);
  for (int i = 0; i < 200; ++i) sum = sum * 31 + values[i];
  print_number(sum);
  return 0;
}
