// Work with many indirect calls, returns and conditional branches, so that its trace is long and has targets everywhere.
#include <stdio.h>

static unsigned state = 1;

static unsigned next(void) {
  state = state * 1103515245u + 12345u;
  return state >> 16;
}

static unsigned add(unsigned x) { return x + next(); }
static unsigned halve(unsigned x) { return x % 3 == 0 ? x / 2 : x / 3; }
static unsigned mix(unsigned x) {
  for (unsigned i = 0; i < (x & 7); ++i) x ^= x << 5 ^ x >> 3;
  return x;
}
static unsigned deeper(unsigned x);
static unsigned (*volatile operations[4])(unsigned) = {add, halve, mix, deeper};
static unsigned deeper(unsigned x) { return (x & 12) == 0 ? x + 1 : operations[x & 3](x >> 2) + 1; }

int main(void) {
  unsigned sum = 0;
  for (int i = 0; i < 60000; ++i) sum = operations[next() & 3](sum + (unsigned)i);
  printf("%u\n", sum);
  return 0;
}
