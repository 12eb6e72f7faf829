// Fills memory with one instruction, which a timer's signals interrupt. Prints how long that took by the clock, in ns, and how often the handler ran.
// With an argument: without signals, and the flow comes to the instruction by a call, a jump, a return, and a jump to inlined code. Prints each time.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

static volatile long runs;

static long now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000L + now.tv_nsec;
}

void handler(int number) {
  (void)number;
  ++runs;
}

// The packet of the call leads to the instruction.
void fill(char* at, long unused, long unused_too, long count);
__asm__(".globl fill\n.type fill, @function\nfill: rep stosb\n\tret\n.size fill, . - fill");
static void (*volatile filler)(char*, long, long, long) = fill;

void enter(char* at, long count) { filler(at, 0, 0, count); }

// Each leads there by a packet that comes before the instruction runs.
void leap(char* at, long unused, long unused_too, long count);
__asm__(".globl leap\n.type leap, @function\nleap: lea fill(%rip), %rax\n\tjmp *%rax\n.size leap, . - leap");
void back(char* at, long unused, long unused_too, long count);
__asm__(".globl back\n.type back, @function\nback: lea fill(%rip), %rax\n\tpush %rax\n\tret\n.size back, . - back");
static inline __attribute__((always_inline)) void clear(char* at, long count) { __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : : "memory"); }
void pick(char* at, long way, long unused, long count) {
  static void* const ways[] = {&&filled, &&left};
  (void)unused;
  goto* ways[way];
filled:
  clear(at, count);
left:
  __asm__ volatile("");
}
static void (*volatile picker)(char*, long, long, long) = pick;

static int fill_uninterrupted(char* memory, long size) {
  const long begin = now_ns();
  enter(memory, size);
  const long called = now_ns();
  leap(memory, 0, 0, size);
  const long jumped = now_ns();
  back(memory, 0, 0, size);
  const long returned = now_ns();
  picker(memory, 0, 0, size);
  printf("%ld %ld %ld %ld\n", called - begin, jumped - called, returned - jumped, now_ns() - returned);
  return 0;
}

int main(int count, char** arguments) {
  (void)arguments;
  const long size = 12L << 20;
  char* const memory = malloc((size_t)size);
  if (count != 1) return fill_uninterrupted(memory, size);
  signal(SIGALRM, handler);
  struct itimerval timer = {{0, 3000}, {0, 3000}};
  setitimer(ITIMER_REAL, &timer, NULL);
  const long begin = now_ns();
  enter(memory, size);
  const long end = now_ns();
  timer.it_interval.tv_usec = timer.it_value.tv_usec = 0;
  setitimer(ITIMER_REAL, &timer, NULL);
  printf("%ld %ld\n", end - begin, runs);
  return 0;
}
