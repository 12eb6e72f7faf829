// FlowCheck: which part of a trace `check` decodes, and the order of what it finds.
#include "cli/report/flow_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "ptdecode/recording.h"

namespace ptd::cli {
namespace {

std::unique_ptr<Recording> open_kernel() {
  OpenOptions options;
  options.path = PTD_SOURCE_DIR "/data/kernel/kernel.bundle";
  auto recording = Recording::open(options);
  EXPECT_TRUE(recording.ok());
  return recording.ok() ? std::move(*recording) : nullptr;
}

FlowCheck check(const Recording& recording, uint64_t budget_bytes) {
  Progress silent("", false);
  return check_flow(recording, budget_bytes, silent);
}

TEST(FlowCheck, DecodesAPartOfEachStreamInProportion) {
  const auto recording = open_kernel();
  ASSERT_NE(recording, nullptr);
  ASSERT_GT(recording->streams().size(), 1U);
  const FlowCheck whole = check(*recording, ~uint64_t{0});
  EXPECT_EQ(whole.decoded_bytes, whole.all_bytes);
  const FlowCheck half = check(*recording, whole.all_bytes / 2), least = check(*recording, 1);
  // A part ends where a segment ends: at most one segment of each stream beyond the budget.
  uint64_t first_segments = 0, longest_segments = 0;
  for (uint32_t stream = 0; stream < recording->streams().size(); ++stream) {
    std::vector<uint64_t> starts = recording->segment_starts(stream);
    starts.push_back(recording->streams()[stream].size_bytes);
    ASSERT_GT(starts.size(), 2U);
    first_segments += starts[1];
    uint64_t longest = 0;
    for (size_t i = 1; i < starts.size(); ++i) longest = std::max(longest, starts[i] - starts[i - 1]);
    longest_segments += longest;
  }
  EXPECT_EQ(least.decoded_bytes, first_segments);
  EXPECT_GE(half.decoded_bytes, whole.all_bytes / 2);
  EXPECT_LE(half.decoded_bytes, whole.all_bytes / 2 + longest_segments);
  EXPECT_LT(least.blocks, half.blocks);
  EXPECT_LT(half.blocks, whole.blocks);
}

}  // namespace
}  // namespace ptd::cli
