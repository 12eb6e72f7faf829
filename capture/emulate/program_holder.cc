// ProgramHolder: fork, waitpid and a socket.
#include "capture/emulate/program_holder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string>

#include "capture/live/kernel/start_scan.h"
#include "image/base/inherited_signals.h"
#include "image/base/system_error.h"

namespace ptd::emulate {
namespace {

/// What the holder reports: its program's process, then its exit status, then that all that it started have ended.
struct Report {
  int32_t value = 0;
};
constexpr int kKilled = 128 + SIGKILL;
// Signals that this process ignores.
constexpr std::array kHeldSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGPIPE, SIGXFSZ};

bool receive(int fd, Report& report) {
  ssize_t got = 0;
  do {
    got = recv(fd, &report, sizeof report, MSG_WAITALL);
  } while (got < 0 && errno == EINTR);
  return got == static_cast<ssize_t>(sizeof report);
}

bool send_report(int fd, int32_t value) {
  const Report report{value};
  return send(fd, &report, sizeof report, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof report);
}

int exit_status(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

// Waits for the program, reports its status and, as this process takes in orphans, waits for all that it started.
void wait_for_all(int fd, pid_t program, const std::function<void()>& ended) {
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return;
    if (pid != program) continue;
    ended();
    (void)send_report(fd, exit_status(status));
  }
}

void leave_standard_streams() {
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (const int fd : {0, 1, 2}) (void)dup2(null, fd);
}

[[noreturn]] void become_program(const ProgramHolder::Duties& duties, pid_t group) {
  (void)setpgid(0, group);
  for (const int number : kHeldSignals) (void)std::signal(number, was_ignored(number) ? SIG_IGN : SIG_DFL);
  if (was_ignored(SIGCHLD)) (void)std::signal(SIGCHLD, SIG_IGN);
  duties.become_program();
  _exit(127);
}

[[noreturn]] void hold(int fd, const ProgramHolder::Duties& duties, pid_t group) {
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)prctl(PR_SET_NAME, "ptdecode-hold");
  for (const int number : kHeldSignals) (void)std::signal(number, SIG_IGN);
  const pid_t program = fork();
  if (program == 0) become_program(duties, group);
  if (program > 0) (void)setpgid(program, group);  // in both processes: once its number is reported, it gets what the terminal sends
  if (program < 0 || !send_report(fd, program)) _exit(1);
  leave_standard_streams();
  wait_for_all(fd, program, duties.ended);
  (void)send_report(fd, 0);
  Report done;
  if (!receive(fd, done)) duties.complete();
  _exit(0);
}

}  // namespace

Result<std::unique_ptr<ProgramHolder>> ProgramHolder::start(const Duties& duties) {
  const auto fail = [] { return system_error("the program cannot be started", ErrorCode::start_failed); };
  std::array<int, 2> pair{-1, -1};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return fail();
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)std::signal(SIGCHLD, SIG_DFL);
  std::unique_ptr<ProgramHolder> holder(new ProgramHolder);
  holder->fd_ = pair[0];
  holder->ended_ = duties.ended;
  const pid_t group = getpgrp();
  holder->holder_ = fork();
  if (holder->holder_ == 0) {
    close(pair[0]);
    hold(pair[1], duties, group);
  }
  close(pair[1]);
  Report program;
  if (holder->holder_ < 0 || !receive(holder->fd_, program)) return fail();
  holder->program_ = program.value;
  return holder;
}

// Whether the program and all that it started have ended; waits for a change, as long as `timeout_ms` (-1: any time).
bool ProgramHolder::all_ended(int timeout_ms) {
  if (holds_) {
    pollfd socket{fd_, POLLIN, 0};
    if (poll(&socket, 1, timeout_ms) <= 0) return false;
    Report report;
    holds_ = receive(fd_, report);
    if (!holds_) return false;
    if (program_ran_) return true;
    program_ran_ = true;
    status_ = report.value;
    return false;
  }
  // The holder was killed: the processes are this one's.
  if (!program_ran_) status_ = kKilled;
  constexpr int kOftenMs = 20;
  int status = 0;
  const pid_t pid = waitpid(-1, &status, WNOHANG);
  if (pid == 0) (void)poll(nullptr, 0, timeout_ms < 0 ? kOftenMs : std::min(timeout_ms, kOftenMs));
  if (pid < 0 && errno != EINTR) return true;
  if (pid != program_ || program_ran_) return false;
  program_ran_ = true;
  ended_();
  status_ = exit_status(status);
  return false;
}

std::vector<pid_t> ProgramHolder::started() const {
  const pid_t above = holds_ ? holder_ : getpid();
  std::vector<pid_t> all = live::list_tree(above);
  std::erase_if(all, [&](pid_t pid) { return pid == above || pid == holder_; });
  return all;
}

int ProgramHolder::wait(const Survivors& survivors) {
  constexpr int kPauseMs = 100;
  while (!program_ran_) {
    if (all_ended(-1)) return status_;
  }
  survivors.begin();
  timespec begun{};
  (void)clock_gettime(CLOCK_MONOTONIC, &begun);
  for (bool said = false; !all_ended(kPauseMs);) {
    timespec now{};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    if (!said && (now.tv_sec - begun.tv_sec) * 1000 + (now.tv_nsec - begun.tv_nsec) / 1'000'000 >= kPatienceMs) {
      said = true;
      survivors.running(started());
    }
    if (!survivors.end()) continue;
    for (const pid_t pid : started()) (void)kill(pid, SIGKILL);
  }
  return status_;
}

ProgramHolder::~ProgramHolder() {
  (void)send_report(fd_, 0);
  close(fd_);
  while (holder_ > 0 && waitpid(holder_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ptd::emulate
