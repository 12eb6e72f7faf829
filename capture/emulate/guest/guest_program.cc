// GuestProgram: pipes, a pseudo-terminal, and one loop that serves them.
#include "capture/emulate/guest/guest_program.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "capture/emulate/guest/guest_files.h"

namespace ptd::emulate::guest {
namespace {

constexpr int kNotFound = 127, kNotRun = 126;

void set_window(int terminal, uint16_t rows, uint16_t columns) {
  winsize size{};
  size.ws_row = rows;
  size.ws_col = columns;
  if (terminal >= 0) (void)ioctl(terminal, TIOCSWINSZ, &size);
}

}  // namespace

bool GuestProgram::open_streams(int (&inside)[3]) {
  int slave = -1;
  if (config_.terminal[0] || config_.terminal[1] || config_.terminal[2]) {
    terminal_ = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (terminal_ < 0 || grantpt(terminal_) != 0 || unlockpt(terminal_) != 0) return false;
    std::array<char, 64> name{};
    if (ptsname_r(terminal_, name.data(), name.size()) != 0) return false;
    slave = open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (slave < 0) return false;
    set_window(terminal_, config_.rows, config_.columns);
  }
  for (size_t i = 0; i < 3; ++i) {
    if (config_.terminal[i]) {
      inside[i] = slave;
      continue;
    }
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    inside[i] = i == 0 ? ends[0] : ends[1];
    if (i == 0) {
      input_ = ends[1];
      (void)fcntl(input_, F_SETFL, O_NONBLOCK);
    } else {
      streams_[i - 1] = {ends[0], i == 1 ? GuestFrame::output : GuestFrame::error_output};
    }
  }
  if (config_.terminal[0]) input_ = terminal_;
  if (terminal_ >= 0) {
    (void)fcntl(terminal_, F_SETFL, O_NONBLOCK);
    Stream& stream = streams_[0].fd < 0 ? streams_[0] : streams_[1];
    stream = {terminal_, &stream == &streams_[0] ? GuestFrame::output : GuestFrame::error_output};
  }
  return true;
}

void GuestProgram::become_program(const int (&inside)[3], const std::function<void()>& before_exec) const {
  (void)setsid();
  for (int i = 0; i < 3; ++i) (void)dup2(inside[i], i);
  for (int i = 0; i < 3; ++i) {
    if (config_.terminal[i]) {
      (void)ioctl(i, TIOCSCTTY, 0);
      break;
    }
  }
  if (chdir(config_.folder.c_str()) != 0) (void)chdir("/");
  std::vector<char*> words, variables;
  for (const std::string& word : config_.words) words.push_back(const_cast<char*>(word.c_str()));
  for (const std::string& variable : config_.variables) variables.push_back(const_cast<char*>(variable.c_str()));
  words.push_back(nullptr);
  variables.push_back(nullptr);
  for (int number = 1; number < NSIG; ++number) (void)std::signal(number, SIG_DFL);
  before_exec();
  (void)execve(config_.program.c_str(), words.data(), variables.data());
  const int number = errno;
  (void)dprintf(2, "ptdecode: cannot run %s in the emulated machine: %s\n", config_.program.c_str(), std::strerror(number));
  _exit(number == ENOENT ? kNotFound : kNotRun);
}

bool GuestProgram::start(const std::function<void()>& before_exec) {
  int inside[3] = {-1, -1, -1};
  if (!open_streams(inside)) return false;
  child_ = fork();
  if (child_ == 0) become_program(inside, before_exec);
  std::sort(std::begin(inside), std::end(inside));
  int before = -1;
  for (const int fd : inside) {
    if (fd != before) close(fd);
    before = fd;
  }
  return child_ > 0;
}

// False once nothing more comes.
bool GuestProgram::pass_output(Stream& stream) {
  std::array<char, 16384> buffer{};
  const ssize_t got = read(stream.fd, buffer.data(), buffer.size());
  if (got > 0) {
    if (!channel_.send(stream.kind, {buffer.data(), static_cast<size_t>(got)})) host_gone_ = true;
    return true;
  }
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return errno == EINTR;
  if (stream.fd != terminal_) close(stream.fd);
  stream.fd = -1;
  return false;
}

void GuestProgram::on_frame(GuestFrame kind, std::string_view payload) {
  switch (kind) {
    case GuestFrame::input:
      waiting_ += payload;
      break;
    case GuestFrame::input_end:
      input_ended_ = true;
      break;
    case GuestFrame::signal:
      if (!payload.empty() && child_ > 0) (void)kill(-child_, payload.front());
      break;
    case GuestFrame::window:
      if (payload.size() == 4)
        set_window(terminal_, static_cast<uint16_t>(number_in(payload)), static_cast<uint16_t>(number_in(payload) >> 16));
      break;
    default:
      break;
  }
}

void GuestProgram::feed() {
  if (input_ >= 0 && !waiting_.empty()) {
    const ssize_t got = write(input_, waiting_.data(), waiting_.size());
    const bool closed = got < 0 && errno != EAGAIN && errno != EINTR;
    const size_t taken = closed ? waiting_.size() : static_cast<size_t>(std::max<ssize_t>(got, 0));
    waiting_.erase(0, taken);
    if (taken != 0) (void)channel_.send(GuestFrame::input_taken, number_bytes(static_cast<uint32_t>(taken)));
  }
  if (!input_ended_ || !waiting_.empty() || input_ < 0) return;
  if (input_ != terminal_) close(input_);
  input_ = -1;
}

bool GuestProgram::ended() {
  for (;;) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, WNOHANG);  // init's duty: orphans too
    if (pid <= 0) return false;
    if (pid != child_) continue;
    status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return true;
  }
}

int GuestProgram::run(const std::function<void()>& on_end) {
  (void)std::signal(SIGPIPE, SIG_IGN);
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  (void)std::signal(SIGCHLD, [](int) {});  // ppoll ends
  sigset_t waited;
  (void)sigprocmask(SIG_BLOCK, &children, &waited);
  while (!ended()) {
    pollfd polled[4] = {{host_gone_ ? -1 : channel_fd_, POLLIN, 0},
                        {streams_[0].fd, POLLIN, 0},
                        {streams_[1].fd, POLLIN, 0},
                        {waiting_.empty() ? -1 : input_, POLLOUT, 0}};
    if (ppoll(polled, 4, nullptr, &waited) < 0) continue;
    if (polled[0].revents != 0 && !channel_.take([this](GuestFrame kind, std::string_view payload) { on_frame(kind, payload); }))
      host_gone_ = true;
    for (size_t i = 0; i < 2; ++i) {
      if (polled[i + 1].revents != 0) (void)pass_output(streams_[i]);
    }
    feed();
  }
  on_end();
  (void)sigprocmask(SIG_SETMASK, &waited, nullptr);
  for (Stream& stream : streams_) {
    if (stream.fd >= 0) (void)fcntl(stream.fd, F_SETFL, O_NONBLOCK);
    while (stream.fd >= 0 && pass_output(stream)) {
    }
  }
  return status_;
}

}  // namespace ptd::emulate::guest
