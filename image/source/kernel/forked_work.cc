// ForkedWork: see forked_work.h.
#include "image/source/kernel/forked_work.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <new>
#include <string_view>

#include "image/base/interrupt.h"
#include "image/base/system_error.h"

namespace ptd {
namespace {

constexpr int kSliceMs = 100, kNoMemory = 3, kFailed = 4;
constexpr size_t kBufferBytes = 1U << 16;

void limit(int resource, uint64_t most) {
  rlimit now{};
  if (::getrlimit(static_cast<__rlimit_resource_t>(resource), &now) != 0) return;
  now.rlim_cur = now.rlim_max = std::min<rlim_t>({now.rlim_cur, now.rlim_max, most});
  (void)::setrlimit(static_cast<__rlimit_resource_t>(resource), &now);
}

/// Returns the size of this process's address space; 0 if unknown. Allocates nothing.
uint64_t address_space_bytes() {
  const Fd file(::open("/proc/self/statm", O_RDONLY | O_CLOEXEC));
  std::array<char, 64> text{};
  if (!file.ok() || ::read(file.get(), text.data(), text.size() - 1) <= 0) return 0;
  return std::strtoull(text.data(), nullptr, 10) * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

[[noreturn]] void run(pid_t parent, const ForkedWork::Limits& limits, const std::function<void(int)>& work, int output) {
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  // A blocked signal of a crash still ends it.
  for (int number = 1; number <= SIGRTMAX; ++number) (void)::sigaction(number, &standard, nullptr);
  (void)::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(kFailed);
  if (const uint64_t used = address_space_bytes(); used != 0) limit(RLIMIT_AS, used + limits.memory_bytes);
  limit(RLIMIT_CPU, limits.cpu_seconds);
  limit(RLIMIT_CORE, 0);
  (void)::prctl(PR_SET_DUMPABLE, 0);  // no core through a pipe either
  if (const int nothing = ::open("/dev/null", O_WRONLY | O_CLOEXEC); nothing >= 0) (void)::dup2(nothing, STDERR_FILENO);
  try {
    work(output);
  } catch (const std::bad_alloc&) {
    ::_exit(kNoMemory);
  } catch (...) {
    ::_exit(kFailed);
  }
  ::_exit(0);
}

}  // namespace

Result<std::unique_ptr<ForkedWork>> ForkedWork::start(const std::string& name, const Limits& limits, const std::function<void(int)>& work) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error(name, ErrorCode::resources);
  Fd input(ends[0]);
  const Fd output(ends[1]);
  const pid_t parent = ::getpid();
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);  // no handler of the program runs in the process
  const pid_t pid = ::fork();
  if (pid == 0) run(parent, limits, work, output.get());
  const int reason = errno;
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return system_error(name + ": no process for reading it could be started", ErrorCode::start_failed, reason);
  return std::unique_ptr<ForkedWork>(new ForkedWork(pid, std::move(input), limits.silence));
}

ForkedWork::~ForkedWork() { (void)stop(); }

bool ForkedWork::read(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    if (used_ == buffer_.size() && !fill()) return false;
    const size_t part = std::min(bytes.size(), buffer_.size() - used_);
    std::copy_n(buffer_.begin() + static_cast<ptrdiff_t>(used_), part, bytes.begin());
    used_ += part;
    bytes = bytes.subspan(part);
  }
  return true;
}

bool ForkedWork::fill() {
  buffer_.clear();
  used_ = 0;
  const auto end = std::chrono::steady_clock::now() + silence_;
  for (;;) {
    check_interrupt();
    const bool has_ended = pid_ == 0;
    pollfd ready{output_.get(), POLLIN, 0};
    const int count = ::poll(&ready, 1, kSliceMs);
    if (count > 0) {
      buffer_.resize(kBufferBytes);
      const ssize_t got = ::read(output_.get(), buffer_.data(), buffer_.size());
      buffer_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got >= 0 || errno != EINTR) return got > 0;
      continue;
    }
    // A process that another thread forked meanwhile may hold the pipe open.
    if (has_ended) return false;
    reap(WNOHANG);
    is_silent_ = pid_ != 0 && std::chrono::steady_clock::now() > end;
    if (is_silent_) return false;
  }
}

void ForkedWork::reap(int flags) {
  int status = 0;
  pid_t got = -1;
  do {
    got = ::waitpid(pid_, &status, flags);
  } while (got < 0 && errno == EINTR);
  if (got == 0) return;
  if (got == pid_) status_ = status;
  pid_ = 0;
}

ForkedWork::End ForkedWork::stop() {
  if (pid_ != 0) reap(WNOHANG);
  if (pid_ != 0) {
    (void)::kill(pid_, SIGKILL);
    reap(0);
  }
  if (is_silent_) return {false, "sent nothing for " + std::to_string(silence_.count()) + " s"};
  if (!status_) return {false, "ended early"};
  if (WIFEXITED(*status_)) return {false, WEXITSTATUS(*status_) == kNoMemory ? "needed too much memory" : "ended early"};
  const int number = WTERMSIG(*status_);
  const bool crashed = number != SIGKILL && number != SIGXCPU;
  return {crashed, "was ended by signal " + std::to_string(number) + (crashed ? "" : " (it needed too much processor time or memory)")};
}

}  // namespace ptd
