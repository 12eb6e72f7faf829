/* Calls whose numbers follow from this source: see export_test.py. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) int leaf(int x) { return x * 3 + 1; }
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__attribute__((noinline)) int work(int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += leaf(i);
  return sum;
}
static void *run(void *count) { return (void *)(long)(fib(10) + work((int)(long)count)); }
int main(void) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run, (void *)100L) != 0) return 1;
  printf("%d %d\n", work(50), fib(8));
  return pthread_join(thread, NULL);
}
