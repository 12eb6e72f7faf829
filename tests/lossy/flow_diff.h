// FlowDiff: one decoded flow against the true one, instruction by instruction: right, flagged, silently wrong, lost.
#pragma once

#include <cstdint>
#include <vector>

#include "ptdecode/flow.h"

namespace ptd::test {

/// One retired instruction: address and a hash of its bytes, and whether its block is marked as possibly wrong.
struct Step {
  uint64_t ip = 0;
  uint32_t bytes_hash = 0;
  uint16_t flags = 0;
  [[nodiscard]] bool same(const Step& other) const { return ip == other.ip && bytes_hash == other.bytes_hash; }
};

/// Converts batches to steps. The instruction boundaries of each block are computed once.
class StepReader {
 public:
  void add(const Batch& batch, const BlockTable& table, std::vector<Step>& steps);

 private:
  std::vector<std::vector<Step>> by_node_;
};

/// A position where the flows differ.
struct Split {
  uint64_t last_common = 0, true_ip = 0, given_ip = 0;  ///< 0: none
  uint64_t true_steps = 0, given_steps = 0;             ///< until they are equal again
  uint64_t unmarked = 0;                                ///< of the output ones
};

struct DiffCounts {
  uint64_t truth = 0;           ///< instructions of the true flow
  uint64_t right = 0;           ///< of them output, unmarked
  uint64_t right_flagged = 0;   ///< output, marked as uncertain, healed or suspect
  uint64_t wrong_flagged = 0;   ///< output and not true, but marked
  uint64_t silently_wrong = 0;  ///< output and not true, unmarked
  uint64_t lost = 0;            ///< not output
  uint64_t flagged = 0;         ///< all marked as uncertain (ambiguous, suspect)
  uint64_t healed = 0;          ///< all marked as healed
  uint64_t chosen = 0;
  void add(const DiffCounts& other);
};

/// Aligns one segment's flows.
[[nodiscard]] DiffCounts diff_segment(const std::vector<Step>& truth, const std::vector<Step>& given, std::vector<Split>* splits = nullptr);

}  // namespace ptd::test
