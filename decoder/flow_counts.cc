// FlowCounts: counting what passes.
#include "ptdecode/flow_counts.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "ptdecode/insn.h"

namespace ptd {
namespace {

/// The last instruction of a block and where it stands.
struct LastInsn {
  Insn insn;
  Ip ip;
};

LastInsn last_of(const BlockInfo& info, Bytes bytes) {
  LastInsn last;
  size_t at = 0;
  for (unsigned i = 0; i < info.instructions && at < bytes.size(); ++i) {
    last = {classify(bytes.subspan(at), info.mode), info.ip + at};
    if (last.insn.length_bytes == 0) break;
    at += last.insn.length_bytes;
  }
  return last;
}

size_t slot_of(NodeId from, uint64_t to, size_t slots) {
  const uint64_t hash = (to ^ uint64_t{from} << 40) * 0x9e3779b97f4a7c15ULL;
  return (hash ^ hash >> 32) & (slots - 1);
}

bool is_direct(InsnClass cls) { return cls == InsnClass::jcc || cls == InsnClass::jump_direct || cls == InsnClass::call_direct; }

}  // namespace

void WayCounts::add(NodeId from, uint64_t to, uint64_t count) {
  if (2 * (used_ + 1) > slots_.size()) {
    std::vector<EdgeCount> old(std::max<size_t>(1024, 2 * slots_.size()));
    old.swap(slots_);
    used_ = 0;
    for (const EdgeCount& way : old) {
      if (way.count != 0) add(way.from, way.to.value, way.count);
    }
  }
  for (size_t slot = slot_of(from, to, slots_.size());; slot = (slot + 1) & (slots_.size() - 1)) {
    EdgeCount& way = slots_[slot];
    if (way.count == 0) {
      way = {from, Ip{to}, count};
      ++used_;
      return;
    }
    if (way.from != from || way.to.value != to) continue;
    way.count += count;
    return;
  }
}

void FlowCounts::meet(NodeId node, const BlockTable& table) {
  const LastInsn last = last_of(table.info(node), table.bytes(node));
  nodes_[node].end = !is_branch(last.insn.cls) ? End::cut : is_direct(last.insn.cls) ? End::known : End::dynamic;
}

void FlowCounts::go_dynamic(uint64_t to) {
  waits_ = false;
  Node& node = nodes_[waiting_];
  if (node.last_to != to) {
    if (node.last_count != 0) dynamic_.add(waiting_, node.last_to, node.last_count);
    node.last_to = to;
    node.last_count = 0;
  }
  ++node.last_count;
}

// An event between a branch and the next block: it may stand at the branch's target, and what comes next elsewhere.
void FlowCounts::tell(const Event& event) {
  if (!waits_) return;
  if (event.kind == EventKind::disabled) {
    if ((event.flags & kEventHasTo) != 0) go_dynamic(event.to.value);
    waits_ = false;
  } else if ((event.flags & kEventHasFrom) != 0) {
    go_dynamic(event.from.value);
  } else if (event.kind == EventKind::exec_mode && (event.flags & kEventHasTo) != 0) {
    go_dynamic(event.to.value);
  }
}

void FlowCounts::count_time(const Mark& mark, NodeId node) {
  if (mark.time_known) {
    const uint64_t middle = mark.time.first.value + (mark.time.last.value - mark.time.first.value) / 2;
    if (has_mark_ && middle > mark_ns_) time_[mark_node_] += middle - mark_ns_;
    mark_ns_ = has_mark_ ? std::max(mark_ns_, middle) : middle;
  }
  has_mark_ = mark.time_known;
  mark_node_ = node;
}

void FlowCounts::end_segment() { waits_ = has_mark_ = false; }

void FlowCounts::make_room(const FlowTables& tables) {
  nodes_.resize(tables.blocks.size());
  blocks_.resize(tables.blocks.size());
  time_.resize(tables.blocks.size());
  sequences_.resize(tables.sequences.size());
}

// Gets to know how blocks end. True if the last one's way out is dynamic.
bool FlowCounts::meet(std::span<const Block> blocks, const FlowTables& tables) {
  for (const Block& block : blocks) {
    if (nodes_[block.node].end == End::unknown && has(block.flags, BlockFlag::ends_in_branch)) meet(block.node, tables.blocks);
  }
  return has(blocks.back().flags, BlockFlag::ends_in_branch) && nodes_[blocks.back().node].end == End::dynamic;
}

// The same of a run, of which it is known without a look at its instructions. Returns `dynamic`.
bool FlowCounts::meet_run(std::span<const Block> blocks, bool dynamic) {
  for (const Block& block : blocks) {
    if (has(block.flags, BlockFlag::ends_in_branch) && nodes_[block.node].end == End::unknown) nodes_[block.node].end = End::known;
  }
  if (dynamic) nodes_[blocks.back().node].end = End::dynamic;
  return dynamic;
}

void FlowCounts::meet(SequenceId id, const FlowTables& tables) {
  const std::span<const Block> blocks = tables.sequences.blocks(id);
  Sequence& sequence = sequences_[id];
  sequence.met = true;
  sequence.first_ip = tables.blocks.info(blocks.front().node).ip.value;
  sequence.last = blocks.back().node;
  sequence.goes_dynamic = meet(blocks, tables);
}

void FlowCounts::add_sequence(SequenceId id, const FlowTables& tables) {
  Sequence& sequence = sequences_[id];
  if (!sequence.met) meet(id, tables);
  if (waits_) go_dynamic(sequence.first_ip);
  ++sequence.count;
  waits_ = sequence.goes_dynamic;
  waiting_ = sequence.last;
}

void FlowCounts::add(const Block& block, const FlowTables& tables) {
  if (waits_) go_dynamic(tables.blocks.info(block.node).ip.value);
  if (has(block.flags, BlockFlag::passing)) return;
  ++blocks_[block.node];
  if (!has(block.flags, BlockFlag::ends_in_branch)) return;
  Node& node = nodes_[block.node];
  if (node.end == End::unknown) meet(block.node, tables.blocks);
  if (node.end == End::known) {
    ++node.ways[has(block.flags, BlockFlag::taken) ? 1 : 0];
  } else if (node.end == End::dynamic) {
    waits_ = true;
    waiting_ = block.node;
  }
}

void FlowCounts::add(const Batch& batch, const FlowTables& tables) {
  make_room(tables);
  instructions_ += instructions_of(batch.blocks);
  const auto node_of = [&](const Block& block) {
    return has(block.flags, BlockFlag::sequence) ? tables.sequences.blocks(block.node).front().node : block.node;
  };
  size_t mark = 0, event = 0, gap = 0, next_stop = 0;
  for (size_t i = 0; i <= batch.blocks.size(); ++i) {
    if (i >= next_stop) {
      for (; event < batch.events.size() && batch.events[event].before_block <= i; ++event) {
        while (gap < batch.gaps.size() && batch.gaps[gap].stream_offset_bytes <= batch.events[event].stream_offset_bytes && batch.gaps[gap].before_block <= i) {
          waits_ = has_mark_ = false;
          ++gap;
        }
        tell(batch.events[event]);
      }
      for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) waits_ = has_mark_ = false;
      for (; i < batch.blocks.size() && mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark) {
        const bool is_last = mark + 1 == batch.marks.size() || batch.marks[mark + 1].before_block > i;  // those before it date events
        if (is_last) count_time(batch.marks[mark], node_of(batch.blocks[i]));
      }
      next_stop = batch.blocks.size();
      if (event < batch.events.size()) next_stop = std::min<size_t>(next_stop, batch.events[event].before_block);
      if (gap < batch.gaps.size()) next_stop = std::min<size_t>(next_stop, batch.gaps[gap].before_block);
      if (mark < batch.marks.size()) next_stop = std::min<size_t>(next_stop, batch.marks[mark].before_block);
    }
    if (i == batch.blocks.size()) break;
    const Block block = batch.blocks[i];
    if (has(block.flags, BlockFlag::sequence)) {
      add_sequence(block.node, tables);
    } else {
      add(block, tables);
    }
  }
}

void FlowCounts::take_apart(std::span<const Block> blocks, uint64_t count, const FlowTables& tables) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    blocks_[block.node] += count;
    if (!has(block.flags, BlockFlag::ends_in_branch)) continue;
    Node& node = nodes_[block.node];
    if (node.end == End::known) node.ways[has(block.flags, BlockFlag::taken) ? 1 : 0] += count;
    if (node.end == End::dynamic && i + 1 < blocks.size()) dynamic_.add(block.node, tables.blocks.info(blocks[i + 1].node).ip.value, count);
  }
}

void FlowCounts::finish(const FlowTables& tables, const PathCounts& paths) {
  make_room(tables);
  for (const PathCounts::Path& path : paths.paths()) {
    const std::span<const Block> blocks = paths.blocks(path);
    const bool dynamic = path.end == PathEnd::unknown ? meet(blocks, tables) : meet_run(blocks, path.end == PathEnd::dynamic);
    if (dynamic) dynamic_.add(blocks.back().node, path.to.value, path.count);
    take_apart(blocks, path.count, tables);
    for (const Block& block : blocks) instructions_ += path.count * block.instructions;
  }
  for (SequenceId id = 0; id < sequences_.size(); ++id) {
    const uint64_t count = std::exchange(sequences_[id].count, 0);
    if (count != 0) take_apart(tables.sequences.blocks(id), count, tables);
  }
}

std::vector<EdgeCount> FlowCounts::edges(const BlockTable& table) const {
  WayCounts all = dynamic_;
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    const Node& counts = nodes_[node];
    if (counts.last_count != 0) all.add(node, counts.last_to, counts.last_count);
    if (counts.ways[0] + counts.ways[1] == 0) continue;
    const ExecMode mode = table.info(node).mode;
    const LastInsn last = last_of(table.info(node), table.bytes(node));
    if (counts.ways[0] != 0) all.add(node, next_sequential(last.insn, last.ip, mode).value, counts.ways[0]);
    if (counts.ways[1] != 0) all.add(node, direct_target(last.insn, last.ip, mode).value, counts.ways[1]);
  }
  std::vector<EdgeCount> out;
  std::copy_if(all.slots().begin(), all.slots().end(), std::back_inserter(out), [](const EdgeCount& way) { return way.count != 0; });
  std::sort(out.begin(), out.end(),
            [](const EdgeCount& a, const EdgeCount& b) { return std::pair(a.from, a.to) < std::pair(b.from, b.to); });
  return out;
}

}  // namespace ptd
