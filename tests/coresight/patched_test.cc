// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,1000).
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "decoder/arm/decoder.h"
#include "decoder/arm/legacy_decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/arm_insn.h"
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

/// An exception in the output.
struct Taken {
  size_t before = 0;  ///< index of the instruction that follows it
  std::optional<uint64_t> from;
  friend bool operator==(const Taken&, const Taken&) = default;
};
struct Output {
  RanFlow flow;
  std::vector<Taken> exceptions;
  friend bool operator==(const Output&, const Output&) = default;
};

void take(const Batch& batch, const BlockTable& table, Output& out) {
  size_t block = 0, before = out.flow.insns.size();
  for (const Event& event : batch.events) {
    if (event.kind != EventKind::async_branch) continue;
    for (; block < event.before_block; ++block) before += batch.blocks[block].instructions;
    out.exceptions.push_back({before, (event.flags & kEventHasFrom) != 0 ? std::optional(event.from.value) : std::nullopt});
  }
  add_batch(batch, table, out.flow);
}

Output decode(const ArmPatchedRun& run, const ArmPatchedOptions& how) {
  arm::DecoderOptions options;
  options.config = config_of(how);
  const Timeline timeline = timeline_of(run, options.follow.default_space);
  options.follow.exact_only = how.exact_only;
  options.max_flows = how.max_flows;
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
  Output out;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder->next(batch, how.batch_blocks);
    take(batch, decoder->blocks(), out);
  }
  return out;
}

/// Returns the first exception that has another address than it was taken at, although the instruction before it is not marked. All must be
/// in the output.
std::optional<size_t> first_wrong_exception(const Output& ours, const std::vector<uint64_t>& truth) {
  if (ours.exceptions.size() != truth.size()) return std::min(ours.exceptions.size(), truth.size());
  for (size_t i = 0; i < truth.size(); ++i) {
    const Taken& taken = ours.exceptions[i];
    const bool marked = taken.before != 0 && ours.flow.marked[taken.before - 1];
    if (!marked && taken.from && *taken.from != truth[i]) return i;
  }
  return std::nullopt;
}

/// Returns the first unmarked instruction that is not in its place: after so many P0 instructions. Each flow that fits the packets has as
/// many of them as ran. Sets `fits` to whether this one has.
std::optional<size_t> first_misplaced(const RanFlow& ours, const std::vector<Ran>& truth, arm::Protocol protocol, bool& fits) {
  const ExecMode mode = protocol == arm::Protocol::etmv4 ? ExecMode::a64 : ExecMode::a32;
  const auto is_p0 = [&](const Ran& ran) {
    const ArmClass cls = classify_arm(ran.bytes, mode).cls;
    return protocol == arm::Protocol::etmv3 || cls == ArmClass::direct || cls == ArmClass::indirect || cls == ArmClass::isb;
  };
  const bool has_gaps = std::ranges::find(ours.lost_at, true) != ours.lost_at.end();
  fits = !has_gaps && std::ranges::count_if(ours.insns, is_p0) == std::ranges::count_if(truth, is_p0);
  if (!fits) return std::nullopt;
  size_t from = 0, end = 0;  // of the truth: up to the next P0 instruction
  const auto next = [&] {
    from = end;
    while (end < truth.size() && !is_p0(truth[end++])) {
    }
  };
  next();
  for (size_t i = 0; i < ours.insns.size(); ++i) {
    const auto last = truth.begin() + static_cast<std::ptrdiff_t>(end);
    if (!ours.marked[i] && std::find(truth.begin() + static_cast<std::ptrdiff_t>(from), last, ours.insns[i]) == last) return i;
    if (is_p0(ours.insns[i])) next();
  }
  return std::nullopt;
}

class ArmPatchedTraces : public testing::TestWithParam<arm::Protocol> {};

TEST_P(ArmPatchedTraces, WhatIsNotMarkedIsWhatRan) {
  const auto [first, count] = seeds(1000);
  RanTally tally, limited;  // limited: traces of which few flows are followed
  uint64_t traces = 0, placed = 0;
  for (uint64_t seed = first; seed < first + count && tally.wrong() + limited.wrong() < 5; ++seed) {
    const auto options = arm_patched_options_of_seed(seed, GetParam());
    const auto run = run_arm_patched(options);
    const Output output = decode(run, options);
    const RanFlow& ours = output.flow;
    const bool is_limited = options.max_flows < arm::DecoderOptions{}.max_flows;
    (is_limited ? limited : tally).add(describe(options), ours, run.truth, run.edits.size());
    ArmPatchedOptions other = options;
    other.exact_only = !options.exact_only;
    other.batch_blocks = options.batch_blocks == 7 ? 4096 : 7;
    ASSERT_TRUE(decode(run, other) == output) << describe(other) << ": another flow than on the other path, in batches of another size";
    bool fits = false;
    const auto misplaced = first_misplaced(ours, run.truth, GetParam(), fits);
    ASSERT_FALSE(misplaced.has_value()) << describe(options) << ": instruction " << *misplaced << " is not in its place";
    if (fits) {
      const auto wrong = first_wrong_exception(output, run.exceptions);
      ASSERT_FALSE(wrong.has_value()) << describe(options) << ": exception " << *wrong << " has the wrong address";
    }
    traces += is_limited ? 0 : 1;
    placed += fits && !is_limited ? 1 : 0;
  }
  tally.finish(traces, 1.0 / 3);
  // Few traces have so many possible flows that some were dropped.
  EXPECT_GE(100 * placed, 98 * traces);
  RecordProperty("placed", std::to_string(placed));
}

INSTANTIATE_TEST_SUITE_P(Of, ArmPatchedTraces, testing::Values(arm::Protocol::etmv4, arm::Protocol::ptm, arm::Protocol::etmv3),
                         [](const auto& with) {
                           return with.param == arm::Protocol::etmv4 ? "Etmv4" : with.param == arm::Protocol::ptm ? "Ptm" : "Etmv3";
                         });

}  // namespace
}  // namespace ptd::test
