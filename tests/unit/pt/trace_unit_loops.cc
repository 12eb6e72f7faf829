// The emulated trace unit in code without conditional branches: like a processor's, it continues to write the time and PSBs.
#include <gtest/gtest.h>

#include <vector>

#include "capture/emulate/unit/block_tracer.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd::emulate {
namespace {

struct Times {
  uint64_t mtc = 0, psb = 0, clock_reads = 0;
};

/// Runs `rounds` iterations of a loop of one block, each of which takes 100 ticks.
Times run_loop(BlockEnd kind, uint64_t rounds) {
  std::vector<std::byte> out;
  PtEncoderOptions options;
  options.mtc_period = 3;
  options.psb_period_bytes = 2048;
  PtEncoder encoder(options, out);
  BlockTracer tracer(encoder, nullptr, false);
  Block loop;
  loop.ip = loop.target = loop.last_ip = 0x401000;
  loop.end = kind == BlockEnd::plain ? loop.ip : loop.ip + 5;
  loop.insns = 1;
  loop.kind = kind;
  Times times;
  uint64_t tsc = 1'000'000;
  for (uint64_t i = 0; i < rounds; ++i, tsc += 100) {
    tracer.enter(loop, [&] {
      ++times.clock_reads;
      return tsc;
    });
  }
  tracer.leave_async({loop.ip, false}, tsc);
  pt::PacketReader reader(out);
  pt::Packet packet;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::mtc) ++times.mtc;
    if (packet.kind == pt::PacketKind::psb) ++times.psb;
  }
  return times;
}

TEST(TraceUnitLoops, MtcAndPsbGoOnInLoopsWithoutOtherPackets) {
  constexpr uint64_t kRounds = 1'000'000;
  const uint64_t periods = kRounds * 100 / (256U << 3);  // MTC periods, in TSC ticks
  for (const BlockEnd kind : {BlockEnd::jump, BlockEnd::call}) {
    const Times times = run_loop(kind, kRounds);
    EXPECT_GE(times.mtc, periods * 9 / 10);
    EXPECT_LE(times.mtc, periods);
    EXPECT_GE(times.psb, periods * 2 / 2048 / 2);
    EXPECT_LT(times.clock_reads, kRounds / 500);
  }
}

/// After a pause in which no MTC was written, as when the emulator ran another processor, a PSB+ gives the time. No cycles passed in it.
TEST(TraceUnitLoops, NoCyclesPassInAPause) {
  constexpr uint64_t kStart = 1'000'000, kStep = 100, kPause = 1'000'000;
  std::vector<std::byte> out;
  PtEncoderOptions options;
  options.mtc_period = 3;
  options.cyc = true;
  PtEncoder encoder(options, out);
  uint64_t tsc = kStart;
  const auto run = [&](uint64_t branches) {
    for (uint64_t i = 0; i < branches; ++i) {
      encoder.set_time(tsc += kStep);
      encoder.conditional(true);
    }
  };
  encoder.set_time(tsc);
  encoder.enable(0x401000);
  run(100);
  tsc += kPause;
  run(100);
  if (encoder.psb_due()) encoder.psb(0x401000);
  run(100);
  pt::PacketReader reader(out);
  pt::Packet packet;
  uint64_t cycles = 0, psbs = 0;
  while (reader.next(packet) == pt::PacketReader::Status::ok) {
    if (packet.kind == pt::PacketKind::cyc) cycles += packet.value;
    if (packet.kind == pt::PacketKind::psb) ++psbs;
  }
  EXPECT_EQ(psbs, 2U);
  EXPECT_LE(cycles, 300 * kStep);
  EXPECT_GE(cycles, 280 * kStep);
}

/// A jump that goes on elsewhere loses its packets, which nobody requested.
TEST(TraceUnitLoops, OnlyRequestedLossesCountAsOverflows) {
  std::vector<std::byte> out;
  PtEncoder encoder({}, out);
  BlockTracer tracer(encoder, nullptr, false);
  Block there, elsewhere;
  there.ip = there.last_ip = there.target = 0x401000;
  there.end = there.ip + 5;
  elsewhere.ip = elsewhere.last_ip = elsewhere.target = 0x402000;
  elsewhere.end = elsewhere.ip + 5;
  there.insns = elsewhere.insns = 1;
  there.kind = elsewhere.kind = BlockEnd::jump;
  uint64_t tsc = 1'000'000;
  const auto enter = [&](const Block& block) { tracer.enter(block, [&] { return tsc += 100; }); };
  enter(there);
  enter(elsewhere);  // the emulator did not say how
  EXPECT_EQ(tracer.counts().irregular, 1U);
  EXPECT_EQ(tracer.counts().overflows, 0U);
  tracer.overflow(3);
  for (int i = 0; i < 8; ++i) enter(elsewhere);
  EXPECT_EQ(tracer.counts().irregular, 1U);
  EXPECT_EQ(tracer.counts().overflows, 1U);
}

}  // namespace
}  // namespace ptd::emulate
