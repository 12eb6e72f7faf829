// aarch64 without a C library: sends itself each signal with its disposition set to SIG_IGN, and those that do nothing by default with SIG_DFL.
// Prints the number of signals that it has survived.
#include "../data_programs/start.h"

enum { kWholeSet = 8 };

struct action {
  unsigned long handler, flags, restorer, mask;
};

static void send_it(long number, unsigned long handler) {
  struct action action = {handler, 0, 0, 0};
  call(kSigaction, number, (long)&action, 0, kWholeSet, 0, 0);
  call(kKill, call(kGetpid, 0, 0, 0, 0, 0, 0), number, 0, 0, 0, 0);
}

static int run(void) {
  static const long harmless[] = {17, 18, 23, 28};  // SIGCHLD, SIGCONT, SIGURG, SIGWINCH
  unsigned long survived = 0;
  for (long number = 1; number <= 31; ++number) {
    if (number == 9 || number == 19) continue;  // SIGKILL, SIGSTOP
    send_it(number, 1);
    ++survived;
  }
  for (unsigned long i = 0; i < sizeof harmless / sizeof *harmless; ++i) {
    send_it(harmless[i], 0);
    ++survived;
  }
  print_number(survived);
  return 0;
}
