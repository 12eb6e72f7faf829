// Functions that are entered by calls, by jumps from other functions, and whose loops return to their first instruction. FNDA of `coverage` is
// compared with gcov.
#include <stdio.h>
#define N __attribute__((noinline, noclone))

N int tree(int n) {
  if (n < 2)
    return 1;
  int sum = tree(n - 1);
  sum += tree(n - 2);
  __asm__ volatile("" ::: "memory");
  return sum;
}

N int odd(unsigned n);
N int even(unsigned n) {
  return n == 0 ? 1 : odd(n - 1);
}
N int odd(unsigned n) {
  return n == 0 ? 0 : even(n - 1);
}

N int loops(volatile int *at) {
  do {
    (*at)++;
  } while (*at < 10);
  return 1;
}
N int by_jump(volatile int *at) {
  *at = 0;
  return loops(at);
}

static inline int falls(volatile int *at) {
  do {
    (*at)--;
  } while (*at > 0);
  return *at;
}

// The statement that ends a case is at the first instruction after the inlined copy, which all cases execute.
static int choose(int x) {
  switch (x % 5) {
    case 0:
      return 1;
    case 1:
      x += 2;
    case 2:
      x *= 3; break;
    case 3:
      for (int i = 0; i < x; i++)
        x--;
      break;
    default:
      return x ? x * x : 0;
  }
  return x;
}

int main(void) {
  volatile int x = 3;
  int sum = tree(10) + even(9) + loops(&x) + by_jump(&x) + falls(&x);
  for (int i = 0; i < 5; i++) {
    x = 4;
    sum += falls(&x);
  }
  for (int i = 0; i < 37; i++)
    sum += choose(i);
  printf("%d\n", sum);
  return 0;
}
