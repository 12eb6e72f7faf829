// BlockSequences: runs of blocks that come again and again, each named by one number, for who counts blocks and does not look at each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"

namespace ptd {

using SequenceId = uint32_t;

/// A table of distinct sequences. Grows only, with the code that ran; belongs to one decoder, as its BlockTable does.
class PTD_API BlockSequences {
 public:
  /// Finds or adds the sequence; it is not empty.
  SequenceId intern(std::span<const Block> blocks);
  /// Adds the sequence, known or not; intern() does not find it.
  SequenceId append(std::span<const Block> blocks) {
    blocks_.insert(blocks_.end(), blocks.begin(), blocks.end());
    starts_.push_back(blocks_.size());
    return static_cast<SequenceId>(size() - 1);
  }
  [[nodiscard]] std::span<const Block> blocks(SequenceId id) const {
    return std::span(blocks_).subspan(starts_[id], starts_[id + 1] - starts_[id]);
  }
  [[nodiscard]] size_t size() const { return starts_.size() - 1; }

 private:
  void grow();
  std::vector<Block> blocks_;
  std::vector<size_t> starts_{0};  ///< and the end of the last
  size_t interned_ = 0;
  std::vector<SequenceId> slots_;  ///< open addressing, a power of two; kNone: empty
};

}  // namespace ptd
