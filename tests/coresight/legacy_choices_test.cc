// ETMv3 and PTM if the code has two dated copies and no record of when it changed: the packets choose. Hand-written traces.
#include <gtest/gtest.h>

#include "decoder/arm/legacy_decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

using Raw = std::vector<uint8_t>;
constexpr uint64_t kCode = 0x8000;
constexpr uint32_t kNopInsn = 0xe1a00000, kBxLr = 0xe12fff1e;
constexpr uint32_t kIfEqualBack = 0x0afffffd;  // beq .-4
constexpr uint32_t kIfEqualOver = 0x0a000000;  // beq .+8
constexpr uint32_t kOver = 0xea000000;         // b .+8
constexpr uint32_t kBack = 0xeafffffb;         // b .-12

// [PFT] and [ETMv3]: a branch address packet of one byte holds address bits 7:2 of an A32 address.
constexpr uint8_t branch_to(uint8_t low) { return static_cast<uint8_t>((low >> 1) | 1); }
// [PFT] "Atom packet", without cycles: 1, zeros, a one, the atoms (0 is E), 0.
constexpr uint8_t kPtmE = 0x84, kPtmN = 0x86;
// [ETMv3] "P-header": 1 n eeee 00: e E atoms, then n N atoms.
constexpr uint8_t p_header(unsigned e, unsigned n) { return static_cast<uint8_t>(0x80 | (n << 6) | (e << 2)); }

constexpr unsigned kIsBranch = static_cast<unsigned>(BlockFlag::ends_in_branch);
constexpr unsigned kIsTaken = static_cast<unsigned>(BlockFlag::taken) | kIsBranch;
constexpr unsigned kIsChosen = static_cast<unsigned>(BlockFlag::chosen), kIsAmbiguous = static_cast<unsigned>(BlockFlag::ambiguous);

struct LegacyOutput {
  std::vector<std::pair<uint64_t, unsigned>> blocks;  // (end - kCode, flags)
  std::vector<GapReason> gaps;
  bool operator==(const LegacyOutput&) const = default;
};

/// The code at kCode is `words`; from an unknown time on, the second one is `after`.
class TwoCopies {
 public:
  TwoCopies(std::array<uint32_t, 4> words, uint32_t after) {
    TimelineBuilder builder;
    space_ = builder.add_space();
    const auto raw = std::as_bytes(std::span(words));
    Section section;
    section.space = space_;
    section.ip = Ip{kCode};
    section.code = own_bytes({raw.begin(), raw.end()});
    section.size_bytes = raw.size();
    builder.add_section(std::move(section));
    Edit edit;
    edit.space = space_;
    edit.ip = Ip{kCode + 4};
    edit.old_bytes.assign(raw.begin() + 4, raw.begin() + 8);
    const auto next = std::as_bytes(std::span(&after, 1));
    edit.new_bytes.assign(next.begin(), next.end());
    edit.origin = EditOrigin::dated_copy;
    builder.add_edit(std::move(edit));
    timeline_ = builder.build();
  }

  LegacyOutput decode(arm::Protocol protocol, const Raw& packets, size_t capacity = 4096) const {
    arm::TraceConfig config;
    config.protocol = protocol;
    config.idr0 = protocol == arm::Protocol::ptm ? 0x4100f310 : 0x4100f250;
    config.idr1 = 0;
    arm::FollowOptions options;
    options.default_space = space_;
    const ContextTrack contexts;
    arm::LegacyDecoder decoder(timeline_, contexts, config, options);
    AuxSegment segment;
    segment.bytes = std::as_bytes(std::span(packets));
    decoder.begin(segment);
    LegacyOutput output;
    Batch batch;
    for (bool more = true; more;) {
      batch.clear();
      more = decoder.next(batch, capacity);
      for (const Block& block : batch.blocks) {
        const BlockInfo& info = decoder.blocks().info(block.node);
        const unsigned flags = block.flags & ~static_cast<unsigned>(BlockFlag::healed);
        output.blocks.emplace_back(info.ip.value + info.size_bytes - kCode, flags);
      }
      for (const Gap& gap : batch.gaps) output.gaps.push_back(gap.reason);
    }
    return output;
  }

 private:
  SpaceId space_;
  Timeline timeline_;
};

constexpr uint8_t kPeriodic = 0x09, kTraceOn = 0x29;  // [PFT] "I-Sync": 1, Hyp, AltISA, NS, 0, reason

Raw ptm_isync(uint8_t information) { return {0x08, 0x00, 0x80, 0x00, 0x00, information}; }

Raw ptm(std::initializer_list<uint8_t> rest) {
  Raw raw = {0, 0, 0, 0, 0, 0x80};
  const Raw start = ptm_isync(kTraceOn);
  raw.insert(raw.end(), start.begin(), start.end());
  raw.insert(raw.end(), rest);
  return raw;
}

// [ETMv3] "I-Sync", with "trace enabled" as reason; no context id.
Raw etmv3(std::initializer_list<uint8_t> rest) {
  Raw raw = {0, 0, 0, 0, 0, 0x80, 0x08, 0x21, 0x00, 0x80, 0x00, 0x00};
  raw.insert(raw.end(), rest);
  return raw;
}

TEST(LegacyChoices, PtmAnAtomThatOnlyTheOldCodeTakes) {
  const TwoCopies code({kNopInsn, kIfEqualOver, kNopInsn, kBxLr}, kOver);
  const LegacyOutput output = code.decode(arm::Protocol::ptm, ptm({kPtmN, branch_to(0x00)}));
  ASSERT_EQ(output.blocks.size(), 2U);
  EXPECT_EQ(output.blocks[0], (std::pair<uint64_t, unsigned>(8, kIsBranch | kIsChosen)));
  EXPECT_EQ(output.blocks[1], (std::pair<uint64_t, unsigned>(16, kIsTaken)));
  EXPECT_TRUE(output.gaps.empty());
}

TEST(LegacyChoices, PtmAnAddressThatOnlyTheNewCodeReaches) {
  const TwoCopies code({kNopInsn, kIfEqualBack, kNopInsn, kBack}, kBxLr);
  const LegacyOutput output = code.decode(arm::Protocol::ptm, ptm({branch_to(0x08), kPtmE}));
  ASSERT_EQ(output.blocks.size(), 2U);
  EXPECT_EQ(output.blocks[0], (std::pair<uint64_t, unsigned>(8, kIsTaken | kIsChosen)));
  EXPECT_EQ(output.blocks[1], (std::pair<uint64_t, unsigned>(16, kIsTaken)));
  EXPECT_TRUE(output.gaps.empty());
}

// OpenCSD refuses it, too: OCSD_ERR_UNSUPPORTED_ISA.
TEST(LegacyChoices, ThumbEeIsNotReadAsA32) {
  const TwoCopies code({kNopInsn, kIfEqualOver, kNopInsn, kBxLr}, kOver);
  constexpr uint8_t kAltIsa = 0x04, kThumb = 0x01;
  const Raw packets = {0, 0, 0, 0, 0, 0x80, 0x08, kThumb, 0x80, 0x00, 0x00, kTraceOn | kAltIsa, kPtmE, kPtmE};
  EXPECT_EQ(code.decode(arm::Protocol::ptm, packets), (LegacyOutput{{}, {GapReason::bad_insn}}));
}

TEST(LegacyChoices, PtmWhatNothingDecidesIsMarked) {
  const TwoCopies code({kNopInsn, kIfEqualOver, kNopInsn, kBxLr}, kOver);
  const LegacyOutput output = code.decode(arm::Protocol::ptm, ptm({kPtmE}));
  ASSERT_EQ(output.blocks.size(), 1U);
  EXPECT_EQ(output.blocks[0], (std::pair<uint64_t, unsigned>(8, kIsTaken | kIsAmbiguous)));
}

TEST(LegacyChoices, Etmv3AnAtomThatOnlyTheOldCodeTakes) {
  const TwoCopies code({kNopInsn, kIfEqualOver, kNopInsn, kBxLr}, kBxLr);
  const LegacyOutput output = code.decode(arm::Protocol::etmv3, etmv3({p_header(1, 1), p_header(2, 0), branch_to(0x00)}));
  ASSERT_EQ(output.blocks.size(), 4U);
  EXPECT_EQ(output.blocks[0].first, 4U);
  EXPECT_EQ(output.blocks[1], (std::pair<uint64_t, unsigned>(8, kIsBranch | kIsChosen)));
  EXPECT_EQ(output.blocks[3], (std::pair<uint64_t, unsigned>(16, kIsTaken)));
  EXPECT_TRUE(output.gaps.empty());
}

TEST(LegacyChoices, Etmv3AnAddressThatOnlyTheNewCodeReaches) {
  const TwoCopies code({kNopInsn, kIfEqualBack, kNopInsn, kBack}, kBxLr);
  const LegacyOutput output = code.decode(arm::Protocol::etmv3, etmv3({p_header(2, 0), branch_to(0x08), p_header(1, 0)}));
  ASSERT_EQ(output.blocks.size(), 3U);
  EXPECT_EQ(output.blocks[1], (std::pair<uint64_t, unsigned>(8, kIsTaken | kIsChosen)));
  EXPECT_EQ(output.blocks[2].first, 12U);
  EXPECT_TRUE(output.gaps.empty());
}

// The old code ran for long, then the new one: each window of packets has its own choice, for every size of batches.
TEST(LegacyChoices, EachWindowChooses) {
  const TwoCopies code({kNopInsn, kIfEqualBack, kNopInsn, kBack}, kBxLr);
  Raw raw = ptm({});
  constexpr size_t kRounds = 200;
  for (size_t i = 0; i < kRounds; ++i) raw.insert(raw.end(), {kPtmN, kPtmE});
  const Raw sync = ptm_isync(kPeriodic);
  raw.insert(raw.end(), sync.begin(), sync.end());
  for (size_t i = 0; i < kRounds; ++i) raw.insert(raw.end(), {branch_to(0x08), kPtmE});
  const LegacyOutput output = code.decode(arm::Protocol::ptm, raw);
  EXPECT_TRUE(output.gaps.empty());
  ASSERT_EQ(output.blocks.size(), 4 * kRounds);
  for (size_t i = 0; i < output.blocks.size(); ++i) {
    const bool old = i < 2 * kRounds, changes = i % 2 == 0;
    const unsigned flags = !changes ? kIsTaken : (old ? kIsBranch : kIsTaken) | kIsChosen;
    EXPECT_EQ(output.blocks[i], (std::pair<uint64_t, unsigned>(changes ? 8 : 16, flags))) << i;
  }
  for (const size_t capacity : {size_t{1}, size_t{7}, size_t{300}, size_t{401}}) {
    EXPECT_EQ(code.decode(arm::Protocol::ptm, raw, capacity), output) << capacity;
  }
}

// The code has a direct branch, and the packets contain another target: it is not the executed code.
TEST(LegacyChoices, ATargetThatIsNotTheCodesIsNamed) {
  const TwoCopies code({kNopInsn, kBack, kNopInsn, kNopInsn}, kBack);
  const LegacyOutput output = code.decode(arm::Protocol::ptm, ptm({branch_to(0x0c)}));
  ASSERT_EQ(output.gaps.size(), 1U);
  EXPECT_EQ(output.gaps[0], GapReason::image_mismatch);
}

}  // namespace
}  // namespace ptd::test
