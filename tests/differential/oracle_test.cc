// Pins the libipt oracle itself: on the corpus it must reproduce the expected instructions, events and errors.
#include <gtest/gtest.h>

#include <utility>

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

// The expected results are those of libipt 2.0. Of 2.1 and later, with an event decoder of its own, the corpus' README says: a mode that is
// repeated after a PSB+ is no event, and the offset of an error may be one packet later. After an overflow the mode is not known, so the
// next one is an event.
std::vector<std::string> without_repeated_modes(const std::vector<std::string>& events) {
  std::vector<std::string> kept;
  std::string mode;
  for (const std::string& event : events) {
    const size_t at = event.find(" exec_mode mode=");
    const std::string now = at == std::string::npos ? "" : event.substr(at, event.find(' ', at + 12) - at);
    if (now.empty() || now != mode) kept.push_back(event);
    if (!now.empty()) mode = now;
    if (event.find(" overflow") != std::string::npos) mode.clear();
  }
  return kept;
}

/// Splits "N off=HEX rest" into the offset and the other words.
std::pair<uint64_t, std::string> offset_of(const std::string& error) {
  const size_t at = error.find("off=") + 4, end = error.find(' ', at);
  return {std::stoull(error.substr(at, end - at), nullptr, 16), error.substr(0, at) + error.substr(end)};
}

void expect_same_but_later(const std::vector<std::string>& got, const std::vector<std::string>& want) {
  constexpr uint64_t kLongestPacket = 16;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const auto [offset, text] = offset_of(got[i]);
    const auto [wanted, same] = offset_of(want[i]);
    EXPECT_EQ(text, same);
    EXPECT_TRUE(wanted <= offset && offset <= wanted + kLongestPacket) << got[i] << ", expected " << want[i];
  }
}

// 2.0 dates an asynchronous event by its FUP, 2.1 by the TIP.PGD that completes it: here 53 cycles later, at 3.09 ticks each by the trace's
// MTC packets.
void correct_time(std::vector<std::string>& events, const std::string& name) {
  if (name != "pt-dynamorio-simple") return;
  for (std::string& event : events) {
    if (event == "0 async_disabled tsc=2fa1088fb21550") event = "0 async_disabled tsc=2fa1088fb215f3";
  }
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
  std::vector<std::string> errors;
  for (const auto& error : flow.errors) errors.push_back(text(error));
  if (!oracle::has_event_decoder()) {
    expect_same(events, c->events);
    expect_same(errors, c->errors);
    return;
  }
  std::vector<std::string> wanted = without_repeated_modes(c->events);
  correct_time(wanted, GetParam());
  expect_same(events, wanted);
  expect_same_but_later(errors, c->errors);
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
