// MemoTable: places and bodies of memos.
#include "decoder/pt/runner_memo.h"

#include <algorithm>

namespace ptd::pt {
namespace {

constexpr size_t kSlackBodies = MemoTable::kCopySlack / 2 + MemoTable::kMaxCalls / 4;

size_t bodies_of(size_t blocks) { return MemoTable::kMaxCalls / 4 + (blocks + 1) / 2; }

}  // namespace

void MemoTable::clear() {
  links_.assign(1, Link{});
  memos_.assign(2, Memo{});
  bodies_.assign(kSlackBodies, Body{});
}

void MemoTable::lift(Link& link) {
  if (link.level + 1U < kWidths.size()) {
    ++link.level;
  } else {
    link.left = kVisits.back();
    return;
  }
  link.left = kVisits[link.level];
  link.first = static_cast<uint32_t>(memos_.size());
  link.shift = static_cast<uint8_t>(64 - kWidths[link.level]);
  memos_.resize(memos_.size() + (size_t{1} << kWidths[link.level]));
}

bool MemoTable::ask(RunId run, uint64_t window) {
  const Link link = links_[run];
  if (link.level == 0) return false;
  Memo& memo = memos_[link.first + (window >> link.shift)];
  return memo.bits != 0 || memo.blocks++ != 0;
}

void MemoTable::put(RunId run, uint64_t window, uint32_t looked_at, Memo memo, std::span<const Block> blocks,
                    std::span<const RunId> calls) {
  const Link link = links_[run];
  const uint32_t width = kWidths[link.level];
  const uint64_t group = window >> link.shift;
  const Memo& old = memos_[link.first + group];
  // A site that goes back and forth between contents: the old body is written over if it is as large.
  const bool reuse = old.bits == memo.bits && bodies_of(old.blocks) == bodies_of(blocks.size());
  memo.body = reuse ? old.body : static_cast<uint32_t>(bodies_.size() - kSlackBodies);
  memo.blocks = static_cast<uint8_t>(blocks.size());
  if (!reuse) bodies_.resize(bodies_.size() + bodies_of(blocks.size()));
  Block* to = bodies_[memo.body].blocks.data();
  std::memcpy(static_cast<void*>(to), calls.data(), calls.size_bytes());
  std::copy(blocks.begin(), blocks.end(), to + kMaxCalls / 2);
  const uint32_t free_bits = width - looked_at;
  std::fill_n(memos_.begin() + static_cast<std::ptrdiff_t>(link.first + (group >> free_bits << free_bits)), size_t{1} << free_bits, memo);
}

}  // namespace ptd::pt
