// A library that calls back into its program: the flow passes from one file to the other in every call.
#include <stdlib.h>

typedef int (*Function)(int);
int apply(Function f, int n) {
  int sum = 0;
  for (int i = 0; i < n; ++i) sum += i & 1 ? f(i) : f(-i) + 1;
  return sum;
}
int nest(Function f, int n) { return n == 0 ? f(0) : nest(f, n - 1) + (n % 3 == 0 ? apply(f, n) : 1); }
static int ascending(const void* a, const void* b) { return *(const int*)a - *(const int*)b; }
void sort(int* values, int count) { qsort(values, (size_t)count, sizeof *values, ascending); }
