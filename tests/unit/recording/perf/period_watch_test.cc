// PeriodWatch: the period of MTC packets by the TMA packets before them. [SDM] "TMA Packet", "MTC Packet".
#include "recording/period_watch.h"

#include <gtest/gtest.h>

#include <string>

namespace ptd {
namespace {

std::string tma(uint64_t clock) {
  return std::string("\x02\x73", 2) + static_cast<char>(clock & 0xff) + static_cast<char>(clock >> 8 & 0xff) + std::string(3, '\0');
}

std::string mtc(uint64_t clock, unsigned period) { return std::string("\x59") + static_cast<char>(clock >> period & 0xff); }

/// The clock at a sync point.
uint64_t clock_at(unsigned point) { return 0x12c84 + uint64_t{point} * 0x3579; }

/// Adds a sync point whose TMA is of `clock`.
void look(PeriodWatch& watch, uint64_t clock, const std::string& after) {
  std::string text;
  for (int k = 0; k < 8; ++k) text += "\x02\x82";
  text += tma(clock) + "\x02\x23\x04" + after;
  AuxStream stream;
  stream.add_payload(0, text.size(), Bytes(reinterpret_cast<const std::byte*>(text.data()), text.size()), false);
  stream.finish();
  PsbEntry psb;
  psb.has_tma = true;
  psb.ctc = static_cast<uint16_t>(clock);
  watch.look(stream, psb);
}

/// Sync points whose MTC comes `ticks` ticks of 2^period after the TMA.
PeriodWatch watch(unsigned period, unsigned ticks, unsigned points) {
  PeriodWatch watch;
  for (unsigned i = 0; i < points; ++i) look(watch, clock_at(i), mtc(clock_at(i) + (uint64_t{ticks} << period), period));
  return watch;
}

TEST(PeriodWatch, TheOneThatAllPacketsCount) {
  for (const unsigned period : {0U, 3U, 6U, 8U, 9U, 10U}) {
    const PeriodWatch seen = watch(period, 1, 8);
    EXPECT_FALSE(seen.other_than(static_cast<uint8_t>(period))) << period;
    for (const uint8_t wrong : {uint8_t{1}, uint8_t{4}, uint8_t{7}})
      EXPECT_EQ(seen.other_than(wrong), static_cast<uint8_t>(period)) << period << " not " << +wrong;
  }
}

TEST(PeriodWatch, SomeMtcsAreSkipped) {
  for (const unsigned skipped : {2U, 5U}) {
    PeriodWatch seen = watch(3, 1, 6);
    for (unsigned i = 0; i < skipped; ++i) look(seen, clock_at(i), mtc(clock_at(i) + 0x4000, 3));
    EXPECT_EQ(seen.found().has_value(), skipped == 2) << skipped;
  }
}

TEST(PeriodWatch, TheTmaBeforeCounts) {
  PeriodWatch seen;
  for (unsigned i = 0; i < 3; ++i) look(seen, clock_at(i), tma(clock_at(i) + 0x900) + mtc(clock_at(i) + 0x908, 3));
  EXPECT_EQ(seen.found(), 3);
}

TEST(PeriodWatch, WhereTracingPausesMtcsAreMissing) {
  PeriodWatch seen = watch(3, 1, 3);
  for (const char* pause : {"\x01", "\x02\xf3"}) {  // TIP.PGD, OVF
    for (unsigned i = 0; i < 3; ++i) look(seen, clock_at(i), pause + mtc(clock_at(i) + 0x900, 3));
  }
  EXPECT_EQ(seen.found(), 3);
  EXPECT_TRUE(seen.has_mtcs());
}

TEST(PeriodWatch, FewPacketsAndSkippedOnesProveNothing) {
  EXPECT_EQ(watch(9, 1, 3).found(), 9);        // three with seven known bits each
  EXPECT_FALSE(watch(9, 1, 2).other_than(1));  // two are few
  EXPECT_FALSE(watch(3, 1, 1).found());
  EXPECT_TRUE(watch(3, 1, 1).has_mtcs());
  EXPECT_FALSE(watch(9, 3, 8).other_than(9));   // the processor slept
  EXPECT_FALSE(watch(9, 40, 8).other_than(1));  // no period fits
  EXPECT_FALSE(watch(9, 1, 8).other_than(15));  // one known bit
}

}  // namespace
}  // namespace ptd
