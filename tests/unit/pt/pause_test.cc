// The end of a window of trace that another window follows: tracing was on, and pauses.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kLoop = 0x401000;

// The loop is one conditional branch.
struct LoopMachine {
  LoopMachine() {
    TimelineBuilder builder;
    Section section;
    section.space = builder.add_space();
    section.ip = Ip{kLoop};
    section.size_bytes = 2;
    const auto code = std::make_shared<std::vector<std::byte>>(std::vector{std::byte{0x75}, std::byte{0xfe}});
    section.code = {code, Bytes(*code)};
    section.path = "loop";
    const SpaceId space = section.space;
    builder.add_section(std::move(section));
    timeline = builder.build();
    contexts.add_switch(0, kTimeMin, {1, 1, space});
    contexts.sort();
  }
  Timeline timeline;
  ContextTrack contexts;
};

std::vector<std::byte> window(unsigned rounds) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.psb();
  writer.tsc(1000);
  writer.cbr(10);
  writer.mode_exec(ExecMode::bits64);
  writer.fup(kLoop);
  writer.psbend();
  for (unsigned i = 0; i < rounds; ++i) {
    writer.cyc(50);
    writer.tnt(0x3f, 6);
  }
  writer.cyc(7);
  return bytes;
}

TEST(Pause, HasTheTimeAndTheCyclesOfTheLastTimingPacket) {
  const LoopMachine machine;
  const std::vector<std::byte> bytes = window(100);
  for (const bool exact : {false, true}) {
    DecoderOptions options;
    options.exact_only = exact;
    options.config.max_nonturbo_ratio = 10;
    Decoder decoder(machine.timeline, machine.contexts, options);
    AuxSegment segment = made_stream(bytes);
    segment.break_after = true;
    segment.lost_after = AuxBreak::snapshot;
    decoder.begin(segment);
    Mark mark;
    Event last;
    uint64_t instructions = 0;
    Batch batch;
    for (bool more = true; more;) {
      more = decoder.next(batch);
      instructions += instructions_of(batch.blocks);
      if (!batch.marks.empty()) mark = batch.marks.back();
      if (!batch.events.empty()) last = batch.events.back();
    }
    EXPECT_EQ(instructions, 600U);
    ASSERT_EQ(last.kind, EventKind::disabled);
    EXPECT_EQ(mark.cycles, 99U * 50);  // up to the packet before the last branches
    EXPECT_EQ(last.cycles, 100U * 50 + 7);
    EXPECT_GT(mark.about, TimeNs{1000});
    EXPECT_GE(last.about, mark.about);
  }
}

}  // namespace
}  // namespace ptd::pt
