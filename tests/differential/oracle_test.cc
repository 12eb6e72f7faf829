// Pins the libipt oracle itself: on the corpus it must reproduce the expected instructions, events and errors.
#include <gtest/gtest.h>

#include "tests/oracle/libipt_oracle.h"
#include "tests/support/corpus.h"

namespace ptd {
namespace {

oracle::OracleOptions options_of(const test::PtCase& c) {
  oracle::OracleOptions options;
  options.cpu = c.cpu;
  options.tsc_ctc_ratio_n = c.tsc_ctc_ratio_n;
  options.tsc_ctc_ratio_d = c.tsc_ctc_ratio_d;
  options.mtc_period = c.mtc_period;
  options.max_nonturbo_ratio = c.max_nonturbo_ratio;
  return options;
}

// Equality of two listings, with the first difference as the message.
void expect_same(const std::vector<std::string>& got, const std::vector<std::string>& want) {
  for (size_t i = 0; i < got.size() && i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << "line " << i + 1;
  ASSERT_EQ(got.size(), want.size()) << "first line too many: " << (got.size() > want.size() ? got[want.size()] : want[got.size()]);
}

class OracleOnCorpus : public testing::TestWithParam<std::string> {};

TEST_P(OracleOnCorpus, ReproducesExpectedFlow) {
  PTD_NEED_CORPUS();
  std::string why;
  const auto c = test::load_case(GetParam(), why);
  ASSERT_TRUE(c) << why;
  const oracle::MemoryReader memory = [&](uint64_t ip, std::span<std::byte> out) { return c->memory.read(ip, out); };
  const auto flow = oracle::decode_insns(c->trace, options_of(*c), memory);
  EXPECT_EQ(flow.insns, c->insns);

  std::vector<std::string> events;
  for (const auto& event : flow.events) {
    if (!event.status) events.push_back(text(event));
  }
  expect_same(events, c->events);
  std::vector<std::string> errors;
  for (const auto& error : flow.errors) errors.push_back(text(error));
  expect_same(errors, c->errors);
}

TEST_P(OracleOnCorpus, BlockDecoderCoversTheSameInstructions) {
  PTD_NEED_CORPUS();
  std::string why;
  const auto c = test::load_case(GetParam(), why);
  ASSERT_TRUE(c) << why;
  const oracle::MemoryReader memory = [&](uint64_t ip, std::span<std::byte> out) { return c->memory.read(ip, out); };
  const auto flow = oracle::decode_blocks(c->trace, options_of(*c), memory);
  EXPECT_EQ(flow.instructions, c->insns.size());
  for (const auto& block : flow.blocks) {
    ASSERT_LT(block.first_insn + block.instructions - 1, c->insns.size());
    ASSERT_EQ(block.ip, c->insns[block.first_insn]);
    ASSERT_EQ(block.end_ip, c->insns[block.first_insn + block.instructions - 1]);
  }
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  for (char& ch : out) {
    if (ch == '-') ch = '_';
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Corpus, OracleOnCorpus, testing::ValuesIn(test::flow_cases()), test_name);

}  // namespace
}  // namespace ptd
