// Generated traces: the exact truth, libipt and our decoder must agree.
//
// PTDECODE_SEEDS=first,count widens the run (default 0,400): `PTDECODE_SEEDS=0,20000 differential --gtest_filter='Generated*'`.
#include <gtest/gtest.h>

#include "tests/differential/seeds.h"
#include "tests/differential/trace_generator.h"
#include "tests/support/flow.h"

namespace ptd {
namespace {

oracle::OracleOptions oracle_options(const test::GeneratedTrace& trace) {
  oracle::OracleOptions out;
  out.cpu = trace.config.cpu;
  out.mtc_period = trace.config.mtc_period;
  out.tsc_ctc_ratio_n = trace.config.tsc_ctc_ratio_n;
  out.tsc_ctc_ratio_d = trace.config.tsc_ctc_ratio_d;
  out.max_nonturbo_ratio = trace.config.max_nonturbo_ratio;
  out.filter_first = trace.filter_first;
  out.filter_last = trace.filter_last;
  return out;
}

// Returns the first difference between two address lists as a sentence; empty if they are equal.
std::string parting(const std::vector<uint64_t>& got, const std::vector<uint64_t>& truth) {
  size_t at = 0;
  while (at < got.size() && at < truth.size() && got[at] == truth[at]) ++at;
  if (at == got.size() && at == truth.size()) return {};
  char buffer[160];
  std::snprintf(buffer, sizeof buffer, "instruction %zu: got %llx, truth %llx (%zu and %zu in all)", at,
                static_cast<unsigned long long>(at < got.size() ? got[at] : 0),
                static_cast<unsigned long long>(at < truth.size() ? truth[at] : 0), got.size(), truth.size());
  return buffer;
}

TEST(GeneratedTraces, LibiptFindsTheTruth) {
  const auto [first, count] = test::seeds();
  uint64_t instructions = 0, psbs = 0, overflows = 0, interrupts = 0, compressed = 0, deferred = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    const auto options = test::options_of_seed(seed);
    const auto trace = test::generate(options);
    const oracle::MemoryReader memory = [&](uint64_t ip, std::span<std::byte> out) { return trace.memory.read(ip, out); };
    const auto insns = oracle::decode_insns(trace.trace, oracle_options(trace), memory);
    ASSERT_EQ(parting(insns.insns, trace.truth), "") << describe(options);
    ASSERT_TRUE(insns.errors.empty()) << describe(options) << ": " << text(insns.errors[0]);
    // docs/DIFFERENCES.md, "libipt's block decoder and SKL014".
    if (!(options.user_only && options.address_filter)) {
      ASSERT_EQ(oracle::decode_blocks(trace.trace, oracle_options(trace), memory).instructions, trace.truth.size()) << describe(options);
    }
    instructions += trace.truth.size();
    psbs += trace.psbs;
    overflows += trace.overflows;
    interrupts += trace.interrupts;
    compressed += trace.compressed_returns;
    deferred += trace.deferred;
  }
  // The generator must reach the cases that it is written for.
  if (count >= 100) {
    EXPECT_GT(psbs, count);
    EXPECT_GT(overflows, count / 10);
    EXPECT_GT(interrupts, count);
    EXPECT_GT(compressed, count);
    EXPECT_GT(deferred, count / 10);
    EXPECT_GT(instructions, 1000 * count);
  }
  RecordProperty("instructions", std::to_string(instructions));
}

TEST(GeneratedTraces, OurDecoderFindsTheTruth) {
  const auto [first, count] = test::seeds();
  uint64_t failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const auto options = test::options_of_seed(seed);
    const auto trace = test::generate(options);
    const auto machine = test::make_machine(trace.memory);
    pt::DecoderOptions decoder;
    decoder.config = trace.config;
    decoder.config.errata = pt::errata_of(trace.config.cpu);
    const auto ours = test::decode_stream(trace.trace, machine, decoder);
    const std::string difference = parting(ours.insns, trace.truth);
    EXPECT_EQ(difference, "") << describe(options);
    EXPECT_EQ(ours.uncertain_instructions, 0U) << describe(options);
    if (!difference.empty()) ++failures;
  }
}

// The time of each instruction lies within the bounds of the last mark before it. Without a conversion the clock is raw ticks.
TEST(GeneratedTraces, TimeBoundsHoldTheTruth) {
  const auto [first, count] = test::seeds();
  uint64_t failures = 0, bounded = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const auto options = test::options_of_seed(seed);
    const auto trace = test::generate(options);
    const auto machine = test::make_machine(trace.memory);
    pt::DecoderOptions decoder;
    decoder.config = trace.config;
    decoder.config.errata = pt::errata_of(trace.config.cpu);
    const auto ours = test::decode_stream(trace.trace, machine, decoder);
    if (ours.insns != trace.truth) continue;  // reported by the test above
    Interval now;
    size_t mark = 0;
    for (size_t i = 0; i < ours.insns.size(); ++i) {
      for (; mark < ours.marks.size() && ours.marks[mark].before_insn <= i; ++mark) now = ours.marks[mark].mark.time;
      bounded += now != Interval{};
      if (now.contains(TimeNs{trace.tsc[i]})) continue;
      ADD_FAILURE() << describe(options) << ": instruction " << i << " ran at " << trace.tsc[i] << ", bounds [" << now.first.value << ", "
                    << now.last.value << "]";
      ++failures;
      break;
    }
  }
  if (count >= 100) {
    EXPECT_GT(bounded, 0U);
  }
}

TEST(GeneratedTraces, OurDecoderEqualsLibipt) {
  const auto [first, count] = test::seeds();
  uint64_t failures = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const auto options = test::options_of_seed(seed);
    const auto trace = test::generate(options);
    const auto theirs = oracle::decode_insns(trace.trace, oracle_options(trace),
                                             [&](uint64_t ip, std::span<std::byte> out) { return trace.memory.read(ip, out); });
    const auto machine = test::make_machine(trace.memory);
    pt::DecoderOptions decoder;
    decoder.config = trace.config;
    decoder.config.errata = pt::errata_of(trace.config.cpu);
    const std::string difference = test::first_difference(test::decode_stream(trace.trace, machine, decoder), theirs);
    EXPECT_EQ(difference, "") << describe(options);
    if (!difference.empty()) ++failures;
  }
}

}  // namespace
}  // namespace ptd
