// Addresses that the code reaches only with an atom that the trace lacks: the flow is a gap from the last certain place on.
#include <gtest/gtest.h>

#include "decoder/arm/decoder.h"
#include "decoder/arm/legacy_decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

using Raw = std::vector<uint8_t>;
constexpr uint64_t kPlace = 0x10000;
constexpr uint32_t kNop = 0xd503201f, kRet = 0xd65f03c0, kHere = 0x14000000, kCall12 = 0x94000003, kIfZero12 = 0xb4000060,
                   kIsb = 0xd5033fdf;
constexpr uint32_t kJump12 = 0x14000003, kJump16 = 0x14000004, kSecondIfZero12 = 0xb4000061;

struct FoundFlow {
  std::vector<std::pair<uint64_t, uint64_t>> blocks;  // [start, end), from kPlace
  std::vector<std::pair<GapReason, uint64_t>> gaps;   // with the place, from kPlace
  std::vector<uint32_t> before;                       // blocks before each gap
  std::vector<uint64_t> exceptions;                   // the places at which they were taken
  size_t marked = 0;                                  // blocks that are marked
};

template <typename Decoder>
FoundFlow follow(Decoder& decoder, const Raw& packets) {
  AuxSegment segment;
  segment.bytes = std::as_bytes(std::span(packets));
  decoder.begin(segment);
  Batch batch;
  EXPECT_FALSE(decoder.next(batch));
  FoundFlow found;
  for (const Block& block : batch.blocks) {
    const BlockInfo& info = decoder.blocks().info(block.node);
    found.blocks.emplace_back(info.ip.value - kPlace, info.ip.value - kPlace + info.size_bytes);
    found.marked += has(block.flags, BlockFlag::suspect) ? 1 : 0;
  }
  for (const Gap& gap : batch.gaps) {
    found.gaps.emplace_back(gap.reason, gap.ip.value - kPlace);
    found.before.push_back(gap.before_block);
  }
  for (const Event& event : batch.events) {
    if (event.kind == EventKind::async_branch) found.exceptions.push_back(event.from.value - kPlace);
  }
  return found;
}

/// Code at kPlace that never changes, or that changes at another address.
Timeline timeline_of(const std::vector<uint32_t>& words, bool changes, SpaceId& space) {
  TimelineBuilder builder;
  space = builder.add_space();
  for (const uint64_t ip : {kPlace, kPlace + 0x10000}) {
    const auto raw = std::as_bytes(std::span(words));
    Section section;
    section.space = space;
    section.ip = Ip{ip};
    section.code = own_bytes({raw.begin(), raw.end()});
    section.size_bytes = raw.size();
    builder.add_section(std::move(section));
  }
  if (changes) {
    Edit edit;
    edit.space = space;
    edit.ip = Ip{kPlace + 0x10000};
    const auto before = std::as_bytes(std::span(words)).first(4);
    edit.old_bytes.assign(before.begin(), before.end());
    edit.new_bytes.resize(4);
    edit.origin = EditOrigin::dated_copy;
    builder.add_edit(std::move(edit));
  }
  return builder.build();
}

/// [ETMv4] A-Sync, "Trace Info", "Trace On", an address (kPlace) with a context, and `rest`.
Raw trace(const Raw& rest) {
  Raw packets(11, 0);
  for (const Raw& part : {Raw{0x80, 0x01, 0x01, 0x00, 0x04, 0x85, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x30}, rest}) {
    packets.insert(packets.end(), part.begin(), part.end());
  }
  return packets;
}

arm::DecoderOptions options_of(bool ete) {
  arm::DecoderOptions options;
  options.config.protocol = ete ? arm::Protocol::ete : arm::Protocol::etmv4;
  options.config.devarch = ete ? 0x47705a13 : 0;
  return options;
}

FoundFlow follow(const std::vector<uint32_t>& code, arm::DecoderOptions options, bool changes, const Raw& packets) {
  const Timeline timeline = timeline_of(code, changes, options.follow.default_space);
  const ContextTrack contexts;
  arm::Decoder decoder(timeline, contexts, options);
  return follow(decoder, packets);
}

struct MissingAtom {
  const char* name;
  std::vector<uint32_t> code;
  Raw packets;          // after the address kPlace
  unsigned p0;          // elements in them
  Raw want;             // starts of blocks
  int gap;              // its place; -1: none
  uint32_t before = 0;  // blocks before it
};

/// Decodes with ETMv4 and ETE, on both paths, with and without speculation and code that changes.
void expect_gap(const MissingAtom& made) {
  for (unsigned how = 0; how < 16; ++how) {
    const bool ete = (how & 1) != 0, exact = (how & 2) != 0, speculates = (how & 4) != 0, changes = (how & 8) != 0;
    SCOPED_TRACE(std::string(made.name) + (ete ? " ete" : "") + (exact ? " exact" : "") + (speculates ? " speculation" : "") +
                 (changes ? " changes" : ""));
    arm::DecoderOptions options = options_of(ete);
    options.config.idr8 = speculates ? 8 : 0;
    options.follow.exact_only = exact;
    Raw packets = trace(made.packets);
    if (speculates) packets.insert(packets.end(), {0x2d, static_cast<uint8_t>(made.p0)});  // a commit
    const FoundFlow found = follow(made.code, options, changes, packets);
    Raw starts;
    for (const auto& [start, end] : found.blocks) starts.push_back(static_cast<uint8_t>(start));
    EXPECT_EQ(starts, made.want);
    EXPECT_EQ(found.marked, 0U);
    if (made.gap < 0) {
      EXPECT_TRUE(found.gaps.empty());
      continue;
    }
    ASSERT_EQ(found.gaps.size(), 1U);
    EXPECT_EQ(found.gaps[0], (std::pair(GapReason::image_mismatch, static_cast<uint64_t>(made.gap))));
    EXPECT_EQ(found.before[0], made.before);
  }
}

/// An IRQ with the return address kPlace + 4 * `word`, and its handler, which is the `b .` at kPlace + 4 * `handler`.
Raw interrupt(uint8_t word, uint8_t handler) { return {0x06, 0x1d, 0x95, word, 0x95, handler, 0xf7}; }

Raw after_atom(const Raw& rest) {
  Raw raw = {0xf7};
  raw.insert(raw.end(), rest.begin(), rest.end());
  return raw;
}

// [ETMv4] "Exception packet", type IRQ: the code before the preferred return address was executed. It has an atom for each P0 instruction.
TEST(ArmMissingAtoms, AnExceptionPastABranch) {
  expect_gap({"no branch", {kNop, kNop, kNop, kHere}, interrupt(2, 3), 2, {0, 12}, -1});
  expect_gap({"at the branch", {kNop, kRet, kNop, kHere}, interrupt(1, 3), 2, {0, 12}, -1});
  expect_gap({"right after it", {kNop, kRet, kNop, kHere}, interrupt(2, 3), 2, {12}, 4});
  expect_gap({"past a return", {kNop, kRet, kNop, kHere}, interrupt(3, 3), 2, {12}, 4});
  expect_gap({"past a call", {kNop, kCall12, kNop, kHere}, interrupt(3, 3), 2, {12}, 4});
  expect_gap({"past a condition", {kIfZero12, kNop, kNop, kHere}, interrupt(2, 3), 2, {12}, 0});
  expect_gap({"past an ISB", {kNop, kIsb, kNop, kHere}, interrupt(3, 3), 2, {12}, 4});
  expect_gap({"past several", {kRet, kRet, kRet, kHere}, interrupt(3, 3), 2, {12}, 0});
  expect_gap({"after an atom", {kJump12, kNop, kNop, kNop, kRet, kHere}, after_atom(interrupt(5, 5)), 3, {0, 20}, 16, 1});
}

// Only a taken branch leads to a lower address.
TEST(ArmMissingAtoms, AnExceptionBeforeThePlace) {
  expect_gap({"back", {kJump12, kNop, kNop, kNop, kHere}, after_atom(interrupt(1, 4)), 3, {0, 16}, 12, 1});
  expect_gap({"at its target", {kJump12, kNop, kNop, kNop, kHere}, after_atom(interrupt(3, 4)), 3, {0, 16}, -1});
}

TEST(ArmMissingAtoms, AnExceptionKeepsItsAddress) {
  const FoundFlow found = follow({kNop, kRet, kNop, kHere}, options_of(false), false, trace(interrupt(2, 3)));
  EXPECT_EQ(found.exceptions, (std::vector<uint64_t>{8}));
}

// [ETE] "Source Address element": P0 instructions before it were not taken, which an unconditional branch always is.
TEST(ArmMissingAtoms, ASourceAddressPastABranch) {
  const FoundFlow found =
      follow({kNop, kRet, kNop, kSecondIfZero12, kNop, kNop, kHere}, options_of(true), false, trace({0xb4, 0x03, 0xf7}));
  EXPECT_EQ(found.blocks, (std::vector<std::pair<uint64_t, uint64_t>>{{12, 16}, {24, 28}}));
  EXPECT_EQ(found.gaps, (std::vector{std::pair(GapReason::image_mismatch, uint64_t{4})}));
  EXPECT_EQ(found.before, (std::vector<uint32_t>{0}));
}

TEST(ArmMissingAtoms, ASourceAddressBeforeThePlace) {
  const FoundFlow found = follow({kJump16, kSecondIfZero12, kNop, kNop, kHere}, options_of(true), false, trace({0xf7, 0xb4, 0x01, 0xf7}));
  EXPECT_EQ(found.blocks, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 4}, {4, 8}, {16, 20}}));
  EXPECT_EQ(found.gaps, (std::vector{std::pair(GapReason::image_mismatch, uint64_t{16})}));
  EXPECT_EQ(found.before, (std::vector<uint32_t>{1}));
}

// [PFT] "Waypoint update packet": the last instruction before an exception, reached from the last waypoint without another one.
TEST(ArmMissingAtoms, APtmWaypointPastABranch) {
  constexpr uint32_t kNop32 = 0xe1a00000, kBxLr = 0xe12fff1e;
  // A-Sync, I-Sync at kPlace, waypoint update at 8, a branch with an exception to 0, an atom.
  const Raw packets = {0, 0, 0, 0, 0, 0x80, 0x08, 0x00, 0x00, 0x01, 0x00, 0x29, 0x72, 0x05, 0x81, 0x40, 0x1d, 0x84};
  for (const bool changes : {false, true}) {
    for (const bool returns : {false, true}) {
      arm::TraceConfig config;
      config.protocol = arm::Protocol::ptm;
      config.idr0 = 0x4100f310;
      config.idr1 = 0;
      arm::FollowOptions options;
      const Timeline timeline = timeline_of({kNop32, returns ? kBxLr : kNop32, kNop32, kBxLr}, changes, options.default_space);
      const ContextTrack contexts;
      arm::LegacyDecoder decoder(timeline, contexts, config, options);
      const FoundFlow found = follow(decoder, packets);
      if (!returns) {
        EXPECT_EQ(found.blocks, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 12}, {0, 16}}));
        EXPECT_TRUE(found.gaps.empty());
        continue;
      }
      EXPECT_EQ(found.blocks, (std::vector<std::pair<uint64_t, uint64_t>>{{0, 8}}));
      EXPECT_EQ(found.gaps, (std::vector{std::pair(GapReason::image_mismatch, uint64_t{4})}));
      EXPECT_EQ(found.before, (std::vector<uint32_t>{0}));
    }
  }
}

}  // namespace
}  // namespace ptd::test
