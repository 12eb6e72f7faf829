// Calls a library that calls back, generates code that calls both, and makes its own text writable.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*Function)(int);
int apply(Function f, int n);
int nest(Function f, int n);
void sort(int* values, int count);

__attribute__((noinline, aligned(4096))) int own(int x) { return x % 3 == 0 ? x + 1 : x * 2; }
__attribute__((noinline)) int again(int x) { return x > 4 ? apply(own, 3) : own(x); }

int main(void) {
  unsigned char* page = mmap(0, 8192, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  mprotect((void*)((unsigned long)own & ~4095UL), 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
  int sum = 0, values[64];
  for (int i = 0; i < 40; ++i) {
    // push %rbx; mov %edi, %ebx; mov $FUNCTION, %rax; call *%rax; test $1, %bl; je or jne over a nop; pop %rbx; ret
    unsigned char code[] = {0x53, 0x89, 0xfb, 0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xd0, 0xf6, 0xc3, 1, 0x74, 1, 0x90, 0x5b, 0xc3};
    const Function target = i % 4 == 0 ? own : again;
    if (i % 2) code[18] = 0x75;
    memcpy(code + 5, &target, sizeof target);
    unsigned char* place = page + 64 * (i % 3);
    memcpy(place, code, sizeof code);
    const Function made = (Function)(void*)place;
    for (int k = 0; k < 6; ++k) sum += made(k) + apply(made, 5) + nest(own, k) + again(k);
    for (int k = 0; k < 64; ++k) values[k] = (k * 37 + i) % 61;
    sort(values, 64);
  }
  printf("%d\n", sum + values[3]);
  return 0;
}
