// GapTally: which gaps count for a file whose code is missing.
#include <gtest/gtest.h>

#include <memory>

#include "cli/report/missing_report.h"
#include "ptdecode/guest.h"
#include "ptdecode/recording.h"

namespace ptd::cli {
namespace {

constexpr SpaceId kSpace{7}, kOtherSpace{8};
constexpr SectionId kLibrary = 3, kOtherLibrary = 4;

Gap gap(GapReason reason, uint64_t lost_bytes, SpaceId space = kSpace, SectionId section = kNoSection) {
  Gap made;
  made.reason = reason;
  made.lost_bytes = lost_bytes;
  made.space = space;
  made.section = section;
  return made;
}

GapTally::Missing of(const GapTally& tally, SectionId section) {
  const auto found = tally.missing().find({section, 0, 0});
  return found == tally.missing().end() ? GapTally::Missing{} : found->second;
}

TEST(GapTally, ReturnsToLostCallsFollowTheLastMissingCode) {
  GapTally tally;
  tally.add(gap(GapReason::unknown_return, 1));  // from before the trace
  tally.add(gap(GapReason::no_image, 10, kSpace, kLibrary));
  tally.add(gap(GapReason::unknown_return, 100));
  tally.add(gap(GapReason::unknown_return, 1, kOtherSpace));
  tally.add(gap(GapReason::unknown_return, 200));
  tally.add(gap(GapReason::no_image, 20, kSpace, kOtherLibrary));
  tally.add(gap(GapReason::unknown_return, 400));
  EXPECT_EQ(of(tally, kLibrary).own.lost_bytes, 10U);
  EXPECT_EQ(of(tally, kLibrary).following.gaps, 2U);
  EXPECT_EQ(of(tally, kLibrary).following.lost_bytes, 300U);
  EXPECT_EQ(of(tally, kOtherLibrary).following.lost_bytes, 400U);
  EXPECT_EQ(tally.total(), 7U);
  GapTally sum = tally;
  sum.merge(tally);
  EXPECT_EQ(of(sum, kLibrary).following.gaps, 4U);
  EXPECT_EQ(of(sum, kLibrary).own.gaps, 2U);
}

TEST(GapTally, ReturnsAfterAnotherLossFollowNoMissingCode) {
  for (const GapReason reason : {GapReason::overflow, GapReason::aux_lost, GapReason::bad_packet, GapReason::image_mismatch,
                                 GapReason::bad_insn, GapReason::limit}) {
    GapTally tally;
    tally.add(gap(GapReason::no_image, 10, kSpace, kLibrary));
    tally.add(gap(reason, 5));
    tally.add(gap(GapReason::unknown_return, 100));
    EXPECT_EQ(of(tally, kLibrary).following.gaps, 0U) << name(reason);
  }
}

TEST(MissingReport, AFileWithAllBytesIsNotShorterThanItsMapping) {
  OpenOptions options;
  options.path = PTD_SOURCE_DIR "/data/user/plain.bundle";
  const auto recording = Recording::open(options);
  ASSERT_TRUE(recording.ok());
  const Timeline& timeline = (*recording)->timeline();
  SectionId complete = 0;
  while (complete < timeline.section_count() &&
         (is_kernel_space(timeline.section(complete).space) || timeline.section(complete).code.bytes.empty() ||
          timeline.section(complete).code.bytes.size() != timeline.section(complete).size_bytes)) {
    ++complete;
  }
  ASSERT_LT(complete, timeline.section_count());
  GapTally tally;
  tally.add(gap(GapReason::no_image, 1, timeline.section(complete).space, complete));
  const std::vector<MissingLine> lines = rank_missing(tally, **recording, 100);
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_EQ(lines[0].reason, "its bytes are known at other times only");
}

TEST(MissingReport, CodeOfAnUnknownThreadIsNoMissingMapping) {
  OpenOptions options;
  options.path = PTD_SOURCE_DIR "/data/user/plain.bundle";
  const auto recording = Recording::open(options);
  ASSERT_TRUE(recording.ok());
  GapTally tally;
  Gap unknown = gap(GapReason::no_image, 1, kNoSpace);
  unknown.ip = Ip{0x400000};
  tally.add(unknown);
  tally.add(gap(GapReason::no_image, 2));
  const std::vector<MissingLine> lines = rank_missing(tally, **recording, 100);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].reason, "not mapped by any record");
  EXPECT_EQ(lines[1].reason, "no record names the thread, or its process");
}

}  // namespace
}  // namespace ptd::cli
