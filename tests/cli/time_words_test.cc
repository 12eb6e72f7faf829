// The arguments of --time.
#include "cli/options/time_words.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <ctime>

namespace ptd::cli {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr Interval kSpan{TimeNs{100 * kSecond}, TimeNs{200 * kSecond}};

Interval at(uint64_t first, uint64_t last) { return {TimeNs{first}, TimeNs{last}}; }

TEST(TimeWords, SecondsAndOpenEnds) {
  const TimeScale scale{kSpan, std::nullopt};
  EXPECT_EQ(*parse_time_words("17.5,18", scale), at(17'500'000'000, 18 * kSecond));
  EXPECT_EQ(*parse_time_words("17.5,", scale), (Interval{TimeNs{17'500'000'000}, kTimeMax}));
  EXPECT_EQ(*parse_time_words(",18", scale), (Interval{kTimeMin, TimeNs{18 * kSecond}}));
}

TEST(TimeWords, OfTheRecording) {
  const TimeScale scale{kSpan, std::nullopt};
  EXPECT_EQ(*parse_time_words("10%-20%", scale), at(110 * kSecond, 120 * kSecond));
  EXPECT_EQ(*parse_time_words("10%,20%", scale), at(110 * kSecond, 120 * kSecond));
  EXPECT_EQ(*parse_time_words("99.5%,", scale), (Interval{TimeNs{199'500'000'000}, kTimeMax}));
  EXPECT_EQ(*parse_time_words("0%-100%", scale), (Interval{kTimeMin, kTimeMax}));
  EXPECT_EQ(*parse_time_words("0%,+5ms", scale), (Interval{kTimeMin, TimeNs{100'005'000'000}}));
  EXPECT_EQ(*parse_time_words("50%-100.0%", scale), (Interval{TimeNs{150 * kSecond}, kTimeMax}));
  EXPECT_EQ(*parse_time_words("+5ms,+1ms", scale), at(100'005'000'000, 100'006'000'000));
  EXPECT_EQ(*parse_time_words("150,+2s", scale), at(150 * kSecond, 152 * kSecond));
  EXPECT_EQ(*parse_time_words("150,+0.001", scale), at(150 * kSecond, 150'001'000'000)) << "a number without a unit is one of seconds";
  EXPECT_EQ(*parse_time_words("+1,+2", scale), at(101 * kSecond, 103 * kSecond));
  EXPECT_EQ(*parse_time_words(",+2s", scale), (Interval{kTimeMin, TimeNs{102 * kSecond}}));
}

// Nothing dates the last packets of most streams: their end is unknown.
TEST(TimeWords, OfARecordingWithoutEnd) {
  const TimeScale scale{{kSpan.first, kTimeMax}, std::nullopt};
  EXPECT_EQ(*parse_time_words("+5ms,+1.5ms", scale), at(100'005'000'000, 100'006'500'000));
  EXPECT_EQ(*parse_time_words("+0.1ms,", scale), (Interval{TimeNs{100'000'100'000}, kTimeMax}));
  EXPECT_FALSE(parse_time_words("10%-20%", scale).ok());
  for (const char* text : {"+5ms,", ",+5ms"}) EXPECT_FALSE(parse_time_words(text, {{kTimeMin, kTimeMax}, std::nullopt}).ok()) << text;
  for (const char* text : {"+.5ms,", "+1.ms,", "+1.5.2ms,", "+1.5.2,", "+,", "+0.0000000001s,", "+1.-5ms,", "+ms,"})
    EXPECT_FALSE(parse_time_words(text, scale).ok()) << text;
}

TEST(TimeWords, OfTheDay) {
  ::setenv("TZ", "UTC", 1);
  ::tzset();
  // The recording begins 100 s into its clock, at 2026-11-21 14:00:00 UTC = 1795269600.
  const TimeScale scale{kSpan, int64_t{1'795'269'500} * static_cast<int64_t>(kSecond)};
  EXPECT_EQ(*parse_time_words("14:00:05,14:00:06.25", scale), at(105 * kSecond, 106'250'000'000));
  EXPECT_EQ(*parse_time_words("2026-11-21 14:01:00,+1s", scale), at(160 * kSecond, 161 * kSecond));
  EXPECT_FALSE(parse_time_words("14:00:05,", {kSpan, std::nullopt}).ok());
}

TEST(TimeWords, Wrong) {
  const TimeScale scale{kSpan, 0};
  for (const char* text : {"", ",", "5", "x,y", "2,1", "10%", "101%,", "-1%,", "+5x,", "1:2,", "14:00:05x,", "50%-40%"}) {
    EXPECT_FALSE(parse_time_words(text, scale).ok()) << text;
  }
  for (const char* text : {"10%-20%", "+5ms,"}) EXPECT_FALSE(parse_time_words(text, {Interval{}, std::nullopt}).ok()) << text;
}

}  // namespace
}  // namespace ptd::cli
