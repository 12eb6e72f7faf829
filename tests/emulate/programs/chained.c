// A handler of a signal jumps to that of another signal, with the frame of the first: directly, and by a pointer.
#include <signal.h>
#include <stdio.h>

static volatile int g_direct, g_by_pointer, g_last;
static void (*volatile g_next)(int);

__attribute__((noinline)) static void last(int number) { g_last += number; }

__attribute__((noinline)) static void by_pointer(int number) {
  ++g_by_pointer;
  g_next(number);
}

__attribute__((noinline)) static void direct(int number) {
  ++g_direct;
  last(number);
}

int main(void) {
  g_next = last;
  signal(SIGUSR1, direct);
  signal(SIGUSR2, last);
  signal(SIGWINCH, by_pointer);
  for (int i = 0; i < 100; ++i) {
    raise(SIGUSR1);
    raise(SIGWINCH);
  }
  printf("%d %d %d\n", g_direct, g_by_pointer, g_last);
  return 0;
}
