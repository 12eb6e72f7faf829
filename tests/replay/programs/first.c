/* A program that forks: parent and child execute different functions, and the child executes SECOND. */
#include <sys/wait.h>
#include <unistd.h>

__attribute__((noinline)) int before(int x) { return x ^ (x >> 3); }
__attribute__((noinline)) int parent_only(int x) { return x ^ (x >> 5); }

int main(void) {
  volatile int sum = 0;
  for (int i = 0; i < 5; ++i) sum += before(i);
  if (fork() == 0) {
    execl(SECOND, SECOND, (char*)0);
    _exit(1);
  }
  int status = 0;
  wait(&status);
  for (int i = 0; i < 3; ++i) sum += parent_only(i);
  return status;
}
