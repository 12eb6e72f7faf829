// Indirect calls, also of code that has no symbol, and calls into the middle of a function. Prints how often each function was entered.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#define N __attribute__((noinline, noclone))

static int counts[6];
typedef int (*callback)(int);

N int one(int x) {
  ++counts[0];
  return x + 1;
}
N int two(int x) {
  ++counts[1];
  return x + 2;
}
N int call_it(callback f, int x) {
  ++counts[2];
  return f(x) + 1;
}
N int twice(callback f, callback g, int x) {
  ++counts[3];
  return call_it(f, x) + call_it(g, x) + 1;
}

// `middle` is a subroutine within `outer`.
int outer(int x);
int other(int x);
__asm__(
    ".text\n"
    ".type outer, @function\n"
    "outer: addl $1, counts+16(%rip)\n"
    "  mov %edi, %eax\n"
    "  call .Lmiddle\n"
    "  call .Lmiddle\n"
    "  ret\n"
    "  .skip 32, 0x90\n"
    ".Lmiddle: add $3, %eax\n"
    "  ret\n"
    ".size outer, .-outer\n"
    ".type other, @function\n"
    "other: addl $1, counts+20(%rip)\n"
    "  mov %edi, %eax\n"
    "  call .Lmiddle\n"
    "  ret\n"
    ".size other, .-other\n");

int main(void) {
  static const unsigned char kCode[] = {0x8d, 0x47, 0x05, 0xc3};  // lea 5(%rdi), %eax; ret
  void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED)
    return 1;
  memcpy(code, kCode, sizeof kCode);
  if (mprotect(code, 4096, PROT_READ | PROT_EXEC) != 0)
    return 1;
  callback generated;
  memcpy(&generated, &code, sizeof code);
  int sum = 0;
  for (int i = 0; i < 10; ++i) {
    sum += twice(one, two, i) + twice(one, generated, i);
    sum += outer(i);
    if (i % 2 == 0)
      sum += other(i);
  }
  printf("%d %d %d %d %d %d\n", counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]);
  return sum == 0;
}
