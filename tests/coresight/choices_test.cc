// Code with several dated copies and no record of when it changed: the packets choose. And hand-written packets against their patterns.
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/arm/frames.h"
#include "ptdecode/arm/packet_reader.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

using Raw = std::vector<uint8_t>;

std::vector<std::byte> bytes_of(const Raw& raw) {
  std::vector<std::byte> bytes;
  for (const uint8_t value : raw) bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

std::vector<std::byte> code(std::initializer_list<uint32_t> words) {
  std::vector<std::byte> bytes;
  for (const uint32_t word : words) {
    for (unsigned i = 0; i < 4; ++i) bytes.push_back(static_cast<std::byte>(word >> (8 * i)));
  }
  return bytes;
}

constexpr uint32_t kNop = 0xd503201f, kRet = 0xd65f03c0;
constexpr uint32_t kForward2 = 0x14000002;    // b .+8
constexpr uint32_t kIfZeroBack = 0xb4ffffe0;  // cbz x0, .-4
constexpr uint64_t kBase = 0xffffffc000080000;

// A-Sync, Trace Info, Trace On, address and context (EL1, AArch64, non-secure), then `rest`.
Raw trace(std::initializer_list<uint8_t> rest) {
  Raw raw = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04, 0x85, 0x00, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff, 0x31};
  raw.insert(raw.end(), rest);
  return raw;
}

struct Output {
  Batch batch;
  std::vector<std::pair<uint64_t, unsigned>> blocks;  // (end, flags)
};

Output decode(const Timeline& timeline, const Raw& raw, uint32_t configr = 0) {
  arm::DecoderOptions options;
  options.config.protocol = arm::Protocol::etmv4;
  options.config.configr = configr;
  const ContextTrack contexts;
  arm::Decoder decoder(timeline, contexts, options);
  const std::vector<std::byte> bytes = bytes_of(raw);
  AuxSegment segment;
  segment.bytes = bytes;
  Output output;
  decoder.begin(segment);
  EXPECT_FALSE(decoder.next(output.batch));
  for (const Block& block : output.batch.blocks) {
    const BlockInfo& info = decoder.blocks().info(block.node);
    // A version that is shown by two copies but by no record counts as healed.
    const unsigned flags = block.flags & ~static_cast<unsigned>(BlockFlag::healed);
    output.blocks.emplace_back(info.ip.value + info.size_bytes - kBase, flags);
  }
  return output;
}

/// The code at kBase is `before`; from an unknown time on the instruction at kBase + 4 is `after`.
Timeline changed(const std::vector<std::byte>& before, uint32_t after) {
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kBase};
  section.code = own_bytes(before);
  section.size_bytes = before.size();
  section.path = "[kernel]";
  builder.add_section(std::move(section));
  Edit edit;
  edit.ip = Ip{kBase + 4};
  edit.old_bytes.assign(before.begin() + 4, before.begin() + 8);
  edit.new_bytes = code({after});
  edit.origin = EditOrigin::dated_copy;
  builder.add_edit(std::move(edit));
  return builder.build();
}

constexpr unsigned kBranchFlag = static_cast<unsigned>(BlockFlag::ends_in_branch);
constexpr unsigned kTakenBranch = static_cast<unsigned>(BlockFlag::taken) | kBranchFlag;
constexpr unsigned kIsChosenFlag = static_cast<unsigned>(BlockFlag::chosen), kIsAmbiguousFlag = static_cast<unsigned>(BlockFlag::ambiguous);

// before: nop, cbz back, nop, ret.  after: nop, b over the nop, nop, ret.
std::vector<std::byte> conditional() { return code({kNop, kIfZeroBack, kNop, kRet}); }

TEST(ArmChoices, AnAtomThatOnlyTheOldCodeTakes) {
  // N: only a conditional branch can be not taken. Then E at the RET.
  const Output output = decode(changed(conditional(), kForward2), trace({0xda}));
  ASSERT_EQ(output.blocks.size(), 2U);
  EXPECT_EQ(output.blocks[0], (std::pair<uint64_t, unsigned>(8, kBranchFlag | kIsChosenFlag)));
  EXPECT_EQ(output.blocks[1].first, 16U);
  EXPECT_TRUE(output.batch.gaps.empty());
}

TEST(ArmChoices, AnAddressThatOnlyTheNewCodeReaches) {
  // E, E, then an address: with the old code the flow would be at the CBZ again, with the new one it has just returned.
  const Output output = decode(changed(conditional(), kForward2), trace({0xdb, 0x9a, 0x00, 0x20, 0x00, 0x00, 0xf7}));
  ASSERT_GE(output.blocks.size(), 2U);
  EXPECT_EQ(output.blocks[0], (std::pair<uint64_t, unsigned>(8, kTakenBranch | kIsChosenFlag)));
  EXPECT_EQ(output.blocks[1].first, 16U);
}

TEST(ArmChoices, WhatNothingDecidesIsMarked) {
  const Output output = decode(changed(conditional(), kForward2), trace({0xf7}));
  ASSERT_EQ(output.blocks.size(), 1U);
  EXPECT_EQ(output.blocks[0].second, kTakenBranch | kIsAmbiguousFlag);
}

// An exception before the RET, and no atom for the branch on the way to it: neither version ran, which is a gap. The calls that did are not
// known, so that all is marked up to the next synchronisation.
TEST(ArmChoices, WhatContradictsAllVersionsIsMarkedUpToASync) {
  constexpr uint32_t kReturnStack = 0x1000;
  const Raw at_ret = {0x9d, 0x03, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff};
  const Raw sync = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x85, 0x03, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff, 0x31};
  Raw raw = trace({0x06, 0x1d});
  for (const Raw& part : {at_ret, at_ret, Raw{0xf7}, sync, Raw{0xf7}}) raw.insert(raw.end(), part.begin(), part.end());
  const Output output = decode(changed(conditional(), kForward2), raw, kReturnStack);
  ASSERT_EQ(output.batch.gaps.size(), 1U);
  EXPECT_EQ(output.batch.gaps[0].reason, GapReason::image_mismatch);
  EXPECT_EQ(output.batch.gaps[0].before_block, 0U);
  ASSERT_EQ(output.blocks.size(), 2U);
  EXPECT_EQ(output.blocks[0], (std::pair<uint64_t, unsigned>(16, kTakenBranch | kIsAmbiguousFlag)));
  EXPECT_EQ(output.blocks.back(), (std::pair<uint64_t, unsigned>(16, kTakenBranch)));
}

// The old code ran for long, then the new one, in one segment: each window of packets has its own choice, for every size of batches, on
// both paths, with and without speculation.
TEST(ArmChoices, EachWindowChooses) {
  constexpr uint32_t kBack3 = 0x17fffffd;  // b .-12
  constexpr size_t kRounds = 300, kMostAtomsOfPacket = 24;
  const Timeline timeline = changed(code({kNop, kIfZeroBack, kNop, kBack3}), kRet);
  Raw raw = trace({});
  for (size_t i = 0; i < kRounds; ++i) raw.push_back(0xda);  // N, E
  for (size_t i = 0; i < kRounds; ++i) raw.insert(raw.end(), {0xf7, 0x95, 0x02, 0xf7});
  raw.insert(raw.end(), {0x2d, 0x06});  // commit the elements in flight
  for (const auto& [depth, exact] : {std::pair(0U, false), std::pair(0U, true), std::pair(6U, false), std::pair(6U, true)}) {
    arm::DecoderOptions options;
    options.config.protocol = arm::Protocol::etmv4;
    options.config.idr8 = depth;
    options.follow.exact_only = exact;
    const Raw given = depth == 0 ? Raw(raw.begin(), raw.end() - 2) : raw;
    const std::vector<std::byte> bytes = bytes_of(given);
    for (const size_t capacity : {size_t{1}, size_t{7}, size_t{401}, size_t{4096}}) {
      const ContextTrack contexts;
      arm::Decoder decoder(timeline, contexts, options);
      AuxSegment segment;
      segment.bytes = bytes;
      decoder.begin(segment);
      Batch batch;
      size_t blocks = 0, gaps = 0;
      for (bool more = true; more;) {
        batch.clear();
        more = decoder.next(batch, capacity);
        gaps += batch.gaps.size();
        EXPECT_LE(batch.blocks.size(), capacity + kMostAtomsOfPacket);  // a packet that was started is finished, no more
        for (const Block& block : batch.blocks) {
          const BlockInfo& info = decoder.blocks().info(block.node);
          const bool old = blocks < 2 * kRounds, changes = blocks % 2 == 0;
          const unsigned flags = block.flags & ~static_cast<unsigned>(BlockFlag::healed);
          ASSERT_EQ(info.ip.value + info.size_bytes - kBase, changes ? 8U : 16U) << blocks;
          ASSERT_EQ(flags, !changes ? kTakenBranch : (old ? kBranchFlag : kTakenBranch) | kIsChosenFlag)
              << blocks << " " << depth << " " << capacity;
          ++blocks;
        }
      }
      EXPECT_EQ(blocks, 4 * kRounds) << depth << " " << exact << " " << capacity;
      EXPECT_EQ(gaps, 0U);
    }
  }
}

TEST(ArmChoices, CodeThatFitsNoCopyIsNamed) {
  // N at an unconditional branch, and no other copy.
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kBase};
  section.code = own_bytes(code({kNop, kForward2, kNop, kRet}));
  section.size_bytes = 16;
  builder.add_section(std::move(section));
  const Output output = decode(builder.build(), trace({0xf6, 0xf7}));
  ASSERT_EQ(output.batch.gaps.size(), 1U);
  EXPECT_EQ(output.batch.gaps[0].reason, GapReason::image_mismatch);
  EXPECT_EQ(output.batch.gaps[0].ip.value, kBase + 4);
  ASSERT_EQ(output.blocks.size(), 2U);
  EXPECT_TRUE(has(static_cast<uint16_t>(output.blocks[1].second), BlockFlag::suspect));
}

// Without a return stack each taken RET has an address, also behind lost flow.
TEST(ArmChoices, AReturnWithoutAnAddressContradictsTheCode) {
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kBase};
  section.code = own_bytes(code({kRet}));
  section.size_bytes = 4;
  builder.add_section(std::move(section));
  const Output output = decode(builder.build(), trace({0xf7, 0xf7, 0x9d, 0x00, 0x00, 0x08, 0x00, 0xc0, 0xff, 0xff, 0xff, 0xf7, 0xf7}));
  ASSERT_EQ(output.batch.gaps.size(), 2U);
  EXPECT_EQ(output.batch.gaps[0].reason, GapReason::image_mismatch);
  EXPECT_EQ(output.batch.gaps[1].reason, GapReason::image_mismatch);
}

TEST(ArmChoices, BytesThatAreNoCodeAreNamed) {
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kBase};
  section.code = own_bytes(code({kNop, 0, kNop, kRet}));
  section.size_bytes = 16;
  builder.add_section(std::move(section));
  const Output output = decode(builder.build(), trace({0xf7}));
  ASSERT_EQ(output.batch.gaps.size(), 1U);
  EXPECT_EQ(output.batch.gaps[0].reason, GapReason::bad_insn);
  EXPECT_EQ(output.batch.gaps[0].ip.value, kBase + 4);
}

// A32, BLX to T32, back with BX LR by the return stack, and on in A32 ([ARM] "BLX (immediate)", "BX").
TEST(ArmModes, BetweenA32AndT32) {
  std::vector<std::byte> bytes = code({0xe320f000, 0xfa000001, 0xe320f000, 0xeafffffe, 0x4770bf00});  // nop, blx 8010, nop, b .; nop, bx lr
  TimelineBuilder builder;
  arm::DecoderOptions options;
  options.follow.default_space = builder.add_space();
  options.config.protocol = arm::Protocol::etmv4;
  options.config.configr = 0x1000;
  Section section;
  section.ip = Ip{0x8000};
  section.space = options.follow.default_space;
  section.size_bytes = bytes.size();
  section.code = own_bytes(bytes);
  builder.add_section(std::move(section));
  // A-Sync, Trace Info, Trace On, 32-bit address of A32 with context (EL1, AArch32, non-secure), three E.
  const std::vector<std::byte> trace =
      bytes_of({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04, 0x82, 0x00, 0x40, 0x00, 0x00, 0x21, 0xff});
  const Timeline timeline = builder.build();
  for (const bool exact : {false, true}) {
    options.follow.exact_only = exact;
    const ContextTrack contexts;
    arm::Decoder decoder(timeline, contexts, options);
    AuxSegment segment;
    segment.bytes = trace;
    Batch batch;
    decoder.begin(segment);
    EXPECT_FALSE(decoder.next(batch));
    EXPECT_TRUE(batch.gaps.empty());
    std::vector<std::tuple<uint64_t, uint32_t, ExecMode>> found;
    for (const Block& block : batch.blocks) {
      const BlockInfo& info = decoder.blocks().info(block.node);
      found.emplace_back(info.ip.value, info.size_bytes, info.mode);
    }
    const std::vector<std::tuple<uint64_t, uint32_t, ExecMode>> expected = {
        {0x8000, 8, ExecMode::a32}, {0x8010, 4, ExecMode::t32}, {0x8008, 8, ExecMode::a32}};
    EXPECT_EQ(found, expected);
  }
}

struct PacketRow {
  Raw raw;
  arm::PacketKind kind;
  uint64_t value;
  unsigned size;
};

// [ETMv4] "Instruction trace packets": forms that occur in no capture of the corpus.
TEST(ArmPackets, ByTheirPatterns) {
  using enum arm::PacketKind;
  arm::TraceConfig config;
  config.protocol = arm::Protocol::etmv4;
  config.idr0 = 0x28000ea1 | 0x18000 | 0x40;  // Q elements, conditional trace
  config.configr = 0x700;
  config.idr8 = 32;
  const PacketRow rows[] = {
      {{0x00, 0x03}, discard, 0, 2},
      {{0x00, 0x05}, overflow, 0, 2},
      {{0x2d, 0x81, 0x01}, commit, 129, 3},
      {{0x2e, 0x05}, cancel_f1, 5, 2},
      {{0x2f, 0x02}, cancel_f1_mispred, 2, 2},
      {{0x32}, mispredict, 0, 1},
      {{0x35}, cancel_f2, 1, 1},
      {{0x3b}, cancel_f3, 3, 1},
      {{0x0d, 0x21}, ccnt_f2, 19, 2},  // greatest depth - 15 + 2
      {{0x17}, ccnt_f3, 0, 1},         // commits nothing with TRCIDR0.COMMOPT
      {{0x6c, 0x81, 0x01}, cond_i_f1, 129, 3},
      {{0x6d, 0x15}, cond_i_f3, 0x15, 2},
      {{0x52, 0x34}, cond_res_f3, 0x234, 2},
      {{0x43}, cond_flush, 3, 1},
      {{0x68, 0x12, 0x23}, cond_res_f1, 0x12, 3},
      {{0x6e, 0x12}, cond_res_f1, 0x12, 2},
      {{0xa0, 0x07}, q, 0, 2},
      {{0xa5, 0x04, 0x07}, q, 0x10, 3},
      {{0xaa, 0x01, 0x00, 0x00, 0x00, 0x09}, q, 4, 6},
      {{0xac, 0x81, 0x02}, q, 0, 3},
      {{0xaf}, q, 0, 1},
      {{0x05}, func_ret, 5, 1},
      {{0x07}, except_rtn, 7, 1},
      {{0x7b}, event, 0xb, 1},
      {{0x96, 0x83, 0x01}, addr_s_is1, 0x106, 3},
      {{0x9e, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08}, addr_l_64is1, 0x0807060504030202, 9},
  };
  for (const PacketRow& row : rows) {
    const std::vector<std::byte> bytes = bytes_of(row.raw);
    arm::PacketReader reader(bytes, config);
    arm::Packet packet;
    ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok) << arm::name(row.kind);
    EXPECT_EQ(packet.kind, row.kind) << arm::name(row.kind);
    EXPECT_EQ(packet.size_bytes, row.size) << arm::name(row.kind);
    if (row.kind != ccnt_f2) {
      EXPECT_EQ(packet.value, row.value) << arm::name(row.kind);
    }
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      arm::PacketReader shorter(Bytes(bytes).first(cut), config);
      EXPECT_EQ(shorter.next(packet), arm::PacketReader::Status::cut) << arm::name(row.kind) << " cut at " << cut;
    }
  }
}

// [ETMv4] "Context packet": V and C give what follows, VMID first; NS, SF and EL. [ETE]: NSE.
TEST(ArmPackets, ContextsWithVmidsOf32Bits) {
  arm::TraceConfig config;
  config.protocol = arm::Protocol::ete;
  config.devarch = 0x47705a13;
  config.idr2 = 4U << 10 | 4U << 5;
  const std::vector<std::byte> bytes = bytes_of({0x81, 0xf1, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x88, 0x81, 0x3a, 0x81, 0x1b, 0x80});
  arm::PacketReader reader(bytes, config);
  arm::Packet packet;
  ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok);
  EXPECT_EQ(packet.size_bytes, 10U);
  EXPECT_TRUE(packet.context.is64 && packet.context.non_secure && !packet.context.root_or_realm);
  EXPECT_EQ(packet.context.level, 1);
  EXPECT_EQ(packet.context.vmid, 0x04030201U);
  EXPECT_EQ(packet.context.context_id, 0x88070605U);
  ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok);  // realm
  EXPECT_TRUE(packet.context.non_secure && packet.context.root_or_realm);
  EXPECT_EQ(packet.context.level, 2);
  ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok);  // root
  EXPECT_TRUE(!packet.context.non_secure && packet.context.root_or_realm);
  EXPECT_EQ(packet.context.level, 3);
  ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok);  // P is 0: nothing changed
  EXPECT_FALSE(packet.context.present);
  EXPECT_EQ(packet.size_bytes, 1U);
}

// [ETMv4] "Cycle Count packets" where TRCIDR0.COMMOPT is 0: each commits; format 2 in steps of one or up to the greatest depth.
TEST(ArmPackets, CycleCountsThatCommit) {
  arm::TraceConfig config;
  config.protocol = arm::Protocol::etmv4;
  config.idr0 = 0x08000ea1;
  config.idr8 = 32;
  struct Row {
    Raw raw;
    arm::PacketKind kind;
    uint64_t commits;
    uint32_t cycles;
    bool counted;
  };
  using enum arm::PacketKind;
  const Row rows[] = {
      {{0x0e, 0x03, 0x85, 0x01}, ccnt_f1, 3, 133, true},
      {{0x0f, 0x81, 0x01}, ccnt_f1, 129, 0, false},
      {{0x0c, 0x35}, ccnt_f2, 4, 5, true},
      {{0x0d, 0x2a}, ccnt_f2, 19, 10, true},
      {{0x1b}, ccnt_f3, 3, 3, true},
      {{0x10}, ccnt_f3, 1, 0, true},
  };
  for (const Row& row : rows) {
    const std::vector<std::byte> bytes = bytes_of(row.raw);
    arm::PacketReader reader(bytes, config);
    arm::Packet packet;
    ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok);
    EXPECT_EQ(packet.kind, row.kind);
    EXPECT_EQ(packet.size_bytes, row.raw.size());
    EXPECT_NE(packet.flags & arm::kFlagCommit, 0);
    EXPECT_EQ(packet.value, row.commits) << unsigned{row.raw[0]};
    EXPECT_EQ((packet.flags & arm::kFlagCycles) != 0, row.counted) << unsigned{row.raw[0]};
    EXPECT_EQ(packet.cycles, row.cycles) << unsigned{row.raw[0]};
  }
}

// [CoreSight] "Formatter": id, data, an id whose following byte belongs to the old one.
TEST(ArmFrames, TakenApart) {
  const Raw raw = {0x21, 0xaa, 0x10, 0xbb, 0x23, 0xcc, 0x12, 0xdd, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x06};
  std::map<unsigned, Raw> found;
  const std::vector<std::byte> bytes = bytes_of(raw);
  (void)arm::split_frames(
      bytes, arm::FrameFormat::aligned,
      [&](const arm::FrameRun& run) {
        for (const std::byte value : run.bytes) found[run.id].push_back(static_cast<uint8_t>(value));
      },
      [](uint64_t) {});
  EXPECT_EQ(found[0x10], (Raw{0xaa, 0x11, 0xbb, 0xcc}));
  EXPECT_EQ(found[0x11], (Raw{0x12, 0xdd, 0, 0, 0, 0, 0, 0, 0}));
}

TEST(ArmFrames, SyncsOfATracePortAreLeftOut) {
  Raw raw = {0x00, 0xff, 0xff, 0xff, 0x7f};
  const Raw frame = {0x21, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0};
  raw.insert(raw.end(), frame.begin(), frame.begin() + 4);
  raw.insert(raw.end(), {0xff, 0x7f});
  raw.insert(raw.end(), frame.begin() + 4, frame.end());
  Raw found;
  const std::vector<std::byte> bytes = bytes_of(raw);
  const arm::FrameCounts counts = arm::split_frames(
      bytes, arm::FrameFormat::synced,
      [&](const arm::FrameRun& run) {
        for (const std::byte value : run.bytes) found.push_back(static_cast<uint8_t>(value));
      },
      [](uint64_t) {});
  EXPECT_EQ(found, (Raw{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(counts.frames, 1U);
  EXPECT_EQ(counts.skipped_bytes, 1U);
}

}  // namespace
}  // namespace ptd::test
