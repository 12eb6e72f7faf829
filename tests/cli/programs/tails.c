// Tail calls: a chain, functions that call each other, and a long chain.
#define APART __attribute__((noinline, noclone))
#define STOP __asm__ volatile("" ::: "memory")

APART static int leaf(int x) {
  STOP;
  return x + 1;
}
APART static int inner(int x) {
  STOP;
  return leaf(x) * 2;
}
APART static int outer(int x) {
  STOP;
  return x % 3 == 0 ? leaf(x) : inner(x + 1);
}

APART static int odd(int n);
APART static int even(int n) {
  STOP;
  return n == 0 ? leaf(1) : odd(n - 1);
}
APART static int odd(int n) {
  STOP;
  return n == 0 ? leaf(0) : even(n - 1);
}

#define LINK(name, next)           \
  APART static int name(int x) {   \
    STOP;                          \
    return next(x + 1);            \
  }
LINK(c12, leaf) LINK(c11, c12) LINK(c10, c11) LINK(c9, c10) LINK(c8, c9) LINK(c7, c8)
LINK(c6, c7) LINK(c5, c6) LINK(c4, c5) LINK(c3, c4) LINK(c2, c3) LINK(c1, c2)

static int (*volatile choose[])(int) = {outer, even, c1};

int main(void) {
  int sum = 0;
  for (int i = 0; i < 60; ++i) sum += choose[i % 3](i) + inner(i);
  return sum == 0;
}
