// Joining, cutting and comparing batches: see batch_edit.h.
#include "decoder/batch_edit.h"

#include <algorithm>

namespace ptd {
namespace {

template <typename List>
void move_tail(List& from, uint64_t place, List& to) {
  const auto begin = from.begin() + static_cast<std::ptrdiff_t>(place);
  to.assign(begin, from.end());
  from.erase(begin, from.end());
}

/// An ambiguous block is not chosen.
void mark_block(Block& block) {
  const auto chosen = static_cast<unsigned>(BlockFlag::chosen), ambiguous = static_cast<unsigned>(BlockFlag::ambiguous);
  block.flags = static_cast<uint16_t>((block.flags & ~chosen) | ambiguous);
}

bool is_same(const Block& a, const Block& b) { return a.node == b.node && a.instructions == b.instructions; }

template <typename List>
uint64_t first_at(const List& list, uint64_t block) {
  const auto before = [](const auto& entry, uint64_t b) { return entry.before_block < b; };
  return static_cast<uint64_t>(std::lower_bound(list.begin(), list.end(), block, before) - list.begin());
}

}  // namespace

BatchPlace end_of(const Batch& batch) { return {batch.blocks.size(), batch.marks.size(), batch.events.size(), batch.gaps.size()}; }

bool is_empty(const Batch& batch) { return batch.blocks.empty() && batch.marks.empty() && batch.events.empty() && batch.gaps.empty(); }

BatchPlace place_of(const Batch& batch, uint64_t block) {
  return {block, first_at(batch.marks, block), first_at(batch.events, block), first_at(batch.gaps, block)};
}

void append_batch(Batch& to, Batch& from) {
  const auto shift = static_cast<uint32_t>(to.blocks.size());
  to.blocks.insert(to.blocks.end(), from.blocks.begin(), from.blocks.end());
  for (Mark& mark : from.marks) mark.before_block += shift;
  for (Event& event : from.events) event.before_block += shift;
  for (Gap& gap : from.gaps) gap.before_block += shift;
  to.marks.insert(to.marks.end(), from.marks.begin(), from.marks.end());
  to.events.insert(to.events.end(), from.events.begin(), from.events.end());
  to.gaps.insert(to.gaps.end(), from.gaps.begin(), from.gaps.end());
  from.clear();
}

void truncate(Batch& batch, BatchPlace place) {
  const auto cut = [](auto& list, uint64_t size) { list.resize(std::min<size_t>(list.size(), size)); };
  cut(batch.blocks, place.blocks);
  cut(batch.marks, place.marks);
  cut(batch.events, place.events);
  cut(batch.gaps, place.gaps);
}

void split(Batch& batch, BatchPlace place, Batch& tail) {
  move_tail(batch.blocks, place.blocks, tail.blocks);
  move_tail(batch.marks, place.marks, tail.marks);
  move_tail(batch.events, place.events, tail.events);
  move_tail(batch.gaps, place.gaps, tail.gaps);
  const auto shift = static_cast<uint32_t>(place.blocks);
  for (Mark& mark : tail.marks) mark.before_block -= shift;
  for (Event& event : tail.events) event.before_block -= shift;
  for (Gap& gap : tail.gaps) gap.before_block -= shift;
}

void mark_ambiguous(Batch& batch, size_t from, size_t end) {
  for (size_t i = from; i < std::min(end, batch.blocks.size()); ++i) mark_block(batch.blocks[i]);
}

void mark_difference(Batch& kept, const Batch& other) {
  const auto copy_mark = [](Block& block, const Block& from) {
    if (has(from.flags, BlockFlag::ambiguous)) mark_block(block);
  };
  const size_t shorter = std::min(kept.blocks.size(), other.blocks.size());
  size_t first = 0;
  while (first < shorter && is_same(kept.blocks[first], other.blocks[first])) {
    copy_mark(kept.blocks[first], other.blocks[first]);
    ++first;
  }
  size_t tail = 0;
  while (tail < shorter - first && is_same(kept.blocks[kept.blocks.size() - 1 - tail], other.blocks[other.blocks.size() - 1 - tail])) {
    ++tail;
    copy_mark(kept.blocks[kept.blocks.size() - tail], other.blocks[other.blocks.size() - tail]);
  }
  for (size_t i = first; i < kept.blocks.size() - tail; ++i) mark_block(kept.blocks[i]);
}

size_t copy_flags(Batch& kept, std::span<const Block> other) {
  size_t same = 0;
  for (; same < std::min(kept.blocks.size(), other.size()) && is_same(kept.blocks[same], other[same]); ++same)
    kept.blocks[same].flags = other[same].flags;
  return same;
}

}  // namespace ptd
