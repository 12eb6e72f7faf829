// Branches that the trace does not commit are a gap, also if the recorded speculation depth of the trace unit is wrong.
#include <gtest/gtest.h>

#include <algorithm>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/recording.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

struct Decoded {
  uint64_t instructions = 0, gaps = 0, others = 0;  ///< gaps `uncommitted`, and of other reasons
  void add(const Batch& batch) {
    for (const Block& block : batch.blocks) instructions += block.instructions;
    for (const Gap& gap : batch.gaps) ++(gap.reason == GapReason::uncommitted ? gaps : others);
  }
};

Decoded decode(arm::Decoder& decoder, const AuxSegment& segment) {
  Decoded all;
  Batch batch;
  decoder.begin(segment);
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch);
    all.add(batch);
  }
  return all;
}

// [ETMv4] "Speculation resolution": elements up to the maximum depth may be cancelled as long as they are not committed.
TEST(ArmUncommitted, AtomsAtTheEnd) {
  TimelineBuilder builder;
  Section section;
  section.space = builder.add_space();
  section.ip = Ip{0x10000};
  const std::vector<uint32_t> words = {0x14000000};  // b .
  const auto raw = std::as_bytes(std::span(words));
  section.code = own_bytes({raw.begin(), raw.end()});
  section.size_bytes = raw.size();
  const SpaceId space = section.space;
  builder.add_section(std::move(section));
  const Timeline timeline = builder.build();
  const ContextTrack contexts;
  for (const bool exact : {false, true}) {
    for (const uint32_t depth : {0U, 1U, 3U, 10U, 100U}) {
      for (const unsigned committed : {0U, 1U, 10U}) {
        std::vector<uint8_t> bytes = {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x80, 0x01,
                                      0x01, 0x00, 0x04, 0x85, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x30};
        const unsigned waiting = std::min(depth, 10U);
        bytes.insert(bytes.end(), 10, 0xf7);
        const unsigned most = std::min(committed, waiting);
        if (most != 0) bytes.insert(bytes.end(), {0x2d, static_cast<uint8_t>(most)});
        arm::DecoderOptions options;
        options.config.protocol = arm::Protocol::etmv4;
        options.config.idr8 = depth;
        options.follow.default_space = space;
        options.follow.exact_only = exact;
        arm::Decoder decoder(timeline, contexts, options);
        AuxSegment segment;
        segment.bytes = std::as_bytes(std::span(bytes));
        const Decoded all = decode(decoder, segment);
        EXPECT_EQ(all.instructions, 10 - waiting + most) << depth << ", " << committed;
        EXPECT_EQ(all.gaps, waiting > most ? 1U : 0U) << depth << ", " << committed;
        EXPECT_EQ(all.others, 0U);
      }
    }
  }
}

// The trace of a unit without speculation, decoded with a depth as a damaged description has it: what is missing is never without a gap.
TEST(ArmUncommitted, AWrongDepth) {
  for (const char* name : {"plain", "threads"}) {
    OpenOptions open;
    open.path = std::string(PTD_SOURCE_DIR) + "/data/arm/" + name + ".bundle";
    const auto recording = Recording::open(open);
    ASSERT_TRUE(recording.ok());
    for (uint32_t stream = 0; stream < (*recording)->streams().size(); ++stream) {
      std::vector<uint64_t> right;
      for (const uint32_t depth : {0U, 1U, 64U, 4096U, ~0U}) {
        arm::DecoderOptions options;
        options.config = *(*recording)->arm_config(stream);
        ASSERT_EQ(options.config.idr8, 0U);
        options.config.idr8 = depth;
        options.follow.default_space = (*recording)->decoder_options().default_space;
        options.follow.names = arm::ContextNames::context_id;
        arm::Decoder decoder((*recording)->timeline(), (*recording)->contexts(), options);
        std::vector<std::byte> scratch;
        AuxSegment segment;
        size_t i = 0;
        for (uint64_t at = 0; (*recording)->next_segment(stream, at, segment, scratch); ++i) {
          const Decoded found = decode(decoder, segment);
          if (depth == 0) {
            EXPECT_EQ(found.gaps + found.others, 0U);
            EXPECT_GT(found.instructions, 0U);
            right.push_back(found.instructions);
          } else if (found.others == 0) {
            EXPECT_EQ(found.gaps, found.instructions < right.at(i) ? 1U : 0U) << name << ", depth " << depth << ", segment " << i;
          }
        }
        EXPECT_GT(i, 0U);
      }
    }
  }
}

}  // namespace
}  // namespace ptd::test
