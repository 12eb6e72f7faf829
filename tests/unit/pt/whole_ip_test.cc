// Ips after a packet that contradicts the code: those that a packet gives in part may be wrong as well, until a packet gives all bits.
#include <gmock/gmock.h>

#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"

namespace ptd::pt {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::SizeIs;

constexpr uint64_t kCode = 0x400000, kOther = 0x520000, kFar = 0x7'0040'0000;
constexpr uint64_t kSize = 0x30000;

// "jmp *%rax" at every sixteenth byte, but a conditional branch at kOther + 0x30.
struct Machine {
  Machine() {
    TimelineBuilder builder;
    const SpaceId space = builder.add_space();
    for (const uint64_t ip : {kCode, kOther, kFar}) {
      std::vector<std::byte> code = jumps(kSize);
      if (ip == kOther) code[0x30] = std::byte{0x75};
      add_made_code(builder, space, ip, code);
    }
    timeline = builder.build();
    contexts.add_switch(0, kTimeMin, {1, 1, space});
    contexts.sort();
  }
  Timeline timeline;
  ContextTrack contexts;
};

struct Ran {
  std::vector<uint64_t> certain, marked;
  std::vector<Gap> gaps;
};

Ran decode(const std::vector<std::byte>& bytes, bool exact) {
  const Machine machine;
  DecoderOptions options;
  options.exact_only = exact;
  options.config.tip_order = TipOrder::prompt;
  Decoder decoder(machine.timeline, machine.contexts, options);
  decoder.begin(made_stream(bytes));
  Ran ran;
  Batch batch;
  for (bool more = true; more;) {
    more = decoder.next(batch);
    for (const Block& block : batch.blocks)
      ((block.flags & kUncertainFlags) != 0 ? ran.marked : ran.certain).push_back(decoder.blocks().info(block.node).ip.value);
    ran.gaps.insert(ran.gaps.end(), batch.gaps.begin(), batch.gaps.end());
  }
  return ran;
}

// Bit 20 of the third target is damaged: 0x420030 becomes 0x520030.
std::vector<std::byte> damaged() {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.psb();
  writer.tsc(1000);
  writer.cbr(10);
  writer.mode_exec(ExecMode::bits64);
  writer.fup(kCode);
  writer.psbend();
  writer.tip(kCode + 0x10);
  writer.tip(kCode + 0x20);
  const size_t at = writer.size();
  writer.tip(kCode + 0x20030);
  bytes[at + 1 + 2] ^= std::byte{1U << (20 - 16)};
  writer.tip(kCode + 0x20040);
  writer.tip(kCode + 0x20050);
  writer.tip(kFar);
  writer.tip(kFar + 0x10);
  writer.tip(kFar + 0x20);
  return bytes;
}

TEST(WholeIp, PartsOfIpsAreDoubtfulAfterAContradiction) {
  for (const bool exact : {false, true}) {
    const Ran ran = decode(damaged(), exact);
    ASSERT_THAT(ran.gaps, SizeIs(1));
    EXPECT_EQ(ran.gaps[0].reason, GapReason::image_mismatch);
    // What ran before may be wrong too: see kDoubtfulBlocks.
    EXPECT_THAT(ran.marked, ElementsAre(kCode, kCode + 0x10, kCode + 0x20, kOther + 0x30, kOther + 0x40, kOther + 0x50)) << exact;
    EXPECT_THAT(ran.certain, ElementsAre(kFar, kFar + 0x10)) << exact;
  }
}

}  // namespace
}  // namespace ptd::pt
