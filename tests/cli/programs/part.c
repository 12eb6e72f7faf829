// GCC -O2 inlines the start of lookup() into two functions, and the rest is a function lookup.part.0.
#include <stdio.h>
static int table[64];
#define SAY printf("%d %d\n", x, table[(x + 1) & 63]); printf("%d %d\n", x, table[(x + 2) & 63]); printf("%d %d\n", x, table[(x + 3) & 63]);
int lookup(int x) {
  if (x < 3)
    return x;
  for (int i = 0; i < 64; i++)
    if (table[i] == x)
      return i;
  SAY SAY SAY SAY SAY SAY SAY SAY SAY SAY
  SAY SAY SAY SAY SAY SAY SAY SAY SAY SAY
  return 0;
}
__attribute__((noinline)) static int first(int x) {
  return lookup(x) + 1;
}
__attribute__((noinline)) static int second(int x) {
  return lookup(x + 1) + 2;
}
int main(void) {
  int sum = 0;
  for (int i = 0; i < 10; i++)
    sum += first(i) + second(i);
  printf("%d\n", sum);
}
