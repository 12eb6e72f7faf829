// Functions whose numbers of calls follow from the loops of main; built with -DSHORTER it makes fewer.
#include <stdio.h>

#ifdef SHORTER
enum { kLoops = 201 };
#else
enum { kLoops = 301 };
#endif

__attribute__((noinline)) long steps_to_one(long n) {
  long steps = 0;
  while (n != 1) {
    if (n & 1) {
      n = 3 * n + 1;
    } else {
      n >>= 1;
    }
    ++steps;
  }
  return steps;
}

__attribute__((noinline)) int pick(int kind) {
  switch (kind) {
    case 0: return 5;
    case 1: return 7;
    case 2: kind += 3; break;
    case 4: return 11;
    default: kind = -1;
  }
  return kind;
}

int main(void) {
  long sum = 0;
  for (long i = 1; i < 500; ++i) sum += steps_to_one(i);
  for (int i = 0; i < kLoops; ++i) sum += pick(i % 6);
  printf("%ld\n", sum);
  return 0;
}
