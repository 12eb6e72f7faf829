// Sideband fold: names of jitdumps and announcements, and what ends them.
#include "tests/unit/recording/perf/jitdump_support.h"

namespace ptd {
namespace {

TEST_F(JitFold, AFileThatIsMappedOverCodeEndsItsNames) {
  comm(10, 10, "java", false, 0);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  map(10, kJitCode + 0x2000, "/bin/two", 20);
  map(10, kJitCode, "//anon", 50);
  map(10, kJitCode + 0x1000, "//anon", 1500);  // made executable after its code was logged
  map(10, kJitCode, "/bin/one", 2000);
  finish_with(JitdumpBytes(10)
                  .load(1000, 10, kJitCode + kCode, 'a', 0x11)
                  .load(1001, 10, kJitCode + 0xff8, 'b', 0x12)
                  .load(1002, 10, kJitCode + 0x1800, 'c', 0x13)
                  .load(1003, 10, kJitCode + 0x2000 + kCode, 'd', 0x14)
                  .load(3000, 10, kJitCode + 0x800, 'e', 0x15));
  EXPECT_EQ(name_at(10, kJitCode + kCode, 100), "a") << "its first call may have an earlier time";
  EXPECT_EQ(name_at(10, kJitCode + kCode, 1999), "a");
  EXPECT_EQ(name_at(10, kJitCode + kCode, 2000), "");
  EXPECT_EQ(user_byte(10, kJitCode + kCode, 2000), 0x55);
  EXPECT_EQ(name_at(10, kJitCode + 0xff8, 2500), "");
  EXPECT_EQ(name_at(10, kJitCode + 0x1000, 2500), "b") << "this part was not replaced";
  EXPECT_EQ(name_at(10, kJitCode + 0x1800, 2500), "c");
  EXPECT_EQ(name_at(10, kJitCode + 0x2000 + kCode, 100), "") << "there was a file before";
  EXPECT_EQ(name_at(10, kJitCode + 0x2000 + kCode, 1003), "d");
  EXPECT_EQ(name_at(10, kJitCode + 0x800, 2500), "");
  EXPECT_EQ(name_at(10, kJitCode + 0x800, 3000), "e");
}

TEST_F(JitFold, AChildHasTheNamesOfItsParentUntilItReplacesTheCode) {
  comm(10, 10, "java", true, 5);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  map(10, kJitCode, "//anon", 50);
  fork(10, 20, 20, 2000);
  map(20, kJitCode + 0x1000, "/bin/one", 2500);
  map(20, kJitCode + 0x3000, "//anon", 2500);
  fork(20, 30, 30, 2600);
  finish_with(JitdumpBytes(10)
                  .load(1000, 10, kJitCode, 'a', 0x11)
                  .load(1001, 10, kJitCode + 0x1000 + kCode, 'b', 0x12)
                  .load(1002, 10, kJitCode + 0x2000, 'c', 0x13)
                  .load(1003, 10, kJitCode + 0x3000, 'd', 0x14)
                  .load(3000, 10, kJitCode, 'e', 0x15)
                  .load(3001, 20, kJitCode + 8, 'f', 0x16)
                  .move(3002, 20, kJitCode + 0x2000, kJitCode + 0x2800, 3));
  EXPECT_EQ(name_at(20, kJitCode + 8, 2100), "a");
  EXPECT_EQ(name_at(20, kJitCode, 3500), "a") << "its parent replaced it after the fork";
  EXPECT_EQ(name_at(20, kJitCode + 8, 3500), "f");
  EXPECT_EQ(name_at(10, kJitCode + 8, 3500), "e");
  EXPECT_EQ(name_at(20, kJitCode + 0x1000 + kCode, 2400), "b");
  EXPECT_EQ(name_at(20, kJitCode + 0x1000 + kCode, 2500), "");
  EXPECT_EQ(name_at(10, kJitCode + 0x1000 + kCode, 2500), "b");
  EXPECT_EQ(name_at(20, kJitCode + 0x3000, 2500), "d");
  EXPECT_EQ(name_at(20, kJitCode + 0x2000, 3001), "c");
  EXPECT_EQ(name_at(20, kJitCode + 0x2000, 3002), "");
  EXPECT_EQ(name_at(20, kJitCode + 0x2800, 3002), "c");
  EXPECT_EQ(name_at(30, kJitCode + 8, 3500), "a");
  EXPECT_EQ(name_at(30, kJitCode + 0x1000 + kCode, 3500), "");
  EXPECT_EQ(name_at(30, kJitCode + 0x2000, 3500), "c");
}

TEST_F(JitFold, AProcessAfterManyForksHasTheNamesOfTheFirst) {
  comm(10, 10, "java", true, 5);
  map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  for (int32_t pid = 11; pid < 60; ++pid) fork(pid - 1, pid, pid, 2000 + static_cast<uint64_t>(pid));
  finish_with(JitdumpBytes(10).load(1000, 10, kJitCode, 'a', 0x11).load(5000, 10, kJitCode, 'b', 0x12));
  EXPECT_EQ(name_at(59, kJitCode, 6000), "a");
  EXPECT_EQ(user_byte(59, kJitCode, 6000), 0x11);
}

TEST_F(JitFold, AChildHasTheNamesOfItsParentsPerfMap) {
  dir_.write("tmp/perf-10.map", "7f0000000000 10 a\n7f0000001000 1000 b\n");
  comm(10, 10, "node", true, 5);
  map(10, kJitCode, "//anon", 50);
  fork(10, 20, 20, 2000);
  map(20, kJitCode + 0x1000, "/bin/one", 2500);
  finish();
  EXPECT_EQ(name_at(20, kJitCode, 2100), "a");
  EXPECT_EQ(name_at(20, kJitCode + 0x1000, 2100), "b");
  EXPECT_EQ(name_at(20, kJitCode + 0x1000, 2500), "");
  EXPECT_EQ(name_at(10, kJitCode + 0x1000, 2500), "b");
}

}  // namespace
}  // namespace ptd
