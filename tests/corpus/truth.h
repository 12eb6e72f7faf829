// Checks a decoded stream against a truth file: running hashes of addresses and of instruction bytes at checkpoints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ptdecode/flow.h"

namespace ptd::test {

/// One line of truth.cpuN.txt: after `count` instructions.
struct Checkpoint {
  uint64_t count = 0, ips_hash = 0, bytes_hash = 0;
  uint64_t last_ip = 0;  ///< 0: none (the closing line)
};
/// Lines of a truth file; comments left out. Empty if it cannot be read.
[[nodiscard]] std::vector<Checkpoint> read_truth(const std::string& path);

/// Feeds on batches. FNV-1a-64 over the 8 little-endian bytes of each address, and over the bytes of each instruction.
class TruthChecker {
 public:
  explicit TruthChecker(std::vector<Checkpoint> truth) : truth_(std::move(truth)) {}
  void add(const Batch& batch, const BlockTable& table);

  [[nodiscard]] uint64_t instructions() const { return count_; }
  [[nodiscard]] uint64_t flagged() const { return flagged_; }
  [[nodiscard]] size_t checkpoints_passed() const { return next_; }
  [[nodiscard]] size_t checkpoints() const { return truth_.size(); }
  /// Sentence on the first checkpoint that is not met; empty as long as all are.
  [[nodiscard]] const std::string& difference() const { return difference_; }

 private:
  struct InsnSpan {
    uint16_t offset = 0;
    uint8_t length = 0;
  };
  const std::vector<InsnSpan>& spans_of(NodeId node, const BlockTable& table);
  void check(uint64_t last_ip);

  std::vector<Checkpoint> truth_;
  std::vector<std::vector<InsnSpan>> spans_;  // by node
  uint64_t count_ = 0, flagged_ = 0;
  uint64_t ips_hash_ = 0xcbf29ce484222325ULL, bytes_hash_ = 0xcbf29ce484222325ULL;
  size_t next_ = 0;
  std::string difference_;
};

}  // namespace ptd::test
