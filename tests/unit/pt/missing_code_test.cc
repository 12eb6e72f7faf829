// Code that is missing: a packet that leads there contradicts nothing, so no other path is searched for.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "image/fetch_steps.h"
#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kJumps = 0x400000, kKernelImage = 0xffffffff81000000, kPoked = kKernelImage + 0x100, kNoCode = 0xffffffff82000000;
constexpr unsigned kRounds = 400;

/// A program of "jmp *%rax" at every sixteenth byte, and a kernel that changed the five bytes at kPoked.
struct PokedMachine {
  explicit PokedMachine(bool has_image) {
    TimelineBuilder builder;
    const SpaceId space = builder.add_space();
    add_jumps(builder, space, kJumps);
    if (has_image) add_jumps(builder, kKernelSpace, kKernelImage);
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
  static void add_jumps(TimelineBuilder& builder, SpaceId space, uint64_t ip) {
    const auto code = std::make_shared<std::vector<std::byte>>(0x1000, std::byte{0x90});
    for (uint64_t i = 0; i < code->size(); i += 16) {
      (*code)[i] = std::byte{0xff};
      (*code)[i + 1] = std::byte{0xe0};
    }
    Section section;
    section.space = space;
    section.ip = Ip{ip};
    section.size_bytes = code->size();
    section.code = {code, Bytes(*code)};
    section.path = "code";
    builder.add_section(std::move(section));
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
  AuxSegment segment;
  segment.bytes = bytes;
  segment.time = {TimeNs{1000}, kTimeMax};
  segment.break_before = AuxBreak::stream_start;
  segment.cpu = 0;
  const uint64_t before = fetch_steps().walked;
  decoder.begin(segment);
  MissingRun ran;
  Batch batch;
  for (bool more = true; more;) {
    more = decoder.next(batch);
    ran.blocks += batch.blocks.size();
    ran.uncertain += static_cast<size_t>(std::ranges::count_if(batch.blocks, [](const Block& block) { return (block.flags & kUncertainFlags) != 0; }));
    for (const Gap& gap : batch.gaps) ran.gaps += gap.reason == GapReason::no_image ? 1 : 0;
  }
  ran.searched = fetch_steps().walked - before;
  return ran;
}

void begin_program(PacketWriter& writer) {
  writer.psb();
  writer.tsc(1000);
  writer.cbr(10);
  writer.mode_exec(ExecMode::bits64);
  writer.fup(kJumps);
  writer.psbend();
}

TEST(MissingCode, NoPathIsSearchedAfterAPacketThatLeadsThere) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  begin_program(writer);
  for (unsigned i = 0; i < kRounds; ++i) {
    for (unsigned jump = 0; jump < 16; ++jump) writer.tip(kJumps + 16 * jump);
    writer.tip(kNoCode + 16 * i);
    writer.tip(kNoCode + 16 * i + 8);
  }
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
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  begin_program(writer);
  for (unsigned i = 0; i < kRounds; ++i) {
    for (unsigned jump = 0; jump < 16; ++jump) writer.tip(kJumps + 16 * jump);
    writer.tip(kPoked + 2);
    writer.tip(kNoCode);
  }
  for (const bool exact : {false, true}) {
    const MissingRun ran = decode_missing(bytes, false, exact);
    EXPECT_EQ(ran.gaps, kRounds);
    EXPECT_EQ(ran.searched, 0U) << exact;
  }
}

}  // namespace
}  // namespace ptd::pt
