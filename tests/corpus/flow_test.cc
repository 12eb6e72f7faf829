// Every pt-* case with images: instruction addresses, events and gaps are those of expected/.
#include "tests/support/flow.h"

#include <gtest/gtest.h>

#include <utility>

#include "ptdecode/recording.h"

namespace ptd {
namespace {

Result<std::unique_ptr<Recording>> open_case(const test::PtCase& c) {
  OpenOptions options;
  if (!c.bundle_path.empty()) {
    options.path = c.bundle_path;
    return Recording::open(options);
  }
  RawOptions raw;
  raw.pt_path = c.trace_path;
  raw.cpu = c.cpu;
  for (const auto& image : c.images) options.images.push_back({image.path, image.file_offset_bytes, image.size_bytes, image.load_address});
  raw.pages_dump = c.pages_dump_path;
  raw.pages_addresses = c.pages_addresses_path;
  raw.tsc_ctc_ratio_n = c.tsc_ctc_ratio_n;
  raw.tsc_ctc_ratio_d = c.tsc_ctc_ratio_d;
  raw.mtc_period = c.mtc_period;
  raw.max_nonturbo_ratio = c.max_nonturbo_ratio;
  return Recording::open_raw(raw, options);
}

// Returns a line of expected/events without its time, which is one reader's estimate. Of exec_mode lines only changes are kept; decoding
// starts in 64-bit mode.
std::vector<std::string> expected_events(const std::vector<std::string>& lines) {
  std::vector<std::string> out;
  std::string mode = "3";
  for (const std::string& line : lines) {
    std::string text = line.substr(0, line.find(" tsc="));
    if (const size_t at = text.find(" exec_mode mode="); at != std::string::npos) {
      std::string now = text.substr(at + 16, 1);
      if (now == mode) continue;
      mode = std::move(now);
    }
    out.push_back(std::move(text));
  }
  return out;
}

std::vector<std::string> our_events(const test::Flow& flow) {
  std::vector<std::string> out;
  auto mode = static_cast<uint64_t>(ExecMode::bits64);
  for (const auto& [before, block_start, e] : flow.events) {
    if ((e.flags & kEventStatus) != 0) continue;
    char fields[120] = "";
    const auto to = static_cast<unsigned long long>(e.to.value);
    const bool has_to = (e.flags & kEventHasTo) != 0;
    const char* kind = nullptr;
    switch (e.kind) {
      case EventKind::enabled:
        kind = "enabled";
        std::snprintf(fields, sizeof fields, " ip=%llx%s", to, (e.flags & kEventResumed) != 0 ? " resumed" : "");
        break;
      case EventKind::disabled:
        kind = "disabled";
        break;
      case EventKind::overflow:
        kind = "overflow";
        break;
      case EventKind::async_branch:
        kind = "async_branch";
        break;
      case EventKind::async_disabled:
        kind = "async_disabled";
        if (has_to) std::snprintf(fields, sizeof fields, " at=%llx ip=%llx", static_cast<unsigned long long>(e.from.value), to);
        break;
      case EventKind::exec_mode:
        if (std::exchange(mode, e.payload) == e.payload) continue;
        kind = "exec_mode";
        std::snprintf(fields, sizeof fields, " mode=%llu ip=%llx", static_cast<unsigned long long>(e.payload), to);
        break;
      default:
        continue;  // kinds that the corpus has only as status
    }
    if (fields[0] == 0 && has_to) std::snprintf(fields, sizeof fields, " ip=%llx", to);
    out.push_back(std::to_string(before) + " " + kind + fields);
  }
  return out;
}

template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  for (size_t i = 0; i < got.size() && i < want.size(); ++i) ASSERT_EQ(got[i], want[i]) << what << " " << i;
  ASSERT_EQ(got.size(), want.size()) << what;
}

class CorpusFlow : public testing::TestWithParam<std::string> {};

TEST_P(CorpusFlow, EqualsExpected) {
  PTD_NEED_CORPUS();
  std::string why;
  const auto c = test::load_case(GetParam(), why);
  ASSERT_TRUE(c) << why;
  const auto recording = open_case(*c);
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_EQ((*recording)->streams().size(), 1U);

  test::Flow flow;
  test::FlowCollector collector(flow, test::AfterGap::nothing);  // the listing is of libipt without resync-on-error
  uint64_t segment_offset = ~uint64_t{0};
  const auto status =
      (*recording)->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        if (std::exchange(segment_offset, segment.stream_offset_bytes) != segment.stream_offset_bytes) collector.begin_segment();
        collector.add(batch, decoder.blocks());
        return true;
      });
  ASSERT_TRUE(status.ok()) << status.error().message;
  expect_same(flow.insns, c->insns, "instruction");
  expect_same(our_events(flow), expected_events(c->events), "event");
  EXPECT_EQ(flow.uncertain_instructions, 0U) << "nothing changes in this capture: no block may be marked";

  std::vector<uint64_t> gaps, errors;
  for (const auto& [before, gap] : flow.gaps) {
    if (gap.reason != GapReason::overflow) gaps.push_back(before);
  }
  for (const std::string& line : c->errors) errors.push_back(std::stoull(line));
  expect_same(gaps, errors, "gap");
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  for (char& ch : out) {
    if (ch == '-') ch = '_';
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Corpus, CorpusFlow, testing::ValuesIn(test::flow_cases()), test_name);

}  // namespace
}  // namespace ptd
