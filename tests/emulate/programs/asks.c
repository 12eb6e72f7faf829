// 3,000 system calls of one kind, between others.
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

int main(void) {
  int pipes[2];
  char byte = 0;
  if (pipe(pipes) != 0) return 1;
  long sum = 0;
  for (int i = 0; i < 3000; ++i) {
    sum += syscall(SYS_getppid) > 0;
    if (i % 3 == 0 && (write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1)) return 1;
  }
  printf("%ld\n", sum);
  return 0;
}
