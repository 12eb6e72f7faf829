// aarch64 without a C library: modified code, signals between and inside of instructions, fork, exec of itself, threads of calls.
#include "../data_programs/start.h"

typedef long (*Function)(long);
struct Action {
  void (*handler)(int, void*, void*);
  unsigned long flags;
  void* restorer;
  unsigned long mask;
};
enum { kSigusr1 = 10, kSigsegv = 11, kSiginfo = 4, kSigchld = 17, kPcInContext = 176 + 8 + 31 * 8 + 8 };

static volatile long signals, faults;
static void on_signal(int number, void* info, void* context) {
  (void)info;
  if (number == kSigsegv) {
    ++faults;
    *(unsigned long*)((char*)context + kPcInContext) += 4;  // skips the faulting instruction
  } else {
    ++signals;
  }
}

// A switch between NOP and B, like a kernel's static keys.
long keyed(long x);
long tail(long x);
extern uint32_t key_site[];
__asm__(
    ".text\n.balign 4096\n.globl keyed, key_site, tail\n"
    "keyed: add x0, x0, #1\n"
    "key_site: nop\n add x0, x0, #10\n ret\n"
    "key_on: add x0, x0, #100\n tbz x0, #0, 1f\n add x0, x0, #1\n1: ret\n"
    "tail: stp x29, x30, [sp, #-16]!\n bl keyed\n ldp x29, x30, [sp], #16\n b keyed\n.balign 4096\n");

static void patch(uint32_t* place, uint32_t word) {
  *(volatile uint32_t*)place = word;
  __asm__ volatile("dc cvau, %0\n dsb ish\n ic ivau, %0\n dsb ish\n isb" ::"r"(place) : "memory");
}

__attribute__((noinline)) static long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
static const Function kFunctions[] = {keyed, tail, fib};

__attribute__((noinline)) static long work(void) {
  long sum = 0;
  for (int round = 0; round < 40; ++round) {
    patch(key_site, round % 3 == 0 ? 0x14000003 : 0xd503201f);
    for (long i = 0; i < 12; ++i) sum += kFunctions[(i + round) % 3](i);
    if (round % 8 == 0) call(kKill, call(kGetpid, 0, 0, 0, 0, 0, 0), kSigusr1, 0, 0, 0, 0);
    if (round % 10 == 0) __asm__ volatile("mov x9, #16\n ldr x9, [x9]\n nop" ::: "x9", "memory");
  }
  return sum;
}

static int run_with(long count, char** words, char** environment) {
  static const struct Action action = {on_signal, kSiginfo, 0, 0};
  for (int number = kSigusr1; number <= kSigsegv; ++number) call(kSigaction, number, (long)&action, 0, 8, 0, 0);
  const unsigned long text = (unsigned long)key_site & ~4095UL;
  call(kMprotect, (long)text, 4096, 1 | 2 | 4, 0, 0, 0);
  print_number((unsigned long)work() + (unsigned long)(1000 * signals + 100 * faults));
  if (count > 1) return 0;
  const long child = call(kClone, kSigchld, 0, 0, 0, 0, 0);
  if (child == 0) {
    char* again[] = {words[0], "again", 0};
    print_number((unsigned long)fib(10));
    call(kExecve, (long)words[0], (long)again, (long)environment, 0, 0, 0);
    return 1;
  }
  int status = 0;
  call(kWait4, child, (long)&status, 0, 0, 0, 0);
  return status;
}

// The kernel passes count, arguments and environment on the stack.
__attribute__((noreturn, used)) void start_with(long* stack) {
  char** words = (char**)(stack + 1);
  call(kExitGroup, run_with(stack[0], words, words + stack[0] + 1), 0, 0, 0, 0, 0);
  __builtin_unreachable();
}
static int run(void) { return 0; }
__asm__(".text\n.globl begin\n.type begin, %function\nbegin: mov x0, sp\n bl start_with\n.size begin, .-begin\n");
