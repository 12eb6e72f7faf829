// Sideband fold: jitdumps into which children of their process log code, too.
#include "perfio/announce/announce_event.h"
#include "perfio/announce/announcement.h"
#include "tests/unit/recording/perf/jitdump_support.h"

namespace ptd {
namespace {

constexpr uint64_t kOtherCode = kJitCode + 0x100;

class JitWritersFold : public JitFold {
 protected:
  JitWritersFold() {
    comm(10, 10, "java", true, 5);
    map(10, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  }
  [[nodiscard]] uint64_t findings_with(const std::string& text) const {
    uint64_t count = 0;
    for (const Finding& finding : data_->timeline.findings()) count += finding.what.find(text) == std::string::npos ? 0 : 1;
    return count;
  }
};

TEST_F(JitWritersFold, CodeIsOfTheProcessThatLoggedIt) {
  fork(10, 20, 20, 2000);
  fork(20, 30, 30, 4000);
  feed(perfio::TaskRecord{10, 0, 10, 0, 2500, true}, 2500, 10, 10);  // the child goes on alone
  finish_with(JitdumpBytes(10)
                  .load(1000, 10, kJitCode, 'a', 0x11)
                  .load(3000, 20, kJitCode, 'b', 0x22)
                  .load(3001, 20, kOtherCode, 'c', 0x33)
                  .load(9'000'000, 30, kOtherCode, 'd', 0x44));
  EXPECT_EQ(user_byte(10, kJitCode, 2400), 0x11);
  EXPECT_EQ(user_byte(10, kJitCode, 3500), 0x11);
  EXPECT_EQ(name_at(10, kJitCode, 3500), "a");
  EXPECT_EQ(user_byte(10, kOtherCode, 3500), -1);
  EXPECT_EQ(user_byte(20, kJitCode, 2500), 0x11);
  EXPECT_EQ(user_byte(20, kJitCode, 3500), 0x22);
  EXPECT_EQ(name_at(20, kJitCode, 3500), "b");
  EXPECT_EQ(user_byte(20, kOtherCode, 5500), 0x33);
  EXPECT_EQ(name_at(20, kOtherCode, 5500), "c");
  EXPECT_EQ(user_byte(30, kOtherCode, 9'500'000), 0x44);
  EXPECT_EQ(name_at(30, kOtherCode, 9'500'000), "d");
  EXPECT_TRUE(data_->timeline.findings().empty()) << data_->timeline.findings()[0].what;
}

// Another run-time of the process announces its code.
TEST_F(JitWritersFold, CodeThatIsNotAnnounced) {
  const std::vector<perfio::EventAttr> attrs{perfio::announce_attr({}, 1)};
  fold_->set_attrs(attrs);
  map(10, kJitCode, "//anon", 20);
  Announcement announced;
  announced.address = kOtherCode;
  announced.size_bytes = 16;
  announced.code.assign(16, std::byte{0x55});
  announced.name = "announced";
  const std::vector<std::byte> sample = perfio::announce_sample(10, encode_announcement(announced, 1).at(0));
  feed(perfio::OtherSample{0, sample}, 2000, 10, 10);
  finish_with(JitdumpBytes(10).load(1000, 10, kJitCode, 'a', 0x11).load(3000, 10, kOtherCode, 'b', 0x22));
  EXPECT_EQ(user_byte(10, kJitCode, 1500), 0x11);
  EXPECT_EQ(name_at(10, kJitCode, 1500), "a");
  EXPECT_EQ(user_byte(10, kOtherCode, 3500), 0x55);  // which is more exact
}

TEST_F(JitWritersFold, AChildMovesAFunctionThatItsParentLoaded) {
  fork(10, 20, 20, 2000);
  finish_with(JitdumpBytes(10).load(1000, 10, kJitCode, 'a', 0x11).move(3000, 20, kJitCode, kOtherCode, 1));
  EXPECT_EQ(user_byte(20, kJitCode, 3500), -1);
  EXPECT_EQ(user_byte(20, kOtherCode, 3500), 0x11);
  EXPECT_EQ(name_at(20, kOtherCode, 3500), "a");
  EXPECT_EQ(user_byte(10, kJitCode, 3500), 0x11);
  EXPECT_EQ(name_at(10, kJitCode, 3500), "a");
}

TEST_F(JitWritersFold, AChildThatMapsTheFileItselfTakesItsOwnCode) {
  fork(10, 20, 20, 2000);
  map(20, 0x7f1000000000, "/tmp/jit-10.dump", 2100);
  fork(20, 30, 30, 2200);
  finish_with(
      JitdumpBytes(10).load(2500, 10, kJitCode, 'a', 0x11).load(3000, 20, kOtherCode, 'b', 0x22).load(3100, 30, kJitCode, 'c', 0x33));
  EXPECT_EQ(user_byte(10, kOtherCode, 3500), -1);
  EXPECT_EQ(user_byte(20, kJitCode, 3500), -1) << "its parent made it after the fork";
  EXPECT_EQ(user_byte(20, kOtherCode, 3500), 0x22);
  EXPECT_EQ(user_byte(30, kJitCode, 3500), 0x33);
  EXPECT_TRUE(data_->timeline.findings().empty());
}

/// The recording starts after the fork, which no record tells then.
TEST_F(JitWritersFold, AChildOfBeforeTheRecordingMayHaveItsParentsCode) {
  comm(20, 20, "java", false, 0);
  map(20, 0x7f1000000000, "/tmp/jit-10.dump", 10);
  finish_with(JitdumpBytes(10).load(3, 10, kJitCode, 'a', 0x11).load(3000, 10, kOtherCode, 'b', 0x22));
  EXPECT_EQ(user_byte(20, kJitCode, 3500), 0x11);
  EXPECT_EQ(user_byte(20, kOtherCode, 3500), -1);
  EXPECT_EQ(user_byte(10, kOtherCode, 3500), 0x22);
}

/// In a PID namespace, the numbers in the file are others than those of the records.
TEST_F(JitWritersFold, AProcessInANamespaceHasItsCode) {
  comm(1, 1, "init", true, 5);
  finish_with(JitdumpBytes(1).load(1000, 1, kJitCode, 'a', 0x11).load(2000, 7, kOtherCode, 'b', 0x22));
  EXPECT_EQ(user_byte(10, kJitCode, 1500), 0x11);
  EXPECT_EQ(user_byte(1, kJitCode, 1500), -1);
  EXPECT_EQ(user_byte(10, kOtherCode, 2500), -1) << "of a child, but nothing tells which";
  EXPECT_EQ(findings_with("1 record is of other processes than 10 and its children, the first of process 7"), 1U);
}

TEST_F(JitWritersFold, AProcessThatOnlyALauncherPreparedTheFileForHasItsCode) {
  finish_with(JitdumpBytes(6).load(1000, 7, kJitCode, 'a', 0x11).load(2000, 7, kOtherCode, 'b', 0x22));
  EXPECT_EQ(user_byte(10, kJitCode, 1500), 0x11);
  EXPECT_EQ(user_byte(10, kOtherCode, 2500), 0x22);
}

TEST_F(JitWritersFold, AnotherProcessIsNoChild) {
  comm(20, 20, "other", true, 5);
  fork(10, 30, 30, 100);
  comm(30, 30, "cat", true, 200);
  finish_with(
      JitdumpBytes(10).load(1000, 10, kJitCode, 'a', 0x11).load(2000, 20, kOtherCode, 'b', 0x22).load(2001, 30, kOtherCode, 'c', 0x33));
  EXPECT_EQ(user_byte(10, kJitCode, 1500), 0x11);
  for (const int32_t pid : {10, 20, 30}) EXPECT_EQ(user_byte(pid, kOtherCode, 2500), -1);
  EXPECT_EQ(findings_with("2 records are of other processes than 10 and its children, the first of process 20"), 1U);
}

}  // namespace
}  // namespace ptd
