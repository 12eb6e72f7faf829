// A program that changes its own text: a switch between NOP and JMP like the kernel's static keys, a call whose target changes, and an
// instruction that modifies the one after it.
#include "start.h"

int one(int x);
int two(int x);
int keyed(int x);
int cached(int x);
int chased(int x);
extern uint8_t key_site[], key_on[], call_site[], chase_site[], text_begin[];

__asm__(
    ".text\n"
    ".globl text_begin\n.balign 4096\ntext_begin:\n"
    "one: lea 1(%rdi), %eax\n ret\n"
    "two: lea 2(%rdi,%rdi), %eax\n ret\n"
    ".globl key_site, key_on\n"
    "keyed: mov %edi, %eax\n"
    "key_site: .byte 0x0f,0x1f,0x44,0,0\n"
    " add $5, %eax\n ret\n"
    "key_on: imul $3, %eax, %eax\n test $1, %al\n jz 1f\n inc %eax\n1: ret\n"
    ".globl call_site\n"
    "cached: push %rbx\n mov %edi, %ebx\n"
    "call_site: .byte 0xe8\n .long one - (. + 4)\n"
    " add %ebx, %eax\n pop %rbx\n ret\n"
    ".globl chase_site\n"
    "chased: mov %dil, chase_site+1(%rip)\n"  // the immediate of the next instruction
    "chase_site: mov $0, %al\n movzbl %al, %eax\n ret\n"
    ".balign 4096\n");

static void set_rel32(uint8_t* site, uint8_t opcode, const void* target) {
  const int32_t distance = (int32_t)((const uint8_t*)target - (site + 5));
  site[0] = opcode;
  for (int i = 0; i < 4; ++i) site[1 + i] = ((const uint8_t*)&distance)[i];
}

static void set_nop(uint8_t* site) {
  static const uint8_t kNop[] = {0x0f, 0x1f, 0x44, 0, 0};
  for (int i = 0; i < 5; ++i) site[i] = kNop[i];
}

static int run(void) {
  if (call(kMprotect, (long)text_begin, 4096, kRead | kWritable | kExecute, 0, 0, 0) != 0) return 1;
  unsigned long sum = 0;
  for (int i = 0; i < 60; ++i) {
    if (i % 3 == 1) set_rel32(key_site, 0xe9, key_on);
    if (i % 3 == 2) set_nop(key_site);
    if (i % 5 == 4) set_rel32(call_site, 0xe8, i % 2 == 0 ? (const void*)one : (const void*)two);
    for (int k = 0; k < 20; ++k) sum = sum * 31 + (unsigned long)(keyed(k) + cached(k));
    sum = sum * 31 + (unsigned long)chased(i);
  }
  print_number(sum);
  return 0;
}
