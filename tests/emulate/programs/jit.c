// A small JIT: writes functions, runs them, changes them in place, moves them between writable and executable memory.
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

typedef int (*Function)(int);

// mov eax, imm32; add eax, edi; test edi, 1; jz/jnz +3; add eax, 7; ret
static int emit(uint8_t* at, int32_t value, int odd) {
  const uint8_t code[] = {0xb8, 0, 0, 0, 0, 0x01, 0xf8, 0xf7, 0xc7, 1, 0, 0, 0, (uint8_t)(odd ? 0x75 : 0x74), 3, 0x83, 0xc0, 7, 0xc3};
  memcpy(at, code, sizeof code);
  memcpy(at + 1, &value, sizeof value);
  return sizeof code;
}

int main(void) {
  uint8_t* code = mmap(NULL, 65536, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (code == MAP_FAILED) return 1;
  long sum = 0;
  for (int i = 0; i < 100; ++i) emit(code + 64 * i, i, i & 1);
  for (int i = 0; i < 1000; ++i) sum += ((Function)(void*)(code + 64 * (i % 100)))(i);
  for (int i = 0; i < 300; ++i) {  // the same address again and again
    emit(code, 3 * i, i & 1);
    sum += ((Function)(void*)code)(i) + ((Function)(void*)code)(i + 1);
  }
  for (int i = 0; i < 50; ++i) {
    mprotect(code + 32768, 4096, PROT_READ | PROT_WRITE);
    emit(code + 32768, i, (i >> 1) & 1);
    mprotect(code + 32768, 4096, PROT_READ | PROT_EXEC);
    sum += ((Function)(void*)(code + 32768))(i);
  }
  // Code that modifies the next instruction: mov byte [rip+4], imm8; nop; mov eax, imm32; ret
  uint8_t self[] = {0xc6, 0x05, 0x02, 0, 0, 0, 0x11, 0x90, 0xb8, 0, 0, 0, 0, 0xc3};
  uint8_t* place = code + 49152;
  memcpy(place, self, sizeof self);
  for (int i = 0; i < 100; ++i) {
    place[6] = (uint8_t)i;
    sum += ((Function)(void*)place)(0);
  }
  // A loop that modifies the next instruction: mov ecx, 100; 1: inc byte [rip+1]; mov eax, imm32; dec ecx; jnz 1b; ret
  const uint8_t loop[] = {0xb9, 100, 0, 0, 0, 0xfe, 0x05, 1, 0, 0, 0, 0xb8, 0, 0, 0, 0, 0xff, 0xc9, 0x75, 0xf1, 0xc3};
  memcpy(place + 64, loop, sizeof loop);
  sum += ((Function)(void*)(place + 64))(0);
  printf("%ld\n", sum);
  return 0;
}
