// Code that is missing: a packet that leads there contradicts nothing, so no other path is searched for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "image/fetch_steps.h"
#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kJumps = 0x400000, kKernelImage = 0xffffffff81000000, kPoked = kKernelImage + 0x100, kNoCode = 0xffffffff82000000;
constexpr unsigned kRounds = 400;

/// A program of "jmp *%rax" at every sixteenth byte, and a kernel that changed the five bytes at kPoked.
struct PokedMachine {
  explicit PokedMachine(bool has_image) {
    TimelineBuilder builder;
    const SpaceId space = builder.add_space();
    add_made_code(builder, space, kJumps, jumps(0x1000));
    if (has_image) add_made_code(builder, kKernelSpace, kKernelImage, jumps(0x1000));
    Edit edit;
    edit.ip = Ip{kPoked};
    for (const int byte : {0xff, 0xe0, 0x90, 0x90, 0x90}) edit.old_bytes.push_back(std::byte(byte));
    edit.new_bytes = edit.old_bytes;
    edit.new_bytes[4] = std::byte{0x91};
    edit.time = {TimeNs{500}, TimeNs{500}};
    builder.add_edit(std::move(edit));
    timeline = builder.build();
    contexts.add_switch(0, kTimeMin, {1, 1, space});
    contexts.sort();
  }
  Timeline timeline;
  ContextTrack contexts;
};

struct MissingRun {
  uint64_t searched = 0;  ///< instructions that searches walked
  size_t blocks = 0, gaps = 0, uncertain = 0;
};

MissingRun decode_missing(const std::vector<std::byte>& bytes, bool has_image, bool exact) {
  const PokedMachine machine(has_image);
  DecoderOptions options;
  options.exact_only = exact;
  options.config.tip_order = TipOrder::prompt;
  Decoder decoder(machine.timeline, machine.contexts, options);
  const uint64_t before = fetch_steps().walked;
  decoder.begin(made_stream(bytes));
  MissingRun ran;
  Batch batch;
  for (bool more = true; more;) {
    more = decoder.next(batch);
    ran.blocks += batch.blocks.size();
    ran.uncertain +=
        static_cast<size_t>(std::ranges::count_if(batch.blocks, [](const Block& block) { return (block.flags & kUncertainFlags) != 0; }));
    for (const Gap& gap : batch.gaps) ran.gaps += gap.reason == GapReason::no_image ? 1 : 0;
  }
  ran.searched = fetch_steps().walked - before;
  return ran;
}

/// Rounds of jumps within the program, then to `first` and `second`, which are `stride` further in each round.
std::vector<std::byte> rounds(uint64_t first, uint64_t second, uint64_t stride) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.psb();
  writer.tsc(1000);
  writer.cbr(10);
  writer.mode_exec(ExecMode::bits64);
  writer.fup(kJumps);
  writer.psbend();
  for (unsigned i = 0; i < kRounds; ++i) {
    for (unsigned jump = 0; jump < 16; ++jump) writer.tip(kJumps + 16 * jump);
    writer.tip(first + stride * i);
    writer.tip(second + stride * i);
  }
  return bytes;
}

TEST(MissingCode, NoPathIsSearchedAfterAPacketThatLeadsThere) {
  const std::vector<std::byte> bytes = rounds(kNoCode, kNoCode + 8, 16);
  for (const bool has_image : {false, true}) {
    for (const bool exact : {false, true}) {
      const MissingRun ran = decode_missing(bytes, has_image, exact);
      EXPECT_EQ(ran.gaps, kRounds);
      EXPECT_EQ(ran.blocks, kRounds * 16 + 1);
      EXPECT_EQ(ran.uncertain, 0U);
      EXPECT_EQ(ran.searched, 0U) << has_image << exact;
    }
  }
}

// The bytes that records give are not an image: what follows them is missing at all times.
TEST(MissingCode, NoPathIsSearchedAfterChangedBytesWithoutAnImage) {
  const std::vector<std::byte> bytes = rounds(kPoked + 2, kNoCode, 0);
  for (const bool exact : {false, true}) {
    const MissingRun ran = decode_missing(bytes, false, exact);
    EXPECT_EQ(ran.gaps, kRounds);
    EXPECT_EQ(ran.searched, 0U) << exact;
  }
}

}  // namespace
}  // namespace ptd::pt
