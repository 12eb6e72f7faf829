// Calls of one fixed length: work() runs the same instructions each time. No signal comes, and no system call between the first call and the last.
#include <stdio.h>

#define NOINLINE __attribute__((noinline))
NOINLINE void leaf(void) { __asm__ volatile("nop"); }
void (*volatile to_leaf)(void) = leaf;
NOINLINE void work(void) {
  for (int i = 0; i < 3000; ++i) to_leaf();
}
NOINLINE void first(void) {
  for (int i = 0; i < 300; ++i) to_leaf();
}
NOINLINE void second(void) {
  for (int i = 0; i < 300; ++i) to_leaf();
}

int main(void) {
  for (int i = 0; i < 200; ++i) work();
  for (int i = 0; i < 1000; ++i) {
    first();
    second();
  }
  puts("1");
  return 0;
}
