/* A static program of nested calls. */
#include "nested_calls.h"

int main(void) {
  volatile int sum = 0;
  for (int i = 0; i < 6000; ++i) sum += outer(i * 40503);
  return 0;
}
