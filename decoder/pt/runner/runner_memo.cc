// MemoTable: lookup and storage of memos.
#include "decoder/pt/runner/runner_memo.h"

#include <algorithm>
#include <utility>

namespace ptd::pt {
namespace {

constexpr size_t kSlackBodies = MemoTable::kCopySlack / 2 + MemoTable::kMaxCalls / 4;

constexpr uint32_t kColdAtOnce = 256;  // runs of the lowest level whose headers are allocated together
constexpr uint32_t kUnused = 2;        // entries after them, so that each header is followed by as many entries as its table has

size_t bodies_of(size_t blocks) { return MemoTable::kMaxCalls / 4 + (blocks + 1) / 2; }

}  // namespace

void MemoTable::clear() {
  tables_.clear();
  memos_.clear();
  bodies_.clear();
  bodies_.grow_to(kSlackBodies);
  cold_left_ = 0;
  grow_to(1);
}

void MemoTable::grow_to(size_t count) {
  while (tables_.size() < count) {
    tables_.push_back(0);
    add_cold(static_cast<RunId>(tables_.size() - 1));
  }
}

// The lowest level has no memos, so the entries of its tables are the headers after it, whose `bits` is 0 too.
void MemoTable::add_cold(RunId run) {
  static_assert(kUnused == 1U << kWidths[0]);
  if (cold_left_ == 0) {
    next_cold_ = memos_.size();
    cold_left_ = kColdAtOnce;
    memos_.grow_to(memos_.size() + kColdAtOnce + kUnused);
  }
  --cold_left_;
  set_table(run, 0, ++next_cold_);
}

void MemoTable::add_table(RunId run, uint32_t level) {
  const size_t first = memos_.size() + 1;
  memos_.grow_to(first + (size_t{1} << kWidths[level]));
  set_table(run, level, first);
}

void MemoTable::set_table(RunId run, uint32_t level, size_t first) {
  tables_[run] = static_cast<TableRef>(first << 6 | (64U - kWidths[level]));
  Memo& header = memos_[first - 1];
  header.body = run;
  header.blocks = static_cast<uint8_t>(level);
  header.valid = level < kVisits.size() ? kVisits[level] : 0;
}

void MemoTable::lift(RunId run) {
  const Memo old = header(run);
  if (old.blocks >= kVisits.size()) return;
  if (old.blocks != 0) std::fill_n(memos_.begin() + (tables_[run] >> 6), size_t{1} << kWidths[old.blocks], Memo{});
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
  const Memo& old = memos_[first + group];
  // For sites that alternate between contents: overwrite the old body if it has the same size.
  const bool reuse = old.bits == memo.bits && bodies_of(old.blocks) == bodies_of(blocks.size());
  memo.body = reuse ? old.body : static_cast<uint32_t>(bodies_.size() - kSlackBodies);
  memo.blocks = static_cast<uint8_t>(blocks.size());
  if (!reuse) bodies_.grow_to(bodies_.size() + bodies_of(blocks.size()));
  Block* to = bodies_[memo.body].blocks.data();
  std::memcpy(static_cast<void*>(to), calls.data(), calls.size_bytes());
  std::copy(blocks.begin(), blocks.end(), to + kMaxCalls / 2);
  fill();
}

}  // namespace ptd::pt
