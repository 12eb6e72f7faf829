// Comparison of two decodes: see reference_compare.h.
#include "cli/reference_compare.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "cli/node_cache.h"

namespace ptd::cli {

namespace {

constexpr uint64_t kSegmentsAtOnce = 32;
constexpr size_t kRun = 8;                            // equal instructions in a row that count as being together again
constexpr size_t kLookAhead[] = {1U << 9, 1U << 16};  // instructions searched for it, near and far

struct Step {
  uint64_t key = 0;  ///< hash of address and bytes
  bool flagged = false;
};

/// What one decode made of one segment.
struct SegmentFlow {
  std::vector<Step> steps;
  std::vector<size_t> gaps;  ///< each before this step
  uint64_t int3 = 0;
};

uint64_t key_of(Ip ip, Bytes bytes) {
  uint64_t hash = ip.value * 0x9E3779B97F4A7C15ULL;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3ULL;
  return hash ^ (hash >> 29);
}

/// Flows of segments [first, last), by stream offset.
Result<std::map<uint64_t, SegmentFlow>> flows_of(const Recording& recording, uint32_t stream, uint64_t first, uint64_t last) {
  std::map<uint64_t, SegmentFlow> flows;
  NodeCache nodes;
  const Status status =
      recording.decode(stream, first, last, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        nodes.bind(decoder.blocks());
        SegmentFlow& flow = flows[segment.stream_offset_bytes];
        size_t gap = 0;
        for (uint32_t i = 0; i <= batch.blocks.size(); ++i) {
          while (gap < batch.gaps.size() && batch.gaps[gap].before_block <= i) ++gap, flow.gaps.push_back(flow.steps.size());
          if (i == batch.blocks.size()) break;
          const Block& block = batch.blocks[i];
          const bool flagged = (block.flags & kUncertainFlags) != 0;
          const Bytes bytes = nodes.bytes(block.node);
          const Ip ip = nodes.info(block.node).ip;
          for (const CachedInsn& insn : nodes.insns(block.node)) {
            flow.steps.push_back({key_of(ip + insn.offset_bytes, bytes.subspan(insn.offset_bytes, insn.length_bytes)), flagged});
          }
        }
        for (const Event& event : batch.events) flow.int3 += (event.flags & kEventBreakpoint) != 0 ? 1 : 0;
        return true;
      });
  if (!status) return status.error();
  return flows;
}

bool together(const std::vector<Step>& a, size_t i, const std::vector<Step>& b, size_t j) {
  size_t run = 0;
  while (run < kRun && i + run < a.size() && j + run < b.size() && a[i + run].key == b[j + run].key) ++run;
  return run == kRun || (run != 0 && i + run == a.size() && j + run == b.size());
}

/// The nearest place behind (i, j) at which both go on alike; the ends if there is none.
std::pair<size_t, size_t> next_together(const std::vector<Step>& a, size_t i, const std::vector<Step>& b, size_t j) {
  for (const size_t look_ahead : kLookAhead) {
    std::unordered_map<uint64_t, size_t> seen;  // key -> first index in b behind j
    for (size_t k = j; k < b.size() && k < j + look_ahead; ++k) seen.emplace(b[k].key, k);
    for (size_t k = i; k < a.size() && k < i + look_ahead; ++k) {
      const auto at = seen.find(a[k].key);
      if (at != seen.end() && together(a, k, b, at->second)) return {k, at->second};
    }
  }
  return {a.size(), b.size()};
}

/// A stretch that differs: reference steps [i, i2), other steps [j, j2).
void count_difference(const SegmentFlow& other, size_t i, size_t i2, size_t j, size_t j2, uint64_t offset, ComparedCounts& counts) {
  const uint64_t missing = i2 - i;
  counts.invented += j2 - j;
  const auto gap = std::lower_bound(other.gaps.begin(), other.gaps.end(), j);
  const auto marked = [](const Step& step) { return step.flagged; };
  const auto begin = other.steps.begin();
  counts.invented_flagged +=
      static_cast<uint64_t>(std::count_if(begin + static_cast<std::ptrdiff_t>(j), begin + static_cast<std::ptrdiff_t>(j2), marked));
  if (gap != other.gaps.end() && *gap <= j2) {
    counts.lost_in_gap += missing;
  } else if (j != j2 && std::all_of(other.steps.begin() + static_cast<std::ptrdiff_t>(j),
                                    other.steps.begin() + static_cast<std::ptrdiff_t>(j2), marked)) {
    counts.wrong_flagged += missing;
  } else {
    counts.silently_wrong += missing;
    if (!counts.has_silent) counts.first_silent_offset_bytes = offset;
    counts.has_silent = true;
  }
}

void compare_segment(const SegmentFlow& reference, const SegmentFlow& other, uint64_t offset, ComparedCounts& counts) {
  const std::vector<Step>&a = reference.steps, &b = other.steps;
  counts.reference += a.size();
  counts.int3_reference += reference.int3;
  counts.int3_other += other.int3;
  size_t i = 0, j = 0;
  while (i < a.size() || j < b.size()) {
    if (i < a.size() && j < b.size() && a[i].key == b[j].key) {
      ++counts.right;
      counts.right_flagged += b[j].flagged ? 1 : 0;
      ++i, ++j;
      continue;
    }
    const auto [next_i, next_j] = next_together(a, i, b, j);
    count_difference(other, i, next_i, j, next_j, offset, counts);
    i = next_i;
    j = next_j;
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
