// Recurses without a branch until the stack overflows. The handler of the fault ends the program.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void on_fault(int number) { _exit(number == SIGSEGV ? 0 : 1); }

__attribute__((noinline)) int down(int depth) {
  volatile char frame[256];
  frame[depth & 255] = 1;
  return down(depth + 1) + frame[depth & 127];
}

int main(void) {
  const stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536};
  sigaltstack(&stack, NULL);
  struct sigaction action = {.sa_flags = SA_ONSTACK};
  action.sa_handler = on_fault;
  sigaction(SIGSEGV, &action, NULL);
  return down(0);
}
