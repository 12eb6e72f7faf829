// BranchRows: see branch_rows.h.
#include "analysis/table/branch_rows.h"

#include <utility>

#include "analysis/branch_kind.h"

namespace ptd {

/// The last instruction of a block, and its address.
Insn BranchRows::last_insn(const Stream& stream, NodeId id, Ip& ip) const {
  const BlockInfo& info = stream.table->info(id);
  const Bytes bytes = stream.table->bytes(id);
  Insn last;
  size_t offset = 0;
  ip = info.ip;
  for (uint32_t i = 0; i < info.instructions && offset < bytes.size(); ++i) {
    const Insn insn = classify(bytes.subspan(offset), info.mode);
    if (insn.length_bytes == 0) break;
    last = insn;
    ip = info.ip + offset;
    offset += insn.length_bytes;
  }
  return last;
}

const BranchRows::Node& BranchRows::add_node(Stream& stream, NodeId id) {
  if (id >= stream.nodes.size()) stream.nodes.resize(stream.table->size());
  Node& node = stream.nodes[id];
  const Insn insn = last_insn(stream, id, node.from);
  node.ip = stream.table->info(id).ip;
  node.kind = kinds.index_of(kind_of(insn.cls, insn.detail, false).flags);
  node.known = true;
  return node;
}

/// The open branch went `to`, or its target is not known.
void BranchRows::close(Stream& stream, std::optional<Ip> to, bool ends_trace, std::vector<BranchRow>& rows) {
  if (!stream.open) return;
  BranchRow row = *std::exchange(stream.open, std::nullopt);
  if (!stream.open_wanted) return;
  if (!to || ends_trace) {
    Ip from;
    const Insn insn = last_insn(stream, stream.open_node, from);
    const bool direct = insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jcc || insn.cls == InsnClass::call_direct;
    if (!to && direct) to = direct_target(insn, from, stream.table->info(stream.open_node).mode);
    if (ends_trace) row.kind = kinds.index_of(kind_of(insn.cls, insn.detail, true).flags);
  }
  row.has_to = to.has_value();
  row.to = to.value_or(Ip{});
  rows.push_back(row);
}

void BranchRows::take(FlowItem item, const FlowWalk& walk, std::vector<BranchRow>& rows) {
  Stream& stream = streams_[walk.stream()];
  switch (item) {
    case FlowItem::blocks:
      return take_blocks(stream, walk, rows);
    case FlowItem::event:
      return take_event(stream, walk, rows);
    case FlowItem::gap:
      close(stream, std::nullopt, false, rows);
      stream.flowing = false;
      stream.instructions = 0;
      return;
    default:
      return;
  }
}

void BranchRows::take_blocks(Stream& stream, const FlowWalk& walk, std::vector<BranchRow>& rows) {
  stream.table = &walk.item().table();
  stream.flowing = true;
  const bool wanted = walk.wanted();
  const RowContext& at = walk.context();
  for (const Block& block : walk.item().blocks()) {
    const Node& node = node_of(stream, block.node);
    if (stream.open) {
      BranchRow& row = *stream.open;
      row.to = node.ip;
      row.has_to = true;
      if (stream.open_wanted) rows.push_back(row);
      stream.open.reset();
    }
    stream.instructions += block.instructions;
    if (!has(block.flags, BlockFlag::taken)) continue;
    stream.open.emplace(BranchRow{at, node.from, Ip{}, stream.instructions, node.kind, block.flags, true, false});
    stream.open_node = block.node;
    stream.open_wanted = wanted;
    stream.instructions = 0;
  }
}

void BranchRows::take_event(Stream& stream, const FlowWalk& walk, std::vector<BranchRow>& rows) {
  const Event& event = walk.item().event();
  const auto from = (event.flags & kEventHasFrom) != 0 ? std::optional(event.from) : std::nullopt;
  const auto to = (event.flags & kEventHasTo) != 0 ? std::optional(event.to) : std::nullopt;
  switch (event.kind) {
    case EventKind::async_branch:
      close(stream, from, false, rows);
      return add_event_row(stream, walk, (event.flags & kEventBreakpoint) != 0 ? "int3" : "hw int", rows);
    case EventKind::async_disabled:
      close(stream, from, false, rows);
      stream.flowing = false;
      return add_event_row(stream, walk, "tr end  async", rows);
    case EventKind::enabled:
      if ((event.flags & kEventStatus) != 0) {
        if (std::exchange(stream.flowing, true)) return;
      } else {
        close(stream, std::nullopt, false, rows);
      }
      stream.flowing = true;
      return add_event_row(stream, walk, "tr strt", rows);
    case EventKind::disabled:
      close(stream, to, true, rows);
      stream.flowing = false;
      return;
    case EventKind::overflow:
      close(stream, std::nullopt, false, rows);
      stream.flowing = false;
      return;
    default:
      return;
  }
}

void BranchRows::add_event_row(Stream& stream, const FlowWalk& walk, std::string_view kind, std::vector<BranchRow>& rows) {
  const uint32_t instructions = std::exchange(stream.instructions, 0);
  if (!walk.wanted()) return;
  const Event& event = walk.item().event();
  BranchRow row{walk.context(), event.from, event.to, instructions, kinds.index_of(kind), 0, false, false};
  row.has_from = (event.flags & kEventHasFrom) != 0;
  row.has_to = (event.flags & kEventHasTo) != 0;
  rows.push_back(row);
}

void BranchRows::finish(std::vector<BranchRow>& rows) {
  for (Stream& stream : streams_) close(stream, std::nullopt, false, rows);
}

}  // namespace ptd
