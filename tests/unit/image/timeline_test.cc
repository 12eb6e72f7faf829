// Timeline: sections over time, dated edits, what CodeView answers for them.
#include "image/timeline.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "image/timeline_builder.h"
#include "tests/unit/image/timeline_support.h"

namespace ptd {
namespace {

using namespace timeline_test;  // NOLINT: helpers of this folder

TEST(Timeline, EmptyMapsNothing) {
  const Timeline timeline;
  CodeView view(timeline);
  CodeCandidate out[4];
  EXPECT_EQ(view.fetch(kKernelSpace, Ip{0x1000}, {}, {}, out).status, FetchStatus::not_mapped);
  EXPECT_EQ(timeline.section_at(kKernelSpace, Ip{0x1000}, kTimeMin), kNoSection);
}

TEST(Timeline, PlainSectionIsOneCandidateWithoutCopy) {
  TimelineBuilder builder;
  const CodeBytes code = filled(64, 0x90);
  builder.add_section(section(kKernelSpace, 0x1000, code));
  CodeView view(builder.build());
  const Got got = fetch(view, kKernelSpace, 0x1010, at(5));
  ASSERT_EQ(got.result.status, FetchStatus::ok);
  ASSERT_EQ(got.candidates.size(), 1U);
  EXPECT_EQ(got.candidates[0].bytes.data(), code.bytes.data() + 0x10);
  EXPECT_EQ(got.candidates[0].bytes.size(), 48U);
  EXPECT_EQ(got.candidates[0].certain, (Interval{}));
  EXPECT_EQ(got.candidates[0].site, kNoSite);
  EXPECT_EQ(got.result.section, 0U);
}

TEST(Timeline, KernelHalfReadsTheKernelWhateverSpaceIsAsked) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  builder.add_section(section(user, kKernelIp, filled(16, 0x11)));  // lands in the kernel: no process has such addresses
  CodeView view(builder.build());
  EXPECT_EQ(fetch(view, user, kKernelIp, at(1)).hex(), std::string(30, '1'));
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp, at(1)).candidates.size(), 1U);
  EXPECT_EQ(fetch(view, kNoSpace, kKernelIp, at(1)).candidates.size(), 1U);
}

TEST(Timeline, LaterMappingWinsFromItsFirstMomentOn) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  builder.add_section(section(user, 0x2000, filled(0x100, 0xbb), {TimeNs{50}, kTimeMax}));
  builder.add_section(section(user, 0x1000, filled(0x2000, 0xaa), {TimeNs{10}, kTimeMax}));
  CodeView view(builder.build());
  EXPECT_EQ(fetch(view, user, 0x2010, at(49)).first_bytes(), "aa");
  EXPECT_EQ(fetch(view, user, 0x2010, at(50)).first_bytes(), "bb");
  EXPECT_EQ(fetch(view, user, 0x2010, {TimeNs{49}, TimeNs{50}}).first_bytes(), "aa bb");
  EXPECT_EQ(fetch(view, user, 0x2010, at(50)).candidates[0].certain, (Interval{TimeNs{50}, kTimeMax}));
  EXPECT_EQ(fetch(view, user, 0x2010, at(49)).candidates[0].certain, (Interval{TimeNs{10}, TimeNs{49}}));
  EXPECT_EQ(fetch(view, user, 0x1010, at(90)).first_bytes(), "aa");
  EXPECT_EQ(fetch(view, user, 0x1010, at(9)).result.status, FetchStatus::not_mapped);
}

TEST(Timeline, PointDatedPokeBelongsToBothAtItsMoment) {
  TimelineBuilder builder;
  builder.add_section(section(kKernelSpace, kKernelIp, filled(64, 0x90)));
  builder.add_edit(poke(kKernelIp + 8, {0x90, 0x90}, {0xeb, 0x05}, 100));
  CodeView view(builder.build());
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 8, at(99), 2).hex(), "9090");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 8, at(100), 2).hex(), "9090 eb05");
  EXPECT_EQ(fetch(view, kKernelSpace, kKernelIp + 8, at(101), 2).hex(), "eb05");
  const Got before = fetch(view, kKernelSpace, kKernelIp + 8, at(5), 2);
  EXPECT_EQ(before.candidates[0].possible, (Interval{kTimeMin, TimeNs{100}}));
  EXPECT_EQ(before.candidates[0].certain, (Interval{kTimeMin, TimeNs{99}}));
  EXPECT_EQ(before.candidates[0].site, 0U);
  EXPECT_EQ(before.candidates[0].version, 0U);
}

}  // namespace
}  // namespace ptd
