// FlowScan: decodes to log the code that decoding reads.
#include "recording/bundle/bundle_scan.h"

#include <algorithm>
#include <unordered_set>

#include "decoder/insn/executed_insn.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"

namespace ptd {
namespace {

/// The named addresses of one stream.
class StreamScan {
 public:
  explicit StreamScan(ScanResult& result) : result_(result) {}

  void take(const Batch& batch, const BlockTable& blocks) {
    size_t mark = 0, event = 0, gap = 0;
    for (uint32_t i = 0; i <= batch.blocks.size(); ++i) {
      const SpaceId before = space_;
      for (; mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark) space_ = batch.marks[mark].space;
      for (; event < batch.events.size() && batch.events[event].before_block <= i; ++event) take_event(batch.events[event], before);
      for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) {
        name(batch.gaps[gap].space, batch.gaps[gap].ip);
        name(space_, batch.gaps[gap].ip);
        if (batch.gaps[gap].reason == GapReason::no_image && batch.gaps[gap].section != kNoSection) ++result_.gaps[batch.gaps[gap].section];
      }
      if (i < batch.blocks.size()) take_block(batch.blocks[i], blocks, before);
    }
  }

 private:
  /// A block in a space: looked at once.
  struct Seen {
    uint64_t ip = 0;
    uint32_t size_bytes = 0, space = 0;
    friend bool operator==(const Seen&, const Seen&) = default;
  };
  struct SeenHash {
    size_t operator()(const Seen& s) const {
      return (s.ip ^ (uint64_t{s.space} << 40) ^ (uint64_t{s.size_bytes} << 20)) * 0x9E3779B97F4A7C15;
    }
  };

  void name(SpaceId space, Ip ip) {
    space = space_at(space, ip);
    if (space != kNoSpace) result_.named[space.value].insert(ip.value);
  }

  void take_event(const Event& event, SpaceId before) {
    for (const SpaceId space : {before, space_}) {
      if ((event.flags & kEventHasFrom) != 0) name(space, event.from);
      if ((event.flags & kEventHasTo) != 0) name(space, event.to);
    }
  }

  void take_block(const Block& block, const BlockTable& blocks, SpaceId before) {
    const BlockInfo& info = blocks.info(block.node);
    result_.instructions += block.instructions;
    if (before != space_) name(before, info.ip);
    look_at(info, blocks.bytes(block.node), info.space);
    if (!is_kernel_half(info.ip) && space_ != info.space) look_at(info, blocks.bytes(block.node), space_);
  }

  void look_at(const BlockInfo& info, Bytes bytes, SpaceId space) {
    if (!seen_.insert({info.ip.value, info.size_bytes, space.value}).second) return;
    Ip ip = info.ip;
    while (!bytes.empty()) {
      name(space, ip);
      const Insn insn = executed_insn(bytes, info.mode);
      if (insn.length_bytes == 0) return;
      const bool direct = insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jcc || insn.cls == InsnClass::call_direct;
      if (direct) name(space, direct_target(insn, ip, info.mode));
      bytes = bytes.subspan(insn.length_bytes);
      ip = ip + insn.length_bytes;
    }
    name(space, ip);  // what follows, where a flow ends
  }

  ScanResult& result_;
  SpaceId space_ = kNoSpace;
  std::unordered_set<Seen, SeenHash> seen_;
};

}  // namespace

SegmentSpan spans_of(const Recording& recording, uint32_t stream, Interval time) {
  const std::vector<uint64_t> starts = recording.segment_starts(stream);
  size_t first = 0, end = starts.size();
  if (time.first != kTimeMin) {
    first = static_cast<size_t>(std::lower_bound(starts.begin(), starts.end(), recording.segment_at(stream, time.first)) - starts.begin());
    if (first == starts.size()) return {Recording::kStreamEnd, Recording::kStreamEnd, 0, starts.size()};  // it ended before
    if (first > 0) --first;
  }
  if (time.last != kTimeMax) {
    std::vector<std::byte> scratch;
    AuxSegment segment;
    bool is_later = false;
    for (end = first; end < starts.size() && !is_later; ++end) {
      uint64_t at = starts[end];
      if (!recording.next_segment(stream, at, segment, scratch)) break;
      is_later = time.last < segment.time.first;
    }
    end -= is_later ? 1 : 0;
    if (is_later && end == first) return {Recording::kStreamEnd, Recording::kStreamEnd, 0, starts.size()};  // it began after
    end = std::min(end + 1, starts.size());
  }
  const auto offset_of = [&](size_t i) { return i < starts.size() ? starts[i] : Recording::kStreamEnd; };
  return {offset_of(first), offset_of(end), end > first ? end - first : 0, starts.size()};
}

Status scan_flow(const Recording& recording, const std::vector<SegmentSpan>& spans, ScanResult& result) {
  for (uint32_t stream = 0; stream < spans.size(); ++stream) {
    StreamScan scan(result);
    const Status status = recording.decode(stream, spans[stream].first, spans[stream].end,
                                           [&scan](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
                                             scan.take(batch, decoder.blocks());
                                             return true;
                                           });
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace ptd
