// Fibres on two threads that announce themselves. The 5-byte NOP before each switch stands for PTWRITE, which QEMU does not execute: fibres_test.py puts
// the instruction in its place and the packets into the trace. Argument: ucontext or switch. Prints its own log as JSON: what each thread announced,
// which calls each stack made in the order of their ends, and which are open at the end.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { FIBRES = 6, STACKS = FIBRES + 3, MOST = 1 << 16, STACK_BYTES = 1 << 17 };
#define MARK (0xf1beull << 48)
#define NOINLINE __attribute__((noinline))

struct log {
  const char* name[MOST];
  int depth[MOST], count;
  const char* open[64];
  int depth_now;
};
static struct log logs[STACKS];  // 0 is unused; then the fibres, and the threads' own
static uint64_t announced[3][MOST];
static int announced_count[3], tids[3];
static ucontext_t contexts[STACKS];
static void* saved[STACKS];
static int with_ucontext;
static __thread int this_thread, this_stack;

NOINLINE static int* thread_of(void) {
  __asm__ volatile("");
  return &this_thread;
}
NOINLINE static int* stack_of(void) {
  __asm__ volatile("");
  return &this_stack;
}
static int own_stack(void) { return FIBRES + *thread_of(); }

// The first instruction of announce(), and one of switch_to(), becomes `ptwrite`.
void announce(uint64_t operand);
void switch_to(void** from, void* to, uint64_t operand);
__asm__(
    ".text\n.globl announce\n.type announce,@function\nannounce:\n.byte 0x0f,0x1f,0x44,0x00,0x00\nret\n.size announce,.-announce\n"
    ".globl switch_to\n.type switch_to,@function\nswitch_to:\npush %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
    "mov %rsp,(%rdi)\nmov %rsi,%rsp\n.globl switch_mark\nswitch_mark:\n.byte 0x0f,0x1f,0x44,0x00,0x00\n"
    "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size switch_to,.-switch_to\n");
static void (*volatile announce_it)(uint64_t) = announce;
static void (*volatile switch_it)(void**, void*, uint64_t) = switch_to;

NOINLINE static void go_to(int stack) {
  const int from = *stack_of(), thread = *thread_of();
  const uint64_t operand = MARK | (uint64_t)(stack > FIBRES ? 0 : stack);
  announced[thread][announced_count[thread]++] = operand;
  *stack_of() = stack;
  if (with_ucontext) {
    announce_it(operand);
    swapcontext(&contexts[from], &contexts[stack]);
  } else {
    switch_it(&saved[from], saved[stack], operand);
  }
}

static void enter(const char* name) {
  struct log* log = &logs[*stack_of()];
  log->open[log->depth_now++] = name;
}
static void leave(void) {
  struct log* log = &logs[*stack_of()];
  log->name[log->count] = log->open[--log->depth_now];
  log->depth[log->count++] = log->depth_now;
}

NOINLINE static void odd(int n, int next);
NOINLINE static void leaf(void) {
  enter("leaf");
  leave();
}
NOINLINE static void even(int n, int next) {
  enter("even");
  leaf();
  if (n == 0) {
    go_to(next);
  } else {
    odd(n - 1, next);
  }
  leave();
}
NOINLINE static void odd(int n, int next) {
  enter("odd");
  if (n == 0) {
    go_to(next);
    leaf();
  } else {
    even(n - 1, next);
    leaf();
  }
  leave();
}

// Fibre 1 and 2 switch to each other and to the thread, from depths that change; 3 moves to the other thread; 5 is switched away
// from in the middle of its calls; 6 calls nothing.
NOINLINE static void fibre_body(int self) {
  enter("fibre_body");
  for (int i = 0; self != 6 && (i < 8 || self == 5); ++i) {
    leaf();
    const int next = self == 1 && i % 2 == 0 ? 2 : own_stack();
    (i + self) % 2 == 0 ? even(i % 5 + self, next) : odd(i % 3 + self, next);
  }
  go_to(own_stack());
  leave();  // not reached
}
static void fibre_entry(void) {
  fibre_body(*stack_of());
  abort();
}

static void make(int fibre) {
  char* stack = malloc(STACK_BYTES);
  getcontext(&contexts[fibre]);
  contexts[fibre].uc_stack.ss_sp = stack;
  contexts[fibre].uc_stack.ss_size = STACK_BYTES;
  makecontext(&contexts[fibre], fibre_entry, 0);
  uint64_t* top = (uint64_t*)(stack + STACK_BYTES - 64);
  *--top = 0;
  *--top = (uint64_t)fibre_entry;
  saved[fibre] = memset(top - 6, 0, 48);
}

static pthread_barrier_t barrier;
NOINLINE static void turns(int fibre, int count) {
  enter("turns");
  while (count-- > 0) go_to(fibre);
  leave();
}
static void* run(void* number) {
  *thread_of() = (int)(intptr_t)number;
  *stack_of() = own_stack();
  tids[*thread_of()] = (int)syscall(SYS_gettid);
  const int first = *thread_of() == 1;
  if (first) turns(1, 3), turns(3, 2), turns(2, 2);
  if (!first) turns(4, 3), turns(5, 4), turns(6, 1);
  pthread_barrier_wait(&barrier);
  if (first) turns(4, 2), leaf(), turns(1, 2);
  if (!first) turns(3, 3), leaf();
  pthread_barrier_wait(&barrier);
  if (first) turns(3, 4), turns(4, 4), turns(5, 1);
  return NULL;
}

int main(int argc, char** argv) {
  with_ucontext = argc > 1 && strcmp(argv[1], "ucontext") == 0;
  pthread_barrier_init(&barrier, NULL, 2);
  for (int fibre = 1; fibre <= FIBRES; ++fibre) make(fibre);
  pthread_t other;
  pthread_create(&other, NULL, run, (void*)2);
  run((void*)1);
  pthread_join(other, NULL);
  printf("{\"tids\": [%d, %d], \"announced\": [", tids[1], tids[2]);
  for (int thread = 1; thread <= 2; ++thread) {
    for (int i = 0; i < announced_count[thread]; ++i) printf("%s%llu", i ? ", " : thread == 1 ? "[" : "], [", (unsigned long long)announced[thread][i]);
  }
  printf("]], \"stacks\": [");
  for (int stack = 1; stack < STACKS; ++stack) {
    printf("%s{\"ended\": [", stack == 1 ? "" : ", ");
    for (int i = 0; i < logs[stack].count; ++i) printf("%s[\"%s\", %d]", i ? ", " : "", logs[stack].name[i], logs[stack].depth[i]);
    printf("], \"open\": [");
    for (int i = 0; i < logs[stack].depth_now; ++i) printf("%s\"%s\"", i ? ", " : "", logs[stack].open[i]);
    printf("]}");
  }
  printf("]}\n");
  return 0;
}
