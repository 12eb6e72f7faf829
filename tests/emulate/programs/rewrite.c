// One thread calls a function whose constant another thread rewrites continuously; at the end a third ends the process while the first
// spins.
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
static unsigned char *code;
static void *call(void *p) { for (int i = 0; i < 20000; i++) ((int (*)())code)(); return p; }
static void *leave(void *p) { usleep(20000); exit(7); return p; }
int main(void) {
  pthread_t caller, last;
  code = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(code, "\xb8\1\0\0\0\xc3", 6);
  pthread_create(&caller, 0, call, 0);
  for (int i = 0; i < 200; i++) { code[1] = i; ((int (*)())code)(); if (i % 10 == 0) usleep(10); }
  pthread_join(caller, 0);
  pthread_create(&last, 0, leave, 0);
  for (volatile long n = 0;;) n += 1;
}
