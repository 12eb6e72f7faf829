// Damaged trace: the output before the damage does not change, and the damage causes only gaps.
#include <gtest/gtest.h>

#include <random>

#include "decoder/arm/decoder.h"
#include "tests/coresight/support/expected.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

struct Walked {
  std::vector<Range> ranges;
  std::vector<size_t> before_gap;  ///< ranges before each gap
};

Walked walk(const Recording& recording, uint32_t stream, Bytes bytes) {
  arm::DecoderOptions options;
  options.config = *recording.arm_config(stream);
  options.follow.default_space = recording.decoder_options().default_space;
  arm::Decoder decoder(recording.timeline(), recording.contexts(), options);
  AuxSegment segment;
  segment.bytes = bytes;
  decoder.begin(segment);
  Walked walked;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch);
    for (const Gap& gap : batch.gaps) walked.before_gap.push_back(walked.ranges.size() + gap.before_block);
    for (const Block& block : batch.blocks) {
      const BlockInfo& info = decoder.blocks().info(block.node);
      walked.ranges.push_back({info.ip.value, info.ip.value + info.size_bytes, info.instructions, has(block.flags, BlockFlag::taken)});
    }
  }
  return walked;
}

TEST(ArmDamage, TheFlowBeforeItIsUnchanged) {
  PTD_NEED_CORPUS();
  for (const char* name : {"ete_spec_1", "ete-maxspec78_commopt0", "ete_ip", "cs-juno_r1_1"}) {
    OpenOptions options;
    options.path = corpus_dir() + "/" + name + "/snapshot";
    const auto opened = Recording::open(options);
    ASSERT_TRUE(opened.ok());
    const Recording& recording = **opened;
    std::vector<std::byte> scratch;
    AuxSegment segment;
    uint64_t from = 0;
    (void)recording.next_segment(0, from, segment, scratch);
    const std::vector<std::byte> whole(segment.bytes.begin(), segment.bytes.begin() + std::min<size_t>(segment.bytes.size(), 4000));
    std::mt19937 random(3);
    for (unsigned i = 0; i < 60; ++i) {
      const size_t at = random() % whole.size();
      // Cut there: the rest decodes as the beginning of the whole.
      const Walked part = walk(recording, 0, Bytes(whole).first(at));
      const Walked all = walk(recording, 0, whole);
      ASSERT_LE(part.ranges.size(), all.ranges.size()) << name << " cut at " << at;
      for (size_t k = 0; k < part.ranges.size(); ++k)
        ASSERT_EQ(part.ranges[k], all.ranges[k]) << name << " cut at " << at << ", range " << k;
      // Another byte there: the output contains all of the cut one's output.
      std::vector<std::byte> damaged = whole;
      damaged[at] ^= static_cast<std::byte>(1 + random() % 255);
      const Walked other = walk(recording, 0, damaged);
      ASSERT_GE(other.ranges.size(), part.ranges.size()) << name << " damaged at " << at;
      for (size_t k = 0; k < part.ranges.size(); ++k)
        ASSERT_EQ(part.ranges[k], other.ranges[k]) << name << " damaged at " << at << ", range " << k;
    }
  }
}

}  // namespace
}  // namespace ptd::test
