/* A static program: nested calls, 4000 times. */
#include <stdio.h>

__attribute__((noinline)) int inner(int x) { return x ^ (x >> 3); }

__attribute__((noinline)) int outer(int x) {
  int sum = 0;
  for (int i = 0; i < 4; ++i) sum += inner(x + i);
  return sum;
}

int main(void) {
  long sum = 0;
  for (int i = 0; i < 1000; ++i) sum += outer(i);
  printf("%ld\n", sum);
  return 0;
}
