// ProgramHolder: fork, waitpid and a socket.
#include "capture/emulate/program_holder.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "image/base/inherited_signals.h"
#include "image/base/system_error.h"

namespace ptd::emulate {
namespace {

/// What the holder reports: its program's process, then its exit status.
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

volatile sig_atomic_t g_end_requests = 0;

/// Waits for the program and, as this process takes in orphans, for all that it started. `ended` gets the program's exit status.
int wait_for_all(pid_t program, const std::function<void(int)>& ended) {
  int result = kKilled;
  while (true) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    if (pid < 0 && errno == EINTR) continue;
    if (pid < 0) return result;
    if (pid != program) continue;
    result = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    ended(result);
  }
}

/// Returns the processes below `ancestor`, from /proc.
std::vector<pid_t> processes_below(pid_t ancestor) {
  std::vector<std::pair<pid_t, pid_t>> parents;  // process, parent
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream file(entry.path() / "stat");
    std::string line;
    pid_t pid = 0, parent = 0;
    char state = 0;
    const size_t name_end = std::getline(file, line) ? line.rfind(')') : std::string::npos;  // names may contain blanks and parentheses
    if (name_end == std::string::npos || !(std::istringstream(line) >> pid) || !(std::istringstream(line.substr(name_end + 1)) >> state >> parent)) continue;
    if (state != 'Z') parents.emplace_back(pid, parent);
  }
  std::vector<pid_t> below{ancestor};
  for (size_t i = 0; i < below.size(); ++i) {
    for (const auto& [pid, parent] : parents)
      if (parent == below[i]) below.push_back(pid);
  }
  below.erase(below.begin());
  return below;
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
  if (program < 0 || !send_report(fd, program)) _exit(1);
  leave_standard_streams();
  const int status = wait_for_all(program, [&](int ended) {
    duties.ended();
    (void)send_report(fd, ended);
  });
  (void)send_report(fd, status);
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

int ProgramHolder::wait(const Progress& progress) {
  constexpr int kFirstMs = 1000, kNextMs = 200;
  Report status;
  const auto wait_alone = [&] { return wait_for_all(program_, [&](int) { ended_(); }); };
  if (!receive(fd_, status)) return wait_alone();
  progress.program_ended();
  pollfd report{fd_, POLLIN, 0};
  g_end_requests = 0;
  sig_atomic_t requests = 0;
  for (bool is_first = true;; is_first = false) {
    const int ready = poll(&report, 1, is_first ? kFirstMs : kNextMs);
    if (ready > 0) break;
    const std::vector<pid_t> rest = is_first || requests != g_end_requests ? processes_below(holder_) : std::vector<pid_t>();
    if (is_first && !rest.empty()) progress.rest_is_running(rest.size());
    if (requests == g_end_requests) continue;
    for (const pid_t pid : rest) (void)kill(pid, requests == 0 ? SIGTERM : SIGKILL);
    requests = g_end_requests;
  }
  const int result = status.value;
  return receive(fd_, status) ? status.value : (wait_alone(), result);
}

void ProgramHolder::end_rest() {
  if (g_end_requests < 2) g_end_requests = g_end_requests + 1;
}

ProgramHolder::~ProgramHolder() {
  (void)send_report(fd_, 0);
  close(fd_);
  while (holder_ > 0 && waitpid(holder_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace ptd::emulate
