// Cuts and mutates Intel PT streams and compares segment by segment with the undamaged output.
#include <algorithm>
#include <map>

#include "ptdecode/insn.h"
#include "tests/differential/program.h"
#include "tests/hostile/damage.h"
#include "tests/hostile/guard.h"
#include "tests/support/segments.h"

namespace ptd::test {
namespace {

constexpr size_t kAround = 3;         // segments on either side of the damage that are decoded
constexpr uint64_t kWholeEvery = 64;  // cases of which one decodes the whole trace

struct SegmentOutput {
  uint64_t first_byte = 0, end_byte = 0;  // end: with the tail
  bool last = false;
  std::vector<uint64_t> insns;
  std::vector<uint64_t> asks;       // number of instructions up to and including each that needs a packet
  std::vector<uint64_t> event_at;   // number of instructions before each event or gap
  std::vector<std::string> events;  // comparable
  bool same_as(const SegmentOutput& other) const { return insns == other.insns && events == other.events && event_at == other.event_at; }
};

bool asks_packet(InsnClass cls) { return is_branch(cls) && cls != InsnClass::jump_direct && cls != InsnClass::call_direct; }

SegmentOutput decode_one(pt::Decoder& decoder, FlowCollector& collector, Flow& flow, const AuxSegment& segment, const BlockTable& table) {
  SegmentOutput out;
  out.first_byte = segment.stream_offset_bytes;
  out.end_byte = segment.stream_offset_bytes + segment.bytes.size();
  out.last = segment.break_after;
  flow = Flow{};
  decoder.begin(segment);
  Batch batch;
  bool more = true;
  uint64_t count = 0;
  while (more) {
    batch.clear();
    more = decoder.next(batch);
    collector.add(batch, table);
    for (const Block& block : batch.blocks) {
      count += block.instructions;
      if (!has(block.flags, BlockFlag::ends_in_branch)) continue;
      // The class of the block's last instruction, found from its first byte on.
      Bytes rest = table.bytes(block.node);
      Insn insn;
      while (!rest.empty()) {
        insn = classify(rest, table.info(block.node).mode);
        if (insn.length_bytes == 0) break;
        rest = rest.subspan(insn.length_bytes);
      }
      if (asks_packet(insn.cls)) out.asks.push_back(count);
    }
  }
  out.insns = flow.insns;
  out.events = comparable_events(flow);
  for (const auto& event : flow.events) out.event_at.push_back(event.before_insn);
  for (const auto& gap : flow.gaps) out.event_at.push_back(gap.before_insn);
  return out;
}

/// Stream offsets of the segments that are decoded.
struct Window {
  uint64_t first = 0, last = ~0ULL;
  [[nodiscard]] bool holds(uint64_t offset) const { return first <= offset && offset < last; }
};

std::vector<SegmentOutput> decode_each(Bytes stream, const PtCapture& capture, Window window) {
  Flow flow;
  FlowCollector collector(flow);
  pt::Decoder decoder(capture.machine.timeline, capture.machine.contexts, capture.options);
  std::vector<SegmentOutput> out;
  for (const AuxSegment& segment : cut_segments(stream)) {
    if (window.holds(segment.stream_offset_bytes)) out.push_back(decode_one(decoder, collector, flow, segment, decoder.blocks()));
  }
  return out;
}

class DamagedPt {
 public:
  DamagedPt(const PtCapture& capture, std::vector<std::string>& findings)
      : capture_(capture), findings_(findings), base_(decode_each(capture.trace, capture, {})) {}

  void cut(uint64_t at) {
    what_ = capture_.name + " cut at " + std::to_string(at);
    const std::vector<std::byte> stream(capture_.trace.begin(), capture_.trace.begin() + static_cast<long>(at));
    set_window(at);
    const auto got = timed(stream);
    expect_same_before(got, at);
    if (const auto* damaged = segment_of(base_, at); damaged != nullptr && !got.empty() && got.back().first_byte == damaged->first_byte) {
      expect_prefix(got.back(), *damaged);
    }
  }

  void mutate(uint64_t at, uint64_t length, Random& random) {
    what_ = capture_.name + " mutated at " + std::to_string(at) + "+" + std::to_string(length);
    std::vector<std::byte> stream = capture_.trace;
    const uint64_t end = std::min<uint64_t>(at + length, stream.size());
    for (uint64_t i = at; i < end; ++i) stream[i] ^= static_cast<std::byte>(1 + random.below(255));
    set_window(at);
    const auto got = timed(stream);
    expect_same_before(got, at);
    for (const auto& want : base_) {
      if (want.first_byte < end || !window_.holds(want.first_byte)) continue;
      const auto* same = find(got, want.first_byte);
      if (same == nullptr || !same->same_as(want)) {
        report("the flow does not resume at the PSB at " + std::to_string(want.first_byte));
        break;
      }
    }
    const auto* damaged = segment_of(base_, at);
    if (damaged == nullptr) return;
    // Up to the last instruction whose packet lies surely before the damage the output is that of the undamaged stream.
    const auto cut = decode_each(Bytes(capture_.trace).first(at), capture_, window_);
    const auto* before = find(cut, damaged->first_byte);
    const auto* after = find(got, damaged->first_byte);
    if (before == nullptr || after == nullptr || before->asks.size() < 3) return;
    const uint64_t sure = before->asks[before->asks.size() - 3];
    if (common_prefix(after->insns, damaged->insns) < std::min<uint64_t>(sure, common_prefix(before->insns, damaged->insns))) {
      report("output before the damage differs");
    }
  }

 private:
  void report(const std::string& sentence) { findings_.push_back(what_ + ": " + sentence); }

  std::vector<SegmentOutput> timed(const std::vector<std::byte>& stream) {
    CaseGuard guard(what_);
    auto out = decode_each(stream, capture_, window_);
    guard.end(findings_);
    return out;
  }
  static const SegmentOutput* find(const std::vector<SegmentOutput>& all, uint64_t first_byte) {
    const auto it = std::find_if(all.begin(), all.end(), [&](const SegmentOutput& s) { return s.first_byte == first_byte; });
    return it == all.end() ? nullptr : &*it;
  }
  // A decode depends on its segment alone: those around the damage are enough, and the whole now and then to see that this is so.
  void set_window(uint64_t at) {
    window_ = {};
    if (base_.size() <= 4 * kAround || ++cases_ % kWholeEvery == 0) return;
    size_t index = 0;
    while (index < base_.size() && base_[index].first_byte < at) ++index;
    window_.first = base_[index - std::min(index, kAround)].first_byte;
    if (index + kAround < base_.size()) window_.last = base_[index + kAround].first_byte;
  }
  // The segment whose own bytes hold `at`.
  static const SegmentOutput* segment_of(const std::vector<SegmentOutput>& all, uint64_t at) {
    const SegmentOutput* out = nullptr;
    for (const auto& segment : all) {
      if (segment.first_byte < at) out = &segment;
    }
    return out;
  }
  static size_t common_prefix(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
    size_t at = 0;
    while (at < a.size() && at < b.size() && a[at] == b[at]) ++at;
    return at;
  }

  void expect_same_before(const std::vector<SegmentOutput>& got, uint64_t at) {
    for (const auto& want : base_) {
      if (want.end_byte > at) break;
      if (!window_.holds(want.first_byte)) continue;
      const auto* same = find(got, want.first_byte);
      if (same == nullptr || (!same->last && !same->same_as(want))) report("segment at " + std::to_string(want.first_byte) + " differs");
    }
  }
  // A cut stream gives a prefix. It may go on in a straight line where the whole stream has an event that was cut off.
  void expect_prefix(const SegmentOutput& got, const SegmentOutput& want) {
    const size_t same = common_prefix(got.insns, want.insns);
    if (same == got.insns.size()) return;
    if (std::find(want.event_at.begin(), want.event_at.end(), same) != want.event_at.end()) return;
    if (same == want.insns.size()) return;  // the whole stream's segment ended at its next PSB
    report("instruction " + std::to_string(same) + " of the cut segment is not that of the whole one");
  }

  const PtCapture& capture_;
  std::vector<std::string>& findings_;
  std::vector<SegmentOutput> base_;
  Window window_;
  uint64_t cases_ = 0;
  std::string what_;
};

}  // namespace

void check_damaged_pt(const PtCapture& capture, const DamagePlan& plan, std::vector<std::string>& findings) {
  if (capture.trace.empty()) return;
  DamagedPt run(capture, findings);
  Random random(plan.seed);
  const auto size = static_cast<uint32_t>(capture.trace.size());
  for (uint64_t i = 0; i < plan.cuts; ++i) run.cut(random.below(size));
  for (uint64_t i = 0; i < plan.mutations; ++i) {
    const uint64_t at = random.below(size);
    run.mutate(at, 1 + random.below(random.chance(20) ? 64 : 4), random);
  }
}

}  // namespace ptd::test
