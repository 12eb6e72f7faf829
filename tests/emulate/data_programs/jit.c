// A small JIT: compiles expressions of one variable to machine code, at new places and again and again at the same one.
#include "start.h"

typedef long (*Compiled)(long);

static uint8_t* put(uint8_t* at, const uint8_t* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) *at++ = bytes[i];
  return at;
}

static uint8_t* put32(uint8_t* at, int32_t value) { return put(at, (const uint8_t*)&value, 4); }

// A text of operations on the accumulator, which starts as the argument: +N -N *N, each with one digit; ? skips the next one if it is odd.
__attribute__((noinline)) static uint8_t* compile(uint8_t* at, const char* text) {
  static const uint8_t kBegin[] = {0x48, 0x89, 0xf8};               // mov rax, rdi
  static const uint8_t kTest[] = {0xa8, 0x01};                      // test al, 1
  static const uint8_t kAdd[] = {0x48, 0x05}, kSub[] = {0x48, 0x2d};  // add, sub rax, imm32
  static const uint8_t kMul[] = {0x48, 0x69, 0xc0};                 // imul rax, rax, imm32
  uint8_t* skip = 0;
  at = put(at, kBegin, sizeof(kBegin));
  for (; *text != 0; ++text) {
    if (*text == '?') {
      at = put(at, kTest, sizeof(kTest));
      *at++ = 0x75;  // jnz
      skip = at++;
      continue;
    }
    at = *text == '+' ? put(at, kAdd, sizeof(kAdd)) : *text == '-' ? put(at, kSub, sizeof(kSub)) : put(at, kMul, sizeof(kMul));
    at = put32(at, *++text - '0');
    if (skip != 0) *skip = (uint8_t)(at - skip - 1), skip = 0;
  }
  *at++ = 0xc3;
  return at;
}

static int run(void) {
  static const char* const kTexts[] = {"+3*5?-7+1", "*3+1?*2-9", "?+8?-8*7", "-1?*9+4?+1?-2*3"};
  const long made = call(kMmap, 0, 65536, kRead | kWritable | kExecute, kPrivate | kAnonymous, -1, 0);
  if (made < 0) return 1;
  uint8_t *const code = (uint8_t*)made, *at = code + 4096;
  unsigned long sum = 0;
  for (int i = 0; i < 12; ++i) {  // each at another address
    const Compiled f = (Compiled)(void*)at;
    at = compile(at, kTexts[i % 4]);
    for (long k = 0; k < 200; ++k) sum = sum * 7 + (unsigned long)f(k + i);
  }
  for (int i = 0; i < 120; ++i) {  // all at one place
    compile(code, kTexts[(i * 7 + i / 5) % 4]);
    for (long k = 0; k < 10; ++k) sum = sum * 7 + (unsigned long)((Compiled)(void*)code)(k);
  }
  print_number(sum);
  return 0;
}
