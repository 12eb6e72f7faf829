// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// Runs only with PTDECODE_SEEDS=first,count: the choice between versions does not hold this yet (docs/evidence/coresight.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"
#include "tests/coresight/support/patched_machine.h"
#include "tests/differential/seeds.h"

namespace ptd::test {
namespace {

Timeline timeline_of(const ArmPatchedRun& run) {
  TimelineBuilder builder;
  Section section;
  section.ip = Ip{run.base};
  section.code = own_bytes(run.code);
  section.size_bytes = run.code.size();
  section.path = "[kernel]";
  builder.add_section(std::move(section));
  for (const Edit& edit : run.edits) builder.add_edit(edit);
  return builder.build();
}

RanFlow decode(const ArmPatchedRun& run, const ArmPatchedOptions& how) {
  constexpr uint32_t kTimestamps = 1U << 11, kReturnStack = 1U << 12;
  const Timeline timeline = timeline_of(run);
  arm::DecoderOptions options;
  options.config.protocol = arm::Protocol::etmv4;
  options.config.configr = (how.timestamp_every != 0 ? kTimestamps : 0) | (how.return_stack ? kReturnStack : 0);
  options.follow.exact_only = how.exact_only;
  const ContextTrack contexts;
  arm::Decoder decoder(timeline, contexts, options);
  AuxSegment segment;
  segment.bytes = run.trace;
  segment.time = run.time;
  decoder.begin(segment);
  RanFlow out;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch, how.batch_blocks);
    add_batch(batch, decoder.blocks(), out);
  }
  return out;
}

TEST(ArmPatchedTraces, WhatIsNotMarkedIsWhatRan) {
  if (std::getenv("PTDECODE_SEEDS") == nullptr) GTEST_SKIP() << "a known limitation: run it with PTDECODE_SEEDS=0,300";
  const auto [first, count] = seeds(300);
  uint64_t failures = 0, instructions = 0, certain = 0, gaps = 0, patches = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto options = arm_patched_options_of_seed(seed);
    const auto run = run_arm_patched(options);
    const RanFlow ours = decode(run, options);
    const auto wrong = first_wrong(ours, run.truth);
    EXPECT_FALSE(wrong.has_value()) << describe(options) << ": unmarked instruction " << *wrong << " at " << std::hex
                                    << (*wrong < ours.insns.size() ? ours.insns[*wrong].ip : 0);
    failures += wrong.has_value() ? 1 : 0;
    instructions += run.truth.size();
    certain += static_cast<uint64_t>(std::ranges::count(ours.marked, false));
    gaps += static_cast<uint64_t>(std::ranges::count(ours.lost_at, true));
    patches += run.edits.size();
  }
  // Marks and gaps for everything would pass, too.
  if (count >= 100) {
    EXPECT_GT(patches, 5 * count);
    EXPECT_GT(certain, instructions / 3);
    EXPECT_LT(gaps, count / 20);
  }
  RecordProperty("wrong", std::to_string(failures));
  RecordProperty("instructions", std::to_string(instructions));
  RecordProperty("certain", std::to_string(certain));
  RecordProperty("gaps", std::to_string(gaps));
}

}  // namespace
}  // namespace ptd::test
