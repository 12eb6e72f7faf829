// Counts: how often which code of which file ran, and where its branches went. For coverage and for profiles of compilers.
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

/// Instructions that ran one after the other, from where a branch went (or flow began) to the next taken branch.
struct CodeRun {
  uint64_t first = 0, last = 0;  ///< addresses of the first and the last instruction
  uint64_t end = 0;              ///< after the last one
  uint64_t count = 0;
  uint64_t by_jump = 0;  ///< how many of them began where a jump of this file went; the others behind calls and returns, or from outside
};
struct CodeBranch {
  uint64_t from = 0, to = 0;  ///< address of the branch, and where it went
  uint64_t count = 0;
};

/// What ran of one file. Addresses are the file's own (p_vaddr).
struct PTD_API FileCounts {
  std::string path, build_id;
  uint64_t offset_to_address = 0;    ///< add to an offset in the file for the address of code there
  bool relocatable = false;          ///< see FilePlace::relocatable
  std::vector<CodeRun> runs;         ///< by first and last
  std::vector<CodeBranch> branches;  ///< near ones that were taken and stay in the file, by from and to
  /// Bytes of code that ran, each as often as it did.
  [[nodiscard]] uint64_t ran_bytes() const;
};

/// How often each address ran.
class PTD_API AddressCounts {
 public:
  explicit AddressCounts(const std::vector<CodeRun>& runs);
  /// The highest count of [first, end).
  [[nodiscard]] uint64_t highest(uint64_t first, uint64_t end) const;

 private:
  std::vector<std::pair<uint64_t, uint64_t>> steps_;  ///< from this address on, that many
};

struct CodeCountOptions {
  std::vector<uint32_t> streams;                 ///< empty: all
  Interval time;                                 ///< what likeliest ran outside of it does not count
  std::function<bool(const Mark&)> wanted;       ///< which threads count; empty: all
  std::function<bool(uint64_t bytes)> progress;  ///< trace bytes decoded since the last call; false stops
  std::function<void(const Gap&)> on_gap;
};
struct CodeCounts {
  std::vector<FileCounts> files;  ///< by bytes that ran, most first
  uint64_t instructions = 0, fileless = 0;
};

/// Counts a recording's streams one after the other. Errors: those of Recording::decode.
[[nodiscard]] PTD_API Result<CodeCounts> count_code(const Recording& recording, const CodeCountOptions& options);

}  // namespace ptd
