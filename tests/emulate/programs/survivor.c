// Starts a process in a session of its own that outlives it: "running" works without end, "stopped" stops itself.
#include <signal.h>
#include <string.h>
#include <unistd.h>

__attribute__((noinline)) int step(int n) {
  __asm__ volatile("");
  return n * 3 + 1;
}

int main(int count, char** words) {
  if (count < 2) return 2;
  const int end_of_parent = 3;
  if (fork() != 0) return end_of_parent;
  setsid();
  if (strcmp(words[1], "stopped") == 0) raise(SIGSTOP);
  for (int n = 0;; n = step(n)) usleep(1000);
}
