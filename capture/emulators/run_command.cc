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
[[noreturn]] void become(char* const* words, const std::string& folder, int output, pid_t parent, bool own_group) {
  (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(kNotStarted);  // it ended before the call above
  if (own_group) (void)setpgid(0, 0);
  (void)std::signal(SIGPIPE, SIG_DFL);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  const bool ready = dup2(null, STDIN_FILENO) >= 0 && dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0;
  if (ready && (folder.empty() || chdir(folder.c_str()) == 0)) (void)execvp(words[0], words);
  _exit(kNotStarted);
}

// Decides when a command must end before it has ended by itself.
class EndWatch {
 public:
  explicit EndWatch(const CommandOptions& options) : options_(options), end_(Clock::now() + options.most_time) {}

  [[nodiscard]] bool active() const { return options_.most_time.count() > 0 || options_.stop; }
  /// Whether to end it now; sets the reason.
  [[nodiscard]] bool is_due(CommandOutcome& outcome) const {
    outcome.timed_out = options_.most_time.count() > 0 && Clock::now() >= end_;
    outcome.stopped = !outcome.timed_out && options_.stop && options_.stop();
    return outcome.timed_out || outcome.stopped;
  }

 private:
  const CommandOptions& options_;
  const Clock::time_point end_;
};

// Reads until the command closes its output, or must end. Returns whether it must end.
bool read_output(int fd, const CommandOptions& options, const EndWatch& watch, CommandOutcome& outcome) {
  constexpr int kInterval = 100;  // milliseconds
  std::array<char, 4096> buffer{};
  while (!watch.active() || !watch.is_due(outcome)) {
    pollfd waiting{fd, POLLIN, 0};
    const int ready = poll(&waiting, 1, watch.active() ? kInterval : -1);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t got = read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    const std::string_view part(buffer.data(), static_cast<size_t>(got));
    std::string& text = outcome.text;
    text.append(part.substr(0, std::min(part.size(), options.most_bytes - std::min(options.most_bytes, text.size()))));
    if (options.see) options.see(part);
  }
  return true;
}

// Waits for the child. One that has closed its output and runs on is killed when it must end.
int wait_for(pid_t child, const EndWatch& watch, bool killed, CommandOutcome& outcome) {
  constexpr int kInterval = 5;  // milliseconds
  int status = 0;
  for (;;) {
    const bool watched = watch.active() && !killed;
    const pid_t done = waitpid(child, &status, watched ? WNOHANG : 0);
    if (done == child) return WIFSIGNALED(status) ? kSignalled + WTERMSIG(status) : WEXITSTATUS(status);
    if (done < 0 && errno != EINTR) return -1;
    if (!watched) continue;
    if (watch.is_due(outcome)) {
      killed = true;
      (void)kill(-child, SIGKILL);
    } else {
      (void)poll(nullptr, 0, kInterval);
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
  const EndWatch watch(options);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) become(arguments.data(), options.folder, ends[1], parent, watch.active());
  close(ends[1]);
  if (child > 0) {
    if (watch.active()) (void)setpgid(child, child);
    const bool killed = read_output(ends[0], options, watch, outcome);
    if (killed) (void)kill(-child, SIGKILL);
    outcome.status = wait_for(child, watch, killed, outcome);
  }
  close(ends[0]);
  return outcome;
}

}  // namespace ptd::emulators
