// CommitPage: shared memory with the progress of a recording (file size, ring positions), for the second process.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "ptdecode/error.h"

namespace ptd::live {

struct Progress {
  uint64_t file_bytes = 0;          ///< of the recording, up to its last whole record
  uint64_t store_bytes = 0;         ///< of the ProgramStore that belongs to it
  std::vector<uint64_t> positions;  ///< of each ring, then of each AUX area
};

/// Written by one process and read by another after the first one is dead. A state is visible completely or not at all: there are two
/// slots, and the number of the newer one is stored last.
class CommitPage {
 public:
  /// Shared with children of fork(). Errors: file_open.
  static Result<std::unique_ptr<CommitPage>> create(size_t positions);
  ~CommitPage();
  CommitPage(const CommitPage&) = delete;
  CommitPage& operator=(const CommitPage&) = delete;

  void publish(const Progress& progress);
  [[nodiscard]] Progress read() const;

 private:
  CommitPage(uint64_t* words, size_t positions) : words_(words), positions_(positions) {}
  [[nodiscard]] size_t slot_words() const { return positions_ + 2; }
  uint64_t* words_;  // epoch, slot 0, slot 1
  size_t positions_;
};

}  // namespace ptd::live
