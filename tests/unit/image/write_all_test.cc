// write_all() and the environment.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>

#include "image/base/environment.h"
#include "image/base/fd.h"

namespace ptd {
namespace {

TEST(WriteAll, APipeThatDoesNotBlockGetsAllBytes) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ASSERT_EQ(::fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
  std::string text;
  for (size_t i = 0; i < (1U << 20); ++i) text.push_back(static_cast<char>('a' + i % 23));
  std::string got;
  std::thread reader([&] {
    std::array<char, 5000> buffer{};
    for (ssize_t size = 0; (size = ::read(ends[0], buffer.data(), buffer.size())) > 0;)
      got.append(buffer.data(), static_cast<size_t>(size));
  });
  EXPECT_TRUE(write_all(ends[1], text.data(), text.size()));
  ::close(ends[1]);
  reader.join();
  ::close(ends[0]);
  EXPECT_TRUE(got == text) << got.size() << " bytes";
}

TEST(WriteAll, ErrnoHasTheReason) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  ::close(ends[0]);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  EXPECT_FALSE(write_all(ends[1], "x", 1));
  EXPECT_EQ(errno, EPIPE);
  std::signal(SIGPIPE, before);
  ::close(ends[1]);
  EXPECT_FALSE(write_all(-1, "x", 1));
  EXPECT_EQ(errno, EBADF);
  EXPECT_TRUE(write_all(-1, "", 0)) << "nothing to write";
}

/// Sets a variable, or removes it, until the end of the test.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* before = std::getenv(name);
    had_ = before != nullptr;
    if (had_) before_ = before;
    value != nullptr ? ::setenv(name, value, 1) : ::unsetenv(name);
  }
  ~Variable() { had_ ? ::setenv(name_, before_.c_str(), 1) : ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  bool had_ = false;
  std::string before_;
};

TEST(Environment, DefaultsOfAbsentAndEmptyVariables) {
  {
    const Variable folder("TMPDIR", "/var/tmp"), path("PATH", "/opt/bin"), home("HOME", "/root");
    EXPECT_EQ(environment::temporary_folder(), "/var/tmp");
    EXPECT_EQ(environment::search_path(), "/opt/bin");
    EXPECT_EQ(environment::home(), "/root");
  }
  {
    const Variable folder("TMPDIR", ""), path("PATH", ""), home("HOME", "");
    EXPECT_EQ(environment::temporary_folder(), "/tmp");
    EXPECT_EQ(environment::search_path(), "") << "[POSIX] execvp(): an empty PATH is the current folder";
    EXPECT_EQ(environment::home(), "");
  }
  const Variable folder("TMPDIR", nullptr), path("PATH", nullptr), home("HOME", nullptr);
  EXPECT_EQ(environment::temporary_folder(), "/tmp");
  EXPECT_NE(environment::search_path(), "");
  EXPECT_EQ(environment::home(), "");
}

}  // namespace
}  // namespace ptd
