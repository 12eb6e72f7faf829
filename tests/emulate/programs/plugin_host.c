// Calls a library and is called back by it, to test the flow if the library's file is gone.
#include <stdio.h>
#include <stdlib.h>

int fold(const int *values, int count, int (*step)(int, int));

static int mix(int a, int b) { return a * 31 + (b & 1 ? b : -b); }
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

int main(void) {
  int values[64];
  long sum = 0;
  for (int round = 0; round < 200; ++round) {
    for (int i = 0; i < 64; ++i) values[i] = (i * 7919 + round * 104729) % 1000;
    qsort(values, 64, sizeof *values, order);
    sum += fold(values, 64, mix) % 1000;
  }
  printf("%ld\n", sum);
  return 0;
}
