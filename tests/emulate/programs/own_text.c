// Patches each of a few functions in the program's own text once, before its first run: JZ becomes JNZ. The exit status is 0 if each returned 2.
#include <sys/mman.h>

__asm__(
    ".text\n.balign 4096\n.globl text\ntext:\n"
    ".rept 40\n.balign 16\n test %edi, %edi\n jz 1f\n mov $1, %eax\n ret\n1: mov $2, %eax\n ret\n.endr\n"
    ".balign 4096\n");
extern unsigned char text[];

int main(void) {
  int wrong = 0;
  mprotect(text, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
  for (int i = 0; i < 40; i++) {
    text[16 * i + 2] = 0x75;
    wrong += ((int (*)(int))(text + 16 * i))(1) != 2;
  }
  return wrong;
}
