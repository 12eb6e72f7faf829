// PtClock with hand-made packet sequences; comments derive the expected times from the SDM's equation.
#include <gtest/gtest.h>

#include "packet_corpus.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::pt {
namespace {

/// 24 MHz crystal, TSC at 1200 MHz: 50 ticks per CTC tick; an MTC each 8 CTC ticks = 400 ticks; a window of 256 MTCs = 102400.
Config config_of(uint8_t mtc_period = 3, uint32_t n = 100, uint32_t d = 2, uint8_t nominal = 12) {
  Config config;
  config.mtc_period = mtc_period;
  config.tsc_ctc_ratio_n = n;
  config.tsc_ctc_ratio_d = d;
  config.max_nonturbo_ratio = nominal;
  config.has_mtc = true;
  return config;
}

Packet packet_of(PacketKind kind, uint64_t value, uint64_t aux = 0) {
  Packet packet;
  packet.kind = kind;
  packet.value = value;
  packet.aux = aux;
  packet.size_bytes = 2;
  return packet;
}
Packet tsc(uint64_t v) { return packet_of(PacketKind::tsc, v); }
Packet tma(uint64_t ctc, uint64_t fc) { return packet_of(PacketKind::tma, ctc, fc); }
Packet mtc(uint64_t v) { return packet_of(PacketKind::mtc, v); }
Packet cyc(uint64_t v) { return packet_of(PacketKind::cyc, v); }
Packet cbr(uint64_t v) { return packet_of(PacketKind::cbr, v); }

void expect_sound(const PtClock& clock) {
  EXPECT_LE(clock.earliest(), clock.now());
  EXPECT_LE(clock.now(), clock.latest());
}

TEST(PtClock, NoTimeBeforeTheFirstTsc) {
  PtClock clock(config_of());
  EXPECT_FALSE(clock.on_packet(mtc(1)));
  EXPECT_FALSE(clock.on_packet(cyc(100)));
  EXPECT_FALSE(clock.on_packet(tma(1, 1)));
  EXPECT_FALSE(clock.on_packet(cbr(12)));
  EXPECT_FALSE(clock.known());
  EXPECT_EQ(clock.cycles(), 100U);
  EXPECT_EQ(clock.cbr(), 12);
  EXPECT_TRUE(clock.on_packet(tsc(5000)));
  EXPECT_TRUE(clock.known());
  EXPECT_EQ(clock.now(), Tsc{5000});
  EXPECT_EQ(clock.earliest(), Tsc{5000});
  EXPECT_EQ(clock.latest(), Tsc{5000});
}

TEST(PtClock, MtcCountsFromTma) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  EXPECT_TRUE(clock.on_packet(tma(0x1234, 20)));  // CTC 0x1234 began at 999980
  EXPECT_EQ(clock.now(), Tsc{1000000});
  clock.on_packet(mtc(0x47));  // CTC 0x1238: 4 ticks later
  EXPECT_EQ(clock.now(), Tsc{999980 + 4 * 50});
  EXPECT_EQ(clock.earliest(), Tsc{999980 + 4 * 50 - 1});
  EXPECT_EQ(clock.latest(), Tsc{999980 + 4 * 50 + 2});
  clock.on_packet(mtc(0x48));
  EXPECT_EQ(clock.now(), Tsc{999980 + 12 * 50});
}

// One tick per core cycle, an MTC each 512 CTC ticks = 25600 cycles. Before the PSB a CYC of 4096 cycles is missing (erratum SKL168), so a
// ratio measured across the PSB is a fifth too large.
TEST(PtClock, NoRatioIsMeasuredAcrossAPsbThatMayLoseACyc) {
  const auto ratio = [](bool skl168) {
    Config config = config_of(9);
    config.errata.skl168 = skl168;
    PtClock clock(config);
    uint64_t offset = 0;
    for (const Packet& packet : {cbr(12), tsc(1000000), tma(0, 0), cyc(25600), mtc(1), cyc(25600), mtc(2), cyc(12800),
                                 packet_of(PacketKind::psb, 0), cyc(12800 - 4096), mtc(3)}) {
      clock.on_packet(packet, offset);
      offset += packet.size_bytes;
    }
    return static_cast<double>(clock.ratio()) / (1U << 24);
  };
  EXPECT_DOUBLE_EQ(ratio(true), 1);
  EXPECT_GT(ratio(false), 1.15);
}

TEST(PtClock, MtcWindowWraps) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0x07f8, 0));  // the MTC 0xff has just passed
  uint64_t want = 1000000;
  for (int i = 0; i < 1000; ++i) {
    clock.on_packet(mtc(static_cast<uint64_t>(i) & 0xff));
    want += 400;
    ASSERT_EQ(clock.now(), Tsc{want});
    ASSERT_EQ(clock.latest(), Tsc{want + 2});
  }
  EXPECT_EQ(clock.holes(), 0U);
}

TEST(PtClock, FractionalRatioDoesNotDrift) {
  PtClock clock(config_of(0, 250, 3));  // 83 1/3 ticks per CTC tick
  clock.on_packet(tsc(900000));
  clock.on_packet(tma(0, 0));
  for (uint64_t i = 1; i <= 3000; ++i) {
    clock.on_packet(mtc(i & 0xff));
    ASSERT_EQ(clock.now(), Tsc{900000 + i * 250 / 3});
    expect_sound(clock);
  }
}

// [SDM] "TMA Packet": the FastCounter counts the ticks of the TSC within one tick of the crystal clock.
TEST(PtClock, AnImpossibleFastCounterIsNotUsed) {
  for (const uint64_t fast_counter : {uint64_t{20}, uint64_t{51}, uint64_t{52}, uint64_t{511}}) {
    PtClock clock(config_of());
    clock.on_packet(tsc(1000000));
    clock.on_packet(tma(0x1230, fast_counter));
    clock.on_packet(mtc(0x47));  // CTC 0x1238, 8 ticks later
    EXPECT_EQ(clock.now(), Tsc{1000000 - (fast_counter <= 51 ? fast_counter : 25) + 400}) << fast_counter;
  }
}

TEST(PtClock, LongMtcPeriodsGuessTheBitsThatTmaLacks) {
  PtClock clock(config_of(12, 2, 1));  // MTC = CTC[19:12], TMA has CTC[15:0]
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0xf123, 1));  // began at 999999; 0xedd ticks before CTC 0x10000
  clock.on_packet(mtc(0x50));       // CTC 0x50000: low four bits 0 = 0xf + 1
  EXPECT_EQ(clock.now(), Tsc{999999 + 0xedd * 2});
  clock.on_packet(mtc(0x51));
  EXPECT_EQ(clock.now(), Tsc{999999 + (0xedd + 0x1000) * 2});
}

TEST(PtClock, AnMtcThatSlippedBehindItsTscMovesNothing) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0x1234, 20));
  clock.on_packet(mtc(0x46));  // CTC 0x1230: 4 ticks before TMA
  EXPECT_EQ(clock.now(), Tsc{1000000});
  EXPECT_EQ(clock.earliest(), Tsc{1000000});
  EXPECT_GE(clock.latest(), Tsc{1000000});
  EXPECT_EQ(clock.holes(), 0U);
  clock.on_packet(mtc(0x47));
  EXPECT_EQ(clock.now(), Tsc{999980 + 4 * 50});
  EXPECT_EQ(clock.latest(), Tsc{999980 + 4 * 50 + 2});
}

TEST(PtClock, MtcWithoutTmaIsUncertainByAPeriod) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(mtc(7));
  EXPECT_EQ(clock.earliest(), Tsc{1000000});
  EXPECT_GE(clock.latest(), Tsc{1000000 + 400});
  EXPECT_LT(clock.latest(), Tsc{1000000 + 2000});
  clock.on_packet(mtc(8));
  EXPECT_EQ(clock.earliest(), Tsc{1000000 + 399});
  EXPECT_GE(clock.latest(), Tsc{1000000 + 800});
  clock.on_packet(tsc(1000700));
  EXPECT_EQ(clock.now(), Tsc{1000700});
  clock.on_packet(tma(9 << 3, 10));
  clock.on_packet(mtc(10));
  EXPECT_EQ(clock.now(), Tsc{1000690 + 400});
}

TEST(PtClock, HolesShorterThanAWindowAreTrusted) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0, 0));
  clock.on_packet(mtc(100));
  EXPECT_EQ(clock.now(), Tsc{1040000});
  EXPECT_EQ(clock.latest(), Tsc{1040002});
}

TEST(PtClock, MissingMtcs) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0, 0));
  clock.on_packet(mtc(2));  // one is missing: plausible
  EXPECT_EQ(clock.now(), Tsc{1000800});
  EXPECT_EQ(clock.latest(), Tsc{1000802});
  EXPECT_EQ(clock.holes(), 1U);
  clock.on_packet(mtc(100));  // 97 are missing, and packets after them
  clock.on_loss();
  EXPECT_EQ(clock.now(), Tsc{1040000});
  EXPECT_EQ(clock.earliest(), Tsc{1039999});
  EXPECT_EQ(clock.latest(), kTscMax);
  clock.on_packet(mtc(101));
  EXPECT_EQ(clock.latest(), kTscMax);
  const TimeConversion ticks;
  EXPECT_EQ(clock.interval(ticks).last, kTimeMax);
  TimeConversion perf;
  perf.time_shift = 31;
  perf.time_mult = 1789569706;
  perf.time_zero = 18446744041015200657U;
  EXPECT_EQ(clock.interval(perf).last, kTimeMax);
  EXPECT_EQ(clock.interval(perf).first, perf.to_ns(clock.earliest()));
  clock.on_packet(tsc(2000000));  // windows were indeed missing
  EXPECT_EQ(clock.jumps(), 0U);
  EXPECT_EQ(clock.latest(), Tsc{2000000});
  clock.on_packet(tma(0, 0));
  clock.on_packet(mtc(1));
  EXPECT_EQ(clock.now(), Tsc{2000400});
  EXPECT_EQ(clock.latest(), Tsc{2000402});
}

TEST(PtClock, OverflowLosesTheUpperBoundUntilTsc) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0, 0));
  clock.on_packet(mtc(1));
  EXPECT_TRUE(clock.on_packet(packet_of(PacketKind::ovf, 0)));
  EXPECT_EQ(clock.latest(), kTscMax);
  clock.on_packet(mtc(2));  // or 2 + 256 n
  EXPECT_EQ(clock.earliest(), Tsc{1000799});
  EXPECT_EQ(clock.latest(), kTscMax);
  clock.on_packet(tsc(1000900));
  EXPECT_EQ(clock.latest(), Tsc{1000900});
}

TEST(PtClock, AShortLossLosesTheUpperBoundUntilMtc) {
  PtClock clock(config_of());
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0, 0));
  clock.on_packet(mtc(1));
  clock.on_short_loss();
  EXPECT_EQ(clock.latest(), kTscMax);
  EXPECT_FALSE(clock.expects_mtcs());
  clock.on_packet(mtc(200));
  EXPECT_EQ(clock.earliest(), Tsc{1079999});
  EXPECT_EQ(clock.latest(), Tsc{1080402});  // a period later
  EXPECT_TRUE(clock.expects_mtcs());
  clock.on_packet(mtc(201));
  EXPECT_EQ(clock.latest(), Tsc{1080402});
  clock.on_loss();
  clock.on_short_loss();  // the long one before it remains
  clock.on_packet(mtc(202));
  EXPECT_EQ(clock.latest(), kTscMax);
}

TEST(PtClock, AShortLossBeforeTheFirstMtcNeedsItsWindow) {
  for (const uint8_t shift : {uint8_t{8}, uint8_t{12}}) {  // a TMA lacks 4 bits of the MTC's window of 12 + 8
    PtClock clock(config_of(shift, 2, 1));
    clock.on_packet(tsc(1000000));
    clock.on_packet(tma(0, 0));
    clock.on_short_loss();
    clock.on_packet(mtc(2));
    EXPECT_EQ(clock.latest() == kTscMax, shift == 12) << int{shift};
  }
}

TEST(PtClock, CycleRatioFromCbrThenFromMtcPairs) {
  PtClock clock(config_of());
  clock.on_packet(cbr(24));  // twice the nominal ratio: half a tick per cycle
  clock.on_packet(tsc(1000000), 0);
  clock.on_packet(tma(0, 0), 2);
  clock.on_packet(cyc(100), 4);
  EXPECT_EQ(clock.now(), Tsc{1000050});
  expect_sound(clock);
  clock.on_packet(cyc(640), 6);  // 320 more
  EXPECT_EQ(clock.now(), Tsc{1000370});
  EXPECT_LT(clock.earliest(), Tsc{1000370});
  clock.on_packet(mtc(1), 8);  // directly after a CYC: calibration starts
  EXPECT_EQ(clock.now(), Tsc{1000400});
  clock.on_packet(cyc(400), 10);
  clock.on_packet(cyc(320), 12);
  clock.on_packet(mtc(2), 14);  // 400 ticks for 720 cycles
  EXPECT_EQ(clock.ratio(), (uint64_t{400} << 24) / 720);
  clock.on_packet(cyc(360), 16);
  EXPECT_NEAR(static_cast<double>(clock.now().value), 1000800 + 200, 1);
  expect_sound(clock);
  clock.on_packet(cbr(12), 18);  // another frequency: one tick per cycle
  clock.on_packet(cyc(100), 22);
  EXPECT_NEAR(static_cast<double>(clock.now().value), 1000800 + 300, 1);
}

TEST(PtClock, CycNeverPassesTheNextEdge) {
  PtClock clock(config_of());
  clock.on_packet(cbr(6));  // two ticks per cycle, reported too slow
  clock.on_packet(tsc(1000000), 0);
  clock.on_packet(tma(0, 0), 2);
  clock.on_packet(cyc(390), 4);
  EXPECT_EQ(clock.now(), Tsc{1000400});
  EXPECT_LE(clock.earliest(), Tsc{1000400});
  clock.on_packet(mtc(1), 6);
  EXPECT_EQ(clock.now(), Tsc{1000400});
  expect_sound(clock);
}

TEST(PtClock, CycWithoutMtcHasNoUpperBoundAndCalibratesOnTsc) {
  Config config = config_of();
  config.has_mtc = false;
  PtClock clock(config);
  clock.on_packet(cbr(12), 0);
  clock.on_packet(cyc(1), 4);
  clock.on_packet(tsc(1000000), 6);
  clock.on_packet(cyc(1000), 10);
  EXPECT_EQ(clock.now(), Tsc{1001000});
  EXPECT_EQ(clock.latest(), kTscMax);
  clock.on_packet(tsc(1001100), 12);  // 1100 ticks for 1000 cycles
  EXPECT_EQ(clock.ratio(), (uint64_t{1100} << 24) / 1000);
}

TEST(PtClock, CycWithoutRatioOnlyCountsCycles) {
  PtClock clock(config_of(3, 100, 2, 0));
  clock.on_packet(tsc(1000000));
  clock.on_packet(tma(0, 0));
  clock.on_packet(cbr(12));
  clock.on_packet(cyc(77));
  EXPECT_EQ(clock.now(), Tsc{1000000});
  EXPECT_GE(clock.latest(), Tsc{1000400});
  EXPECT_EQ(clock.cycles(), 77U);
}

TEST(PtClock, TscIsWidenedAndBackwardTscStartsAnew) {
  PtClock clock(config_of());
  clock.set_reference(Tsc{0x0200000000000010});
  clock.on_packet(tsc(0x00fffffffffffff0));  // just below the reference: bits 63:56 are 1
  EXPECT_EQ(clock.now(), Tsc{0x01fffffffffffff0});
  clock.on_packet(tsc(0x20));
  EXPECT_EQ(clock.now(), Tsc{0x0200000000000020});
  EXPECT_EQ(clock.jumps(), 0U);
  clock.on_packet(tma(0, 0));
  clock.on_packet(tsc(0x10));
  EXPECT_EQ(clock.jumps(), 1U);
  EXPECT_EQ(clock.now(), Tsc{0x0200000000000010});
}

TEST(PtClock, ResetKeepsConfigurationAndCalibration) {
  PtClock clock(config_of());
  clock.on_packet(cbr(24));
  clock.on_packet(tsc(1000000));
  clock.reset();
  EXPECT_FALSE(clock.known());
  EXPECT_FALSE(clock.on_packet(mtc(1)));
  clock.on_packet(tsc(2000000), 0);
  clock.on_packet(tma(0, 0), 2);
  clock.on_packet(cyc(100), 4);
  EXPECT_EQ(clock.now(), Tsc{2000050});
}

TEST(PtClock, AnyPacketsKeepTheBoundsInOrder) {
  uint64_t state = 88172645463325252;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
  };
  for (int round = 0; round < 200; ++round) {
    PtClock clock(config_of(static_cast<uint8_t>(next() % 20), static_cast<uint32_t>(next()), static_cast<uint32_t>(next()),
                            static_cast<uint8_t>(next())));
    for (uint64_t i = 0; i < 500; ++i) {
      Packet packet =
          packet_of(static_cast<PacketKind>(static_cast<uint64_t>(PacketKind::cbr) + next() % 6), next() >> (next() % 64), next() & 0x1ff);
      const Tsc before = clock.earliest();
      const bool known = clock.known();
      clock.on_packet(packet, next() % 2 != 0 ? i * 2 : kNoOffset);
      if (!clock.known()) continue;
      expect_sound(clock);
      if (known && packet.kind != PacketKind::tsc) {
        EXPECT_LE(before, clock.earliest());
      }
    }
  }
}

Config dynamorio() {  // case.json of pt-dynamorio-simple
  return config_of(3, 308, 2, 37);
}

TEST(PtClock, RealCycBoundsHoldTheMtcBehindThem) {
  const auto bytes = test::to_bytes(test::read_text(test::corpus() / "pt-dynamorio-simple" / "trace.bin"));
  if (bytes.empty()) GTEST_SKIP() << "no corpus at " << test::corpus();
  PtClock clock(dynamorio());
  PacketReader reader(bytes, find_psb(bytes, 0));
  Packet packet;
  PtClock at_cyc;
  uint64_t cyc_end = 0;
  int pairs = 0;
  double error = 0;
  for (;;) {
    const uint64_t at = reader.offset();
    if (reader.next(packet) != PacketReader::Status::ok) break;
    if (!clock.on_packet(packet, at)) continue;
    expect_sound(clock);
    if (packet.kind == PacketKind::cyc) {
      at_cyc = clock;
      cyc_end = reader.offset();
    } else if (packet.kind == PacketKind::mtc && cyc_end == at) {  // the CYC gives the time of the MTC after it
      ++pairs;
      EXPECT_LE(at_cyc.earliest(), clock.now()) << at;
      EXPECT_GE(at_cyc.latest(), clock.now()) << at;
      error += std::abs(static_cast<double>(at_cyc.now().value) - static_cast<double>(clock.now().value));
    }
  }
  EXPECT_EQ(pairs, 538);
  EXPECT_LT(error / pairs, 5.0) << "of 1232 ticks between two MTCs";
}

// Checks that on_due_mtc() does the same as on_packet(), or nothing.
TEST(PtClock, DueMtcIsTheSameAsAnyMtc) {
  uint64_t random = 7, due = 0;
  const auto draw = [&](uint64_t below) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    return (random >> 33) % below;
  };
  for (int round = 0; round < 300; ++round) {
    PtClock quick(config_of(static_cast<uint8_t>(draw(10))));
    PtClock slow = quick;
    uint64_t moment = 1000 + draw(1U << 30), ctc = draw(256), offset = 0;
    for (int i = 0; i < 200; ++i) {
      const uint64_t kind = draw(40);
      Packet packet = mtc((ctc += draw(30) == 0 ? draw(6) : 1) & 0xff);
      if (i == 0 || kind == 0) packet = tsc(moment += draw(40000));
      if (i == 1 || kind == 1) packet = tma(draw(1U << 16), draw(50));
      if (kind == 2) packet = cyc(draw(3000));
      if (kind == 3) packet = cbr(8 + draw(8));
      if (kind == 4 && draw(4) == 0) packet.kind = PacketKind::ovf;
      const bool told = slow.on_packet(packet, offset);
      const uint64_t earliest = quick.earliest().value, cycles = quick.cycles();
      if (packet.kind == PacketKind::mtc && quick.on_due_mtc(static_cast<uint8_t>(packet.value), offset)) {
        ASSERT_TRUE(told);
        ++due;
      } else {
        ASSERT_EQ(quick.earliest().value, earliest);
        ASSERT_EQ(quick.cycles(), cycles);
        ASSERT_EQ(quick.on_packet(packet, offset), told);
      }
      ASSERT_EQ(quick.now(), slow.now());
      ASSERT_EQ(quick.earliest(), slow.earliest());
      ASSERT_EQ(quick.latest(), slow.latest());
      ASSERT_EQ(quick.holes(), slow.holes());
      ASSERT_EQ(quick.ratio(), slow.ratio());
      offset += packet.size_bytes;
    }
  }
  EXPECT_GT(due, 10000U);
}

}  // namespace
}  // namespace ptd::pt
