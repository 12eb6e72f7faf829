// TruthCheck against hashes computed by hand from the definition of FNV-1a-64.
#include "cli/verify/truth.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace ptd::cli {
namespace {

uint64_t fnv(uint64_t hash, std::initializer_list<uint8_t> bytes) {
  for (const uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211ULL;
  return hash;
}
constexpr uint64_t kBasis = 14695981039346656037ULL;

struct Ran {
  uint64_t ip;
  std::vector<std::byte> bytes;
};
const std::vector<Ran> kRun = {{0x1122, {std::byte{0x90}}}, {0x1123, {std::byte{0x0f}, std::byte{0x0b}}}};

std::vector<Checkpoint> truth() {
  const uint64_t ip1 = fnv(kBasis, {0x22, 0x11, 0, 0, 0, 0, 0, 0}), ip2 = fnv(ip1, {0x23, 0x11, 0, 0, 0, 0, 0, 0});
  const uint64_t bytes1 = fnv(kBasis, {0x90}), bytes2 = fnv(bytes1, {0x0f, 0x0b});
  return {{1, ip1, bytes1, 0x1122}, {2, ip2, bytes2, 0x1123}};
}

TEST(ReadTruth, OnlyARegularFile) {
  const std::string folder = ::testing::TempDir() + "ptd-truth-" + std::to_string(::getpid());
  ASSERT_EQ(::mkdir(folder.c_str(), 0700), 0);
  const std::string fifo = folder + "/fifo", file = folder + "/truth";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::ofstream(file) << "# a comment\n\n3 a b 1122 77\n5 c d end";
  for (const std::string& path : {fifo, std::string("/dev/zero"), folder, folder + "/none"}) EXPECT_FALSE(read_truth(path).ok()) << path;
  const auto read = read_truth(file);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ((*read)[0].last_ip, 0x1122U);
  EXPECT_EQ((*read)[1].count, 5U);
  EXPECT_EQ((*read)[1].byte_hash, 0xdU);
  EXPECT_EQ((*read)[1].last_ip, 0U);
  for (const std::string& path : {fifo, file}) ::unlink(path.c_str());
  ::rmdir(folder.c_str());
}

TEST(TruthCheck, EqualRun) {
  TruthCheck check(truth());
  for (const Ran& run : kRun) check.instruction(Ip{run.ip}, run.bytes, false);
  check.end();
  EXPECT_TRUE(check.equal());
  EXPECT_EQ(check.right_instructions(), 2U);
}

TEST(TruthCheck, AWrongByteSpoilsItsWindowOnly) {
  TruthCheck check(truth());
  const std::byte wrong{0xcc};
  check.instruction(Ip{0x1122}, Bytes(&wrong, 1), true);
  check.instruction(Ip{0x1123}, kRun[1].bytes, false);
  check.end();
  EXPECT_FALSE(check.equal());
  ASSERT_NE(check.first_difference(), nullptr);
  EXPECT_EQ(check.first_difference()->want.count, 1U);
  EXPECT_EQ(check.right_windows(), 1U);
  EXPECT_EQ(check.flagged(), 1U);
}

TEST(TruthCheck, AMissingOrExtraInstructionIsADifference) {
  TruthCheck short_run(truth());
  short_run.instruction(Ip{0x1122}, kRun[0].bytes, false);
  short_run.end();
  EXPECT_FALSE(short_run.equal());
  TruthCheck long_run(truth());
  for (const Ran& run : kRun) long_run.instruction(Ip{run.ip}, run.bytes, false);
  long_run.instruction(Ip{0x1125}, kRun[0].bytes, false);
  long_run.end();
  EXPECT_FALSE(long_run.equal());
}

TEST(ReadTruth, ReadsAndRefuses) {
  const std::string path = testing::TempDir() + "truth.cpu3.txt";
  std::ofstream(path) << "# count\n1 0a 0b ffffffff81000000 7\n3 c d end\n";
  const auto read = read_truth(path);
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->size(), 2U);
  EXPECT_EQ(read->front().last_ip, 0xffffffff81000000U);
  EXPECT_EQ(read->back().byte_hash, 0xdU);
  EXPECT_EQ(cpu_of_path(path), 3);
  EXPECT_EQ(cpu_of_path("truth.txt"), -1);
  for (const char* bad : {"", "x\n", "2 1 1 1 1\n1 1 1 1 1\n"}) {
    std::ofstream(path) << bad;
    EXPECT_FALSE(read_truth(path).ok()) << bad;
  }
  std::remove(path.c_str());
  EXPECT_EQ(read_truth(path).error().kind(), ErrorKind::file_open);
  EXPECT_EQ(read_truth("/dev/null").error().kind(), ErrorKind::file_open) << "no regular file: it may not end";
}

}  // namespace
}  // namespace ptd::cli
