// A load and a division in the middle of a block fault; handlers with and without SA_SIGINFO leave by siglongjmp. What follows does not run.
#include <setjmp.h>
#include <signal.h>
#include <string.h>
static sigjmp_buf out;
static void plain(int number) { (void)number; siglongjmp(out, 1); }
static void with_info(int number, siginfo_t *info, void *context) { (void)number; (void)info; (void)context; siglongjmp(out, 1); }
static void load(void) { __asm__ volatile("before_load: nop\n at_load: movl 0, %%eax\n after_load: nop" ::: "eax"); }
static void divide(void) { __asm__ volatile("before_divide: xorl %%eax, %%eax\n at_divide: divl %%eax\n after_divide: nop" ::: "eax", "edx", "cc"); }
int main(void) {
  for (int i = 0; i < 6; i++) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    if (i % 2 == 0) action.sa_handler = plain;
    else action.sa_sigaction = with_info, action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, 0);
    sigaction(SIGFPE, &action, 0);
    if (!sigsetjmp(out, 1)) load();
    if (!sigsetjmp(out, 1)) divide();
  }
  return 0;
}
