/* Functions of one name in two files, see export_test.py. PART: 1 or 2. ODD: also names that are not UTF-8. */
#include <sys/prctl.h>

int other(int n);
__attribute__((noinline)) static int step(int x) {
#if PART == 2
  __asm__ volatile("nop; nop; nop; nop; nop");
#endif
  return x * PART + 1;
}

#if PART == 2
int other(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += step(sum);
  return sum;
}
#else
#ifdef ODD
__attribute__((noinline)) int odd(int x) __asm__("odd\xffname");
int odd(int x) { return x + 1; }
#endif
int main(void) {
  volatile int sum = 0;
#ifdef ODD
  prctl(PR_SET_NAME, "odd\xffthread");
  sum = odd(sum);
#endif
  for (int i = 0; i < 5; ++i) sum = step(sum);
  return other(7) == 0;
}
#endif
