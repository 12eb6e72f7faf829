// ProgramStore: the BPF programs and types read so far in a recording, in memory that the second process can read.
#pragma once

#include <cstdint>
#include <vector>

#include "perfio/perf_reader.h"
#include "ptdecode/error.h"

namespace ptd::live {

/// An append-only list in a memory file that children of fork() share; written by one process at a time. Not thread-safe.
class ProgramStore {
 public:
  /// Errors: file_open.
  static Result<ProgramStore> create();
  ~ProgramStore();
  ProgramStore(ProgramStore&& other) noexcept;
  ProgramStore& operator=(ProgramStore&& other) noexcept;

  /// Adds a program. The types (BTF) that it names are read from the kernel, once each.
  Status add(const perfio::BpfProgInfo& program);
  /// Returns the current length, the maximum argument of take().
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }
  /// Continues after the first `size_bytes` bytes, which a former writer had completed.
  void continue_from(uint64_t size_bytes) { size_bytes_ = size_bytes; }
  /// Adds programs and types to `features`.
  void take(perfio::Features& features) const;

 private:
  explicit ProgramStore(int fd) : fd_(fd) {}
  Status append(uint32_t bit, Bytes bytes);
  int fd_;
  uint64_t size_bytes_ = 0;
  std::vector<uint32_t> types_;  // BTF ids that are in it
};

}  // namespace ptd::live
