// MappedLog: a file that grows by appending through shared memory, so that what was appended survives any death of the process.
#pragma once

#include <cstdint>
#include <string>

#include "image/base/types.h"

namespace ptd::emulate {

/// Layout: kMappedLogHeaderBytes, whose first 8 bytes say how many bytes of data follow; then the data. No descriptor stays open: the
/// program that is traced shares the process and may close any. One thread at a time.
class MappedLog {
 public:
  MappedLog() = default;
  ~MappedLog() { close(); }
  MappedLog(const MappedLog&) = delete;
  MappedLog& operator=(const MappedLog&) = delete;

  /// Creates the file; false if the system refuses.
  bool open(const std::string& path);
  /// False once the file cannot grow (full disk); what came before stays.
  bool append(Bytes bytes);
  void close();
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  bool map_window();
  std::string path_;
  uint64_t* length_ = nullptr;
  std::byte* window_ = nullptr;
  uint64_t window_at_ = 0, size_ = 0;
  bool failed_ = true;
};

inline constexpr uint64_t kMappedLogHeaderBytes = 4096;

}  // namespace ptd::emulate
