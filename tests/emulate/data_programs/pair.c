// Two threads: one makes numbers, the other sums them up; a lock of one word, and sleep on a futex.
#include "start.h"

enum { kThread = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x200000 };  // VM FS FILES SIGHAND THREAD SYSVSEM CHILD_CLEARTID
enum { kNumbers = 300, kRoom = 16 };

static volatile int lock, filled, alive;
static volatile unsigned long slots[kRoom];
static _Alignas(16) uint8_t stack[16384];

static void take(void) {
  while (__atomic_exchange_n(&lock, 1, __ATOMIC_ACQUIRE) != 0) call(kYield, 0, 0, 0, 0, 0, 0);
}
static void give(void) { __atomic_store_n(&lock, 0, __ATOMIC_RELEASE); }

__attribute__((noinline)) static unsigned long prime(int n) {
  for (unsigned long candidate = 2;; ++candidate) {
    unsigned long by = 2;
    while (by * by <= candidate && candidate % by != 0) ++by;
    if (by * by > candidate && n-- == 0) return candidate;
  }
}

__attribute__((noreturn, used, noinline)) void make_numbers(void) {
  for (int i = 0; i < kNumbers;) {
    take();
    if (filled < kRoom) slots[filled++] = prime(i++ % 20);
    give();
    if (filled == kRoom) call(kYield, 0, 0, 0, 0, 0, 0);
  }
  call(kExit, 0, 0, 0, 0, 0, 0);
  __builtin_unreachable();
}

// The new thread starts on a new stack: no code may run between the call and its first function.
static long start(void) {
  long result;
  register long r10 __asm__("r10") = (long)&alive;
  __asm__ volatile(
      "syscall\n test %%rax, %%rax\n jnz 1f\n xor %%ebp, %%ebp\n call make_numbers\n1:"
      : "=a"(result)
      : "a"(56L), "D"((long)kThread), "S"(stack + sizeof(stack)), "d"(0L), "r"(r10)
      : "rcx", "r11", "memory");
  return result;
}

static int run(void) {
  alive = 1;
  if (start() < 0) return 1;
  unsigned long sum = 0;
  for (int got = 0; got < kNumbers;) {
    take();
    for (; filled > 0; ++got) sum += slots[--filled];
    give();
    call(kYield, 0, 0, 0, 0, 0, 0);
  }
  while (alive != 0) call(kFutex, (long)&alive, 0, 1, 0, 0, 0);
  print_number(sum);
  return 0;
}
