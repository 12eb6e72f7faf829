// Leaves nested calls by longjmp, by an exception, and by siglongjmp from a handler; main never returns from them.
#include <csetjmp>
#include <csignal>
#include <cstdio>
static std::jmp_buf place;
static sigjmp_buf out;
static volatile int sink;  // keeps calls from becoming tail calls
__attribute__((noinline)) void inner_jump(int n) { sink = n; std::longjmp(place, 1); }
__attribute__((noinline)) void middle_jump(int n) { inner_jump(n); sink = 1; }
__attribute__((noinline)) void inner_throw(int n) { sink = n; throw n; }
__attribute__((noinline)) void middle_throw(int n) { inner_throw(n); sink = 1; }
__attribute__((noinline)) void handler(int) { siglongjmp(out, 1); }
__attribute__((noinline)) void raise_it() { raise(SIGUSR1); sink = 1; }
__attribute__((noinline)) void plain(int n) { sink = n; }
int main() {
  signal(SIGUSR1, handler);
  for (int i = 0; i < 60; ++i) {
    if (setjmp(place) == 0) middle_jump(i);
    plain(1);
    try { middle_throw(i); } catch (int got) { sink = got; }
    plain(2);
    if (sigsetjmp(out, 1) == 0) raise_it();
    plain(3);
  }
  return 0;
}
