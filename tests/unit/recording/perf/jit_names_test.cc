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

}  // namespace
}  // namespace ptd
