// Instructions with their bytes: those that a decoder found against those that ran. For tests only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
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
  friend bool operator==(const RanFlow&, const RanFlow&) = default;
};

/// Appends the blocks and gaps of a batch. A64 or x86.
void add_batch(const Batch& batch, const BlockTable& table, RanFlow& out);

/// Returns the first unmarked instruction that cannot be what ran: stretches of unmarked flow must be in the truth, in order, and at its
/// ends if nothing before or after them is marked or lost.
[[nodiscard]] std::optional<size_t> first_wrong(const RanFlow& ours, const std::vector<Ran>& truth);

/// The sums over several traces of patched code, which a test checks and records as properties.
class RanTally {
 public:
  /// Fails the test if an unmarked instruction of `ours` is not in its place in the truth. `what` describes the trace.
  void add(const std::string& what, const RanFlow& ours, const std::vector<Ran>& truth, uint64_t patches);
  [[nodiscard]] uint64_t wrong() const { return wrong_; }
  /// Fails the test if too much of `traces` traces is marked or lost: marks and gaps for everything would pass, too.
  /// `least_certain`: a share of the instructions; `most_gaps`: per trace.
  void finish(uint64_t traces, double least_certain, double most_gaps = 0.05) const;

 private:
  uint64_t wrong_ = 0, instructions_ = 0, certain_ = 0, gaps_ = 0, patches_ = 0;
};

}  // namespace ptd::test
