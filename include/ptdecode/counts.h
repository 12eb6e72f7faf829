// Counts: how often the code of each file was executed, and where its branches went. For coverage and for profiles that compilers read.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/flow.h"
#include "ptdecode/recording.h"

namespace ptd {

/// Instructions that were executed in sequence, from the target of a branch (or the start of the flow) to the next taken branch.
struct CodeRun {
  uint64_t first = 0, last = 0;  ///< addresses of the first and the last instruction
  uint64_t end = 0;              ///< end of the last instruction
  uint64_t count = 0;
  uint64_t by_jump = 0;  ///< those that began at the target of a jump in this file; the others began after calls and returns, or came from
                         ///< outside
};
struct CodeBranch {
  uint64_t from = 0, to = 0;  ///< address of the branch, and its target
  uint64_t count = 0;
  bool is_jump = false;      ///< not a call or return
  bool is_indirect = false;  ///< its target is not in the instruction
};

/// How often something happened at an address.
struct CodeCount {
  uint64_t address = 0, count = 0;
};

/// The executed code of one file. Addresses are the file's own (p_vaddr).
struct PTD_API FileCounts {
  std::string path, build_id;
  bool relocatable = false;          ///< see FilePlace::relocatable
  std::vector<CodeRun> runs;         ///< by first and last
  std::vector<CodeBranch> branches;  ///< taken near branches that stay in the file, by from and to
  std::vector<CodeCount> not_taken;  ///< conditional branches that were not taken, by their address
  std::vector<CodeCount> exits;      ///< taken near branches to other code that was traced, by their address
  std::vector<CodeCount> entries;    ///< taken near branches from other code that was traced, by their target
  /// Returns the number of executed bytes of code, counting each execution.
  [[nodiscard]] uint64_t ran_bytes() const;
};

/// Execution counts by address.
class PTD_API AddressCounts {
 public:
  explicit AddressCounts(const std::vector<CodeRun>& runs);
  /// Returns the highest count in [first, end).
  [[nodiscard]] uint64_t highest(uint64_t first, uint64_t end) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> steps_;  ///< (address, count): the count from this address on
};

struct CodeCountOptions {
  std::vector<uint32_t> streams;                        ///< empty: all
  Interval time;                                        ///< code whose likeliest time is outside of it does not count
  std::function<bool(const Mark&)> wanted;              ///< selects the threads that count; empty: all
  std::function<bool(uint64_t bytes)> progress;         ///< trace bytes decoded since the last call; false stops
  std::function<void(const Gap&, const Mark&)> on_gap;  ///< as CallWalkOptions::on_gap, but not only in the range
  std::function<void(const Event&)> on_rounds;          ///< as CallWalkOptions::on_rounds
};
struct CodeCounts {
  std::vector<FileCounts> files;  ///< by executed bytes, most first
  uint64_t instructions = 0, fileless = 0;
};

/// Counts a recording's streams one after the other. Errors: those of Recording::decode.
[[nodiscard]] PTD_API Result<CodeCounts> count_code(const Recording& recording, const CodeCountOptions& options);

}  // namespace ptd
