// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,400).
#include <gtest/gtest.h>

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
  const auto [first, count] = seeds();
  RanTally tally;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto options = arm_patched_options_of_seed(seed);
    const auto run = run_arm_patched(options);
    tally.add(describe(options), decode(run, options), run.truth, run.edits.size());
  }
  tally.finish(count, 1.0 / 3);
}

}  // namespace
}  // namespace ptd::test
