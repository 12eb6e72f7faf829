// BranchFlow: see branch_flow.h.
#include "analysis/table/flow/branch_flow.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "analysis/names/branch_kind.h"
#include "decoder/insn/executed_insn.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {
namespace {

// Of the given ones that are kept.
constexpr size_t kBlocksAtOnce = 2048, kRunsAtOnce = 64;

}  // namespace

/// The last instruction of a block, and its address.
Insn BranchFlow::last_insn(NodeId id, Ip& ip) const {
  const BlockInfo& info = table_->info(id);
  Bytes rest = table_->bytes(id);
  Insn last;
  Ip at = ip = info.ip;
  for (uint32_t i = 0; i < info.instructions && !rest.empty(); ++i) {
    const Insn insn = executed_insn(rest, info.mode);
    if (insn.length_bytes == 0) break;
    last = insn;
    ip = at;
    at = at + insn.length_bytes;
    rest = rest.subspan(std::min<size_t>(insn.length_bytes, rest.size()));
  }
  return last;
}

void BranchFlow::add_node(NodeId id) {
  if (id >= nodes_.size()) nodes_.resize(std::max<size_t>(size_t{id} + 1, nodes_.size() * 2));
  Node& node = nodes_[id];
  const Insn insn = last_insn(id, node.from);
  node.ip = table_->info(id).ip;
  node.kind = index_of(kind_of(insn.cls, insn.detail, false).flags.data());
  node.known = true;
}

uint8_t BranchFlow::index_of(const char* kind) {
  const auto index = static_cast<size_t>(std::find(kinds_.begin(), kinds_.end(), kind) - kinds_.begin());
  if (index == kinds_.size()) kinds_.push_back(kind);
  return static_cast<uint8_t>(index);
}

void BranchFlow::drop_given() {
  if (given_ == 0) return;
  const bool all = given_ == runs_.size();
  if (!all && runs_[given_].first < kBlocksAtOnce && given_ < kRunsAtOnce) return;  // else the rest would be moved after each item
  const size_t first = all ? blocks_.size() : runs_[given_].first, first_special = all ? specials_.size() : runs_[given_].first_special;
  blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(first));
  specials_.erase(specials_.begin(), specials_.begin() + static_cast<std::ptrdiff_t>(first_special));
  runs_.erase(runs_.begin(), runs_.begin() + static_cast<std::ptrdiff_t>(given_));
  for (BranchRun& run : runs_) run.first -= first, run.first_special -= first_special;
  given_ = 0;
}

/// The run that the next block belongs to, if that or a block after it is a branch.
BranchRun& BranchFlow::run() {
  if (in_run()) return runs_.back();
  new_context_ = false;
  order_ = std::max(order_, time_);
  return runs_.emplace_back(
      BranchRun{context_, time_, order_, std::nullopt, blocks_.size(), 0, specials_.size(), 0, instructions_, segment_});
}

/// The last branch has these ends.
void BranchFlow::add_special(const BranchEnds& ends) {
  BranchRun& run = runs_.back();
  specials_.push_back({run.count - 1, ends});
  ++run.special_count;
}

/// The open branch went `to`, or its target is not known.
void BranchFlow::close(std::optional<Ip> to, bool ends_trace) {
  if (!std::exchange(open_, false)) return;
  const NodeId id = blocks_.back().node;
  BranchEnds ends{Ip{}, Ip{}, node(id).kind, true, true};
  const Insn insn = last_insn(id, ends.from);
  if (!to || ends_trace) {
    const bool direct = insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jcc || insn.cls == InsnClass::call_direct;
    if (!to && direct) to = direct_target(insn, ends.from, table_->info(id).mode);
    if (ends_trace) ends.kind = index_of(kind_of(insn.cls, insn.detail, true).flags.data());
  }
  ends.has_to = to.has_value();
  ends.to = to.value_or(Ip{});
  add_special(ends);
}

void BranchFlow::take(FlowItem item, const StreamCursor& cursor) {
  drop_given();
  if (item != FlowItem::end && std::exchange(segment_, cursor.segment_offset()) != cursor.segment_offset()) new_context_ = true;
  switch (item) {
    case FlowItem::end:
      return finish();
    case FlowItem::mark:
      return take_mark(cursor);
    case FlowItem::blocks:
      table_ = &cursor.table();
      return take_blocks(cursor.blocks());
    case FlowItem::event:
      return take_event(cursor.event());
    case FlowItem::gap:
      return take_gap(cursor.gap());
  }
}

void BranchFlow::take_mark(const StreamCursor& cursor) {
  context_ = cursor.context();
  time_ = is_dated(context_) ? cursor.now() : kTimeMin;
  new_context_ = true;
}

void BranchFlow::take_blocks(std::span<const Block> blocks) {
  flowing_ = true;
  if (blocks.empty()) return;
  if (open_ && !in_run()) blocks_.push_back(blocks.front());
  size_t branches_end = blocks.size();  // after the last branch
  uint32_t instructions = 0;
  while (branches_end != 0 && !has(blocks[branches_end - 1].flags, BlockFlag::taken)) instructions += blocks[--branches_end].instructions;
  if (branches_end != 0 || in_run()) {
    BranchRun& added = run();
    added.count += blocks.size();
    blocks_.resize(blocks_.size() + blocks.size());
    std::memcpy(&*(blocks_.end() - static_cast<std::ptrdiff_t>(blocks.size())), blocks.data(), blocks.size_bytes());
  }
  instructions_ = branches_end != 0 ? instructions : instructions_ + instructions;
  open_ = branches_end == blocks.size();
}

void BranchFlow::take_event(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0, has_to = (event.flags & kEventHasTo) != 0;
  const auto from = has_from ? std::optional(event.from) : std::nullopt, to = has_to ? std::optional(event.to) : std::nullopt;
  const char* kind = nullptr;
  switch (event.kind) {
    case EventKind::async_branch:
      close(from, false);
      kind = kind_of(event).flags.data();
      break;
    case EventKind::async_disabled:
      close(from, false);
      flowing_ = false;
      kind = "tr end  async";
      break;
    case EventKind::enabled:
      if ((event.flags & kEventStatus) == 0) close(std::nullopt, false);
      if (std::exchange(flowing_, true) && (event.flags & kEventStatus) != 0) return;  // restates that tracing is on
      kind = "tr strt";
      break;
    case EventKind::disabled:
      close(to, true);
      flowing_ = false;
      return;
    case EventKind::overflow:
      close(std::nullopt, false);
      flowing_ = false;
      return;
    default:
      return;
  }
  ++run().count;
  blocks_.push_back(Block{kNoNode, 0, 0});
  instructions_ = 0;
  add_special({event.from, event.to, index_of(kind), has_from, has_to});
}

void BranchFlow::take_gap(const Gap& gap) {
  close(std::nullopt, false);
  flowing_ = false;
  order_ = std::max(order_, time_);
  runs_.push_back({context_, time_, order_, gap, blocks_.size(), 0, specials_.size(), 0, 0, segment_});
}

}  // namespace ptd
