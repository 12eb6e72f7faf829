// ForkedWork.
#include "image/source/kernel/forked_work.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "image/base/interrupt.h"

namespace ptd {
namespace {

using Work = std::function<void(int)>;

constexpr ForkedWork::Limits kLimits{.silence = std::chrono::seconds(30), .cpu_seconds = 30, .memory_bytes = 1ULL << 30};

bool has_no_child() { return ::waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD; }

/// Runs work that should send nothing.
ForkedWork::End end_of(const Work& work, const ForkedWork::Limits& limits = kLimits) {
  const auto started = ForkedWork::start("work", limits, work);
  if (!started.ok()) return {false, started.error().message};
  std::array<std::byte, 1> none{};
  EXPECT_FALSE((*started)->read(none));
  const ForkedWork::End end = (*started)->stop();
  EXPECT_TRUE(has_no_child());
  return end;
}

void send(int output, std::string_view text) {
  if (!write_all(output, text.data(), text.size())) ::_exit(1);
}

TEST(ForkedWork, BytesArriveAcrossPieces) {
  std::string sent(300000, '\0');
  for (size_t i = 0; i < sent.size(); ++i) sent[i] = static_cast<char>(i * i >> 8);
  const auto started = ForkedWork::start("work", kLimits, [&](int output) { send(output, sent); });
  ASSERT_TRUE(started.ok());
  std::string got(sent.size(), ' ');
  const auto bytes = std::as_writable_bytes(std::span(got));
  ASSERT_TRUE((*started)->read(bytes.first(100)));
  ASSERT_TRUE((*started)->read(bytes.subspan(100)));
  EXPECT_EQ(got, sent);
  EXPECT_FALSE((*started)->read(bytes.first(1)));
}

TEST(ForkedWork, TheEndSaysWhy) {
  for (const int number : {SIGSEGV, SIGBUS, SIGABRT, SIGILL}) {
    const ForkedWork::End end = end_of([number](int) {
      ::raise(number);
      sigset_t none;  // a raised signal is blocked, unlike one of a fault
      ::sigemptyset(&none);
      ::sigprocmask(SIG_SETMASK, &none, nullptr);
    });
    EXPECT_TRUE(end.crashed) << number;
    EXPECT_EQ(end.how, "was ended by signal " + std::to_string(number));
  }
  EXPECT_EQ(end_of([](int) { ::_exit(1); }).how, "ended early");
  EXPECT_EQ(end_of([](int) { throw std::runtime_error("not for the program"); }).how, "ended early");
  EXPECT_EQ(end_of([](int) { throw std::bad_alloc(); }).how, "needed too much memory");
}

TEST(ForkedWork, TimeAndProcessorTimeAreLimited) {
  ForkedWork::Limits limits = kLimits;
  limits.silence = std::chrono::seconds(1);
  EXPECT_EQ(end_of([](int) { ::pause(); }, limits).how, "sent nothing for 1 s");
  limits = kLimits;
  limits.cpu_seconds = 1;
  const ForkedWork::End end = end_of(
      [](int) {
        while (::getppid() != 0) {
        }
      },
      limits);
  EXPECT_FALSE(end.crashed);
  EXPECT_EQ(end.how, "was ended by signal 9 (it needed too much processor time or memory)");
}

TEST(ForkedWork, MemoryIsLimited) {
  for (const uint64_t limit_mib : {64, 512}) {
    ForkedWork::Limits limits = kLimits;
    limits.memory_bytes = limit_mib << 20;
    const auto started = ForkedWork::start("work", limits, [](int output) {
      const std::vector<char> all(200U << 20);
      send(output, {&all[all.size() / 2], 1});
    });
    ASSERT_TRUE(started.ok());
    std::array<std::byte, 1> done{};
    EXPECT_EQ((*started)->read(done), limit_mib == 512) << (*started)->stop().how;
  }
}

TEST(ForkedWork, ProgramsThatIgnoreSigchldGetNoHang) {
  struct sigaction ignore {
  }, before{};
  ignore.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGCHLD, &ignore, &before), 0);
  EXPECT_EQ(end_of([](int) { ::raise(SIGKILL); }).how, "ended early");
  ASSERT_EQ(::sigaction(SIGCHLD, &before, nullptr), 0);
}

TEST(ForkedWork, APipeThatAnotherProcessHoldsOpenEndsWithTheWork) {
  pid_t other = 0;
  const auto started = ForkedWork::start("work", kLimits, [](int output) {
    const pid_t holder = ::fork();
    if (holder == 0) {
      ::sleep(20);
      ::_exit(0);
    }
    send(output, {reinterpret_cast<const char*>(&holder), sizeof holder});
  });
  ASSERT_TRUE(started.ok());
  ASSERT_TRUE((*started)->read(std::as_writable_bytes(std::span(&other, 1))));
  std::array<std::byte, 1> none{};
  EXPECT_FALSE((*started)->read(none));
  EXPECT_EQ(::kill(other, SIGKILL), 0);  // still there
}

TEST(ForkedWork, HandlersOfTheProgramDoNotRunInIt) {
  struct sigaction handler {
  }, before{};
  handler.sa_handler = [](int) { ::_exit(77); };
  ASSERT_EQ(::sigaction(SIGTERM, &handler, &before), 0);
  const auto started = ForkedWork::start("work", kLimits, [](int output) {
    ::raise(SIGTERM);
    ::raise(SIGINT);
    send(output, "done");
  });
  ASSERT_EQ(::sigaction(SIGTERM, &before, nullptr), 0);
  ASSERT_TRUE(started.ok());
  std::array<std::byte, 4> bytes{};
  EXPECT_TRUE((*started)->read(bytes));
  sigset_t blocked;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
  EXPECT_EQ(::sigismember(&blocked, SIGTERM), 0);
}

TEST(ForkedWork, AnInterruptEndsIt) {
  const std::function<void()> interrupt = [] { throw std::runtime_error("stop"); };
  const InterruptScope scope(interrupt);
  {
    const auto started = ForkedWork::start("work", kLimits, [](int) { ::pause(); });
    ASSERT_TRUE(started.ok());
    std::array<std::byte, 1> none{};
    EXPECT_THROW((void)(*started)->read(none), std::runtime_error);
  }
  EXPECT_TRUE(has_no_child());
}

}  // namespace
}  // namespace ptd
