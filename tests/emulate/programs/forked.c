// What a child has from its parent: code that the parent changes just after each fork, and the name of the thread that forked. Prints the name and number
// of each thread that another one than the first began.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { kChildren = 20 };
static int (*code)(int);

static void generate(unsigned char add) {
  const unsigned char bytes[] = {0x8d, 0x47, add, 0xc3};  // lea add(%rdi), %eax; ret
  memcpy((void*)code, bytes, sizeof bytes);
}

static void print_name(void) {
  char name[16];
  prctl(PR_GET_NAME, name);
  printf("%ld %s\n", syscall(SYS_gettid), name);
  fflush(stdout);
}

static void* begun(void* unused) {
  print_name();
  return unused;
}

static void* worker(void* unused) {
  pthread_t thread;
  prctl(PR_SET_NAME, "worker");
  if (fork() == 0) {
    print_name();
    pthread_create(&thread, NULL, begun, NULL);
    pthread_join(thread, NULL);
    _exit(0);
  }
  wait(NULL);
  pthread_create(&thread, NULL, begun, NULL);
  pthread_join(thread, NULL);
  return unused;
}

int main(void) {
  pthread_t thread;
  int wrong = 0, status = 0;
  code = (int (*)(int))mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int i = 0; i < kChildren; ++i) {
    generate((unsigned char)i);
    wrong += code(0) != i;
    const pid_t child = fork();
    if (child == 0) _exit(code(0) + code(1));
    generate((unsigned char)(i + 50));
    wrong += code(0) != i + 50;
    waitpid(child, &status, 0);
    wrong += WEXITSTATUS(status) != 2 * i + 1;
  }
  pthread_create(&thread, NULL, worker, NULL);
  prctl(PR_SET_NAME, "main");
  pthread_join(thread, NULL);
  return wrong;
}
