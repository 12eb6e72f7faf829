// Jumps inside of a function that go through other code: computed jumps through thunks, and functions that push the address to which another one
// returns. Prints how often each function was entered.
#include <stdio.h>
#define N __attribute__((noinline, noclone))

int counts[6];

N void leaf(void) {
  ++counts[0];
}

// One label directly follows a call of another function, one that of the function itself.
N int interpret(const unsigned char *code, int depth) {
  static void *const kLabels[] = {&&add, &&call, &&after_call, &&recurse, &&after_recursion, &&end};
  int sum = 0;
  ++counts[1];
  goto *kLabels[*code++];
add:
  sum += 3;
  goto *kLabels[*code++];
call:
  leaf();
after_call:
  ++sum;
  goto *kLabels[*code++];
recurse:
  if (depth > 0)
    sum += interpret(code, depth - 1);
after_recursion:
  sum ^= 5;
  goto *kLabels[*code++];
end:
  leaf();
  return sum;
}

N int run(const unsigned char *code) {
  ++counts[2];
  int sum = interpret(code, 2);
  leaf();
  return sum;
}

// near jumps to leaf, which returns at once; far to a function that calls.
void near(void);
void far(void);
void calls(void);
__asm__(
    ".text\n"
    ".type near, @function\n"
    "near: addl $1, counts+12(%rip)\n"
    "  lea 1f(%rip), %rax\n"
    "  push %rax\n"
    "  jmp leaf\n"
    "1: sub $8, %rsp\n"
    "  call leaf\n"
    "  add $8, %rsp\n"
    "  ret\n"
    ".size near, .-near\n"
    ".type far, @function\n"
    "far: addl $1, counts+16(%rip)\n"
    "  lea 1f(%rip), %rax\n"
    "  push %rax\n"
    "  jmp calls\n"
    "1: sub $8, %rsp\n"
    "  call leaf\n"
    "  add $8, %rsp\n"
    "  ret\n"
    ".size far, .-far\n"
    ".type calls, @function\n"
    "calls: addl $1, counts+20(%rip)\n"
    "  call leaf\n"
    "  ret\n"
    ".size calls, .-calls\n");

#ifdef THUNKS
// What replaces a retpoline on a processor that needs none.
__asm__(
    ".irp reg, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15\n"
    ".globl __x86_indirect_thunk_\\reg\n"
    ".type __x86_indirect_thunk_\\reg, @function\n"
    "__x86_indirect_thunk_\\reg: lfence\n"
    "  jmp *%\\reg\n"
    ".size __x86_indirect_thunk_\\reg, .-__x86_indirect_thunk_\\reg\n"
    ".endr\n");
#endif

int main(void) {
  static const unsigned char kCode[] = {0, 1, 2, 3, 0, 4, 2, 1, 3, 4, 5};
  int sum = 0;
  for (int i = 0; i < 10; ++i) {
    sum += run(kCode);
    near();
    far();
  }
  leaf();
  printf("%d %d %d %d %d %d\n", counts[0], counts[1], counts[2], counts[3], counts[4], counts[5]);
  return sum == 0;
}
