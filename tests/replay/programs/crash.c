// Dies of a read through a null pointer, at the symbol `faulting`.
int main(void) {
  int value;
  __asm__ volatile("xor %%eax, %%eax\n.globl faulting\nfaulting:\nmov 8(%%rax), %0" : "=r"(value) : : "rax");
  return value;
}
