// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,400).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"
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

test::RanFlow decode(const test::PatchedRun& run, const test::PatchedOptions& how) {
  const Timeline timeline = timeline_of(run);
  ContextTrack contexts;
  contexts.sort();
  pt::DecoderOptions options;
  options.exact_only = how.exact_only;
  options.config.return_compression = how.return_compression ? pt::ReturnCompression::on : pt::ReturnCompression::off;
  pt::Decoder decoder(timeline, contexts, options);
  test::RanFlow out;
  Batch batch;
  for (const AuxSegment& segment : test::cut_segments(run.trace)) {
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
  uint64_t failures = 0, instructions = 0, certain = 0, gaps = 0, patches = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const auto options = test::patched_options_of_seed(seed);
    const auto run = test::run_patched(options);
    const test::RanFlow ours = decode(run, options);
    const auto wrong = test::first_wrong(ours, run.truth);
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
    EXPECT_GT(certain, instructions / 2);
    EXPECT_LT(gaps, count / 20);
  }
  RecordProperty("instructions", std::to_string(instructions));
  RecordProperty("certain", std::to_string(certain));
}

}  // namespace
}  // namespace ptd
