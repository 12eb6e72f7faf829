// BlockSequences: equal sequences share one id, found by hash.
#include "ptdecode/block_sequences.h"

#include <algorithm>

namespace ptd {
namespace {

constexpr SequenceId kNone = 0xffffffffU;

uint64_t hash_of(std::span<const Block> blocks) {
  uint64_t h = blocks.size();
  for (const Block& block : blocks) {
    h = (h ^ (uint64_t{block.node} << 16 | block.flags)) * 0x9e3779b97f4a7c15ULL;
    h ^= h >> 29;
  }
  return h;
}

bool same(const Block& a, const Block& b) { return a.node == b.node && a.instructions == b.instructions && a.flags == b.flags; }

}  // namespace

void BlockSequences::grow() {
  std::vector<SequenceId> old(std::max<size_t>(1U << 10, slots_.size() * 2), kNone);
  old.swap(slots_);
  for (const SequenceId id : old) {
    if (id == kNone) continue;
    size_t at = hash_of(blocks(id));
    while (slots_[at & (slots_.size() - 1)] != kNone) ++at;
    slots_[at & (slots_.size() - 1)] = id;
  }
}

SequenceId BlockSequences::intern(std::span<const Block> wanted) {
  if (2 * (interned_ + 1) > slots_.size()) grow();
  for (size_t at = hash_of(wanted);; ++at) {
    SequenceId& slot = slots_[at & (slots_.size() - 1)];
    if (slot == kNone) {
      ++interned_;
      slot = append(wanted);
      return slot;
    }
    const std::span<const Block> known = blocks(slot);
    if (std::equal(known.begin(), known.end(), wanted.begin(), wanted.end(), same)) return slot;
  }
}

}  // namespace ptd
