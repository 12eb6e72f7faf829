// A JIT whose memory is never both writable and executable: it protects the page before and after each change. Some changes write the bytes that
// are there already, and a signal handler in the page begins right after a change.
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { kPage = 4096, kHandlerAt = 2048 };

static uint8_t* g_page;

// mov ecx, LOOPS; 1: dec ecx; jnz 1b; mov eax, VALUE; ret
static void emit(int loops, int value) {
  uint8_t code[] = {0xb9, 0, 0, 0, 0, 0xff, 0xc9, 0x75, 0xfc, 0xb8, 0, 0, 0, 0, 0xc3};
  memcpy(code + 1, &loops, sizeof loops);
  memcpy(code + 10, &value, sizeof value);
  mprotect(g_page, kPage, PROT_READ | PROT_WRITE);
  memcpy(g_page, code, sizeof code);
  memset(g_page + kHandlerAt, 0x90, (size_t)(1 + value % 3));
  g_page[kHandlerAt + 1 + value % 3] = 0xc3;
  mprotect(g_page, kPage, PROT_READ | PROT_EXEC);
}

int main(void) {
  int sum = 0;
  g_page = mmap(NULL, kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < 100; ++i) {
    emit(1 + i % 5, i / 2);
    sum += ((int (*)(void))(void*)g_page)();
    if (i % 4 != 0) continue;
    signal(SIGUSR1, (void (*)(int))(void*)(g_page + kHandlerAt));
    raise(SIGUSR1);
  }
  printf("%d\n", sum);
  return 0;
}
