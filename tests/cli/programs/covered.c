// Lines that are executed once, often, and never: to compare coverage with gcov.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int unused_helper(int x) {
  return x * 3;
}

static inline int clamp(int value, int low, int high) {
  if (value < low)
    return low;
  if (value > high)
    return high;
  return value;
}

int table[16];

int classify(int x) {
  switch (x & 7) {
    case 0:
      return clamp(x, 1, 9);
    case 1:
      x += 2;
      break;
    case 5:
      x ^= 0x55;
      break;
    case 6:
      if (x > 10000)
        abort();
      x--;
      break;
    default:
      x = clamp(x * 3, 5, 50);
  }
  return x;
}

int never(const char *text) {
  int n = 0;
  while (*text)
    n += *text++;
  return n + unused_helper(n);
}

int main(int argc, char **argv) {
  int sum = 0;
  for (int i = 0; i < 200; i++) {
    if (i % 3 == 0)
      continue;
    sum += classify(i);
    table[i & 15] += sum > 100 ? 1 : 2;
  }
  if (argc > 5)
    sum += never(argv[5]);
  for (int i = 0; i < 16; ++i)
    sum ^= table[i];
  if (sum == 0x7fffffff) {
    puts("unlikely");
    return 1;
  }
  printf("%d\n", sum);
  return 0;
}
