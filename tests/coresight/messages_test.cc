// The messages of OpenCSD 1.8.0's listings beside the executed ranges, against events, marks and gaps.
#include "tests/coresight/support/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "tests/coresight/support/expected.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

std::string show(const std::vector<Message>& list, size_t index) {
  return index < list.size() ? "[" + std::to_string(list[index].ranges_before) + "] " + list[index].text : "nothing";
}

std::string difference(const std::vector<Message>& expected, const std::vector<Message>& found) {
  for (size_t i = 0; i < std::max(expected.size(), found.size()); ++i) {
    if (i < expected.size() && i < found.size() && expected[i] == found[i]) continue;
    std::string what =
        "message " + std::to_string(i) + " of " + std::to_string(expected.size()) + " (found " + std::to_string(found.size()) + ")";
    for (size_t k = i > 2 ? i - 2 : 0; k < i + 3; ++k) what += "\n  " + show(expected, k) + " | " + show(found, k);
    return what;
  }
  return {};
}

/// Leaves out messages that repeat the one before them. Rule "repeated context": the decoder reports a context when it changes, and the
/// peer reports it with each packet that contains one. Rule "one gap": missing code is one gap, and the peer reports it again for an
/// exception after it.
std::vector<Message> changes(const std::vector<Message>& list, bool anywhere) {
  std::vector<Message> result;
  for (const Message& message : list) {
    const bool repeats =
        !result.empty() && result.back().text == message.text && (anywhere || result.back().ranges_before == message.ranges_before);
    if (!repeats) result.push_back(message);
  }
  return result;
}

void compare(Messages expected, Messages found, const arm::TraceConfig& config, const std::string& where) {
  for (Messages* messages : {&expected, &found}) {
    messages->by_kind["context"] = changes(messages->by_kind["context"], true);
    messages->by_kind["no code"] = changes(messages->by_kind["no code"], false);
  }
  // Rule "exception return": ETE has no packet for it. The peer reports one at an executed ERET, and the decoder outputs the ERET's bytes.
  if (config.protocol == arm::Protocol::ete) {
    for (const size_t place : found.returns) found.by_kind["exception return"].push_back({place, ""});
  }
  for (const char* kind :
       {"exception", "exception return", "context", "start", "lost", "no code", "event", "instrumentation", "transaction", "marker"}) {
    EXPECT_EQ(difference(expected.by_kind[kind], found.by_kind[kind]), "") << where << ": " << kind;
  }
  for (const size_t stop : expected.stops) EXPECT_NE(std::count(found.stops.begin(), found.stops.end(), stop), 0) << where << ": discard";
  // Rule "Gray codes": the decoder converts them to numbers.
  if (config.idr1 == kCcerOfSnowball) {
    for (uint64_t& time : found.time) time ^= time >> 1;
  }
  ASSERT_EQ(expected.ranges, found.ranges) << where;
  for (size_t i = 0; i < expected.ranges; ++i) {
    ASSERT_EQ(expected.time[i], found.time[i]) << where << ", time of range " << i;
    // Rule "cycles without code": the decoder counts the cycles of atoms whose code is missing, and the peer drops them.
    const auto& no_code = expected.by_kind["no code"];
    const bool lost = std::any_of(no_code.begin(), no_code.end(), [&](const Message& message) { return message.ranges_before == i; });
    const uint64_t passed = expected.cycles[i] - (i == 0 ? 0 : expected.cycles[i - 1]);
    const uint64_t counted = found.cycles[i] - (i == 0 ? 0 : found.cycles[i - 1]);
    ASSERT_TRUE(lost ? counted >= passed : counted == passed)
        << where << ", cycles before range " << i << ": " << passed << ", " << counted;
  }
}

class CoreSightMessages : public testing::TestWithParam<Capture> {};

TEST_P(CoreSightMessages, AreThePeers) {
  const Capture& capture = GetParam();
  OpenOptions options;
  options.path = capture.path;
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  const auto all = static_cast<uint32_t>((*opened)->streams().size());
  const auto check = [&](const std::string& file, uint32_t streams) {
    MessagesById expected;
    ASSERT_TRUE(read_messages(file, expected)) << file;
    if (expected.empty()) return;  // a listing of packets alone
    MessagesById found = decode_messages(**opened, 0, streams);
    for (uint32_t stream = 0; stream < streams; ++stream) {
      const StreamInfo& info = (*opened)->streams()[stream];
      if (info.protocol == arm::Protocol::itm || info.protocol == arm::Protocol::stm) continue;
      compare(expected[info.trace_id], found[info.trace_id], *(*opened)->arm_config(stream),
              capture.name + ", id " + std::to_string(info.trace_id));
    }
  };
  const std::string sessions = existing(capture.expected_dir + "/listing_multi_sess.ppl");
  const std::string by_branch = existing(capture.expected_dir + "/listing_src_addr_N.ppl");
  if (!sessions.empty()) {
    check(sessions, all);
    check(existing(capture.expected_dir + "/listing.ppl"), 1);
  } else {
    check(by_branch.empty() ? existing(capture.expected_dir + "/listing" + capture.suffix + ".ppl") : by_branch, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Corpus, CoreSightMessages, testing::ValuesIn(captures()), [](const testing::TestParamInfo<Capture>& which) {
  std::string name = which.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CoreSightMessages);

}  // namespace
}  // namespace ptd::test
