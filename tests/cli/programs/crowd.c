// The given number of threads, all running at the same time: they wait for each other at both ends.
#include <pthread.h>
#include <stdlib.h>

static pthread_barrier_t barrier;

static unsigned step(unsigned state, unsigned round) {
  state = state * 1664525 + 1013904223;
  return state >> 31 ? state ^ round : state + 3;
}

static void* run(void* seed) {
  unsigned state = (unsigned)(unsigned long)seed;
  pthread_barrier_wait(&barrier);
  for (unsigned round = 0; round < 4000; ++round) state = step(state, round);
  pthread_barrier_wait(&barrier);
  return (void*)(unsigned long)state;
}

int main(int argc, char** argv) {
  const int threads = argc > 1 ? atoi(argv[1]) : 1;
  pthread_t* all = calloc(threads, sizeof *all);
  pthread_barrier_init(&barrier, 0, threads);
  for (long i = 0; i < threads; ++i) pthread_create(all + i, 0, run, (void*)i);
  for (int i = 0; i < threads; ++i) pthread_join(all[i], 0);
  return 0;
}
