// Joining, truncating and comparing batches before a decoder outputs them.
#pragma once

#include <cstdint>
#include <span>

#include "ptdecode/flow.h"

namespace ptd {

/// A position in a batch, or in all output of a segment.
struct BatchPlace {
  uint64_t blocks = 0, marks = 0, events = 0, gaps = 0;

  friend BatchPlace operator+(BatchPlace a, BatchPlace b) {
    return {a.blocks + b.blocks, a.marks + b.marks, a.events + b.events, a.gaps + b.gaps};
  }
  friend BatchPlace operator-(BatchPlace a, BatchPlace b) {
    return {a.blocks - b.blocks, a.marks - b.marks, a.events - b.events, a.gaps - b.gaps};
  }
};

[[nodiscard]] BatchPlace end_of(const Batch& batch);
[[nodiscard]] bool is_empty(const Batch& batch);
/// Returns the position before block `block` and before the marks, events and gaps that precede it.
[[nodiscard]] BatchPlace place_of(const Batch& batch, uint64_t block);
/// Appends `from` to `to`, moving its indices. `from` is empty afterwards.
void append_batch(Batch& to, Batch& from);
/// Removes everything after `place`.
void truncate(Batch& batch, BatchPlace place);
/// Moves everything after `place` to `tail`, which is cleared first.
void split(Batch& batch, BatchPlace place, Batch& tail);

// Where several flows are possible, with the output of each since they separated:

/// Marks the blocks from number `from` on, up to number `end`, as ambiguous.
void mark_ambiguous(Batch& batch, size_t from, size_t end = SIZE_MAX);
/// Marks the blocks of `kept` that differ from `other`, another output of the same stretch, or are ambiguous there, as ambiguous.
void mark_difference(Batch& kept, const Batch& other);
/// Copies the flags of `other`, another output of the same stretch, to the blocks of `kept` that begin in the same way. Returns their
/// number.
size_t copy_flags(Batch& kept, std::span<const Block> other);

}  // namespace ptd
