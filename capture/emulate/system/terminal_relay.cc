// TerminalRelay: one loop over standard input, the machine and a pipe of signals.
#include "capture/emulate/system/terminal_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace ptd::emulate {
namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH};
std::array<struct sigaction, kSignals.size()> g_before;
int g_pipe[2] = {-1, -1};

void note(int number) {
  const int before = errno;
  const char byte = static_cast<char>(number);
  (void)!write(g_pipe[1], &byte, 1);
  errno = before;
}

// To a descriptor of this process that may not block, or be closed.
void write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t got = write(fd, bytes.data(), bytes.size());
    if (got > 0) {
      bytes.remove_prefix(static_cast<size_t>(got));
    } else if (got < 0 && errno == EAGAIN) {
      pollfd room{fd, POLLOUT, 0};
      (void)poll(&room, 1, -1);
    } else if (got == 0 || errno != EINTR) {
      return;
    }
  }
}

}  // namespace

TerminalRelay::TerminalRelay(int fd) : channel_(fd), fd_(fd) {
  (void)!pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK);
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals[i], &action, &g_before[i]);
}

TerminalRelay::~TerminalRelay() {
  set_raw(false);
  for (size_t i = 0; i < kSignals.size(); ++i) (void)sigaction(kSignals[i], &g_before[i], nullptr);
  for (int& fd : g_pipe) {
    close(fd);
    fd = -1;
  }
}

void TerminalRelay::set_raw(bool on) {
  if (on == raw_) return;
  if (on) {
    if (isatty(STDIN_FILENO) == 0 || tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios raw = before_;
    cfmakeraw(&raw);
    if (tcsetattr(STDIN_FILENO, TCSANOW, &raw) != 0) return;
  } else {
    (void)tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
  }
  raw_ = on;
}

void TerminalRelay::on_frame(GuestFrame kind, std::string_view payload) {
  constexpr size_t kMostMessages = 20;
  switch (kind) {
    case GuestFrame::output:
      return write_all(STDOUT_FILENO, payload);
    case GuestFrame::error_output:
      return write_all(STDERR_FILENO, payload);
    case GuestFrame::input_taken:
      input_on_way_ -= std::min<size_t>(input_on_way_, number_in(payload));
      break;
    case GuestFrame::started:
      outcome_.started = std::chrono::steady_clock::now();
      set_raw(true);
      break;
    case GuestFrame::message:
      if (outcome_.messages.size() < kMostMessages) outcome_.messages.emplace_back(payload);
      break;
    case GuestFrame::failed:
      outcome_.failure = payload;
      break;
    case GuestFrame::exited:
      outcome_.ended = std::chrono::steady_clock::now();
      outcome_.exit_status = static_cast<int>(number_in(payload) & 0xff);
      set_raw(false);
      break;
    case GuestFrame::finished:
      outcome_.finished = true;
      break;
    default:
      break;
  }
}

void TerminalRelay::pass_signals() {
  constexpr unsigned kMostRequests = 3;
  char number = 0;
  while (read(g_pipe[0], &number, 1) == 1) {
    if (number == SIGWINCH) {
      winsize size{};
      if (ioctl(STDIN_FILENO, TIOCGWINSZ, &size) == 0)
        (void)channel_.send(GuestFrame::window, number_bytes(size.ws_row | uint32_t{size.ws_col} << 16));
      continue;
    }
    // Before the program has started there is nothing else to end.
    const bool running = outcome_.started != RelayOutcome::Time() && !outcome_.exit_status;
    if (running) (void)channel_.send(GuestFrame::signal, std::string_view(&number, 1));
    if (!running || ++requests_to_end_ >= kMostRequests) outcome_.given_up = true;
  }
}

void TerminalRelay::pass_input() {
  std::array<char, 16384> buffer{};
  const ssize_t got = read(STDIN_FILENO, buffer.data(), std::min(buffer.size(), kInputWindowBytes - input_on_way_));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    input_ended_ = true;
    (void)channel_.send(GuestFrame::input_end, {});
    return;
  }
  input_on_way_ += static_cast<size_t>(got);
  (void)channel_.send(GuestFrame::input, {buffer.data(), static_cast<size_t>(got)});
}

RelayOutcome TerminalRelay::run() {
  while (!outcome_.finished && !outcome_.given_up && outcome_.failure.empty()) {
    const bool reads =
        outcome_.started != RelayOutcome::Time() && !outcome_.exit_status && !input_ended_ && input_on_way_ < kInputWindowBytes;
    pollfd polled[3] = {{fd_, POLLIN, 0}, {g_pipe[0], POLLIN, 0}, {reads ? STDIN_FILENO : -1, POLLIN, 0}};
    if (poll(polled, 3, -1) < 0) continue;
    if (polled[1].revents != 0) pass_signals();
    if (polled[0].revents != 0 && !channel_.take([this](GuestFrame kind, std::string_view payload) { on_frame(kind, payload); })) break;
    if (polled[2].revents != 0) pass_input();
  }
  set_raw(false);
  return outcome_;
}

}  // namespace ptd::emulate
