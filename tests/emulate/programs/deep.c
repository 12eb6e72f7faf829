// Recurses twice to the depth that its argument gives.
#include <stdio.h>
#include <stdlib.h>

volatile long sink;

__attribute__((noinline)) long down(long depth) {
  if (depth == 0) return 1;
  const long sum = down(depth - 1) + depth;
  sink = sum;
  return sum;
}

int main(int count, char** arguments) {
  const long depth = count > 1 ? atol(arguments[1]) : 1;
  printf("%ld\n", down(depth) + down(depth));
  return 0;
}
