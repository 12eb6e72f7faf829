// Signals that do nothing: a child process for each signal, disposition and way of sending, and what became of it. Arguments: none, or
// "hop ROUNDS SIGNAL": executes itself ROUNDS times, then raises SIGNAL, which is ignored since before.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char* g_self;
static volatile sig_atomic_t g_handled;
static void handler(int number) { g_handled = number; }

enum { kRaise, kByChild, kUnblocked, kWays };
enum { kIgnored, kHandledThenIgnored, kIgnoredTwice, kDefault, kHandledThenDefault, kIgnoredThenHandled, kDispositions };

static void dispose(int number, int disposition) {
  if (disposition == kHandledThenIgnored || disposition == kHandledThenDefault) signal(number, handler);
  if (disposition == kIgnoredTwice || disposition == kIgnoredThenHandled) signal(number, SIG_IGN);
  if (disposition <= kIgnoredTwice) signal(number, SIG_IGN);
  if (disposition == kDefault || disposition == kHandledThenDefault) signal(number, SIG_DFL);
  if (disposition == kIgnoredThenHandled) signal(number, handler);
}

static void send_it(int number, int way) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  if (way == kRaise) raise(number);
  if (way == kByChild) {
    const pid_t child = fork();
    if (child == 0) {
      kill(getppid(), number);
      _exit(0);
    }
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) {
    }
  }
  if (way == kUnblocked) {
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
  }
}

static void report(const char* what, int number, int detail, pid_t child) {
  int status = 0;
  while (waitpid(child, &status, WUNTRACED) < 0 && errno == EINTR) {
  }
  printf("%s %d of %d: ", what, detail, number);
  if (WIFEXITED(status)) printf("exit %d\n", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) printf("signal %d\n", WTERMSIG(status));
  if (!WIFSTOPPED(status)) return;
  printf("stopped %d\n", WSTOPSIG(status));
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

static void try_signal(int number, int disposition, int way) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dispose(number, disposition);
    send_it(number, way);
    _exit(g_handled == number ? 8 : 7);
  }
  report("way", number, disposition * kWays + way, child);
}

static void hop(int rounds, int number) {
  char left[16], which[16];
  if (rounds == 0) {
    struct sigaction now;
    sigaction(number, NULL, &now);
    raise(number);
    _exit(now.sa_handler == SIG_IGN ? 7 : 6);
  }
  snprintf(left, sizeof left, "%d", rounds - 1);
  snprintf(which, sizeof which, "%d", number);
  execl("/nonexistent", "nothing", NULL);
  execl(g_self, g_self, "hop", left, which, NULL);
  _exit(5);
}

static void try_exec(int number, int disposition) {
  fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    dispose(number, disposition);
    hop(3, number);
  }
  report("exec", number, disposition, child);
}

// A signal of a fault that a child sends while its parent is still forking: QEMU's own threads do not block it.
static void try_while_forking(int number) {
  enum { kRounds = 100 };
  int survived = 0;
  fflush(stdout);
  for (int i = 0; i < kRounds; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      dispose(number, kHandledThenIgnored);
      send_it(number, kByChild);
      _exit(7);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    survived += WIFEXITED(status) && WEXITSTATUS(status) == 7;
  }
  printf("forking, signal %d: %d of %d survive\n", number, survived, kRounds);
}

int main(int argc, char** argv) {
  g_self = argv[0];
  if (argc == 4 && strcmp(argv[1], "hop") == 0) hop(atoi(argv[2]), atoi(argv[3]));
  const int catchable[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGILL,    SIGTRAP, SIGABRT, SIGBUS,  SIGFPE,  SIGUSR1, SIGSEGV, SIGUSR2, SIGPIPE,
                           SIGALRM, SIGTERM, SIGSTKFLT, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,  SIGXCPU, SIGXFSZ, SIGVTALRM,
                           SIGPROF, SIGWINCH, SIGIO,   SIGPWR,    SIGSYS,  SIGRTMIN, SIGRTMIN + 5};
  const int harmless[] = {SIGCHLD, SIGCONT, SIGURG, SIGWINCH};
  const int stopping[] = {SIGTSTP, SIGTTIN, SIGTTOU};
  for (size_t i = 0; i < sizeof catchable / sizeof *catchable; ++i) {
    for (int way = 0; way < kWays; ++way) try_signal(catchable[i], i % 2 == 0 ? kIgnored : kHandledThenIgnored, way);
    try_signal(catchable[i], kIgnoredTwice, kRaise);
    try_signal(catchable[i], kIgnoredThenHandled, kRaise);
    try_exec(catchable[i], kIgnored);
  }
  for (size_t i = 0; i < sizeof harmless / sizeof *harmless; ++i) {
    for (int way = 0; way < kWays; ++way) try_signal(harmless[i], kHandledThenDefault, way);
    try_signal(harmless[i], kDefault, kByChild);
    try_exec(harmless[i], kHandledThenDefault);
  }
  for (size_t i = 0; i < sizeof stopping / sizeof *stopping; ++i) try_signal(stopping[i], kHandledThenDefault, kRaise);
  try_exec(SIGTERM, kHandledThenDefault);
  try_while_forking(SIGSEGV);
  try_while_forking(SIGBUS);
  return 7;
}
