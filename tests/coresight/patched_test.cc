// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,400).
#include <gtest/gtest.h>

#include "decoder/arm/decoder.h"
#include "decoder/arm/legacy_decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"
#include "tests/coresight/support/patched_machine.h"
#include "tests/differential/seeds.h"

namespace ptd::test {
namespace {

Timeline timeline_of(const ArmPatchedRun& run, SpaceId& space) {
  TimelineBuilder builder;
  space = is_kernel_half(Ip{run.base}) ? kKernelSpace : builder.add_space();
  Section section;
  section.space = space;
  section.ip = Ip{run.base};
  section.code = own_bytes(run.code);
  section.size_bytes = run.code.size();
  section.path = "code";
  builder.add_section(std::move(section));
  for (Edit edit : run.edits) {
    edit.space = space;
    builder.add_edit(std::move(edit));
  }
  return builder.build();
}

RanFlow decode(const ArmPatchedRun& run, const ArmPatchedOptions& how) {
  arm::DecoderOptions options;
  options.config = config_of(how);
  const Timeline timeline = timeline_of(run, options.follow.default_space);
  options.follow.exact_only = how.exact_only;
  const ContextTrack contexts;
  std::unique_ptr<FlowDecoder> decoder;
  if (how.protocol == arm::Protocol::etmv4) {
    decoder = std::make_unique<arm::Decoder>(timeline, contexts, options);
  } else {
    decoder = std::make_unique<arm::LegacyDecoder>(timeline, contexts, options.config, options.follow);
  }
  AuxSegment segment;
  segment.bytes = run.trace;
  segment.time = run.time;
  decoder->begin(segment);
  RanFlow out;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder->next(batch, how.batch_blocks);
    add_batch(batch, decoder->blocks(), out);
  }
  return out;
}

class ArmPatchedTraces : public testing::TestWithParam<arm::Protocol> {};

TEST_P(ArmPatchedTraces, WhatIsNotMarkedIsWhatRan) {
  const auto [first, count] = seeds();
  RanTally tally;
  for (uint64_t seed = first; seed < first + count && tally.wrong() < 5; ++seed) {
    const auto options = arm_patched_options_of_seed(seed, GetParam());
    const auto run = run_arm_patched(options);
    tally.add(describe(options), decode(run, options), run.truth, run.edits.size());
  }
  tally.finish(count, 1.0 / 3);
}

INSTANTIATE_TEST_SUITE_P(Of, ArmPatchedTraces, testing::Values(arm::Protocol::etmv4, arm::Protocol::ptm, arm::Protocol::etmv3),
                         [](const auto& with) {
                           return with.param == arm::Protocol::etmv4 ? "Etmv4" : with.param == arm::Protocol::ptm ? "Ptm" : "Etmv3";
                         });

}  // namespace
}  // namespace ptd::test
