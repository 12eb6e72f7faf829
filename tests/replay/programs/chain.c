/* Calls work() COUNT times, and executes the program that its first argument names, with the arguments that follow. */
#include <unistd.h>

__attribute__((noinline)) int work(int x) { return x ^ (x >> 3); }

int main(int count, char** words) {
  volatile int sum = 0;
  for (int i = 0; i < COUNT; ++i) sum += work(i);
  if (count < 2) return 0;
  execv(words[1], words + 1);
  return 1;
}
