// aarch64 without a C library: chains of conditional branches that are not taken, before direct, conditional and indirect branches that are.
#include "../data_programs/start.h"

// N branches that are not taken, as x0 is not 0. They lead to "9".
#define CHAIN(n) ".rept " #n "\n cbz x0, 9f\n .endr\n"

long chains(long x);
__asm__(
    ".text\n.balign 64\n.globl chains\n"
    "chains: stp x29, x30, [sp, #-16]!\n" CHAIN(11)
    " b 1f\n nop\n"
    "1:" CHAIN(12)
    " b 2f\n nop\n"
    "2:" CHAIN(13)
    " cbnz x0, 3f\n nop\n"
    "3:" CHAIN(300)
    " bl double\n" CHAIN(20)
    " adr x1, double\n blr x1\n"
    " adr x1, 4f\n" CHAIN(70)
    " br x1\n nop\n"
    "4:" CHAIN(40)
    " isb\n" CHAIN(14)
    " ldp x29, x30, [sp], #16\n ret\n"
    "double: add x0, x0, x0\n" CHAIN(16)
    " ret\n"
    "9: brk #0\n");

static int run(void) {
  unsigned long sum = 0;
  for (long i = 1; i <= 300; ++i) sum += (unsigned long)chains(i);
  print_number(sum);
  return 0;
}
