// A decoded flow expanded to instructions, and its comparison with libipt's.
#include "tests/support/flow.h"

#include <algorithm>
#include <cstdio>

#include "ptdecode/insn.h"
#include "ptdecode/timeline_builder.h"
#include "tests/support/segments.h"

namespace ptd::test {

void FlowCollector::add_block(const Block& block, const BlockTable& table) {
  const BlockInfo& info = table.info(block.node);
  if (offsets_.size() <= block.node) offsets_.resize(block.node + 1);
  auto& offsets = offsets_[block.node];
  if (offsets.empty()) {
    Bytes rest = table.bytes(block.node);
    uint16_t at = 0;
    for (unsigned i = 0; i < info.instructions; ++i) {
      offsets.push_back(at);
      const Insn insn = classify(rest, info.mode);
      const size_t length = std::min<size_t>(std::max<size_t>(insn.length_bytes, 1), rest.size());
      rest = rest.subspan(length);
      at = static_cast<uint16_t>(at + length);
    }
  }
  for (unsigned i = 0; i < block.instructions && i < offsets.size(); ++i) flow_.insns.push_back(info.ip.value + offsets[i]);
  block_start_ = flow_.instructions;
  flow_.instructions += block.instructions;
  if ((block.flags & kUncertainFlags) != 0) flow_.uncertain_instructions += block.instructions;
  if (has(block.flags, BlockFlag::ends_in_branch)) {
    flow_.branch_ends.push_back(flow_.instructions - 1);
    flow_.taken.push_back(has(block.flags, BlockFlag::taken) ? 1 : 0);
  }
}

void FlowCollector::add(const Batch& batch, const BlockTable& table) {
  size_t event = 0, gap = 0, mark = 0;
  for (size_t i = 0; i <= batch.blocks.size() && !lost_; ++i) {
    const uint64_t gap_at =
        gap < batch.gaps.size() && batch.gaps[gap].before_block <= i ? batch.gaps[gap].stream_offset_bytes : ~uint64_t{0};
    const bool stops = after_gap_ == AfterGap::nothing && gap_at != ~uint64_t{0} && batch.gaps[gap].reason != GapReason::overflow &&
                       batch.gaps[gap].reason != GapReason::aux_lost;
    for (; event < batch.events.size() && batch.events[event].before_block <= i; ++event) {
      if (stops && batch.events[event].stream_offset_bytes >= gap_at) break;
      PlacedEvent placed{flow_.instructions, block_start_, batch.events[event]};
      if (placed.event.kind == EventKind::enabled && std::exchange(left_out_, false))
        placed.event.flags &= static_cast<uint8_t>(~kEventResumed);
      flow_.events.push_back(placed);
    }
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i && !lost_; ++gap) {
      flow_.gaps.push_back({flow_.instructions, batch.gaps[gap]});
      lost_ = left_out_ = stops;
    }
    if (lost_) return;
    for (; mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark)
      flow_.marks.push_back({flow_.instructions, batch.marks[mark]});
    if (i < batch.blocks.size()) add_block(batch.blocks[i], table);
  }
}

Machine make_machine(const SparseMemory& memory) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  for (const auto& [address, bytes] : memory.pieces()) {
    Section section;
    section.space = is_kernel_half(Ip{address}) ? kKernelSpace : user;
    section.ip = Ip{address};
    section.size_bytes = bytes.size();
    auto owner = std::make_shared<std::vector<std::byte>>(bytes);
    section.code = {owner, Bytes(*owner)};
    section.path = "memory";
    builder.add_section(std::move(section));
  }
  Machine out;
  out.timeline = builder.build();
  out.contexts.add_switch(0, kTimeMin, {1, 1, user});
  out.contexts.sort();
  return out;
}

Flow decode_stream(Bytes stream, const Machine& machine, const pt::DecoderOptions& options, AfterGap after_gap) {
  Flow flow;
  FlowCollector collector(flow, after_gap);
  pt::Decoder decoder(machine.timeline, machine.contexts, options);
  Batch batch;
  for (const AuxSegment& segment : cut_segments(stream)) {
    collector.begin_segment();
    decoder.begin(segment);
    bool more = true;
    while (more) {
      batch.clear();
      more = decoder.next(batch);
      collector.add(batch, decoder.blocks());
    }
  }
  return flow;
}

namespace {

// Kinds that change the flow are compared in order. The others are compared as a set at each instruction.
bool steers(EventKind kind) {
  return kind == EventKind::enabled || kind == EventKind::disabled || kind == EventKind::async_disabled ||
         kind == EventKind::async_branch || kind == EventKind::overflow;
}
// Kinds outside the comparison: libipt reports them only as status, or does not support them.
bool compared(EventKind kind) {
  switch (kind) {
    case EventKind::cbr:
    case EventKind::mnt:
    case EventKind::cfe:
    case EventKind::evd:
    case EventKind::pebs_begin:
    case EventKind::pebs_item:
    case EventKind::pebs_end:
    case EventKind::trig:
      return false;
    default:
      return true;
  }
}

struct Comparable {
  uint64_t before_insn = 0;
  bool steers = false, overflow = false;
  std::string text;
};

std::string spell(uint64_t before, const char* kind, bool has_from, uint64_t from, bool has_to, uint64_t to, uint64_t payload) {
  char buffer[200];
  int n = std::snprintf(buffer, sizeof buffer, "%llu %s", static_cast<unsigned long long>(before), kind);
  if (has_from) n += std::snprintf(buffer + n, sizeof buffer - n, " from=%llx", static_cast<unsigned long long>(from));
  if (has_to) n += std::snprintf(buffer + n, sizeof buffer - n, " to=%llx", static_cast<unsigned long long>(to));
  if (payload != 0) std::snprintf(buffer + n, sizeof buffer - n, " payload=%llx", static_cast<unsigned long long>(payload));
  return buffer;
}

// Whether both sides report `from`, or `to`, of an event.
bool tells_from(EventKind kind) { return kind == EventKind::async_branch || kind == EventKind::async_disabled; }
bool tells_to(EventKind kind) { return steers(kind); }

// Joins several OVFs with nothing between them into the last, which gives the address where the flow continues.
void join_overflows(std::vector<Comparable>& events) {
  std::vector<Comparable> out;
  for (auto& event : events) {
    const bool again = !out.empty() && out.back().overflow && event.overflow && out.back().before_insn == event.before_insn;
    if (again) out.pop_back();
    out.push_back(std::move(event));
  }
  events = std::move(out);
}

std::vector<std::string> finish(std::vector<Comparable> events) {
  join_overflows(events);
  // At one instruction the events that change the flow keep their order and come first; the others are sorted.
  std::stable_sort(events.begin(), events.end(), [](const Comparable& a, const Comparable& b) {
    if (a.before_insn != b.before_insn) return a.before_insn < b.before_insn;
    if (a.steers != b.steers) return a.steers;
    return !a.steers && a.text < b.text;
  });
  std::vector<std::string> out;
  for (auto& event : events) out.push_back(std::move(event.text));
  return out;
}

std::string context(const std::vector<uint64_t>& a, size_t at) {
  std::string out;
  char buffer[40];
  for (size_t i = at < 6 ? 0 : at - 6; i < at + 6 && i < a.size(); ++i) {
    std::snprintf(buffer, sizeof buffer, i == at ? " >%llx<" : " %llx", static_cast<unsigned long long>(a[i]));
    out += buffer;
  }
  return out.empty() ? " (none)" : out;
}

std::string compare_insns(const std::vector<uint64_t>& ours, const std::vector<uint64_t>& theirs) {
  const size_t n = std::min(ours.size(), theirs.size());
  size_t at = 0;
  while (at < n && ours[at] == theirs[at]) ++at;
  if (at == n && ours.size() == theirs.size()) return {};
  return "instruction " + std::to_string(at) + " of " + std::to_string(ours.size()) + " (libipt: " + std::to_string(theirs.size()) +
         ")\n  ours:  " + context(ours, at) + "\n  libipt:" + context(theirs, at);
}

std::string compare_lines(const char* what, const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  const size_t n = std::min(ours.size(), theirs.size());
  size_t at = 0;
  while (at < n && ours[at] == theirs[at]) ++at;
  if (at == n && ours.size() == theirs.size()) return {};
  std::string out = std::string(what) + " " + std::to_string(at) + " of " + std::to_string(ours.size()) +
                    " (libipt: " + std::to_string(theirs.size()) + ")";
  for (size_t i = at < 3 ? 0 : at - 3; i < at + 4; ++i) {
    out += "\n  " + std::string(i == at ? ">" : " ") + " ours: " + (i < ours.size() ? ours[i] : "-") +
           " | libipt: " + (i < theirs.size() ? theirs[i] : "-");
  }
  return out;
}

std::string compare_branch_ends(const Flow& ours, const oracle::OracleFlow& theirs) {
  const size_t n = std::min(ours.branch_ends.size(), theirs.branches.size());
  for (size_t i = 0; i <= n; ++i) {
    if (i == n && ours.branch_ends.size() == theirs.branches.size()) break;
    const bool both = i < n;
    if (both && ours.branch_ends[i] == theirs.branches[i]) continue;
    const uint64_t at = both                          ? std::min(ours.branch_ends[i], theirs.branches[i])
                        : i < ours.branch_ends.size() ? ours.branch_ends[i]
                                                      : theirs.branches[i];
    const bool mine = i < ours.branch_ends.size() && ours.branch_ends[i] == at;
    return "block end at instruction " + std::to_string(at) + ": a branch only to " + (mine ? "us" : "libipt") + context(ours.insns, at);
  }
  return {};
}

// Returns the place of an event that follows the instruction at its `from`, which is in the block before the event.
uint64_t place_behind_insn(const Flow& flow, const PlacedEvent& placed) {
  const uint64_t before = placed.before_insn, from = placed.event.from.value;
  for (uint64_t at = std::min<uint64_t>(before, flow.insns.size()); at > placed.block_start; --at) {
    if (flow.insns[at - 1] == from) return at;
  }
  // An event bound by a FUP is output before its instruction.
  return before < flow.insns.size() && flow.insns[before] == from ? before + 1 : before;
}

}  // namespace

// Our decoder starts in 64-bit mode, and libipt in none, so only changes away from 64-bit code and back are compared.
constexpr auto kStartMode = static_cast<uint64_t>(ExecMode::bits64);

std::vector<std::string> comparable_events(const Flow& ours) {
  std::vector<Comparable> out;
  uint64_t mode = kStartMode;
  for (const auto& placed : ours.events) {
    const auto& [before, block_start, e] = placed;
    if ((e.flags & kEventStatus) != 0) {
      if (e.kind == EventKind::exec_mode) mode = e.payload;
      continue;
    }
    if (!compared(e.kind)) continue;
    if (e.kind == EventKind::exec_mode && std::exchange(mode, e.payload) == e.payload) continue;
    const bool at_insn =
        (e.kind == EventKind::ptwrite || e.kind == EventKind::paging || e.kind == EventKind::vmcs) && (e.flags & kEventHasFrom) != 0;
    const uint64_t place = at_insn ? place_behind_insn(ours, placed) : before;
    out.push_back({place, steers(e.kind), e.kind == EventKind::overflow,
                   spell(place, name(e.kind), tells_from(e.kind) && (e.flags & kEventHasFrom) != 0, e.from.value,
                         tells_to(e.kind) && (e.flags & kEventHasTo) != 0, e.to.value, steers(e.kind) ? 0 : e.payload)});
  }
  return finish(std::move(out));
}

std::vector<std::string> comparable_events(const oracle::OracleFlow& theirs) {
  std::vector<Comparable> out;
  uint64_t mode = kStartMode;
  for (const auto& e : theirs.events) {
    if (e.status) {
      if (e.kind == EventKind::exec_mode) mode = e.payload;
      continue;
    }
    if (!compared(e.kind)) continue;
    if (e.kind == EventKind::exec_mode && std::exchange(mode, e.payload) == e.payload) continue;
    out.push_back({e.before_insn, steers(e.kind), e.kind == EventKind::overflow,
                   spell(e.before_insn, name(e.kind), tells_from(e.kind) && e.has_from, e.from, tells_to(e.kind) && e.has_to, e.to,
                         steers(e.kind) ? 0 : e.payload)});
  }
  return finish(std::move(out));
}

std::string first_difference(const Flow& ours, const oracle::OracleFlow& theirs, const CompareOptions& options) {
  std::string out = compare_insns(ours.insns, theirs.insns);
  if (out.empty()) out = compare_branch_ends(ours, theirs);
  if (out.empty() && options.events) out = compare_lines("event", comparable_events(ours), comparable_events(theirs));
  if (out.empty() && options.gaps) {
    std::vector<std::string> a, b;
    for (const auto& [before, gap] : ours.gaps) {
      if (gap.reason != GapReason::overflow && gap.reason != GapReason::aux_lost) a.push_back(std::to_string(before));
    }
    for (const auto& error : theirs.errors) b.push_back(std::to_string(error.before_insn));
    out = compare_lines("gap", a, b);
  }
  return out;
}

}  // namespace ptd::test
