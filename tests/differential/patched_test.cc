// Code that is patched while it runs: what is not marked is what ran, in its place and with its bytes.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,400).
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>

#include "ptdecode/insn.h"
#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"
#include "tests/differential/patched_program.h"
#include "tests/differential/seeds.h"
#include "tests/support/segments.h"

namespace ptd {
namespace {

struct Decoded {
  std::vector<test::Ran> insns;
  std::vector<bool> marked;   ///< for each of them
  std::vector<bool> lost_at;  ///< for each of them and the end: a gap lies before it
};

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

void add(const Batch& batch, const BlockTable& table, Decoded& out) {
  size_t gap = 0;
  for (size_t i = 0; i <= batch.blocks.size(); ++i) {
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) out.lost_at.back() = true;
    if (i == batch.blocks.size()) break;
    const Block& block = batch.blocks[i];
    uint64_t ip = table.info(block.node).ip.value;
    Bytes rest = table.bytes(block.node);
    for (uint16_t n = 0; n < block.instructions; ++n) {
      const size_t length = classify(rest, table.info(block.node).mode).length_bytes;
      out.insns.push_back({ip, {rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length)}});
      out.marked.push_back((block.flags & kUncertainFlags) != 0);
      out.lost_at.push_back(false);
      rest = rest.subspan(length);
      ip += length;
    }
  }
}

Decoded decode(const test::PatchedRun& run, const test::PatchedOptions& how) {
  const Timeline timeline = timeline_of(run);
  ContextTrack contexts;
  contexts.sort();
  pt::DecoderOptions options;
  options.exact_only = how.exact_only;
  options.config.return_compression = how.return_compression ? pt::ReturnCompression::on : pt::ReturnCompression::off;
  pt::Decoder decoder(timeline, contexts, options);
  Decoded out;
  out.lost_at.push_back(false);
  Batch batch;
  for (const AuxSegment& segment : test::cut_segments(run.trace)) {
    decoder.begin(segment);
    for (bool more = true; more;) {
      batch.clear();
      more = decoder.next(batch);
      add(batch, decoder.blocks(), out);
    }
  }
  return out;
}

// Returns the first unmarked instruction that cannot be what ran: stretches of unmarked flow must be in the truth, in order, and at its ends
// if nothing before or after them is marked or lost.
std::optional<size_t> first_wrong(const Decoded& ours, const std::vector<test::Ran>& truth) {
  auto from = truth.begin();
  for (size_t first = 0; first < ours.insns.size();) {
    if (ours.marked[first]) {
      ++first;
      continue;
    }
    size_t end = first + 1;
    while (end < ours.insns.size() && !ours.marked[end] && !ours.lost_at[end]) ++end;
    const auto piece = std::ranges::subrange(ours.insns.begin() + static_cast<std::ptrdiff_t>(first), ours.insns.begin() + static_cast<std::ptrdiff_t>(end));
    const bool at_front = first == 0 && !ours.lost_at[0], at_back = end == ours.insns.size() && !ours.lost_at[end];
    auto place = from;
    if (at_back) {
      if (static_cast<size_t>(truth.end() - from) < piece.size()) return first;
      place = truth.end() - static_cast<std::ptrdiff_t>(piece.size());
    } else if (!at_front) {
      place = std::search(from, truth.end(), piece.begin(), piece.end());
    }
    const auto rest = static_cast<size_t>(truth.end() - place);
    const auto [a, b] = std::mismatch(piece.begin(), piece.end(), place, place + static_cast<std::ptrdiff_t>(std::min(rest, piece.size())));
    if (a != piece.end()) return first + static_cast<size_t>(a - piece.begin());
    if (at_front && at_back && truth.size() != piece.size()) return piece.size();
    from = place + static_cast<std::ptrdiff_t>(piece.size());
    first = end;
  }
  return std::nullopt;
}

TEST(PatchedTraces, WhatIsNotMarkedIsWhatRan) {
  const auto [first, count] = test::seeds();
  uint64_t failures = 0, instructions = 0, certain = 0, gaps = 0, patches = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const auto options = test::patched_options_of_seed(seed);
    const auto run = test::run_patched(options);
    const Decoded ours = decode(run, options);
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
    EXPECT_GT(certain, instructions / 2);
    EXPECT_LT(gaps, count / 20);
  }
  RecordProperty("instructions", std::to_string(instructions));
  RecordProperty("certain", std::to_string(certain));
}

}  // namespace
}  // namespace ptd
