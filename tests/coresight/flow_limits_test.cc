// Code that allows more flows within one element of the trace than are followed: they are bounded, what they leave open is marked, and a
// contradiction of the flows that are left is named `limit`.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>

#include "decoder/arm/choices.h"
#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"
#include "tests/support/peak_memory.h"

namespace ptd::test {
namespace {

using Raw = std::vector<uint8_t>;
constexpr uint64_t kBase = 0xffffffc000080000;
constexpr size_t kSites = 10'000;                                                     // NOPs in a row, each of which may be a branch
constexpr size_t kLoop = kSites + 1, kConditional = kSites + 2, kAfter = kSites + 4;  // after the return at kSites
constexpr uint32_t kNop = 0xd503201f, kRet = 0xd65f03c0, kToSelf = 0x14000000, kIfZeroNext = 0xb4000020;
constexpr size_t kBranchTo = kSites - 10;  // the site that branches to kConditional; all others branch to kLoop
static_assert(kBranchTo > arm::ForkScript::kMost);

Raw operator+(Raw one, const Raw& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

std::vector<std::byte> bytes_of(std::span<const uint32_t> words) {
  const auto raw = std::as_bytes(words);
  return {raw.begin(), raw.end()};
}

Timeline code() {
  std::vector<uint32_t> words(kSites, kNop);
  words.insert(words.end(), {kRet, kToSelf, kIfZeroNext, kRet, kNop, kRet});
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{kBase};
  section.code = own_bytes(bytes_of(words));
  section.size_bytes = 4 * words.size();
  builder.add_section(std::move(section));
  for (size_t site = 0; site < kSites; ++site) {
    const auto distance = static_cast<uint32_t>((site == kBranchTo ? kConditional : kLoop) - site);
    const uint32_t branch = 0x14000000 | distance;
    Edit edit;
    edit.ip = Ip{kBase + 4 * site};
    edit.old_bytes = bytes_of({&kNop, 1});
    edit.new_bytes = bytes_of({&branch, 1});
    edit.origin = EditOrigin::dated_copy;
    builder.add_edit(std::move(edit));
  }
  return builder.build();
}

Raw address(size_t word, bool with_context = false) {
  const uint64_t ip = kBase + 4 * word;
  Raw raw = {static_cast<uint8_t>(with_context ? 0x85 : 0x9d), static_cast<uint8_t>(ip >> 2 & 0x7f), static_cast<uint8_t>(ip >> 9 & 0x7f)};
  for (unsigned shift = 16; shift < 64; shift += 8) raw.push_back(static_cast<uint8_t>(ip >> shift));
  if (with_context) raw.push_back(0x31);
  return raw;
}
// A-Sync, Trace Info, Trace On, address and context.
Raw start() { return Raw{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04} + address(0, true); }
const Raw kE = {0xf7}, kN = {0xf6};

struct Output {
  std::vector<GapReason> gaps;
  std::vector<std::pair<size_t, size_t>> certain;  ///< first word, end of each block that is not marked
  size_t marked = 0;
};

Output decode(const Timeline& timeline, const Raw& trace, uint32_t max_flows, bool exact_only) {
  arm::DecoderOptions options;
  options.config.protocol = arm::Protocol::etmv4;
  options.max_flows = max_flows;
  options.follow.exact_only = exact_only;
  const ContextTrack contexts;
  arm::Decoder decoder(timeline, contexts, options);
  AuxSegment segment;
  segment.bytes = std::as_bytes(std::span(trace));
  decoder.begin(segment);
  Output output;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch);
    for (const Gap& gap : batch.gaps) output.gaps.push_back(gap.reason);
    for (const Block& block : batch.blocks) {
      const BlockInfo& info = decoder.blocks().info(block.node);
      const size_t first = (info.ip.value - kBase) / 4;
      output.marked += (block.flags & kUncertainFlags) != 0 ? 1 : 0;
      if ((block.flags & kUncertainFlags) == 0) output.certain.emplace_back(first, first + info.size_bytes / 4);
    }
  }
  return output;
}

class FlowLimits : public testing::TestWithParam<std::pair<uint32_t, bool>> {};

// All NOPs ran, up to the return.
TEST_P(FlowLimits, WhatTheyLeaveOpenIsMarkedUpToAnAddress) {
  const Timeline timeline = code();
  constexpr long kMostMib = 200;  // all flows would need twice as much for their forks
  reset_peak();
  const long before = status_mib("VmRSS");
  const Output output = decode(timeline, start() + kE + address(kAfter) + kE + address(kAfter) + kE, GetParam().first, GetParam().second);
  EXPECT_LT(status_mib("VmHWM") - before, kMostMib);
  EXPECT_TRUE(output.gaps.empty());
  EXPECT_EQ(output.marked, 1U);
  EXPECT_EQ(output.certain, (std::vector<std::pair<size_t, size_t>>(2, {kAfter, kAfter + 2})));
}

// The branch to the conditional ran, which was not taken: no flow that is left fits. The code is right nevertheless.
TEST_P(FlowLimits, WhereOnlyADroppedFlowFitsTheyAreTheReason) {
  const Output output = decode(code(), start() + kE + kN + kE + address(kAfter) + kE, GetParam().first, GetParam().second);
  EXPECT_EQ(output.gaps, std::vector<GapReason>(1, GapReason::limit));
  EXPECT_EQ(output.certain, (std::vector<std::pair<size_t, size_t>>(1, {kAfter, kAfter + 2})));
}

INSTANTIATE_TEST_SUITE_P(Of, FlowLimits, testing::Values(std::pair(16U, false), std::pair(16U, true), std::pair(1U << 16, false)),
                         [](const auto& with) {
                           return (with.param.first == 16 ? "FewFlows" : "ForksOnly") + std::string(with.param.second ? "Exact" : "");
                         });

}  // namespace
}  // namespace ptd::test
