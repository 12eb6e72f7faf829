// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,400).
#include <gtest/gtest.h>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"
#include "tests/differential/jit_program.h"
#include "tests/differential/patched_program.h"
#include "tests/differential/seeds.h"
#include "tests/support/ran.h"
#include "tests/support/segments.h"

namespace ptd {
namespace {

Timeline timeline_of(const test::PatchedRun& run) {
  TimelineBuilder builder;
  Section section;
  section.space = kKernelSpace;
  section.ip = Ip{run.base};
  section.size_bytes = run.code.size();
  auto owner = std::make_shared<std::vector<std::byte>>(run.code);
  section.code = {owner, Bytes(*owner)};
  section.path = "kernel";
  builder.add_section(std::move(section));
  for (const Edit& edit : run.edits) builder.add_edit(edit);
  return builder.build();
}

struct How {
  bool exact_only = false, return_compression = false;
};

test::RanFlow decode(const Timeline& timeline, const std::vector<std::byte>& trace, How how) {
  ContextTrack contexts;
  contexts.sort();
  pt::DecoderOptions options;
  options.exact_only = how.exact_only;
  options.config.return_compression = how.return_compression ? pt::ReturnCompression::on : pt::ReturnCompression::off;
  pt::Decoder decoder(timeline, contexts, options);
  test::RanFlow out;
  Batch batch;
  for (const AuxSegment& segment : test::cut_segments(trace)) {
    decoder.begin(segment);
    for (bool more = true; more;) {
      batch.clear();
      more = decoder.next(batch);
      test::add_batch(batch, decoder.blocks(), out);
    }
  }
  return out;
}

TEST(PatchedTraces, WhatIsNotMarkedIsWhatRan) {
  const auto [first, count] = test::seeds();
  test::RanTally tally;
  for (uint64_t seed = first; seed < first + count && tally.wrong() < 5; ++seed) {
    const auto options = test::patched_options_of_seed(seed);
    const auto run = test::run_patched(options);
    const auto ours = decode(timeline_of(run), run.trace, {options.exact_only, options.return_compression});
    tally.add(describe(options), ours, run.truth, run.edits.size());
  }
  tally.finish(count, 0.5);
}

TEST(PatchedTraces, WhatIsNotMarkedIsWhatRanOfAJit) {
  const auto [first, count] = test::seeds();
  test::RanTally tally;
  for (uint64_t seed = first; seed < first + count && tally.wrong() < 5; ++seed) {
    const auto options = test::jit_options_of_seed(seed);
    const auto run = test::run_jit(options);
    tally.add(describe(options), decode(run.timeline, run.trace, {options.exact_only, options.return_compression}), run.truth, run.changes);
  }
  tally.finish(count, 0.5, 1.5);  // overflows are gaps, too
}

}  // namespace
}  // namespace ptd
