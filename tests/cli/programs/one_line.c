// Inlined functions and their callers in one line, or at one address. The program counts the calls of leaf(), mid() and two().
#include <stdio.h>
volatile int sink;
long leaves, mids, twos;
static inline int clamp(int x) {
  int r = sink;
  for (int i = 0; i < x; i++)
    sink = r += i;
  return r;
}
#define TWICE(x) do { sink = clamp(x); sink = clamp(x + 1); } while (0)
#define INLINED static inline __attribute__((always_inline))
#define APART __attribute__((noinline))
APART int outer(int k) { int r = clamp(k); return r + sink; }
APART
int macro(int k)
{
  TWICE(k);
  return sink;
}
APART
int sum(int k)
{
  return clamp(k) + clamp(k + 1) + sink;
}
APART int entry(int k)
{
  int r = clamp(k); return r + sink;
}
INLINED void leaf(int x) { leaves++; sink = x; sink = x * 3; }
INLINED int mid(int x) { mids++; leaf(x); if (x & 1) leaf(x + 1); sink += 1; return sink; }
INLINED void two(int x) { twos++; leaf(x); leaf(x); }
INLINED int loop(int n) { int s = 0; for (int i = 0; i < n; i++) { s += mid(i); if (sink > 1000000) break; } return s; }
APART int all(int k) { int r = loop(k); r += mid(k); if (k % 3 == 0) two(k); return r; }
int main(void) {
  int s = 0;
  for (int i = 0; i < 20; i++) {
    s += outer(i % 4);
    s += macro(i % 3);
    s += sum(i % 2);
    s += entry(i % 4);
    s += all(i);
  }
  leaf(1);
  printf("%ld %ld %ld %d\n", leaves, mids, twos, s);
  return 0;
}
