// Code that is suspect for a part of the time: the fast path and the exact walker mark the same blocks.
#include <gtest/gtest.h>

#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kLossyLoop = 0x400000;

/// "jnz ." in a space of which records were lost from 2000 ns to `end_ns`.
struct LossyLoop {
  uint64_t end_ns = 0;
  TimeNs since = kTimeMin;  ///< when its code was mapped
};

struct LossyMachine {
  explicit LossyMachine(const LossyLoop& loop) {
    TimelineBuilder builder;
    const SpaceId space = builder.add_space();
    std::vector<std::byte> code(64, std::byte{0x90});
    code[0] = std::byte{0x75};
    code[1] = std::byte{0xfe};
    add_made_code(builder, space, kLossyLoop, code, {loop.since, kTimeMax});
    builder.add_lost_window(space, {TimeNs{2000}, TimeNs{loop.end_ns}});
    timeline = builder.build();
    contexts.add_switch(0, kTimeMin, {1, 1, space});
    contexts.sort();
  }
  Timeline timeline;
  ContextTrack contexts;
};

struct Decoded {
  std::vector<bool> suspect;  ///< of each block
  std::vector<Mark> marks;
};

Decoded decode(const std::vector<std::byte>& bytes, const LossyLoop& loop, bool exact,
               const std::vector<SyncPoint>* sync_points = nullptr) {
  const LossyMachine machine(loop);
  DecoderOptions options;
  options.exact_only = exact;
  options.sync_points = sync_points;
  options.config.max_nonturbo_ratio = 10;
  options.config.mtc_period = 3;
  options.config.tsc_ctc_ratio_n = 2;
  options.config.tsc_ctc_ratio_d = 1;
  options.config.has_mtc = true;
  Decoder decoder(machine.timeline, machine.contexts, options);
  decoder.begin(made_stream(bytes));
  Decoded decoded;
  Batch batch;
  for (bool more = true; more;) {
    more = decoder.next(batch);
    for (const Block& block : batch.blocks) decoded.suspect.push_back(has(block.flags, BlockFlag::suspect));
    decoded.marks.insert(decoded.marks.end(), batch.marks.begin(), batch.marks.end());
  }
  return decoded;
}

void begin_loop(PacketWriter& writer) {
  writer.psb();
  writer.tsc(1000);
  writer.tma(0, 0);
  writer.cbr(10);
  writer.mode_exec(ExecMode::bits64);
  writer.fup(kLossyLoop);
  writer.psbend();
}

TEST(SuspectTimes, AreTheSameOnBothPaths) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  begin_loop(writer);
  for (unsigned i = 1; i < 200; ++i) {
    writer.mtc(static_cast<uint8_t>(i));                            // every 16 ns
    for (unsigned more = 0; more < 6; ++more) writer.tnt(0x3f, 6);  // only the first may have begun before the MTC
  }
  for (uint64_t end_ns = 2001; end_ns < 2100; ++end_ns) {
    const std::vector<bool> exact = decode(bytes, {end_ns}, true).suspect;
    EXPECT_EQ(exact, decode(bytes, {end_ns}, false).suspect) << end_ns;
    EXPECT_TRUE(exact.size() == 7164 && !exact.front() && !exact.back());
  }
}

// After a synchronisation, code is what a record says that is written later; but it does not run later.
TEST(SuspectTimes, AFetchAfterASynchronisationIsEarlierThanWhatItSees) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  begin_loop(writer);
  for (unsigned i = 0; i < 50; ++i) writer.tnt(0x3f, 6);
  writer.mtc(100);  // at 2600 ns
  for (unsigned i = 0; i < 50; ++i) writer.tnt(0x3f, 6);
  const std::vector<SyncPoint> sees_lost = {{0, {TimeNs{2001}, kTimeMax}}};
  for (const bool exact : {true, false}) {
    const Decoded by_clock = decode(bytes, {2500}, exact), decoded = decode(bytes, {2500}, exact, &sees_lost);
    EXPECT_TRUE(decoded.suspect.front() && decoded.suspect.size() == 600U);
    ASSERT_EQ(decoded.marks.size(), by_clock.marks.size());
    ASSERT_GE(decoded.marks.size(), 2U);
    EXPECT_LE(decoded.marks[0].time.first, TimeNs{1000});
    for (size_t i = 0; i < decoded.marks.size(); ++i) EXPECT_EQ(decoded.marks[i].time, by_clock.marks[i].time) << exact << i;
  }
}

TEST(SuspectTimes, CodeDoesNotRunBeforeItIsMapped) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  begin_loop(writer);
  for (unsigned i = 0; i < 50; ++i) writer.tnt(0x3f, 6);
  writer.mtc(50);  // at 1800 ns
  for (const bool exact : {true, false}) {
    const Decoded decoded = decode(bytes, {2001, TimeNs{1500}}, exact);
    EXPECT_EQ(decoded.suspect.size(), 300U);
    for (const Mark& mark : decoded.marks) {
      const bool is_replaced = &mark != &decoded.marks.back() && (&mark)[1].before_block == mark.before_block;
      if (!is_replaced) {
        EXPECT_EQ(mark.time.first, TimeNs{1500}) << exact;
      }
    }
    EXPECT_FALSE(decoded.marks.empty());
  }
}

}  // namespace
}  // namespace ptd::pt
