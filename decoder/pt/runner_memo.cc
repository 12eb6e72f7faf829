// MemoTable: places and bodies of memos.
#include "decoder/pt/runner_memo.h"

#include <algorithm>

namespace ptd::pt {
namespace {

constexpr size_t kSlackLines = MemoTable::kCopySlack / 8 + 1;

}  // namespace

void MemoTable::clear() {
  sets_.assign(kFirstSets, Set{});
  mask_ = kFirstSets - 1;
  evicted_ = 0;
  lines_.assign(kSlackLines, Line{});
}

// The table grows while memos that served drive each other out.
void MemoTable::grow() {
  std::vector<Set> old(sets_.size() * 4);
  old.swap(sets_);
  mask_ = sets_.size() - 1;
  evicted_ = 0;
  for (const Set& from : old) {
    for (auto memo = from.ways.rbegin(); memo != from.ways.rend(); ++memo) {
      if (memo->run == kNoRun) continue;
      auto& ways = sets_[set_of(memo->run, memo->group)].ways;
      std::move_backward(ways.begin(), ways.end() - 1, ways.end());
      ways[0] = *memo;
    }
  }
}

void MemoTable::see(RunId run, uint32_t group) {
  auto* ways = &sets_[set_of(run, group)].ways;
  if (ways->back().bits != 0 && ++evicted_ > sets_.size() && sets_.size() < kMostSets) {
    grow();
    ways = &sets_[set_of(run, group)].ways;
  }
  std::move_backward(ways->begin(), ways->end() - 1, ways->end());
  (*ways)[0] = Memo{};
  (*ways)[0].run = run;
  (*ways)[0].group = static_cast<uint16_t>(group);
}

Memo* MemoTable::place(RunId run, uint32_t group) {
  for (Memo& memo : sets_[set_of(run, group)].ways) {
    if (memo.run == run && memo.group == group) return &memo;
  }
  return nullptr;
}

const Memo* MemoTable::put(const Memo& memo, const MemoHead& head, std::span<const Block> blocks, std::span<const CallSite> calls) {
  Memo* slot = place(memo.run, memo.group);
  if (slot == nullptr) return nullptr;
  const size_t lines = (1 + blocks.size() + calls.size() * kBlocksACall + 7) / 8;
  // A site that goes back and forth between contents: the old body is written over if it is as large.
  const bool reuse = slot->bits != 0 && (1 + slot->blocks + this->head(*slot).calls * kBlocksACall + 7) / 8 == lines;
  const uint32_t body = reuse ? slot->body : static_cast<uint32_t>(lines_.size() - kSlackLines);
  if (!reuse) lines_.resize(lines_.size() + lines);
  *slot = memo;
  slot->body = body;
  slot->blocks = static_cast<uint8_t>(blocks.size());
  Block* to = lines_[body].blocks.data();
  std::memcpy(static_cast<void*>(to), &head, sizeof head);
  std::copy(blocks.begin(), blocks.end(), to + 1);
  if (!calls.empty()) std::memcpy(static_cast<void*>(to + 1 + blocks.size()), calls.data(), calls.size_bytes());
  return slot;
}

}  // namespace ptd::pt
