// WholeFile: the kinds of output paths.
#include "image/base/whole_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace ptd {
namespace {

namespace fs = std::filesystem;

class WholeFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ptd_whole_XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string at(const std::string& name) const { return (folder_ / name).string(); }
  static std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static void put(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  static Status write(const std::string& path, const std::string& text) {
    auto file = WholeFile::open(path);
    if (!file) return file.error();
    (*file)->write(text);
    return (*file)->finish();
  }
  [[nodiscard]] size_t files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(WholeFileTest, AFileAppearsAtTheEnd) {
  auto file = WholeFile::open(at("x"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  (*file)->write("new");
  EXPECT_FALSE(fs::exists(at("x")));
  ASSERT_TRUE((*file)->finish().ok());
  EXPECT_EQ(text_of(at("x")), "new");
  EXPECT_EQ(files(), 1U);
}

TEST_F(WholeFileTest, WithoutAnEndTheOldOneStaysAndNothingIsLeft) {
  put(at("x"), "old");
  {
    auto file = WholeFile::open(at("x"));
    ASSERT_TRUE(file.ok());
    (*file)->write(std::string(1U << 20, 'x'));
  }
  EXPECT_EQ(text_of(at("x")), "old");
  EXPECT_EQ(files(), 1U);
}

TEST_F(WholeFileTest, ALinkIsReplacedAndItsTargetStays) {
  fs::create_directory(at("far"));
  put(at("far/target"), "precious");
  ASSERT_EQ(::chmod(at("far/target").c_str(), 0604), 0);
  for (const bool keep_old : {false, true}) {
    for (const char* target : {"far/target", "chain", "far/nothing", "loop"}) {
      SCOPED_TRACE(target);
      fs::create_symlink("far/target", at("chain"));
      fs::create_symlink(target, at("loop"));
      const OutputRules rules = {0600, FileKind::other, keep_old};
      auto file = WholeFile::open(at("loop"), rules);
      ASSERT_TRUE(file.ok()) << file.error().message;
      (*file)->write("new");
      ASSERT_TRUE((*file)->finish().ok());
      EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(at("loop"))));
      EXPECT_EQ(text_of(at("loop")), "new");
      EXPECT_EQ(fs::status(at("loop")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
      EXPECT_TRUE(fs::is_symlink(at("chain")));
      EXPECT_EQ(fs::is_symlink(at("loop.old")), keep_old);
      for (const char* name : {"chain", "loop", "loop.old"}) fs::remove(at(name));
    }
  }
  EXPECT_EQ(text_of(at("far/target")), "precious");
  EXPECT_EQ(std::distance(fs::directory_iterator(at("far")), {}), 1);
}

TEST_F(WholeFileTest, ItsTemporaryNameIsNeverALinkOfSomebody) {
  put(at("victim"), "old");
  fs::create_symlink("victim", at("x.part" + std::to_string(::getpid())));
  fs::create_symlink("victim", at("x.part"));
  ASSERT_TRUE(write(at("x"), "new").ok());
  EXPECT_EQ(text_of(at("victim")), "old");
  EXPECT_FALSE(fs::is_symlink(at("x")));
  EXPECT_EQ(text_of(at("x")), "new");
}

TEST_F(WholeFileTest, AFifoIsWrittenStraight) {
  ASSERT_EQ(::mkfifo(at("fifo").c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = text_of(at("fifo")); });
  const Status status = write(at("fifo"), "through");
  reader.join();
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(got, "through");
  EXPECT_TRUE(fs::is_fifo(at("fifo")));
}

TEST_F(WholeFileTest, ADeviceIsWrittenStraightAndStays) {
  fs::create_symlink("/dev/null", at("null"));
  ASSERT_TRUE(write(at("null"), "gone").ok());
  EXPECT_TRUE(fs::is_character_file(at("null")));
  EXPECT_TRUE(fs::is_symlink(at("null")));
  if (::mknod(at("own").c_str(), S_IFCHR | 0600, 0x103) != 0) GTEST_SKIP() << "no device of our own without root";
  ASSERT_TRUE(write(at("own"), "gone").ok());
  EXPECT_TRUE(fs::is_character_file(at("own")));
  // Simulates a full disk.
  fs::create_symlink("/dev/full", at("full"));
  EXPECT_FALSE(write(at("full"), "too much").ok());
}

TEST_F(WholeFileTest, ADescriptorOfThisProcessIsAppendedTo) {
  put(at("log"), "before\n");
  const int fd = ::open(at("log").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  for (const std::string folder : {"/dev/fd/", "/proc/self/fd/"}) ASSERT_TRUE(write(folder + std::to_string(fd), "more\n").ok()) << folder;
  ::close(fd);
  EXPECT_EQ(text_of(at("log")), "before\nmore\nmore\n");
  EXPECT_EQ(files(), 1U);
}

TEST_F(WholeFileTest, AReaderWhoHasHadEnoughIsAnErrorUnlessItReadsStandardOutput) {
  const auto before = ::signal(SIGPIPE, SIG_IGN);
  for (const bool standard : {false, true}) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    ::close(ends[0]);
    std::fflush(stdout);
    const int own_output = ::dup(STDOUT_FILENO);
    if (standard) ::dup2(ends[1], STDOUT_FILENO);
    auto file = WholeFile::open("/dev/fd/" + std::to_string(ends[1]));
    const bool wrote = file.ok() && (*file)->write(std::string(1U << 20, 'x'));
    const bool finished = file.ok() && (*file)->finish().ok();
    ::dup2(own_output, STDOUT_FILENO);
    ::close(own_output);
    ::close(ends[1]);
    EXPECT_TRUE(file.ok());
    EXPECT_FALSE(wrote);
    EXPECT_EQ(finished, standard);
  }
  (void)::signal(SIGPIPE, before);
}

TEST_F(WholeFileTest, SignalsLeaveNoTemporaryFile) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) {
    put(at("old"), "old");
    const auto killed = [&] {
      remove_temporaries_on_signals();
      const auto first = WholeFile::open(at("first")), old = WholeFile::open(at("old"));
      if (!first.ok() || !old.ok() || !(*first)->write("x") || std::distance(fs::directory_iterator(folder_), {}) != 3) _exit(1);
      if (::fork() == 0) ::raise(number);  // a child process leaves the files of its parent
      int status = 0;
      (void)::wait(&status);
      if (std::distance(fs::directory_iterator(folder_), {}) != 3) _exit(2);
      (void)::raise(number);
    };
    EXPECT_EXIT(killed(), testing::KilledBySignal(number), "");
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
    EXPECT_EQ(text_of(at("old")), "old");
  }
}

TEST_F(WholeFileTest, IgnoredSignalsStayIgnored) {
  testing::GTEST_FLAG(death_test_style) = "fast";
  const auto ignores = [&] {
    ::signal(SIGHUP, SIG_IGN);  // nohup
    remove_temporaries_on_signals();
    (void)::raise(SIGHUP);
    _exit(42);
  };
  EXPECT_EXIT(ignores(), testing::ExitedWithCode(42), "");
}

TEST_F(WholeFileTest, WhatIsNoPlaceIsAnError) {
  EXPECT_FALSE(WholeFile::open(folder_.string()).ok());
  EXPECT_FALSE(WholeFile::open(at("none") + "/x").ok());
  EXPECT_FALSE(WholeFile::open("").ok());
  EXPECT_EQ(files(), 0U);
}

TEST_F(WholeFileTest, APrivateFileTakesTheNameAndNothingElseOfTheOldOne) {
  const mode_t before = ::umask(0);
  put(at("old"), "precious");
  fs::permissions(at("old"), fs::perms::all);
  fs::create_hard_link(at("old"), at("second name"));
  ASSERT_TRUE(create_private(at("old")).ok());
  ::umask(before);
  EXPECT_EQ(text_of(at("second name")), "precious");
  EXPECT_EQ(text_of(at("old")), "");
  EXPECT_EQ(fs::status(at("old")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  ASSERT_TRUE(create_private(at("new")).ok());
  EXPECT_EQ(fs::status(at("new")).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  for (const char* target : {"second name", "elsewhere"}) {
    fs::create_symlink(target, at("link"));
    ASSERT_TRUE(create_private(at("link")).ok());
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(at("link"))));
    fs::remove(at("link"));
  }
  EXPECT_EQ(text_of(at("second name")), "precious");
  EXPECT_FALSE(fs::exists(at("elsewhere")));
  EXPECT_TRUE(create_private("/dev/null").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(WholeFileTest, LinksOfOthersInAFolderForAllAreRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root makes links of other users";
  constexpr uid_t kOther = 12345;
  put(at("victim"), "precious");
  for (const char* target : {"victim", "nothing"}) {
    fs::create_symlink(target, at("link"));
    ASSERT_EQ(::lchown(at("link").c_str(), kOther, kOther), 0);
    for (const mode_t mode : {01777, 0777}) {
      ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
      EXPECT_FALSE(write(at("link"), "new").ok()) << target;
      EXPECT_FALSE(create_private(at("link")).ok()) << target;
    }
    EXPECT_EQ(text_of(at("victim")), "precious");
    EXPECT_FALSE(fs::exists(at("nothing")));
    ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
    EXPECT_TRUE(write(at("link"), "precious").ok()) << "who may write to the folder may put links there";
    fs::remove(at("nothing"));
    fs::remove(at("link"));
  }
}

TEST_F(WholeFileTest, AnInterruptLeavesNoUnfinishedFile) {
  put(at("old"), "old");
  auto kept = WholeFile::open(at("kept"));
  ASSERT_TRUE(kept && (*kept)->finish().ok());
  auto file = WholeFile::open(at("old")), other = WholeFile::open(at("other"));
  ASSERT_TRUE(file && other);
  (*file)->write("new");
  remove_unfinished_files();
  std::vector<std::string> left;
  for (const auto& entry : fs::directory_iterator(folder_)) left.push_back(entry.path().filename().string());
  std::sort(left.begin(), left.end());
  EXPECT_EQ(left, (std::vector<std::string>{"kept", "old"}));
  EXPECT_EQ(text_of(at("old")), "old");
}

}  // namespace
}  // namespace ptd
