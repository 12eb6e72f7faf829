// Calls of all kinds that a profile must handle: tail calls, recursion, longjmp, leaf loops.
#include <stdio.h>
#include <setjmp.h>
static jmp_buf out;
static volatile unsigned sink;
__attribute__((noinline)) void leaf(unsigned n) { while (n--) sink += n; }
__attribute__((noinline)) void tail(unsigned n) { leaf(n); sink++; leaf(n / 2); }
__attribute__((noinline)) void jumper(unsigned n) { sink += n; tail(n); }
__attribute__((noinline)) unsigned recurse(unsigned n) { leaf(3); return n == 0 ? 1 : n + recurse(n - 1) + (n & 1 ? recurse(0) : 0); }
__attribute__((noinline)) void deep(unsigned n) { if (n == 0) longjmp(out, 1); deep(n - 1); sink++; }
__attribute__((noinline)) void catcher(unsigned n) { if (setjmp(out) == 0) deep(n); sink++; }
int main(void) {
  for (unsigned i = 0; i < 50; ++i) { jumper(i * 10); sink += recurse(i % 7); catcher(i % 5); }
  printf("%u\n", sink);
  return 0;
}
