// The branch trace before a position: see branch_trace.h.
#include "replay/branch_trace.h"

#include <algorithm>
#include <unordered_map>

#include "replay/text.h"
#include "replay/window_edge.h"

namespace ptd::replay {

namespace {

/// Returns whether the bytes of blocks are those in memory at one time.
class SameCode {
 public:
  SameCode(ReplayMemory& memory, const ReplayPlace& now)
      : memory_(&memory), space_(now.space), when_(memory.time_of(now.space, *now.block, now.time)) {}
  bool check(const BlockInfo& info) {
    const auto [known, is_new] = known_.try_emplace(&info, false);
    if (is_new) {
      bytes_.resize(info.size_bytes);
      const size_t size = memory_->read(space_, info.ip, when_, bytes_);
      known->second = size == info.size_bytes && std::equal(bytes_.begin(), bytes_.end(), info.first_byte);
    }
    return known->second;
  }

 private:
  ReplayMemory* memory_;
  SpaceId space_;
  TimeNs when_;
  std::vector<std::byte> bytes_;
  std::unordered_map<const BlockInfo*, bool> known_;
};

/// Adds executed instructions that precede those added so far.
class Blocks {
 public:
  explicit Blocks(Ip next) : made_{{next, next}}, follower_(next) {}
  void add(Ip first, Ip last, Ip after) {
    if (after == follower_) {
      made_.back().begin = first;
    } else {
      made_.push_back({first, last});
    }
    follower_ = first;
  }
  std::vector<BranchBlock>& made() { return made_; }

 private:
  std::vector<BranchBlock> made_;
  Ip follower_;  // the first instruction of made_.back()
};

constexpr size_t kMostItems = 1U << 20;  // of all threads

}  // namespace

std::vector<BranchBlock> branch_trace(const ReplayCursor& cursor, ThreadKey thread, size_t most_blocks, ReplayMemory& memory) {
  const auto next = cursor.next_place(thread);
  if (!next) return {};
  Blocks blocks(next->ip);
  SameCode same(memory, *next);
  ReplayCursor back(cursor);
  WindowEdge edge;
  edge.reach(next->stream);
  for (size_t items = 0; items < kMostItems && back.enter_previous(); ++items) {
    if (back.item().is_window && edge.pass(back.stream())) break;
    if (back.item().is_window || back.thread() != thread) {
      back.leave_backward();
      continue;
    }
    if (back.item().kind == FlowItem::gap || edge.reach(back.stream())) break;
    if (back.item().kind != FlowItem::blocks) {
      back.leave_backward();
      continue;
    }
    if (back.item().space != next->space) break;
    uint32_t block = back.block_index(), insns = back.insn_index();
    while (block != 0 || insns != 0) {
      if (insns == 0) insns = back.info(--block).instructions;
      const BlockInfo& info = back.info(block);
      if (!same.check(info)) return std::move(blocks.made());
      const std::span<const uint32_t> offsets = back.insn_offsets(info);
      const size_t used = std::min<size_t>(insns, offsets.size());
      const uint64_t end = used < offsets.size() ? offsets[used] : info.size_bytes;
      blocks.add(info.ip, info.ip + offsets[used - 1], info.ip + end);
      if (blocks.made().size() >= most_blocks) return std::move(blocks.made());
      insns = 0;
    }
    back.leave_backward();
  }
  return std::move(blocks.made());
}

std::string btrace_document(const std::vector<BranchBlock>& blocks) {
  std::string text = "<!DOCTYPE btrace SYSTEM \"btrace.dtd\">\n<btrace version=\"1.0\">\n";
  for (const BranchBlock& block : blocks) text += "<block begin=\"" + hex(block.begin) + "\" end=\"" + hex(block.end) + "\"/>\n";
  return text + "</btrace>\n";
}

}  // namespace ptd::replay
