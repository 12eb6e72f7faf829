/* Two threads and the main thread call leaf() 3 * (2 * 40 + 2) times. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

static volatile sig_atomic_t caught;
static const char kText[] = "read-only data of the program";

static void on_signal(int number) { caught += number; }

__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }

__attribute__((noinline)) int mid(int x) {
  int sum = 0;
  for (int i = 0; i < 3; ++i) sum += leaf(x + i);
  return sum;
}

static void* worker(void* at) {
  long sum = 0;
  for (int i = 0; i < 40; ++i) sum += mid(i);
  *(long*)at = sum;
  return 0;
}

int main(void) {
  pthread_t threads[2];
  long sums[2];
  signal(SIGUSR1, on_signal);
  int first = mid(7);
  for (int i = 0; i < 2; ++i) pthread_create(&threads[i], 0, worker, &sums[i]);
  for (int i = 0; i < 2; ++i) pthread_join(threads[i], 0);
  raise(SIGUSR1);
  printf("%s %d %ld %d\n", kText, first + mid(8), sums[0] + sums[1], (int)caught);
  return 0;
}
