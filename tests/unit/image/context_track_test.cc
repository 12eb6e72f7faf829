// ContextTrack and TimeConversion: lookups at, before and between switches; conversions against 128-bit arithmetic.
#include "ptdecode/context_track.h"

#include <gtest/gtest.h>

#include <random>

#include "ptdecode/time_conversion.h"

namespace ptd {
namespace {

TEST(ContextTrack, SwitchesCountFromTheirMomentOn) {
  ContextTrack track;
  track.add_switch(0, TimeNs{200}, {2, 2, SpaceId{2}});
  track.add_switch(0, TimeNs{100}, {1, 1, SpaceId{1}});
  track.sort();
  EXPECT_EQ(track.at_cpu(0, TimeNs{99}), Context{});
  EXPECT_EQ(track.at_cpu(0, TimeNs{100}).tid, 1);
  EXPECT_EQ(track.at_cpu(0, TimeNs{199}).tid, 1);
  EXPECT_EQ(track.at_cpu(0, TimeNs{200}).tid, 2);
  EXPECT_EQ(track.at_cpu(1, TimeNs{200}), Context{});
  EXPECT_EQ(track.switches(0).size(), 2U);
  EXPECT_TRUE(track.switches(7).empty());
}

TEST(ContextTrack, ExecMovesARunningThread) {
  ContextTrack track;
  track.add_switch(0, TimeNs{100}, {5, 5, SpaceId{1}});
  track.add_thread(5, TimeNs{50}, {5, 5, SpaceId{1}});
  track.add_thread(5, TimeNs{150}, {5, 5, SpaceId{2}});
  track.sort();
  EXPECT_EQ(track.at_cpu(0, TimeNs{149}).space, SpaceId{1});
  EXPECT_EQ(track.at_cpu(0, TimeNs{150}).space, SpaceId{2});
  EXPECT_EQ(track.at_thread(5, TimeNs{49}), Context{});
  EXPECT_EQ(track.at_thread(5, TimeNs{60}).space, SpaceId{1});
}

TEST(ContextTrack, TheIdleTaskNeedsNoRecord) {
  ContextTrack track;
  EXPECT_EQ(track.at_thread(0, TimeNs{1}), (Context{0, 0, kNoSpace}));
  EXPECT_EQ(track.at_thread(1, TimeNs{1}), Context{});
  track.add_thread(0, kTimeMin, {7, 0, SpaceId{1}});  // a raw capture may number its threads from 0
  EXPECT_EQ(track.at_thread(0, TimeNs{1}).pid, 7);
}

TEST(TimeConversion, EqualsTheFormulaIn128Bits) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100000; ++i) {
    TimeConversion conversion;
    conversion.time_shift = static_cast<uint16_t>(random() % 33);
    conversion.time_mult = static_cast<uint32_t>(random()) | 1U;
    conversion.time_zero = random() >> 8;
    const Tsc tsc{random() >> 16};
    const auto want = static_cast<uint64_t>((static_cast<unsigned __int128>(tsc.value) * conversion.time_mult) >> conversion.time_shift);
    ASSERT_EQ(conversion.to_ns(tsc).value, conversion.time_zero + want);
  }
}

// A timestamp of before the clock was set, or a guest's.
TEST(TimeConversion, ATimeBeforeZeroIsZero) {
  const TimeConversion early{1, 2, uint64_t{0} - 5000, 0, 0, false};
  EXPECT_EQ(early.to_ns(Tsc{4000}).value, 0U);
  EXPECT_EQ(early.to_ns(Tsc{6000}).value, 1000U);
  EXPECT_EQ(early.to_interval(Tsc{4000}, Tsc{6000}).first, TimeNs{0});
  EXPECT_EQ(early.to_tsc(TimeNs{1000}).value, 6000U);
  const TimeConversion late{1, 2, 5000, 0, 0, false};
  EXPECT_EQ(late.to_tsc(TimeNs{4000}).value, 0U);
}

TEST(TimeConversion, BackIsTheFirstTickNotBefore) {
  const TimeConversion conversion{31, 715828053, 1000, 0, 0, false};  // 3 GHz
  for (uint64_t tsc = 1; tsc < 100000; ++tsc) {
    const TimeNs t = conversion.to_ns(Tsc{tsc});
    const Tsc back = conversion.to_tsc(t);
    ASSERT_LE(back.value, tsc);
    ASSERT_GE(conversion.to_ns(back), t);
    if (back.value > 0) {
      ASSERT_LT(conversion.to_ns(Tsc{back.value - 1}), t);
    }
  }
  EXPECT_EQ(TimeConversion{}.to_ns(Tsc{42}).value, 42U);
}

// A clock whose zero is before the counter's, as on processors that ran before the kernel's clock began.
TEST(TimeConversion, DurationsDoNotDependOnTheZero) {
  TimeConversion conversion;
  conversion.time_mult = 1U << 31;
  conversion.time_shift = 32;
  for (const int64_t zero : {int64_t{0}, int64_t{-32'694'350'959}, int64_t{7'000}}) {
    conversion.time_zero = static_cast<uint64_t>(zero);
    EXPECT_EQ(conversion.duration_ns(1'000'001), 500'000U);
  }
}

}  // namespace
}  // namespace ptd
