// PeriodWatch: the period of MTC packets by the TMA packets before them. [SDM] "TMA Packet", "MTC Packet".
#include "recording/period_watch.h"

#include <gtest/gtest.h>

#include <string>

namespace ptd {
namespace {

/// Sync points whose MTC comes `ticks` ticks of 2^period after the TMA.
PeriodWatch watch(unsigned period, unsigned ticks, unsigned points) {
  PeriodWatch watch;
  for (unsigned i = 0; i < points; ++i) {
    const uint64_t clock = 0x12c84 + uint64_t{i} * 0x3579;
    const auto ctc = static_cast<uint16_t>(clock);
    std::string text;
    for (int k = 0; k < 8; ++k) text += "\x02\x82";
    text += std::string("\x02\x73", 2) + static_cast<char>(ctc & 0xff) + static_cast<char>(ctc >> 8) + std::string(3, '\0') + "\x02\x23\x04";
    text += std::string("\x59") + static_cast<char>(((clock >> period) + ticks) & 0xff);
    AuxStream stream;
    stream.add_payload(0, text.size(), Bytes(reinterpret_cast<const std::byte*>(text.data()), text.size()), false);
    stream.finish();
    PsbEntry psb;
    psb.has_tma = true;
    psb.ctc = ctc;
    watch.look(stream, psb);
  }
  return watch;
}

TEST(PeriodWatch, TheOneThatAllPacketsCount) {
  for (const unsigned period : {0U, 3U, 6U, 8U, 9U, 10U}) {
    const PeriodWatch seen = watch(period, 1, 8);
    EXPECT_FALSE(seen.other_than(static_cast<uint8_t>(period))) << period;
    for (const uint8_t wrong : {uint8_t{1}, uint8_t{4}, uint8_t{7}}) EXPECT_EQ(seen.other_than(wrong), static_cast<uint8_t>(period)) << period << " not " << +wrong;
  }
}

TEST(PeriodWatch, FewPacketsAndSkippedOnesProveNothing) {
  EXPECT_EQ(watch(9, 1, 3).found(), 9);          // three with seven known bits each
  EXPECT_FALSE(watch(9, 1, 2).other_than(1));   // two are few
  EXPECT_FALSE(watch(3, 1, 1).found());
  EXPECT_TRUE(watch(3, 1, 1).has_mtcs());
  EXPECT_FALSE(watch(9, 3, 8).other_than(9));   // the processor slept
  EXPECT_FALSE(watch(9, 40, 8).other_than(1));  // no period fits
  EXPECT_FALSE(watch(9, 1, 8).other_than(15));  // one known bit
}

}  // namespace
}  // namespace ptd
