// Comparison of two decodes: see reference_compare.h.
#include "cli/verify/reference_compare.h"

#include <algorithm>
#include <map>
#include <span>

#include "cli/cache/node_cache.h"
#include "cli/verify/flow_align.h"
#include "cli/verify/marked.h"
#include "ptdecode/flow_cursor.h"

namespace ptd::cli {

namespace {

constexpr uint64_t kSegmentsAtOnce = 32;

/// What one decode made of one segment.
struct SegmentFlow {
  std::vector<uint64_t> keys, contents;  ///< address and bytes of each instruction
  std::vector<bool> flagged;
  std::vector<size_t> gaps;  ///< each before this instruction
  uint64_t int3 = 0;

  void add(std::span<const Block> blocks, NodeCache& nodes) {
    for (const Block& block : blocks) {
      const bool marked = (block.flags & kMarkedFlags) != 0;
      const Bytes bytes = nodes.bytes(block.node);
      const Ip ip = nodes.info(block.node).ip;
      for (const CachedInsn& insn : nodes.insns(block.node)) {
        keys.push_back((ip + insn.offset_bytes).value);
        contents.push_back(content_key(bytes.subspan(insn.offset_bytes, insn.length_bytes)));
        flagged.push_back(marked);
      }
    }
  }
};

/// Flows of segments [first, last), by stream offset.
Result<std::map<uint64_t, SegmentFlow>> flows_of(const Recording& recording, uint32_t stream, uint64_t first, uint64_t last) {
  std::map<uint64_t, SegmentFlow> flows;
  NodeCache nodes;
  FlowCursor cursor;
  const Status status =
      recording.decode(stream, first, last, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        nodes.bind(decoder.blocks());
        SegmentFlow& flow = flows[segment.stream_offset_bytes];
        cursor.begin(batch);
        for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
          if (item == FlowItem::gap) flow.gaps.push_back(flow.keys.size());
          if (item == FlowItem::event) flow.int3 += (cursor.event().flags & kEventBreakpoint) != 0 ? 1 : 0;
          if (item == FlowItem::blocks) flow.add(cursor.blocks(), nodes);
        }
        return true;
      });
  if (!status) return status.error();
  return flows;
}

/// A stretch that differs: reference steps [i, i2), other steps [j, j2).
void count_difference(const SegmentFlow& other, size_t i, size_t i2, size_t j, size_t j2, uint64_t offset, ComparedCounts& counts) {
  const uint64_t missing = i2 - i;
  counts.invented += j2 - j;
  const auto gap = std::lower_bound(other.gaps.begin(), other.gaps.end(), j);
  const auto marked = static_cast<uint64_t>(
      std::count(other.flagged.begin() + static_cast<std::ptrdiff_t>(j), other.flagged.begin() + static_cast<std::ptrdiff_t>(j2), true));
  counts.invented_flagged += marked;
  // What is left out beside a marked block is marked with it.
  const bool beside = (j != 0 && other.flagged[j - 1]) || (j2 < other.flagged.size() && other.flagged[j2]);
  if (gap != other.gaps.end() && *gap <= j2) {
    counts.lost_in_gap += missing;
  } else if (j != j2 ? marked == j2 - j : beside) {
    counts.wrong_flagged += missing;
  } else {
    counts.silently_wrong += missing;
    if (!counts.has_silent) counts.first_silent_offset_bytes = offset;
    counts.has_silent = true;
  }
}

void compare_segment(const SegmentFlow& reference, const SegmentFlow& other, uint64_t offset, ComparedCounts& counts) {
  counts.reference += reference.keys.size();
  counts.int3_reference += reference.int3;
  counts.int3_other += other.int3;
  std::vector<uint32_t> match(other.keys.size(), kUnmatched);
  align_flows(other.keys, reference.keys, {}, 0, match);
  size_t i = 0, j = 0;
  for (size_t k = 0; k <= match.size(); ++k) {
    const bool end = k == match.size();
    if (!end && match[k] == kUnmatched) continue;
    const size_t at = end ? reference.keys.size() : match[k];
    if (i != at || j != k) count_difference(other, i, at, j, k, offset, counts);
    if (end) break;
    if (other.contents[k] == reference.contents[at]) {
      ++counts.right;
      counts.right_flagged += other.flagged[k] ? 1 : 0;
    } else {
      count_difference(other, at, at + 1, k, k + 1, offset, counts);
    }
    i = at + 1;
    j = k + 1;
  }
}

}  // namespace

Result<ComparedCounts> compare_stream(const Recording& reference, const Recording& other, uint32_t stream,
                                      const std::function<void(uint64_t bytes)>& progress) {
  ComparedCounts counts;
  uint64_t done = 0;
  const std::vector<uint64_t> starts = reference.segment_starts(stream);
  for (size_t first = 0; first < starts.size(); first += kSegmentsAtOnce) {
    const uint64_t last = first + kSegmentsAtOnce < starts.size() ? starts[first + kSegmentsAtOnce] : Recording::kStreamEnd;
    const auto wanted = flows_of(reference, stream, starts[first], last);
    if (!wanted) return wanted.error();
    auto got = flows_of(other, stream, starts[first], last);
    if (!got) return got.error();
    for (const auto& [offset, flow] : *wanted) {
      compare_segment(flow, (*got)[offset], offset, counts);
      if (offset > done) progress(offset - done);
      done = std::max(done, offset);
    }
  }
  return counts;
}

}  // namespace ptd::cli
