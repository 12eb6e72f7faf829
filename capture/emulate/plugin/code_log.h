// CodeLog: the kernel's code as it runs while no recorder says what changes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <unordered_map>

#include "ptdecode/types.h"

namespace ptd::emulate {

/// A file of records: time in ns, address, size (8 bytes each, little-endian), then the bytes. A record says that these bytes run from then
/// on at this address, and that others did before, or none. Not thread-safe.
class CodeLog {
 public:
  CodeLog() = default;
  ~CodeLog() { close(); }
  CodeLog(const CodeLog&) = delete;
  CodeLog& operator=(const CodeLog&) = delete;

  bool open(const std::string& path);
  /// Code is translated, which an emulator does again after each change. Writes a record if it is new here. Does nothing unless it is open.
  void see(uint64_t time_ns, uint64_t ip, Bytes code);
  void close();
  [[nodiscard]] uint64_t failures() const { return failures_; }

 private:
  static constexpr uint64_t kPageBytes = 4096;
  struct Page {
    std::byte bytes[kPageBytes];
    bool known[kPageBytes] = {};
  };
  FILE* file_ = nullptr;
  uint64_t failures_ = 0;
  std::unordered_map<uint64_t, std::unique_ptr<Page>> pages_;
};

}  // namespace ptd::emulate
