// Workload: see workload.h.
#include "capture/live/events/workload.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "image/base/inherited_signals.h"
#include "image/base/system_error.h"

namespace ptd::live {
namespace {

void close_one(int& fd) {
  if (fd >= 0) close(std::exchange(fd, -1));
}

[[noreturn]] void run_child(const std::vector<std::string>& command, const std::string& variable, int go, int failure) {
  constexpr int kCannotRun = 127;
  for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGXFSZ})
    (void)signal(number, was_ignored(number) ? SIG_IGN : SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, nullptr);
  char byte = 0;
  ssize_t got = 0;
  do {
    got = read(go, &byte, 1);
  } while (got < 0 && errno == EINTR);
  if (got != 1) _exit(0);  // the recorder has ended
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const size_t name = std::min(variable.find('='), variable.size());
  if (!variable.empty()) (void)setenv(variable.substr(0, name).c_str(), variable.c_str() + name + 1, 0);
  (void)execvp(words[0], words.data());
  const int number = errno;
  if (write(failure, &number, sizeof(number)) < 0) _exit(kCannotRun);
  _exit(kCannotRun);
}

}  // namespace

Result<Workload> Workload::prepare(const std::vector<std::string>& command, const std::string& variable) {
  int go[2] = {-1, -1}, failure[2] = {-1, -1};
  const auto fail = [&] {
    const int number = errno;
    for (int* fd : {&go[0], &go[1], &failure[0], &failure[1]}) close_one(*fd);
    return system_error("cannot start " + command.front(), ErrorCode::start_failed, number);
  };
  if (pipe2(go, O_CLOEXEC) != 0 || pipe2(failure, O_CLOEXEC) != 0) return fail();
  const pid_t pid = fork();
  if (pid < 0) return fail();
  if (pid == 0) {
    close_one(go[1]);
    close_one(failure[0]);
    run_child(command, variable, go[0], failure[1]);
  }
  close_one(go[0]);
  close_one(failure[1]);
  Workload workload;
  workload.program_ = command.front();
  workload.pid_ = pid;
  workload.go_ = go[1];
  workload.failure_ = failure[0];
  workload.pid_fd_ = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
  return workload;
}

Workload::Workload(Workload&& other) noexcept
    : program_(std::move(other.program_)),
      pid_(std::exchange(other.pid_, -1)),
      pid_fd_(std::exchange(other.pid_fd_, -1)),
      go_(std::exchange(other.go_, -1)),
      failure_(std::exchange(other.failure_, -1)),
      status_(other.status_) {}

Workload& Workload::operator=(Workload&& other) noexcept {
  std::swap(program_, other.program_);
  std::swap(pid_, other.pid_);
  std::swap(pid_fd_, other.pid_fd_);
  std::swap(go_, other.go_);
  std::swap(failure_, other.failure_);
  std::swap(status_, other.status_);
  return *this;
}

Workload::~Workload() {
  const bool waits = go_ >= 0;
  close_one(go_);
  close_one(failure_);
  close_one(pid_fd_);
  if (pid_ > 0 && waits && status_ < 0) (void)waitpid(pid_, nullptr, 0);  // it ends at once
}

void Workload::forget() {
  pid_ = -1;
  for (int* fd : {&go_, &failure_, &pid_fd_}) close_one(*fd);
}

Status Workload::start() {
  const char byte = 1;
  while (write(go_, &byte, 1) < 0 && errno == EINTR) {
  }
  close_one(go_);
  int number = 0;
  ssize_t got = 0;
  do {
    got = read(failure_, &number, sizeof(number));  // the end of the pipe comes with exec
  } while (got < 0 && errno == EINTR);
  close_one(failure_);
  if (got != sizeof(number)) return {};
  (void)waitpid(pid_, nullptr, 0);
  status_ = 127;
  // The kernel has one errno for a missing file and for a file whose interpreter is missing.
  const bool exists = number == ENOENT && program_.find('/') != std::string::npos && access(program_.c_str(), F_OK) == 0;
  const std::string why = exists ? "the interpreter that the file names does not exist" : std::strerror(number);
  return Error{number == ENOENT ? ErrorCode::not_found : ErrorCode::start_failed, "cannot run " + program_ + ": " + why, 0};
}

int Workload::ended(int patience_ms) {
  constexpr int kSignalled = 128;
  int status = 0;
  pollfd end{pid_fd_, POLLIN, 0};
  if (status_ < 0 && pid_ > 0 && pid_fd_ >= 0 && patience_ms > 0) (void)poll(&end, 1, patience_ms);
  if (status_ < 0 && pid_ > 0 && waitpid(pid_, &status, WNOHANG) == pid_) {
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : kSignalled + WTERMSIG(status);
  }
  return status_;
}

}  // namespace ptd::live
