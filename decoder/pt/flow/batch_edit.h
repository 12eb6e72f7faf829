// Joining and truncating batches before the decoder outputs them.
#pragma once

#include "ptdecode/flow.h"

namespace ptd::pt {

/// A place in a batch, or in all that a segment gave out.
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
/// Before block `block`, and before all that precedes it.
[[nodiscard]] BatchPlace place_of(const Batch& batch, uint64_t block);
/// Appends `from` to `to`, moving its indices. `from` is empty afterwards.
void append_batch(Batch& to, Batch& from);
/// Drops what stands behind `place`.
void truncate(Batch& batch, BatchPlace place);
/// Moves what stands behind `place` to `tail`, which is cleared first.
void split(Batch& batch, BatchPlace place, Batch& tail);

}  // namespace ptd::pt
