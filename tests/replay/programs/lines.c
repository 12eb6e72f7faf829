/* Functions that return to the start of a line, to the middle of one, and into loops. */
#include <stdio.h>

volatile int sink;

__attribute__((noinline)) void set(int x)
{
  sink += x;
  sink ^= 1;
}

__attribute__((noinline)) int get(int x)
{
  sink += x;
  return sink;
}

__attribute__((noinline)) void both(int x)
{
  set(x);
  sink = sink + 2;
  int a = get(x);
  sink = sink + a;
  set(a);
}

__attribute__((noinline)) int recursive(int n)
{
  int r;
  if (n < 2)
    r = n;
  else
    r = recursive(n - 1) + recursive(n - 2);
  sink += r;
  return r;
}

__attribute__((noinline)) int twice(int n) { return get(n) + get(n + 1); }

__attribute__((noinline)) int loops(int n)
{
  int s = 0;
  for (int i = 0; i < n; i++) {
    s += recursive(i);
    if (s & 1)
      s++;
  }
  while (n-- > 0)
    s ^= n;
  return s + twice(3);
}

int main(void)
{
  for (int i = 0; i < 2; i++) {
    both(i);
    set(i);
    printf("%d\n", i);
  }
  sink = loops(4);
  sink += recursive(3);
  return 0;
}
