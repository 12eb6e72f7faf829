// aarch64 without a C library: four threads that add up in one place.
#include "../data_programs/start.h"

enum { kThreads = 4 };

// Starts fn(argument) on a new stack: CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, CHILD_CLEARTID. *alive becomes 0 when it has ended.
long spawn(void* stack_top, void (*fn)(long), long argument, int* alive);
__asm__(
    ".text\n.globl spawn\n.type spawn, %function\n"
    "spawn: stp x1, x2, [x0, #-16]!\n mov x1, x0\n mov x4, x3\n mov x0, #0x0f00\n movk x0, #0x25, lsl #16\n mov x2, #0\n mov x3, #0\n"
    " mov x8, #220\n svc #0\n cbz x0, 1f\n ret\n"
    "1: ldp x1, x0, [sp], #16\n blr x1\n mov x0, #0\n mov x8, #93\n svc #0\n.size spawn, .-spawn\n");

static long sum;
static int alive[kThreads];
static char stacks[kThreads][8192] __attribute__((aligned(16)));

__attribute__((noinline)) static long fib(long n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

static void thread(long id) {
  for (long i = 0; i < 20; ++i) __atomic_fetch_add(&sum, fib(10 + (i + id) % 8), __ATOMIC_SEQ_CST);
}

static int run(void) {
  for (long id = 0; id < kThreads; ++id) {
    alive[id] = 1;
    spawn(stacks[id] + sizeof stacks[id], thread, id, &alive[id]);
  }
  // Whoever ends all while one of them is on its way out leaves a trace without its last instructions.
  for (long id = 0; id < kThreads; ++id) {
    while (__atomic_load_n(&alive[id], __ATOMIC_SEQ_CST) != 0) call(kYield, 0, 0, 0, 0, 0, 0);
  }
  print_number((unsigned long)sum);
  return 0;
}
