// fork, exec, wait: a parent, a child that computes, a child that executes another program.
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

int main(int argc, char** argv) {
  if (argc > 1) {
    printf("%s %d\n", argv[1], fib(12));
    return 0;
  }
  int status = 0;
  if (fork() == 0) _exit(fib(10) == 55 ? 0 : 1);
  wait(&status);
  if (fork() == 0) {
    execl(argv[0], argv[0], "again", (char*)NULL);
    _exit(1);
  }
  int second = 0;
  wait(&second);
  printf("%d %d %d\n", status, second, fib(11));
  return 0;
}
