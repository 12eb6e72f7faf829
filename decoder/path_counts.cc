// PathCounts: alike paths put together. KeyCounts: what is found beside the first slot, and growth. KeyJournal: room.
#include "ptdecode/path_counts.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ptd {

void PathCounts::compact(const BlockTable& table) {
  if (blocks_.size() < compact_at_) return;
  struct Piece {
    Block block;
    Path path;
    [[nodiscard]] auto key() const { return std::tuple(block.node, block.instructions, block.flags, path.to.value, path.end); }
  };
  std::vector<Piece> pieces;
  pieces.reserve(blocks_.size());
  for (const Path& path : paths_) {
    const std::span<const Block> all = blocks(path);
    for (size_t i = 0; i < all.size(); ++i) {
      Path piece = path;
      if (i + 1 < all.size() && path.end != PathEnd::unknown) {
        piece.end = PathEnd::told;
        piece.to = Ip{};
      } else if (i + 1 < all.size()) {
        piece.to = table.info(all[i + 1].node).ip;
      }
      pieces.push_back({all[i], piece});
    }
  }
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) { return a.key() < b.key(); });
  blocks_.clear();
  paths_.clear();
  for (size_t i = 0; i < pieces.size();) {
    uint64_t count = 0;
    const size_t first = i;
    for (; i < pieces.size() && pieces[i].key() == pieces[first].key(); ++i) count += pieces[i].path.count;
    blocks_.push_back(pieces[first].block);
    add(pieces[first].path.to, count, pieces[first].path.end);
  }
  compact_at_ = std::max(kMostBlocks, 2 * blocks_.size());
}

void KeyCounts::clear() {
  shift_ = kFirstShift;
  used_ = 0;
  slots_.assign(size_t{1} << (64 - shift_), Slot{});
}

uint64_t& KeyCounts::find(uint64_t key) {
  const auto place_of = [&](uint64_t wanted) {
    size_t at = first_slot(wanted);
    while (slots_[at].key != 0 && slots_[at].key != wanted) at = (at + 1) & (slots_.size() - 1);
    return at;
  };
  size_t at = place_of(key);
  if (slots_[at].key == key) return slots_[at].count;
  if (4 * ++used_ > slots_.size()) {
    std::vector<Slot> old(slots_.size() * 4);
    old.swap(slots_);
    shift_ -= 2;
    for (const Slot& slot : old) {
      if (slot.key != 0) slots_[place_of(slot.key)] = slot;
    }
    at = place_of(key);
  }
  slots_[at].key = key;
  return slots_[at].count;
}

uint64_t* KeyJournal::room_for(size_t count) {
  if (size_ + count > capacity_) {
    capacity_ = std::max(2 * capacity_, size_ + count);
    auto keys = std::make_unique_for_overwrite<uint64_t[]>(capacity_);
    std::copy_n(keys_.get(), size_, keys.get());
    keys_ = std::move(keys);
  }
  return keys_.get() + size_;
}

}  // namespace ptd
