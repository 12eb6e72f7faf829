// Sideband fold: COMM records of exec that contradict themselves.
#include <algorithm>

#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

bool is_contradiction(const Finding& finding) {
  return finding.kind == FindingKind::bad_record && finding.what.find("contradicts itself") != std::string::npos;
}

// One of the four numbers of an exec is wrong by one bit.
TEST_F(Fold, AnExecWithOneWrongNumberIsOfTheOther) {
  for (int wrong = 0; wrong < 4; ++wrong) {
    for (int bit = 0; bit < 32; ++bit) {
      start();
      comm(10, 10, "shell", false, 0);
      comm(8, 8, "other", false, 0);
      map(10, 0x400000, "/bin/one", 0);
      map(8, 0x400000, "/bin/one", 0);
      int32_t numbers[] = {10, 10, 10, 10};
      numbers[wrong] ^= static_cast<int32_t>(1U << bit);
      feed(perfio::CommRecord{numbers[0], numbers[1], "two", true}, 2000, numbers[2], numbers[3]);
      map(10, 0x400000, "/bin/two", 2001);
      finish();
      EXPECT_EQ(user_byte(10, 0x400000 + kCode, 2500), 0x90) << wrong << " bit " << bit;
      EXPECT_EQ(user_byte(8, 0x400000 + kCode, 2500), 0x55) << wrong << " bit " << bit;
      EXPECT_EQ(data_->thread_names.at(10), "two") << wrong << " bit " << bit;
      EXPECT_EQ(data_->thread_names.at(8), "other") << wrong << " bit " << bit;
      const auto& findings = data_->timeline.findings();
      EXPECT_EQ(std::ranges::count_if(findings, is_contradiction), 1) << wrong << " bit " << bit;
    }
  }
}

// The name of a thread may be written by another one, and perf's own records and some events have no task in their trailer.
TEST_F(Fold, OtherNamesAreNoContradiction) {
  feed(perfio::CommRecord{10, 12, "named", false}, 1000, 10, 11);
  feed(perfio::CommRecord{20, 20, "begun", true}, 0, 0, 0);
  feed(perfio::CommRecord{20, 20, "begun", true}, 1000);
  finish();
  EXPECT_EQ(std::ranges::count_if(data_->timeline.findings(), is_contradiction), 0);
  EXPECT_EQ(data_->thread_names.at(12), "named");
  EXPECT_EQ(data_->thread_names.at(20), "begun");
}

}  // namespace
}  // namespace ptd
