// MappedLog: what a short log costs, and what a long one keeps.
#include "capture/emulate/shared/mapped_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

namespace ptd::emulate {
namespace {

constexpr uint64_t kPage = 4096;

class MappedLogTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = testing::TempDir() + "mapped_log_XXXXXX";
    ASSERT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/log";
  }
  void TearDown() override {
    (void)unlink(path_.c_str());
    (void)rmdir(folder_.c_str());
  }
  // Pages of the file's first 64 MiB that are in memory.
  [[nodiscard]] int64_t pages_in_memory() const {
    constexpr size_t kBytes = size_t{64} << 20;
    const int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    void* mapped = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped == MAP_FAILED) return -1;
    std::vector<unsigned char> pages(kBytes / kPage);
    const bool known = mincore(mapped, kBytes, pages.data()) == 0;
    munmap(mapped, kBytes);
    return known ? std::count_if(pages.begin(), pages.end(), [](unsigned char page) { return (page & 1) != 0; }) : -1;
  }
  std::string folder_, path_;
};

TEST_F(MappedLogTest, ShortLogUsesTwoPages) {
  MappedLog log;
  ASSERT_TRUE(log.open(path_));
  *log.owner_area() = std::byte{1};
  const std::vector<std::byte> few(10, std::byte{1});
  ASSERT_TRUE(log.append(few));
  EXPECT_LE(pages_in_memory(), 2);  // the header and the data
  struct stat file {};
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  constexpr uint64_t kUnit = 512;  // of st_blocks
  EXPECT_LE(static_cast<uint64_t>(file.st_blocks) * kUnit, 2 * kPage);
}

TEST_F(MappedLogTest, RoomGrowsAndKeepsAll) {
  MappedLog log;
  ASSERT_TRUE(log.open(path_));
  std::vector<std::byte> all;
  for (unsigned i = 0; i < 3000; ++i) {
    const std::vector<std::byte> piece(1 + i % 257, static_cast<std::byte>(i));
    ASSERT_TRUE(log.append(piece));
    all.insert(all.end(), piece.begin(), piece.end());
  }
  EXPECT_EQ(log.size(), all.size());
  struct stat file {};
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  constexpr uint64_t kUnit = 512, kMostSpare = 2 * 64 * 1024;
  EXPECT_LE(static_cast<uint64_t>(file.st_blocks) * kUnit, kMappedLogHeaderBytes + all.size() + kMostSpare);
  log.close();
  std::ifstream read(path_, std::ios::binary);
  std::string bytes(kMappedLogHeaderBytes + all.size(), 0);
  read.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_EQ(read.gcount(), static_cast<std::streamsize>(bytes.size()));
  EXPECT_TRUE(std::equal(all.begin(), all.end(), reinterpret_cast<const std::byte*>(bytes.data()) + kMappedLogHeaderBytes));
}

}  // namespace
}  // namespace ptd::emulate
