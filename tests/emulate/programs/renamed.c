// A thread sleeps for 20 ms under its second name, inside a call that began under its first.
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) void rest(void) { usleep(20000); }
__attribute__((noinline)) void outer(void) {
  prctl(PR_SET_NAME, "x,y");
  rest();
}

int main(void) {
  outer();
  return 0;
}
