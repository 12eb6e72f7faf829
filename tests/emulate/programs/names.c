// A thread and a process that rename themselves: each function runs under one name, its own.
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile long count;
__attribute__((noinline)) void as_names(void) { count++; }
__attribute__((noinline)) void as_worker(void) { count++; }
__attribute__((noinline)) void as_idle(void) { count++; }
__attribute__((noinline)) void as_main2(void) { count++; }
__attribute__((noinline)) void as_child(void) { count++; }

static void* work(void* unused) {
  as_names();
  prctl(PR_SET_NAME, "worker");
  as_worker();
  prctl(PR_SET_NAME, 1);  // fails
  as_worker();
  prctl(PR_SET_NAME, "idle");
  as_idle();
  return unused;
}

int main(void) {
  pthread_t thread;
  pthread_create(&thread, 0, work, 0);
  pthread_join(thread, 0);
  prctl(PR_SET_NAME, "main2");
  as_main2();
  if (fork() == 0) {
    as_main2();
    prctl(PR_SET_NAME, "child");
    as_child();
    _exit(0);
  }
  wait(0);
  return 0;
}
