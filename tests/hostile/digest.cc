// Digests of decoded segments.
#include "tests/hostile/digest.h"

#include <algorithm>

namespace ptd::test {
namespace {

constexpr size_t kMaxStreams = 64;

struct Hash {
  uint64_t value = 0xcbf29ce484222325;
  void add(uint64_t number) {
    for (int i = 0; i < 8; ++i) value = (value ^ (number >> (8 * i) & 0xff)) * 0x100000001b3;
  }
  void add(Bytes bytes) {
    for (const std::byte byte : bytes) value = (value ^ static_cast<uint64_t>(byte)) * 0x100000001b3;
  }
};

class SegmentSum {
 public:
  void add(const Batch& batch, const BlockTable& table) {
    auto event = batch.events.begin();
    auto gap = batch.gaps.begin();
    for (size_t i = 0; i <= batch.blocks.size(); ++i) {
      for (; event != batch.events.end() && event->before_block <= i; ++event) add(*event);
      for (; gap != batch.gaps.end() && gap->before_block <= i; ++gap) add(*gap);
      if (i < batch.blocks.size()) add(batch.blocks[i], table);
    }
  }
  [[nodiscard]] uint64_t flow() const { return hash_.value; }
  [[nodiscard]] uint64_t instructions() const { return instructions_; }
  [[nodiscard]] uint64_t gaps() const { return gaps_; }
  [[nodiscard]] uint64_t uncertain() const { return uncertain_; }

 private:
  void add(const Block& block, const BlockTable& table) {
    const BlockInfo& info = table.info(block.node);
    instructions_ += block.instructions;
    if ((block.flags & kUncertainFlags) != 0) uncertain_ += block.instructions;
    hash_.add(info.ip.value);
    hash_.add(static_cast<uint64_t>(info.mode) << 32 | block.instructions);
    hash_.add(table.bytes(block.node));
  }
  void add(const Event& event) {
    // The state at a segment's start, and time, depend on what came before it.
    if ((event.flags & kEventStatus) != 0) return;
    hash_.add(static_cast<uint64_t>(event.kind) << 8 | event.flags);
    hash_.add(event.from.value);
    hash_.add(event.to.value);
    hash_.add(event.payload);
    hash_.add(instructions_);
  }
  void add(const Gap& gap) {
    ++gaps_;
    hash_.add(static_cast<uint64_t>(gap.reason));
    hash_.add(gap.ip.value);
    hash_.add(gap.stream_offset_bytes);
    hash_.add(instructions_);
  }

  Hash hash_;
  uint64_t instructions_ = 0, gaps_ = 0, uncertain_ = 0;
};

}  // namespace

std::vector<StreamDigest> digest(const Recording& recording, uint64_t max_segments, const std::string& what,
                                 std::vector<std::string>& findings) {
  std::vector<StreamDigest> out;
  std::vector<std::byte> scratch;
  for (uint32_t stream = 0; stream < std::min(recording.streams().size(), kMaxStreams); ++stream) {
    const StreamInfo& info = recording.streams()[stream];
    StreamDigest& one = out.emplace_back();
    one.cpu = info.cpu;
    one.tid = info.tid;
    AuxSegment segment;
    uint64_t at = 0;
    for (uint64_t i = 0; i < max_segments && recording.next_segment(stream, at, segment, scratch); ++i) {
      SegmentSum sum;
      uint64_t names = 0;
      const Status status = recording.decode(stream, at - 1, at, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
        sum.add(batch, decoder.blocks());
        for (const Block& block : batch.blocks) {
          if (++names > 64) break;
          const BlockInfo& place = decoder.blocks().info(block.node);
          (void)recording.symbolizer().find(place.space, place.ip, kTimeMin);
        }
        return true;
      });
      if (!status.ok() && status.error().message.empty()) findings.push_back(what + ": an error without a sentence");
      const uint64_t first = segment.stream_offset_bytes, tail_end = first + segment.bytes.size();
      one.segments.push_back({first, tail_end - segment.tail_bytes, tail_end, sum.flow(), sum.instructions(), sum.gaps(), sum.uncertain()});
    }
  }
  return out;
}

void expect_same_outside(const StreamDigest& base, const StreamDigest* got, DamagedRange damage, const std::string& what,
                         std::vector<std::string>& findings) {
  const bool cut = damage.last == ~0ULL;
  for (const SegmentDigest& want : base.segments) {
    // A segment up to the cut ends at the stream's end, which an undamaged one does not: it is compared if its tail is present.
    const bool before = want.tail_end <= damage.first, behind = want.first_byte >= damage.last;
    if (!before && (!behind || cut)) continue;
    const SegmentDigest* same = nullptr;
    for (const SegmentDigest& one : got == nullptr ? base.segments : got->segments) {
      if (got != nullptr && one.first_byte == want.first_byte) same = &one;
    }
    if (same != nullptr && (same->flow == want.flow || same->uncertain != 0)) continue;
    findings.push_back(what + ": cpu " + std::to_string(base.cpu) + ", the segment at " + std::to_string(want.first_byte) + " " +
                       (before ? "before" : "behind") + " the damage " +
                       (same == nullptr ? std::string("is gone")
                                        : "decodes differently: " + std::to_string(want.instructions) + " instructions and " +
                                              std::to_string(want.gaps) + " gaps became " + std::to_string(same->instructions) + " and " +
                                              std::to_string(same->gaps)));
    return;
  }
}

}  // namespace ptd::test
