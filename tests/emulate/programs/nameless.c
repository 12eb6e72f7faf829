// Executes itself with an empty or missing argv or envp, in six ways; each of these programs calls tick() 21 times.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int calls;
__attribute__((noinline, noclone)) void tick(void) { ++calls; }

static void execute(int way) {
  static const char self[] = "/proc/self/exe";
  char* const none[] = {NULL};
  char* const variables[] = {"A=b", NULL};
  const int file = open(self, O_RDONLY);
  if (way == 0) syscall(SYS_execve, self, none, variables);
  if (way == 1) syscall(SYS_execve, self, NULL, variables);
  if (way == 2) syscall(SYS_execve, self, none, NULL);
  if (way == 3) syscall(SYS_execve, self, NULL, NULL);
  if (way == 4) syscall(SYS_execveat, AT_FDCWD, self, NULL, NULL, 0);
  if (way == 5) syscall(SYS_execveat, file, "", none, variables, AT_EMPTY_PATH);
}

int main(int argc, char** argv) {
  if (argc < 2) {
    for (int i = 0; i < 21; ++i) tick();
    fprintf(stderr, "argc %d, name '%s', %d calls\n", argc, argc == 0 ? "none" : argv[0], calls);
    return 0;
  }
  for (int way = 0; way < 6; ++way) {
    if (fork() == 0) {
      execute(way);
      _exit(1);
    }
    wait(NULL);
  }
  return 0;
}
