// MappedLog: a file that grows by appending through shared memory, so that what was appended survives any death of the process.
#pragma once

#include <cstdint>
#include <string>

#include "image/base/types.h"

namespace ptd::emulate {

/// Layout: kMappedLogHeaderBytes, whose first 8 bytes say how many bytes of data follow and whose next 8 are not 0 if data is missing
/// behind them; then the data. No descriptor stays open: the program that is traced shares the process and may close any. What is mapped at
/// once lasts for nearly every log, so that a program may change its root, its user and its limits meanwhile. One thread at a time.
class MappedLog {
 public:
  MappedLog() = default;
  ~MappedLog() { close(); }
  MappedLog(const MappedLog&) = delete;
  MappedLog& operator=(const MappedLog&) = delete;

  /// Creates the file; false if the system refuses.
  bool open(const std::string& path);
  /// False once the file cannot grow (full disk); what came before stays, and the file says that it is cut.
  bool append(Bytes bytes);
  /// The file says from here on that it is cut, and takes no more.
  void cut();
  void close();
  [[nodiscard]] uint64_t size() const { return size_; }

 private:
  bool map_window();
  bool make_room();
  void unmap_window();
  std::string path_;
  uint64_t* header_ = nullptr;
  std::byte* window_ = nullptr;
  uint64_t window_at_ = 0, window_bytes_ = 0;  ///< data that is mapped
  uint64_t room_ = 0;                          ///< data up to here has its place on the disk
  uint64_t size_ = 0;
  bool failed_ = true;
};

/// A number in a file that processes share, also those that are forked and can no longer reach the file.
class SharedCount {
 public:
  /// Creates the file with 0 in it; false if the system refuses.
  static bool create(const std::string& path);
  static uint64_t read(const std::string& path);
  void open(const std::string& path);
  void add();

 private:
  uint64_t* count_ = nullptr;  // mapped as long as the process lives
};

inline constexpr uint64_t kMappedLogHeaderBytes = 4096;

}  // namespace ptd::emulate
