// MemoTable: lookup and storage of memos.
#include "decoder/pt/runner/runner_memo.h"

#include <algorithm>
#include <utility>

namespace ptd::pt {
namespace {

constexpr size_t kSlackBodies = MemoTable::kCopySlack / 2 + MemoTable::kMaxCalls / 4;

size_t bodies_of(size_t blocks) { return MemoTable::kMaxCalls / 4 + (blocks + 1) / 2; }

}  // namespace

void MemoTable::clear() {
  tables_.clear();
  memos_.clear();
  bodies_.assign(kSlackBodies, Body{});
  counted_.clear();
  counted_bodies_.clear();
  grow_to(1);
}

void MemoTable::grow_to(size_t count) {
  while (tables_.size() < count) {
    tables_.push_back(0);
    add_table(static_cast<RunId>(tables_.size() - 1), 0);
  }
}

void MemoTable::add_table(RunId run, uint32_t level) {
  const size_t first = memos_.size() + 1;
  memos_.resize(first + (size_t{1} << kWidths[level]));
  tables_[run] = static_cast<TableRef>(first << 6 | (64U - kWidths[level]));
  Memo& header = memos_[first - 1];
  header.body = run;
  header.blocks = static_cast<uint8_t>(level);
  header.valid = level < kVisits.size() ? kVisits[level] : 0;
}

void MemoTable::lift(RunId run) {
  const Memo old = header(run);
  if (old.blocks >= kVisits.size()) return;
  std::fill_n(memos_.begin() + (tables_[run] >> 6), size_t{1} << kWidths[old.blocks], Memo{});
  add_table(run, old.blocks + 1U);
}

void MemoTable::renew(const Memo& last, RunId run) {
  Memo& memo = memos_[static_cast<size_t>(&last - memos_.data())];
  if (memo.next != 0 && view().run_of(memo.next) == run) memo.next = tables_[run];
}

bool MemoTable::ask(RunId run, uint64_t window) {
  if (width(run) == 0) return false;
  Memo& memo = memos_[(tables_[run] >> 6) + (window >> (tables_[run] & 63))];
  return memo.bits != 0 || memo.blocks++ != 0;
}

void MemoTable::put(RunId run, uint64_t window, uint32_t looked_at, Memo memo, std::span<const Block> blocks,
                    std::span<const RunId> calls) {
  const size_t first = tables_[run] >> 6;
  const uint64_t group = window >> (tables_[run] & 63);
  const uint32_t free_bits = width(run) - looked_at;
  const auto fill = [&] {
    std::fill_n(memos_.begin() + static_cast<std::ptrdiff_t>(first + (group >> free_bits << free_bits)), size_t{1} << free_bits, memo);
  };
  if (counts_) {
    memo.blocks = memo.rise < 0 ? kFirstMask : 0;
    memo.body = static_cast<uint32_t>(counted_.size());
    counted_.resize(counted_.size() + units_of(memo.blocks));
    counted_bodies_.push_back({memo.body, memo.blocks});
    std::memcpy(static_cast<void*>(&counted_[memo.body]), calls.data(), calls.size_bytes());
    std::memcpy(static_cast<void*>(&counted_[memo.body + 1]), blocks.data(), sizeof(Block));
    return fill();
  }
  const Memo& old = memos_[first + group];
  // A site that goes back and forth between contents: the old body is written over if it is as large.
  const bool reuse = old.bits == memo.bits && bodies_of(old.blocks) == bodies_of(blocks.size());
  memo.body = reuse ? old.body : static_cast<uint32_t>(bodies_.size() - kSlackBodies);
  memo.blocks = static_cast<uint8_t>(blocks.size());
  if (!reuse) bodies_.resize(bodies_.size() + bodies_of(blocks.size()));
  Block* to = bodies_[memo.body].blocks.data();
  std::memcpy(static_cast<void*>(to), calls.data(), calls.size_bytes());
  std::copy(blocks.begin(), blocks.end(), to + kMaxCalls / 2);
  fill();
}

void MemoTable::make_counter(const Memo& memo, TableRef to, uint64_t key, KeyCounts& rest) {
  const uint32_t old = memo.body, mask = memo.blocks;
  if (memo.rise < 0 && mask < kMostMask && view().counter(memo, to)->count != 0) {
    const uint32_t wider = 2 * mask + 1;
    const auto body = static_cast<uint32_t>(counted_.size());
    counted_.resize(counted_.size() + units_of(wider));
    counted_bodies_.push_back({body, wider});
    std::copy_n(counted_.begin() + old, kCounters, counted_.begin() + body);
    auto one = static_cast<size_t>(&memo - memos_.data());
    while (memos_[one - 1].bits != 0 && memos_[one - 1].body == old) --one;
    for (; one < memos_.size() && memos_[one].bits != 0 && memos_[one].body == old; ++one) {
      memos_[one].body = body;
      memos_[one].blocks = static_cast<uint8_t>(wider);
    }
    for (uint32_t i = old + kCounters; i <= old + kCounters + mask; ++i) {
      KeyCounts::Slot& counter = *view().counter(memo, static_cast<TableRef>(counted_[i].key));
      if (counter.count != 0) rest.count(counter.key) += counter.count;
      counter = std::exchange(counted_[i], {});
    }
  }
  KeyCounts::Slot& counter = *view().counter(memo, to);
  if (counter.count != 0) rest.count(counter.key) += counter.count;
  counter = {key, 0};
}

void MemoTable::take_counters(KeyCounts& to) {
  for (const CountedBody& body : counted_bodies_) {
    for (uint32_t i = body.first + kCounters; i <= body.first + kCounters + body.mask; ++i) {
      if (counted_[i].count != 0) to.count(counted_[i].key) += std::exchange(counted_[i].count, 0);
    }
  }
}

}  // namespace ptd::pt
