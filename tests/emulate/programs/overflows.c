// A recursion without conditional branches overflows the stack five times; each time, a handler on another stack leaves it with siglongjmp.
#include <setjmp.h>
#include <signal.h>
#include <string.h>

static sigjmp_buf begin;
static char other_stack[1 << 16];

static void leave(int number) {
  (void)number;
  siglongjmp(begin, 1);
}

// `outer` keeps each frame alive; "rep stosb" runs long enough for timing packets and PSBs inside the recursion.
__attribute__((noinline, noclone)) long down(const volatile char* outer, long depth) {
  char local[4096];
  void* at = local;
  unsigned long count = sizeof local;
  __asm__ volatile("rep stosb" : "+D"(at), "+c"(count) : "a"(depth) : "memory");
  const long below = down(local, depth + 1);
  return below + outer[0] + local[1];
}

__attribute__((noinline, noclone)) void overflow(void) {
  char first = 0;
  if (sigsetjmp(begin, 1) == 0) (void)down(&first, 0);
}

int main(void) {
  stack_t stack = {.ss_sp = other_stack, .ss_size = sizeof other_stack};
  struct sigaction action = {.sa_handler = leave, .sa_flags = SA_ONSTACK};
  sigaltstack(&stack, 0);
  sigaction(SIGSEGV, &action, 0);
  for (int i = 0; i < 5; ++i) overflow();
  return 0;
}
