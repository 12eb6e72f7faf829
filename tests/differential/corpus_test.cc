// Our decoder against libipt on the corpus: instructions, block ends, events and errors.
#include <gtest/gtest.h>

#include "tests/support/flow.h"

namespace ptd {
namespace {

class DecoderAgainstLibipt : public testing::TestWithParam<std::string> {};

TEST_P(DecoderAgainstLibipt, SameFlow) {
  PTD_NEED_CORPUS();
  std::string why;
  const auto c = test::load_case(GetParam(), why);
  ASSERT_TRUE(c) << why;
  oracle::OracleOptions theirs;
  theirs.cpu = c->cpu;
  const auto want = oracle::decode_insns(c->trace, theirs, [&](uint64_t ip, std::span<std::byte> out) { return c->memory.read(ip, out); });
  ASSERT_EQ(want.insns.size(), c->insns.size()) << "the oracle itself is off";

  pt::DecoderOptions options;
  options.config.cpu = c->cpu;
  options.config.errata = pt::errata_of(c->cpu);
  const auto machine = test::make_machine(c->memory);
  const auto ours = test::decode_stream(c->trace, machine, options, test::AfterGap::nothing);
  EXPECT_EQ(test::first_difference(ours, want), "");
  EXPECT_EQ(ours.uncertain_instructions, 0U);
}

std::string case_name(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  for (char& ch : out) {
    if (ch == '-') ch = '_';
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Corpus, DecoderAgainstLibipt, testing::ValuesIn(test::flow_cases()), case_name);

}  // namespace
}  // namespace ptd
