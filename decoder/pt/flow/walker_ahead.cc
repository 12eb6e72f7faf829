// Walker: looking at code that is not executed yet, and at packets ahead.
#include <algorithm>
#include <array>
#include <optional>

#include "decoder/pt/flow/walker.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kMostStepsToAbort = 1024;  // instructions, from a branch to the abort of a transaction
constexpr uint64_t kMostFetchedAhead = 8192;  // steps of the fetches of one look ahead, which are not counted as work of the segment
constexpr uint32_t kMostStepsOfLoop = 4096;   // instructions of a loop without packets that an event ends
constexpr size_t kMostOpenWays = 32;          // addresses in such a loop that are not yet followed

// Returns where the flow goes after `step` unless a branch packet determines it.
std::optional<Ip> next_without_branch_packet(const Step& step) {
  switch (step.cls) {
    case InsnClass::jump_direct:
    case InsnClass::call_direct:
      return step.target;
    case InsnClass::other:
    case InsnClass::mov_cr3:
    case InsnClass::ptwrite:
      return step.next;
    default:
      return std::nullopt;
  }
}

// Returns whether each execution of `step`, which is not a branch, produces a packet. A HLT ends with an interrupt.
bool generates_packet(const Step& step) {
  return step.cls == InsnClass::mov_cr3 || step.cls == InsnClass::ptwrite || step.detail == InsnDetail::vmptrld ||
         step.detail == InsnDetail::xbegin || step.detail == InsnDetail::hlt;
}

// Returns whether the bytes of code begin with zeros, which as an instruction are ADD to memory.
bool is_unwritten(Bytes code) { return code.size() >= 2 && code[0] == std::byte{0} && code[1] == std::byte{0}; }

// Returns the common time of two versions. That of a version and the next one is the moment of a change, at which both do not run.
Interval common_time(Interval one, Interval other) {
  const Interval both = intersect(one, other);
  return both.first == both.last && one.first != one.last ? Interval{kTimeMax, kTimeMin} : both;
}

}  // namespace

// Returns whether the flow reaches `ip` without a packet. If the bytes have several candidates or many versions, it is assumed to.
bool Walker::reaches(Flow& flow, Ip ip) {
  const FetchStepLimit limit(kModestFetch);
  FlowState& state = flow.state;
  const Ip start = state.ip;
  bool leads_on = true;
  for (uint32_t steps = 0; leads_on && state.ip != ip; ++steps) {
    const bool found = steps < kMostStepsToAbort && read_candidates(flow, space_of(state, state.ip));
    leads_on = found || (steps < kMostStepsToAbort && loss_.reason == GapReason::limit);
    if (!found || candidates_.size() > 1) break;
    const std::optional<Ip> next = next_without_branch_packet(step_of(candidates_[0].insn, state.ip, state.mode));
    leads_on = next.has_value();
    state.ip = next.value_or(state.ip);
  }
  state.ip = start;
  return leads_on;
}

// Returns true if code that generates no packet leads from the flow's ip back to it. In that case no packet shows how often the flow passed
// the ip. Follows every candidate, as long as all code of the way may have been there at one moment. Memory without code is no part of a
// loop:
// a piece of generated code may jump to another one that is not recorded yet, and would lead through zeros. Limitation: a loop of more than
// kMostStepsOfLoop instructions, or through code with many versions, is not found.
bool Walker::comes_back(Flow& flow) {
  const FetchStepLimit limit(kModestFetch);
  const uint64_t fetched_before = fetch_steps().taken;
  FlowState& state = flow.state;
  const Ip start = state.ip;
  const Interval now = state.now;
  struct Way {
    Ip ip;
    Interval when;  ///< all code up to `ip` may have been there
  };
  std::array<Way, kMostOpenWays> open{Way{start, now}};
  size_t open_count = 1;
  bool back = false;
  const auto follow = [&](const Step& step, Interval when) {
    const std::optional<Ip> next = next_without_branch_packet(step);
    if (!next || generates_packet(step) || when.empty()) return;
    back = back || *next == start;
    if (open_count < open.size()) open[open_count++] = {*next, when};
  };
  for (uint32_t steps = 0; open_count != 0 && !back && steps < kMostStepsOfLoop; ++steps) {
    const Way way = open[--open_count];
    state.ip = way.ip;
    state.now = way.when;
    if (fetch_steps().taken - fetched_before > kMostFetchedAhead) break;
    const SpaceId space = space_of(state, state.ip);
    const StraightCode* code = read_plain(state, space);
    if (code != nullptr) {
      if (is_unwritten(code->bytes())) continue;
      const uint64_t offset = start.value - state.ip.value;
      back = back || (offset != 0 && offset <= code->last_at && code->index_at(offset) != code->count);
      steps += code->count - 1U;
      follow(code->last(), way.when);
    } else if (read_candidates(flow, space)) {
      for (const Candidate& candidate : candidates_) {
        if (!is_unwritten(candidate.bytes))
          follow(step_of(candidate.insn, state.ip, state.mode), common_time(way.when, candidate.possible));
      }
    }
  }
  state.ip = start;
  state.now = now;
  return back;
}

// Outputs an event `skipped` if the flow is in a loop without packets. The ip of an asynchronous event does not show how often the flow
// passed it, so the flow takes the event when it first reaches the ip, and `skipped` stands for the other iterations.
void Walker::give_uncounted_loop(Flow& flow, const Item& item) {
  const bool of_insn = item.kind == ItemKind::at_ip && (item.event == EventKind::exstop || item.event == EventKind::mwait ||
                                                        item.event == EventKind::tsx_begin || item.event == EventKind::tsx_commit);
  if (of_insn || !comes_back(flow)) return;
  Item rounds = item;
  rounds.value = rounds.aux = 0;
  give_event(flow, rounds, EventKind::skipped, kEventHasFrom | kEventHasTo, flow.state.ip, flow.state.ip);
}

// Returns the offset of the first packet from `offset` on that gives all bits of an ip, or that of the segment's end. Packets before it
// give the bits that differ from the packet before them, which may be damaged or missing.
uint64_t Walker::find_whole_ip(uint64_t offset) const {
  PacketReader reader(segment_.bytes, offset);
  Packet packet;
  while (reader.next(packet) == PacketReader::Status::ok) {
    if (packet.ip_bytes == IpBytes::sext48 || packet.ip_bytes == IpBytes::full64) return offset;
    offset = reader.offset();
  }
  return segment_.bytes.size();
}

}  // namespace ptd::pt
