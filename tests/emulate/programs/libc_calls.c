// Calls a function of the C library a thousand times, each from the program's own code.
#include <stdlib.h>

volatile int sink;

int main(void) {
  for (int i = 0; i < 1000; i++) sink += rand();
  return 0;
}
