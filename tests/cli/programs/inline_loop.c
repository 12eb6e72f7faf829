/* A function that is inlined into a loop: GCC gives it an entry (DW_AT_entry_pc) that is code of the loop. */
#include <stdio.h>
static long counted;
static inline __attribute__((always_inline)) long repeat(long x) {
  ++counted;
  for (int i = 0; i < 3; ++i) x = x * 7 + i;
  return x;
}
static __attribute__((noinline)) long other(long x) {
  __asm__ volatile("" : "+r"(x));
  return x + 1;
}
__attribute__((noinline)) long outer(long x) {
  long sum = 0;
  for (int i = 0; i < 5; ++i) sum += repeat(x + i) + other(i);
  return sum;
}
int main(void) {
  long sum = 0;
  for (int i = 0; i < 100; ++i) sum += outer(i);
  printf("%ld %ld\n", counted, sum);
  return counted != 500;
}
