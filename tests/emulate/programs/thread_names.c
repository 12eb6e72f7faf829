// Gives its threads names, and calls tick() a known number of times under each. Usage: thread_names [THREADS]
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

static volatile long ticks;
__attribute__((noinline)) void tick(void) {
  for (int i = 0; i < 20; ++i) ++ticks;
}

static void run(const char* kind, long number) {
  char name[16];
  for (int round = 0; round < 10; ++round) {
    snprintf(name, sizeof name, "%s%ld.%d", kind, number, round);
    prctl(PR_SET_NAME, name);
    for (int i = 0; i < 30; ++i) tick();
    getppid();  // a pause without a new name
    for (int i = 0; i < 20; ++i) tick();
  }
}

static void* run_thread(void* number) {
  run("t", (long)number);
  return NULL;
}

int main(int count, char** words) {
  pthread_t threads[16];
  const long wanted = count > 1 ? atol(words[1]) : 0;
  run("main", 0);
  for (long i = 0; i < wanted && i < 16; ++i) pthread_create(threads + i, NULL, run_thread, (void*)i);
  for (long i = 0; i < wanted && i < 16; ++i) pthread_join(threads[i], NULL);
  prctl(PR_SET_NAME, "last");
  return 0;
}
