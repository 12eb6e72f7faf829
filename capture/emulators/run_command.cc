// Runs a command.
#include "capture/emulators/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>

namespace ptd::emulators {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kNotStarted = 127, kSignalled = 128;

// In the child, between fork() and exec(): only calls that are safe there.
[[noreturn]] void become(char* const* words, const std::string& folder, int output, bool own_group) {
  (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (own_group) (void)setpgid(0, 0);
  (void)std::signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool ready = dup2(null, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0;
  if (ready && (folder.empty() || chdir(folder.c_str()) == 0)) (void)execvp(words[0], words);
  _exit(kNotStarted);
}

// Milliseconds for poll(); -1 without a limit.
int time_left(Clock::time_point end, bool limited) {
  if (!limited) return -1;
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1000));
}

// Reads until the command closes its output, or the time is up. Returns whether the time was up.
bool read_output(int fd, const CommandOptions& options, std::string& text) {
  const bool limited = options.most_time.count() > 0;
  const Clock::time_point end = Clock::now() + options.most_time;
  std::array<char, 4096> buffer{};
  while (!limited || Clock::now() < end) {
    pollfd waiting{fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, time_left(end, limited));
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    const std::string_view part(buffer.data(), static_cast<size_t>(got));
    text.append(part.substr(0, std::min(part.size(), options.most_bytes - std::min(options.most_bytes, text.size()))));
    if (options.see) options.see(part);
  }
  return true;
}

// Waits for the child. With a limit, a child that closed its output but runs on is killed at the end of the time.
int wait_for(pid_t child, const CommandOptions& options, bool& timed_out) {
  const Clock::time_point end = Clock::now() + options.most_time;
  int status = 0;
  for (;;) {
    const bool limited = options.most_time.count() > 0 && !timed_out;
    const pid_t done = waitpid(child, &status, limited ? WNOHANG : 0);
    if (done == child) return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
    if (done < 0 && errno != EINTR) return -1;
    if (!limited) continue;
    if (Clock::now() >= end) {
      timed_out = true;
      (void)kill(-child, SIGKILL);
    } else {
      (void)poll(nullptr, 0, 5);
    }
  }
}

}  // namespace

CommandOutcome run_command(const std::vector<std::string>& words, const CommandOptions& options) {
  CommandOutcome outcome;
  std::array<int, 2> ends{};
  if (words.empty() || pipe2(ends.data(), O_CLOEXEC) != 0) return outcome;
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const bool own_group = options.most_time.count() > 0;
  const pid_t child = fork();
  if (child == 0) become(arguments.data(), options.folder, ends[1], own_group);
  close(ends[1]);
  if (child > 0) {
    if (own_group) (void)setpgid(child, child);
    outcome.timed_out = read_output(ends[0], options, outcome.text);
    if (outcome.timed_out) (void)kill(-child, SIGKILL);
    outcome.status = wait_for(child, options, outcome.timed_out);
  }
  close(ends[0]);
  return outcome;
}

}  // namespace ptd::emulators
