// Sizes of rings under limits; address filters compared with nm and readelf; the page that reports the progress of a recording.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "capture/live/events/address_filter.h"
#include "capture/live/events/commit_page.h"
#include "capture/live/events/ring_sizes.h"

namespace ptd::live {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

RingLimits roomy() {
  RingLimits limits;
  limits.unlimited_lock = true;
  limits.memory_bytes = 64ULL << 30;
  return limits;
}

TEST(RingSizes, TheUsualOnesWhereThereIsRoom) {
  const auto sizes = choose_ring_sizes(roomy(), {0, 0, 4, true});
  ASSERT_TRUE(sizes.ok());
  EXPECT_EQ(sizes->target_pages, RingSizes().target_pages);
  EXPECT_EQ(sizes->aux_bytes, RingSizes().aux_bytes);
}

TEST(RingSizes, AnOrdinaryUserGetsWhatMayBeLocked) {
  RingLimits limits = roomy();
  limits.unlimited_lock = false;
  for (const uint64_t memlock : {uint64_t{0}, uint64_t{64} << 10, uint64_t{8} << 20}) {
    for (const uint32_t cpus : {1U, 2U, 64U}) {
      limits.memlock_bytes = memlock;
      limits.cpus = cpus;
      for (const bool trace : {false, true}) {
        const auto sizes = choose_ring_sizes(limits, {0, 0, cpus, trace});
        ASSERT_TRUE(sizes.ok());
        EXPECT_LE(locked_bytes(*sizes, 4096, trace) * cpus, limits.mlock_kb * 1024 * cpus + memlock);
        EXPECT_GE(sizes->target_pages, 8U);
      }
    }
  }
}

TEST(RingSizes, MemoryOfTheCgroupCounts) {
  RingLimits limits = roomy();
  limits.memory_bytes = 64U << 20;
  const auto sizes = choose_ring_sizes(limits, {0, 0, 16, true});
  ASSERT_TRUE(sizes.ok());
  EXPECT_LE(locked_bytes(*sizes, 4096, true) * 16, limits.memory_bytes / 4);
}

TEST(RingSizes, WhatWasAskedForIsGivenOrRefused) {
  const auto large = choose_ring_sizes(roomy(), {3U << 20, 100U << 20, 2, true});
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(large->target_pages, 1024U) << "the next power of two";
  EXPECT_EQ(large->aux_bytes, 128U << 20);
  RingLimits limits = roomy();
  limits.unlimited_lock = false;
  const auto refused = choose_ring_sizes(limits, {0, 100U << 20, 2, true});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("ulimit -l"));
}

TEST(RingSizes, LimitsAreReadFromAnyRoot) {
  const fs::path root = fs::temp_directory_path() / ("ptdecode-limits-" + std::to_string(getpid()));
  const auto put = [&](const std::string& path, const std::string& text) {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  };
  put("proc/sys/kernel/perf_event_mlock_kb", "1032\n");
  put("proc/sys/kernel/perf_event_paranoid", "2\n");
  put("proc/self/status", "Name:\tx\nCapEff:\t0000000000000000\n");
  put("proc/meminfo", "MemTotal:        1024000 kB\n");
  put("proc/self/cgroup", "12:cpu,memory:/a/b\n0::/user\n");
  put("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "50000000\n");
  put("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");
  put("sys/fs/cgroup/user/memory.max", "max\n");
  put("sys/devices/system/cpu/online", "0-2,5\n");
  RingLimits limits = read_limits(root.string());
  EXPECT_EQ(limits.mlock_kb, 1032U);
  EXPECT_FALSE(limits.unlimited_lock);
  EXPECT_EQ(limits.memory_bytes, 50000000U) << "the parent's limit is the tighter one";
  EXPECT_EQ(limits.cpus, 4U);
  put("sys/fs/cgroup/user/memory.max", "40000000\n");
  put("proc/self/status", "CapEff:\t0000000000004000\n");
  limits = read_limits(root.string());
  EXPECT_EQ(limits.memory_bytes, 40000000U);
  EXPECT_TRUE(limits.unlimited_lock);
  fs::remove_all(root);
}

TEST(RingSizes, SizesAsTyped) {
  EXPECT_EQ(parse_ring_bytes("128", 4096).value(), 128U * 4096);
  EXPECT_EQ(parse_ring_bytes("512K", 4096).value(), 512U << 10);
  EXPECT_EQ(parse_ring_bytes("4M", 4096).value(), 4U << 20);
  for (const char* bad : {"", "0", "M", "-1", "1T", "1KB", "99999999999G", " 1"}) EXPECT_FALSE(parse_ring_bytes(bad, 4096).ok()) << bad;
}

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return text;
  std::array<char, 4096> buffer{};
  for (size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) != 0;) text.append(buffer.data(), got);
  pclose(pipe);
  return text;
}

class Filter : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    std::ofstream(folder_ / "p.c")
        << "int first(int a) { return a * 3; }\nint second(int a) { return first(a) + 1; }\nint main(int c, char** v) { "
           "(void)v; return second(c); }\n";
    built_ = system(("cc -O1 -fno-inline -o " + path() + " " + (folder_ / "p.c").string() + " 2>/dev/null").c_str()) == 0;
  }
  void TearDown() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path() const { return (folder_ / "p").string(); }
  /// Returns address and size by nm; in such a program the text segment's address is its file offset.
  [[nodiscard]] std::pair<uint64_t, uint64_t> by_nm(const std::string& name) const {
    unsigned long long address = 0, size = 0;
    (void)std::sscanf(output_of("nm -S " + path() + " | grep ' " + name + "$'").c_str(), "%llx %llx", &address, &size);
    return {address, size};
  }
  fs::path folder_ = fs::temp_directory_path() / ("ptdecode-filter-" + std::to_string(getpid()));
  bool built_ = false;
};

std::string hex(uint64_t value) {
  char text[24];
  (void)std::snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

TEST_F(Filter, SymbolsOfAFile) {
  if (!built_) GTEST_SKIP() << "no C compiler";
  const auto [first, first_size] = by_nm("first");
  const auto [second, second_size] = by_nm("second");
  ASSERT_NE(first, 0U);
  EXPECT_EQ(resolve_filter("filter first @ " + path(), "", 0).value(), "filter " + hex(first) + "/" + hex(first_size) + "@" + path());
  EXPECT_EQ(resolve_filter("filter first / second @ " + path(), "", 0).value(),
            "filter " + hex(first) + "/" + hex(second + second_size - first) + "@" + path());
  EXPECT_EQ(resolve_filter("start first @ " + path() + ", stop second@" + path(), "", 2).value(),
            "start " + hex(first) + "@" + path() + ",stop " + hex(second) + "@" + path());
  EXPECT_EQ(resolve_filter("filter 0x1000/0x20 @ " + path(), "", 0).value(), "filter 0x1000/0x20@" + path());
}

TEST_F(Filter, WhatCannotBeIsNamed) {
  if (!built_) GTEST_SKIP() << "no C compiler";
  const auto refused = [&](const std::string& text, const std::string& says) {
    const Result<std::string> got = resolve_filter(text, "", 1);
    ASSERT_FALSE(got.ok()) << text;
    EXPECT_THAT(got.error().message, HasSubstr(says));
  };
  refused("filter nothing @ " + path(), "no symbol 'nothing'");
  refused("filter second / first @ " + path(), "lies before");
  refused("filter 0x1000 @ " + path(), "has no size");
  refused("watch first @ " + path(), "must be filter, start, stop or tracestop");
  refused("filter first @ /no/such/file", "No such file");
  refused("start first @ " + path() + ",stop second @ " + path(), "num_address_ranges");
  refused("", "empty");
}

TEST(KernelFilter, SymbolsOfTheKernelEndWhereTheNextBegins) {
  const std::string kallsyms =
      "ffffffff81000100 T schedule\nffffffff81000000 T _stext\nffffffff81000180 t twice\nffffffff810001c0 t twice\n"
      "ffffffff81000200 D data\nffffffff81000300 T last\n";
  EXPECT_EQ(resolve_filter("filter schedule", kallsyms, 0).value(), "filter 0xffffffff81000100/0x80");
  EXPECT_EQ(resolve_filter("tracestop twice#2", kallsyms, 0).value(), "tracestop 0xffffffff810001c0/0x140");
  EXPECT_FALSE(resolve_filter("filter twice", kallsyms, 0).ok());
  EXPECT_FALSE(resolve_filter("filter twice#3", kallsyms, 0).ok());
  EXPECT_FALSE(resolve_filter("filter last", kallsyms, 0).ok()) << "it has no end";
}

TEST(CommitPage, AnotherProcessSeesTheLastWholeState) {
  const auto page = CommitPage::create(3);
  ASSERT_TRUE(page.ok());
  (*page)->publish({100, 7, {1, 2, 3}});
  const pid_t child = fork();
  if (child == 0) {
    for (uint64_t i = 1;; ++i) (*page)->publish({i, i, {i, i, i}});
  }
  ASSERT_GT(child, 0);
  usleep(20000);
  ASSERT_EQ(kill(child, SIGKILL), 0);
  (void)waitpid(child, nullptr, 0);
  const Progress last = (*page)->read();
  EXPECT_GT(last.file_bytes, 1U);
  EXPECT_EQ(last.store_bytes, last.file_bytes);
  EXPECT_EQ(last.positions, (std::vector<uint64_t>(3, last.file_bytes)));
}

}  // namespace
}  // namespace ptd::live
