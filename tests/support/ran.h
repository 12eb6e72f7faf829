// Instructions with their bytes: those that a decoder found against those that ran. For tests only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "ptdecode/flow.h"

namespace ptd::test {

/// One executed instruction.
struct Ran {
  uint64_t ip = 0;
  std::vector<std::byte> bytes;
  friend bool operator==(const Ran&, const Ran&) = default;
};

/// The flow of a decoder.
struct RanFlow {
  std::vector<Ran> insns;
  std::vector<bool> marked;             ///< for each of them
  std::vector<bool> lost_at = {false};  ///< for each of them and the end: a gap lies before it
};

/// Appends the blocks and gaps of a batch. A64 or x86.
void add_batch(const Batch& batch, const BlockTable& table, RanFlow& out);

/// Returns the first unmarked instruction that cannot be what ran: stretches of unmarked flow must be in the truth, in order, and at its ends
/// if nothing before or after them is marked or lost.
[[nodiscard]] std::optional<size_t> first_wrong(const RanFlow& ours, const std::vector<Ran>& truth);

}  // namespace ptd::test
