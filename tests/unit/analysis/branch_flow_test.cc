// BranchFlow: a time range that ends with a segment loses no target.
#include "analysis/table/flow/branch_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include "ptdecode/recording.h"

namespace ptd {
namespace {

/// Stream offset of the segment, then from and to; 0: unknown.
using Branches = std::vector<std::tuple<uint64_t, uint64_t, uint64_t>>;

/// Also sets `past` to the number of blocks after `time`.
Branches branches_of(const Recording& recording, uint32_t stream, Interval time, uint64_t end, size_t& past) {
  Branches branches;
  StreamCursor cursor(recording, stream, time);
  BranchFlow flow;
  cursor.set_past_end([&](uint64_t segment) { return flow.is_open_before(segment); });
  for (FlowItem item = FlowItem::mark; item != FlowItem::end;) {
    item = cursor.next();
    flow.take(item, cursor);
    if (item == FlowItem::blocks && cursor.segment_offset() >= end) past += cursor.blocks().size();
    while (const BranchRun* run = flow.next()) {
      if (run->count == 0 || run->segment >= end) continue;
      flow.each(*run, [&](const FlowBranch&, const BranchEnds& ends) {
        branches.emplace_back(run->segment, ends.has_from ? ends.from.value : 0, ends.has_to ? ends.to.value : 0);
      });
    }
  }
  return branches;
}

TEST(BranchFlow, TheLastBranchOfATimeHasItsTarget) {
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR) + "/data/kernel/kernel.bundle";
  const auto recording = Recording::open(options);
  ASSERT_TRUE(recording.ok());
  const uint32_t stream = 0;
  size_t past = 0, ends = 0;
  const Branches whole = branches_of(**recording, stream, {}, Recording::kStreamEnd, past);
  std::vector<std::byte> scratch;
  AuxSegment segment;
  TimeNs before = kTimeMin;  // of the segment before
  for (uint64_t at = 0; (*recording)->next_segment(stream, at, segment, scratch); before = segment.time.first) {
    if (segment.stream_offset_bytes == 0 || segment.time.first <= before || before == kTimeMin) continue;
    const Interval time{before, TimeNs{segment.time.first.value - 1}};
    size_t items_past = 0;
    const Branches part = branches_of(**recording, stream, time, segment.stream_offset_bytes, items_past);
    const auto last =
        std::find_if(whole.begin(), whole.end(), [&](const auto& branch) { return std::get<0>(branch) >= segment.stream_offset_bytes; });
    ASSERT_FALSE(part.empty());
    ASSERT_GE(static_cast<size_t>(last - whole.begin()), part.size());
    // The first one is where the walk starts.
    EXPECT_TRUE(std::equal(part.rbegin(), part.rend() - 1, std::make_reverse_iterator(last))) << segment.stream_offset_bytes;
    past = std::max(past, items_past);
    ++ends;
  }
  EXPECT_GT(ends, 10U);
  EXPECT_GT(past, 0U);
}

}  // namespace
}  // namespace ptd
