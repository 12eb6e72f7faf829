/* Writes 0 to 11 into the displacement of one instruction of its own, and executes it after each. */
#include <stdint.h>
#include <sys/mman.h>

int target(int);
__asm__(".text\n.globl target\n.type target,@function\ntarget: lea 0x77(%rdi),%eax\n  ret\n.size target,.-target\n");

int main(void) {
  unsigned char* code = (unsigned char*)target;
  mprotect((void*)((uintptr_t)code & ~UINT64_C(4095)), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
  int sum = 0;
  for (int i = 0; i < 12; ++i) {
    code[2] = (unsigned char)i;
    sum += target(i);
  }
  return sum == 132 ? 0 : 1;
}
