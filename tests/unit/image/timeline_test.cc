// Timeline: sections over time, dated edits, and the results of CodeView for them.
#include "ptdecode/timeline.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "ptdecode/timeline_builder.h"
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
  builder.add_section(section(user, kKernelIp, filled(16, 0x11)));  // a kernel address, which no process has
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

// Everything that plain() returns, fetch() returns too, at any address inside it, for any span and time.
TEST(Timeline, PlainCodeIsWhatFetchGives) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  std::vector<std::byte> kernel(256);
  for (size_t i = 0; i < kernel.size(); ++i) kernel[i] = static_cast<std::byte>(i);
  builder.add_section(section(kKernelSpace, kKernelIp, owned(std::move(kernel))));
  builder.add_section(section(user, 0x1000, filled(64, 0xaa), {TimeNs{10}, kTimeMax}));
  builder.add_section(section(user, 0x1020, filled(64, 0xbb), {TimeNs{60}, TimeNs{80}}));
  builder.add_edit(poke(kKernelIp + 100, {100, 101}, {1, 2}, 50));
  builder.add_edit(poke(kKernelIp + 140, {140}, {3}, 70));
  for (const Interval lost : {Interval{TimeNs{20}, TimeNs{30}}, Interval{TimeNs{33}, TimeNs{35}}}) builder.add_lost_window(lost);
  CodeView view(builder.build());
  uint64_t plain_bytes = 0, before_bytes = 0, suspect_bytes = 0;
  const auto check = [&](SpaceId space, uint64_t ip, uint64_t time) {
    const PlainCode plain = view.plain(space, Ip{ip}, at(time));
    if (plain.bytes.empty()) return;
    EXPECT_TRUE(plain.certain.contains(TimeNs{time}));
    plain_bytes += plain.bytes.size();
    before_bytes += plain.before_bytes;
    if (plain.flags == CodeFlag::suspect) suspect_bytes += plain.bytes.size();
    const Bytes whole{plain.bytes.data() - plain.before_bytes, plain.before_bytes + plain.bytes.size()};
    for (uint64_t i = 0; i < whole.size(); i += 3) {
      for (const uint64_t moment : {plain.certain.first.value, time, std::min<uint64_t>(plain.certain.last.value, 1000)}) {
        const auto span = static_cast<unsigned>(std::min<uint64_t>(whole.size() - i, 15));
        const Got got = fetch(view, space, ip - plain.before_bytes + i, at(moment), span);
        ASSERT_EQ(got.candidates.size(), 1U);
        ASSERT_EQ(got.hex(), to_hex(whole.subspan(i, span)));
        ASSERT_EQ(got.candidates[0].certain, plain.certain);
        ASSERT_EQ(got.candidates[0].flags, plain.flags);
        ASSERT_EQ(got.result.section, plain.section);
      }
    }
  };
  for (const uint64_t time : {5, 10, 19, 20, 25, 30, 31, 33, 49, 50, 51, 59, 60, 70, 75, 80, 81, 1000}) {
    for (uint64_t i = 0; i < 256; i += 5) check(kKernelSpace, kKernelIp + i, time);
    for (uint64_t i = 0; i < 96; i += 5) check(user, 0x1000 + i, time);
  }
  EXPECT_GT(plain_bytes, 20000U);
  EXPECT_GT(before_bytes, 20000U);
  EXPECT_GT(suspect_bytes, 5000U);
  // In part of a time the code is suspect.
  for (const Interval part : {Interval{TimeNs{19}, TimeNs{20}}, Interval{TimeNs{30}, TimeNs{33}}, Interval{TimeNs{35}, TimeNs{36}}}) {
    EXPECT_TRUE(view.plain(kKernelSpace, Ip{kKernelIp}, part).bytes.empty());
  }
  EXPECT_EQ(view.plain(kKernelSpace, Ip{kKernelIp}, {TimeNs{21}, TimeNs{29}}).certain, (Interval{TimeNs{20}, TimeNs{30}}));
  EXPECT_TRUE(view.plain(kKernelSpace, Ip{kKernelIp + 101}, at(1)).bytes.empty());
  EXPECT_EQ(view.plain(kKernelSpace, Ip{kKernelIp}, at(1)).bytes.size(), 100U);
}

// Mappings of a parent and its child that come and go: throughout the returned interval the section is the returned one.
TEST(Timeline, ASectionIsThereThroughoutTheMomentsTold) {
  TimelineBuilder builder;
  const SpaceId parent = builder.add_space();
  builder.add_section(section(parent, 0x1000, filled(0x100, 1), {TimeNs{10}, kTimeMax}));
  builder.add_section(section(parent, 0x1080, filled(0x100, 2), {TimeNs{30}, TimeNs{39}}));
  builder.remove(parent, Ip{0x1040}, 0x20, TimeNs{70});
  const SpaceId child = builder.fork_space(parent, TimeNs{35});
  builder.add_section(section(child, 0x1000, filled(0x20, 3), {TimeNs{60}, kTimeMax}));
  builder.remove(child, Ip{0x1010}, 0x80, TimeNs{80});
  const Timeline timeline = builder.build();
  uint64_t wide = 0;
  for (const SpaceId space : {parent, child}) {
    for (uint64_t ip = 0xff8; ip < 0x1190; ip += 8) {
      for (uint64_t t = 0; t < 100; ++t) {
        const Timeline::SectionAt at = timeline.section_during(space, Ip{ip}, TimeNs{t});
        ASSERT_TRUE(at.valid.contains(TimeNs{t}));
        for (uint64_t u = 0; u < 100; ++u) {
          const bool told = at.valid.contains(TimeNs{u});
          ASSERT_TRUE(!told || timeline.section_at(space, Ip{ip}, TimeNs{u}) == at.id) << ip << " " << t << " " << u;
        }
        wide += at.valid.first < at.valid.last ? 1 : 0;
      }
    }
  }
  EXPECT_GT(wide, 9000U);  // of 10200
  const auto first_byte = [&](SpaceId space, uint64_t ip, uint64_t t) {
    const SectionId id = timeline.section_at(space, Ip{ip}, TimeNs{t});
    return id == kNoSection ? 0 : static_cast<int>(timeline.section(id).code.bytes[0]);
  };
  EXPECT_EQ(first_byte(parent, 0x1080, 35), 2);
  EXPECT_EQ(first_byte(parent, 0x1080, 50), 0);  // a replaced mapping does not come back
  EXPECT_EQ(first_byte(child, 0x1080, 50), 2);   // as it was at the fork
  EXPECT_EQ(first_byte(child, 0x1008, 50), 1);
  EXPECT_EQ(first_byte(child, 0x1008, 60), 3);
  EXPECT_EQ(first_byte(child, 0x1050, 75), 1);
  EXPECT_EQ(first_byte(child, 0x1050, 80), 0);
}

// At addresses for which no_code() reports none, fetch() finds none, in the same section. Where fetch() finds none, no_code() usually
// reports it.
TEST(Timeline, NoCodeIsWhereFetchFindsNone) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  builder.add_section(section(kKernelSpace, kKernelIp, filled(64, 0x90)));
  builder.add_edit(poke(kKernelIp + 80, {}, {1, 2}, 50));
  Section cut = section(user, 0x1010, filled(16, 0xaa), {TimeNs{10}, kTimeMax});
  cut.size_bytes = 48;
  builder.add_section(std::move(cut));
  builder.add_section(section(user, 0x1020, filled(8, 0xbb), {TimeNs{60}, TimeNs{80}}));
  Section unknown = section(user, 0x1050, filled(16, 0), {TimeNs{20}, TimeNs{70}});
  unknown.code = {};
  builder.add_section(std::move(unknown));
  const Timeline timeline = builder.build();
  CodeView view(timeline);
  uint64_t told = 0, absent = 0;
  const auto check = [&](SpaceId space, uint64_t ip, Interval when) {
    const NoCode none = view.no_code(space, Ip{ip}, when);
    const Got here = fetch(view, space, ip, when, 4);
    absent += here.candidates.empty() ? 1 : 0;
    if (none.first > none.last) return;
    ++told;
    ASSERT_TRUE(none.covers(Ip{ip}, when));
    for (uint64_t at_ip = std::max(none.first, ip - 60); at_ip <= std::min(none.last, ip + 60); ++at_ip) {
      for (const uint64_t moment : {none.when.first.value, when.first.value, std::min<uint64_t>(none.when.last.value, 1000)}) {
        const Got got = fetch(view, space, at_ip, at(moment), 4);
        ASSERT_TRUE(got.candidates.empty()) << std::hex << at_ip << " at " << std::dec << moment;
        ASSERT_EQ(got.result.section, none.section);
        ASSERT_EQ(timeline.section_at(space, Ip{at_ip}, TimeNs{moment}), none.section);
      }
    }
  };
  for (const uint64_t first : {5, 10, 20, 49, 50, 51, 60, 69, 75, 80, 81, 1000}) {
    for (const uint64_t length : {0, 7}) {
      const Interval when{TimeNs{first}, TimeNs{first + length}};
      for (uint64_t i = 0; i < 128; ++i) check(kKernelSpace, kKernelIp + i - 16, when);
      for (uint64_t i = 0; i < 128; ++i) check(user, 0x1000 + i, when);
    }
  }
  EXPECT_GT(told, absent * 9 / 10);
  EXPECT_EQ(view.no_code(user, Ip{0x100}, at(5)).last, 0x100fU);
}

}  // namespace
}  // namespace ptd
