// A mapped file that another process truncates: zero bytes and a report instead of SIGBUS.
#include "image/base/shrunk_files.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "image/base/mapped_file.h"

namespace ptd {
namespace {

const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));

class TempFile {
 public:
  explicit TempFile(size_t size_bytes) : fd_(mkstemp(path_.data())) {
    const std::string text(size_bytes, 'x');
    EXPECT_EQ(write(fd_, text.data(), text.size()), static_cast<ssize_t>(size_bytes));
  }
  ~TempFile() {
    close(fd_);
    unlink(path_.c_str());
  }
  TempFile(const TempFile&) = delete;
  TempFile& operator=(const TempFile&) = delete;
  void cut(size_t size_bytes) const { EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_bytes)), 0); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_ = testing::TempDir() + "shrunk-XXXXXX";
  int fd_;
};

std::byte byte_at(const MappedFile& file, size_t offset) { return *static_cast<const volatile std::byte*>(file.bytes().data() + offset); }

bool is_reported(const std::string& path, uint64_t known) {
  const std::vector<std::string> all = shrunk_files(known);
  return std::count(all.begin(), all.end(), path) == 1;
}

/// False under sanitizers, which handle SIGBUS themselves.
bool has_handler() {
  const TempFile any(1);
  const auto file = MappedFile::open(any.path());
  struct sigaction now {};
  sigaction(SIGBUS, nullptr, &now);
  bool ours = (now.sa_flags & SA_SIGINFO) != 0;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  ours = false;
#endif
  return ours;
}

TEST(ShrunkFiles, ReadsPastTheNewEndGiveZerosAndAreCountedOnce) {
  if (!has_handler()) GTEST_SKIP() << "another handler of SIGBUS";
  const TempFile cut(8 * kPage), whole(8 * kPage);
  const auto file = MappedFile::open(cut.path()), other = MappedFile::open(whole.path());
  const uint64_t known = shrunk_file_count();
  cut.cut(2 * kPage);
  EXPECT_EQ(byte_at(**file, kPage), std::byte{'x'});
  EXPECT_EQ(shrunk_file_count(), known);
  EXPECT_EQ(byte_at(**file, 5 * kPage), std::byte{0});
  EXPECT_EQ(byte_at(**file, 8 * kPage - 1), std::byte{0});
  EXPECT_EQ(byte_at(**file, 3 * kPage), std::byte{0});
  EXPECT_EQ(byte_at(**file, kPage), std::byte{'x'});
  EXPECT_EQ(byte_at(**other, 7 * kPage), std::byte{'x'});
  EXPECT_EQ(shrunk_file_count(), known + 1);
  EXPECT_TRUE(is_reported(cut.path(), known));
  EXPECT_FALSE(is_reported(whole.path(), known));
}

TEST(ShrunkFiles, ThreadsMayFaultAtTheSameTime) {
  if (!has_handler()) GTEST_SKIP() << "another handler of SIGBUS";
  const TempFile cut(64 * kPage);
  const auto file = MappedFile::open(cut.path());
  const uint64_t known = shrunk_file_count();
  cut.cut(0);
  std::vector<std::thread> threads;
  for (size_t first = 0; first < 4; ++first) {
    threads.emplace_back([&, first] {
      for (size_t page = 64; page-- > 0;) EXPECT_EQ(byte_at(**file, page * kPage + first), std::byte{0});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(shrunk_file_count(), known + 1);
}

TEST(ShrunkFiles, ACutThatNoReadMeetsIsReported) {
  const TempFile cut(kPage);  // the rest of the last page reads as zeros, without a fault
  const uint64_t known = shrunk_file_count();
  {
    const auto file = MappedFile::open(cut.path());
    cut.cut(kPage / 2);
    EXPECT_TRUE(is_reported(cut.path(), known));
  }
  EXPECT_EQ(shrunk_file_count(), known + 1);
  EXPECT_TRUE(is_reported(cut.path(), known));
  {
    const auto file = MappedFile::open(cut.path());
    cut.cut(1);
  }
  EXPECT_EQ(shrunk_file_count(), known + 2);
}

TEST(ShrunkFiles, ReplacedAndRemovedFilesKeepTheirBytes) {
  const TempFile replaced(4 * kPage), shorter(kPage);
  const uint64_t known = shrunk_file_count();
  const auto file = MappedFile::open(replaced.path());
  ASSERT_EQ(rename(shorter.path().c_str(), replaced.path().c_str()), 0);
  EXPECT_EQ(byte_at(**file, 3 * kPage), std::byte{'x'});
  unlink(replaced.path().c_str());
  EXPECT_EQ(shrunk_files(known).size(), 0U);
}

TEST(ShrunkFiles, OtherFaultsEndTheProcess) {
  if (!has_handler()) GTEST_SKIP() << "another handler of SIGBUS";
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto foreign = [] {
    const TempFile cut(4 * kPage), ours(kPage);
    const auto file = MappedFile::open(ours.path());
    const int fd = memfd_create("foreign", 0);
    if (ftruncate(fd, static_cast<off_t>(2 * kPage)) != 0) return;
    const auto* bytes = static_cast<const volatile char*>(mmap(nullptr, 2 * kPage, PROT_READ, MAP_PRIVATE, fd, 0));
    if (ftruncate(fd, 0) == 0) (void)bytes[kPage];
  };
  EXPECT_EXIT(foreign(), testing::KilledBySignal(SIGBUS), "");
  const auto sent = [] {
    const TempFile ours(kPage);
    const auto file = MappedFile::open(ours.path());
    (void)kill(getpid(), SIGBUS);
    pause();
  };
  EXPECT_EXIT(sent(), testing::KilledBySignal(SIGBUS), "");
}

TEST(ShrunkFiles, AHandlerOfTheProgramIsLeftAlone) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto host = [] {
    std::signal(SIGBUS, [](int) { _exit(42); });
    const TempFile cut(4 * kPage);
    const auto file = MappedFile::open(cut.path());
    cut.cut(0);
    (void)byte_at(**file, kPage);
  };
  EXPECT_EXIT(host(), testing::ExitedWithCode(42), "");
}

// A file that is opened again after it became shorter shows nothing but its new size, if no other mapping is read past it.
TEST(ShrunkFiles, OpenedAgain) {
  for (const size_t left : {kPage, size_t{0}}) {
    const TempFile temp(3 * kPage);
    const uint64_t known = shrunk_file_count();
    const auto before = MappedFile::open(temp.path());
    ASSERT_TRUE(before.ok());
    ASSERT_TRUE(MappedFile::open(temp.path()).ok());
    EXPECT_EQ(shrunk_file_count(), known);
    temp.cut(left);
    ASSERT_TRUE(MappedFile::open(temp.path()).ok());
    EXPECT_EQ(shrunk_file_count(), known + 1);
    EXPECT_EQ(shrunk_files(known), std::vector{temp.path()});
  }
}

}  // namespace
}  // namespace ptd
