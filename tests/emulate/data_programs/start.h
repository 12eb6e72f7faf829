// Replacement for the C library: system calls, an entry, numbers as text. Linux on x86-64 and aarch64.
#pragma once

#include <stddef.h>
#include <stdint.h>

#if defined(__aarch64__)
static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
enum {
  kWrite = 64,
  kExit = 93,
  kExitGroup = 94,
  kFutex = 98,
  kYield = 124,
  kKill = 129,
  kSigaction = 134,
  kGetpid = 172,
  kClone = 220,
  kExecve = 221,
  kMmap = 222,
  kMprotect = 226,
  kWait4 = 260
};
#define ENTRY __attribute__((noreturn, used))
#else
static long call(long number, long a, long b, long c, long d, long e, long f) {
  long result;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
enum { kWrite = 1, kMmap = 9, kMprotect = 10, kYield = 24, kExit = 60, kFutex = 202, kExitGroup = 231 };
#define ENTRY __attribute__((noreturn, force_align_arg_pointer, used))
#endif
enum { kRead = 1, kWritable = 2, kExecute = 4, kPrivate = 2, kAnonymous = 32 };

static void print_number(unsigned long value) {
  char text[24];
  size_t at = sizeof(text);
  text[--at] = '\n';
  do text[--at] = (char)('0' + value % 10);
  while ((value /= 10) != 0);
  call(kWrite, 1, (long)(text + at), (long)(sizeof(text) - at), 0, 0, 0);
}

static int run(void);
ENTRY void _start(void) {
  call(kExitGroup, run(), 0, 0, 0, 0, 0);
  __builtin_unreachable();
}
