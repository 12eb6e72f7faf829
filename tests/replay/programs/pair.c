/* Two threads that do the same work in turns: see nested_calls.h. */
#include <pthread.h>

#include "nested_calls.h"

static pthread_barrier_t turn;

static void *work(void *number) {
  volatile int sum = 0;
  for (int round = 0; round < 400; ++round) {
    pthread_barrier_wait(&turn);
    if ((round & 1) == (number != 0)) {
      for (int i = 0; i < 20; ++i) sum += outer((20 * round + i) * 40503);
    }
  }
  return 0;
}

int main(void) {
  pthread_t other;
  pthread_barrier_init(&turn, 0, 2);
  if (pthread_create(&other, 0, work, &other) != 0) return 1;
  work(0);
  return pthread_join(other, 0);
}
