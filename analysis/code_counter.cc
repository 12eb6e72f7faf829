// Batches of blocks -> counts of runs and branches. See code_counter.h.
#include "analysis/code_counter.h"

#include <algorithm>

#include "analysis/gap_marks.h"
#include "decoder/insn/executed_insn.h"
#include "decoder/uncounted_rounds.h"
#include "ptdecode/flow_decoder.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"

namespace ptd {
namespace {

// A key of KeyCounts is never 0; a node's number is less than its highest value.
uint64_t key(NodeId first, NodeId second) { return (uint64_t{first} << 32 | second) + 1; }
NodeId first_of(uint64_t key) { return static_cast<NodeId>((key - 1) >> 32); }
NodeId second_of(uint64_t key) { return static_cast<NodeId>(key - 1); }

}  // namespace

uint64_t FileCounts::ran_bytes() const {
  uint64_t bytes = 0;
  for (const CodeRun& run : runs) bytes += run.count * (run.end - run.first);
  return bytes;
}

uint32_t CodeCounter::file_id(const FilePlace& place) {
  const File made{static_cast<uint32_t>(file_ids_.size()), place.relocatable};
  return file_ids_.try_emplace({place.path, place.build_id}, made).first->second.id;
}

CodeCounter::Node& CodeCounter::meet(NodeId id, const BlockTable& blocks) {
  if (id >= nodes_.size()) {
    nodes_.resize(std::max<size_t>(id + 1, nodes_.size() * 2));
    places_.resize(nodes_.size());
  }
  Node& node = nodes_[id];
  Place& place = places_[id];
  node.known = true;
  const BlockInfo& info = blocks.info(id);
  node.ip = info.ip;
  node.next = info.ip + info.size_bytes;
  place.size_bytes = info.size_bytes;
  const Bytes bytes = blocks.bytes(id);
  for (uint32_t offset = 0; offset < bytes.size();) {
    const Insn insn = executed_insn(bytes.subspan(offset), info.mode);
    if (insn.length_bytes == 0) break;
    place.last_offset = offset;
    node.conditional = insn.cls == InsnClass::jcc;
    node.jumps = node.conditional || insn.cls == InsnClass::jump_direct || insn.cls == InsnClass::jump_indirect;
    node.indirect = insn.cls == InsnClass::jump_indirect || insn.cls == InsnClass::call_indirect || insn.cls == InsnClass::ret;
    node.far = insn.cls == InsnClass::far_call || insn.cls == InsnClass::far_jump || insn.cls == InsnClass::far_ret;
    offset += insn.length_bytes;
  }
  if (const auto found = symbolizer_.file_place(info.space, info.ip, cursor_.now())) {
    node.file = file_id(*found);
    place.address = found->address;
  }
  return node;
}

void CodeCounter::close_run() {
  if (first_ == kNone) return;
  Node& node = nodes_[first_];
  if (node.run_last != last_ || node.by_jump != by_jump_ || node.run_count == UINT32_MAX) {
    if (node.run_count != 0) runs_[node.by_jump ? 1 : 0].count(key(first_, node.run_last)) += node.run_count;
    node.run_last = last_;
    node.by_jump = by_jump_;
    node.run_count = 0;
  }
  ++node.run_count;
  first_ = last_ = kNone;
}

void CodeCounter::count_branch(NodeId to) {
  Node& node = nodes_[branch_];
  if (node.branch_to != to || node.branch_count == UINT32_MAX) {
    if (node.branch_count != 0) branches_.count(key(branch_, node.branch_to)) += node.branch_count;
    node.branch_to = to;
    node.branch_count = 0;
  }
  ++node.branch_count;
}

// Moves the node's own counts to the tables.
void CodeCounter::put_away(NodeId id) {
  Node& node = nodes_[id];
  if (node.run_count != 0) runs_[node.by_jump ? 1 : 0].count(key(id, node.run_last)) += node.run_count;
  if (node.branch_count != 0) branches_.count(key(id, node.branch_to)) += node.branch_count;
  node.run_count = node.branch_count = 0;
}

void CodeCounter::lose() {
  close_run();
  branch_ = kNone;
}

void CodeCounter::take_mark(Mark mark) {
  mark.time_known = is_dated(mark);
  if (mark.time_known) mark.time.first = cursor_.now();
  // The kernel goes on from one thread to the next in the middle of its code.
  const NodeId last = last_ != kNone ? last_ : branch_;
  if (mark.space != space_ && (last == kNone || !is_kernel_half(nodes_[last].ip))) lose();
  space_ = mark.space;
  const bool counts = !wanted_ || wanted_(mark);
  if (counts != counts_) lose();
  counts_ = counts;
}

// Counts a branch to other code than that of its file.
void CodeCounter::cross(NodeId to) {
  if (nodes_[branch_].file != kNoFile) ++exits_.count(uint64_t{branch_} + 1);
  if (nodes_[to].file != kNoFile) ++entries_.count(uint64_t{to} + 1);
}

// Counts a branch whose target did not run, because an interrupt or a fault came there.
void CodeCounter::cut_branch(Ip to) {
  const auto found = symbolizer_.file_place(space_at(space_, to), to, cursor_.now());
  const uint32_t from_file = nodes_[branch_].file, to_file = found ? file_id(*found) : kNoFile;
  if (from_file == to_file && found) {
    ++cut_branches_[{branch_, found->address}];
    return;
  }
  if (from_file != kNoFile) ++exits_.count(uint64_t{branch_} + 1);
  if (found) ++cut_entries_[{to_file, found->address}];
}

void CodeCounter::take_event(const Event& event) {
  switch (event.kind) {
    case EventKind::async_branch:
    case EventKind::async_disabled:
      close_run();
      if (branch_ != kNone && (event.flags & kEventHasFrom) != 0) cut_branch(event.from);
      branch_ = kNone;
      return;
    case EventKind::enabled:
      if ((event.flags & kEventStatus) != 0) return;
      return lose();
    case EventKind::disabled:
    case EventKind::overflow:
    case EventKind::tsx_abort:
      return lose();
    default:
      return;
  }
}

void CodeCounter::take_blocks(std::span<const Block> batch, const BlockTable& blocks) {
  for (const Block& block : batch) {
    Node& here = node(block.node, blocks);
    instructions_ += block.instructions;
    if (here.file == kNoFile) {
      fileless_ += block.instructions;
      close_run();
      if (branch_ != kNone) cross(block.node);
      branch_ = has(block.flags, BlockFlag::taken) && !here.far ? block.node : kNone;
      continue;
    }
    if (last_ == kNone || nodes_[last_].next != here.ip || nodes_[last_].file != here.file) {
      close_run();
      const bool inside = branch_ != kNone && nodes_[branch_].file == here.file;
      by_jump_ = inside && nodes_[branch_].jumps;
      if (inside) {
        count_branch(block.node);
      } else if (branch_ != kNone) {
        cross(block.node);
      }
      first_ = block.node;
    }
    branch_ = kNone;
    last_ = block.node;
    if (!has(block.flags, BlockFlag::taken)) {
      if (has(block.flags, BlockFlag::ends_in_branch)) ++here.not_taken;
      continue;
    }
    close_run();
    if (!here.far) branch_ = block.node;
  }
}

void CodeCounter::take(const Batch& batch, const BlockTable& blocks) {
  cursor_.begin(batch);
  for (FlowItem item = cursor_.next(); item != FlowItem::end; item = cursor_.next()) {
    switch (item) {
      case FlowItem::blocks:
        if (counts_) take_blocks(cursor_.blocks(), blocks);
        break;
      case FlowItem::mark:
        take_mark(cursor_.mark());
        break;
      case FlowItem::event:
        if (counts_) take_event(cursor_.event());
        break;
      case FlowItem::gap:
        lose();
        break;
      case FlowItem::end:
        break;
    }
  }
}

void CodeCounter::finish() {
  lose();
  for (NodeId id = 0; id < nodes_.size(); ++id) put_away(id);
}

void CodeCounter::add_to(FileSums& files) const {
  std::vector<FileSum*> by_id(file_ids_.size());
  for (const auto& [name, file] : file_ids_) {
    by_id[file.id] = &files[{std::string(name.first), std::string(name.second)}];
    by_id[file.id]->relocatable = file.relocatable;
  }
  for (const bool by_jump : {false, true}) {
    for (const KeyCounts::Slot& slot : runs_[by_jump ? 1 : 0].slots()) {
      if (slot.key == 0) continue;
      const NodeId first = first_of(slot.key), last = second_of(slot.key);
      const uint64_t start = places_[first].address, last_block = start + (nodes_[last].ip - nodes_[first].ip);
      CodeRun& run = by_id[nodes_[first].file]->runs[{start, last_block + places_[last].last_offset}];
      run.first = start;
      run.last = last_block + places_[last].last_offset;
      run.end = last_block + places_[last].size_bytes;
      run.count += slot.count;
      if (by_jump) run.by_jump += slot.count;
    }
  }
  const auto add_branch = [&](NodeId from, uint64_t to, uint64_t count) {
    const uint64_t address = places_[from].address + places_[from].last_offset;
    CodeBranch& branch = by_id[nodes_[from].file]->branches[{address, to}];
    branch = {address, to, branch.count + count, nodes_[from].jumps, nodes_[from].indirect};
  };
  for (const KeyCounts::Slot& slot : branches_.slots()) {
    if (slot.key != 0) add_branch(first_of(slot.key), places_[second_of(slot.key)].address, slot.count);
  }
  for (const auto& [way, count] : cut_branches_) add_branch(way.first, way.second, count);
  const auto end_of = [&](NodeId id) { return places_[id].address + places_[id].last_offset; };
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    if (nodes_[id].conditional && nodes_[id].not_taken != 0) by_id[nodes_[id].file]->not_taken[end_of(id)] += nodes_[id].not_taken;
  }
  for (const KeyCounts::Slot& slot : exits_.slots()) {
    if (slot.key != 0) by_id[nodes_[slot.key - 1].file]->exits[end_of(static_cast<NodeId>(slot.key - 1))] += slot.count;
  }
  for (const KeyCounts::Slot& slot : entries_.slots()) {
    if (slot.key != 0) by_id[nodes_[slot.key - 1].file]->entries[places_[slot.key - 1].address] += slot.count;
  }
  for (const auto& [place, count] : cut_entries_) by_id[place.first]->entries[place.second] += count;
}

AddressCounts::AddressCounts(const std::vector<CodeRun>& runs) {
  std::map<uint64_t, int64_t> changes;
  for (const CodeRun& run : runs) {
    changes[run.first] += static_cast<int64_t>(run.count);
    changes[run.end] -= static_cast<int64_t>(run.count);
  }
  int64_t count = 0;
  for (const auto& [address, change] : changes) steps_.emplace_back(address, static_cast<uint64_t>(count += change));
}

uint64_t AddressCounts::highest(uint64_t first, uint64_t end) const {
  auto at = std::upper_bound(steps_.begin(), steps_.end(), first, [](uint64_t value, const auto& step) { return value < step.first; });
  uint64_t highest = at == steps_.begin() ? 0 : std::prev(at)->second;
  for (; at != steps_.end() && at->first < end; ++at) highest = std::max(highest, at->second);
  return highest;
}

bool counts(const CodeCountOptions& options, const Mark& mark) {
  const bool all = options.time.first == kTimeMin && options.time.last == kTimeMax;
  return (all || (mark.time_known && options.time.contains(mark.time.first))) && (!options.wanted || options.wanted(mark));
}

Status count_stream(const Recording& recording, const CodeCountOptions& options, uint32_t stream, bool& stopped,
                    const std::function<void(const Batch&, const BlockTable&)>& take) {
  GapMarks gaps(recording.streams()[stream].tid);
  uint64_t offset = 0;
  const uint64_t first = options.time.first == kTimeMin ? 0 : recording.segment_at(stream, options.time.first);
  return recording.decode(stream, first, Recording::kStreamEnd,
                          [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
                            take(batch, decoder.blocks());
                            if (options.on_gap) gaps.take(batch, options.on_gap);
                            for (const Event& event : batch.events) {
                              if (options.on_rounds && is_uncounted_rounds(event)) options.on_rounds(event);
                            }
                            if (segment.stream_offset_bytes > offset && options.progress) {
                              stopped = stopped || !options.progress(segment.stream_offset_bytes - offset);
                              offset = segment.stream_offset_bytes;
                            }
                            return !stopped && !(options.time.last < segment.time.first);
                          });
}

std::vector<uint32_t> streams_of(const Recording& recording, const CodeCountOptions& options) {
  std::vector<uint32_t> streams = options.streams;
  for (uint32_t i = 0; options.streams.empty() && i < recording.streams().size(); ++i) streams.push_back(i);
  return streams;
}

Result<CodeCounts> count_code(const Recording& recording, const CodeCountOptions& options) {
  CodeCounter::FileSums files;
  CodeCounts sums;
  bool stopped = false;
  for (const uint32_t stream : streams_of(recording, options)) {
    CodeCounter counter(recording.symbolizer(), [&options](const Mark& mark) { return counts(options, mark); });
    const Status status = count_stream(recording, options, stream, stopped,
                                       [&counter](const Batch& batch, const BlockTable& blocks) { counter.take(batch, blocks); });
    if (!status) return status.error();
    counter.finish();
    counter.add_to(files);
    sums.instructions += counter.instructions();
    sums.fileless += counter.fileless();
    if (stopped) break;
  }
  for (auto& [name, found] : files) {
    if (found.runs.empty()) continue;  // only the target of a branch at which an interrupt or a fault came
    FileCounts& file = sums.files.emplace_back(FileCounts{name.first, name.second, found.relocatable, {}, {}, {}, {}, {}});
    for (auto& [place, run] : found.runs) file.runs.push_back(run);
    for (const auto& [way, branch] : found.branches) file.branches.push_back(branch);
    for (const auto& [address, count] : found.not_taken) file.not_taken.push_back({address, count});
    for (const auto& [address, count] : found.exits) file.exits.push_back({address, count});
    for (const auto& [address, count] : found.entries) file.entries.push_back({address, count});
  }
  std::stable_sort(sums.files.begin(), sums.files.end(),
                   [](const FileCounts& a, const FileCounts& b) { return a.ran_bytes() > b.ran_bytes(); });
  return sums;
}

}  // namespace ptd
