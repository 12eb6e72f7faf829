// MappedLog: an append-only file in shared memory; appended data survives any death of the process.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>

#include "ptdecode/types.h"

namespace ptd::emulate {

inline constexpr uint64_t kMappedLogHeaderBytes = 4096, kMappedLogOwnerAt = 64;

/// Layout: kMappedLogHeaderBytes, whose first 8 bytes say how many bytes of data follow, whose next 8 are not 0 if data is missing after
/// them, and whose rest from kMappedLogOwnerAt on is the owner's; then the data. No descriptor stays open: the program that is traced shares
/// the process and may close any. What is mapped at once lasts for nearly every log, so that a program may change its root, its user and its
/// limits meanwhile; pages that are full leave the process's memory. One thread at a time.
class MappedLog {
 public:
  MappedLog() = default;
  ~MappedLog() { close(); }
  MappedLog(const MappedLog&) = delete;
  MappedLog& operator=(const MappedLog&) = delete;

  /// Creates the file; false if the system refuses.
  bool open(const std::string& path);
  /// Appends all of `bytes`, which count from the moment that all are there. False once the file cannot grow (full disk); what came before
  /// stays, and the file says that it is cut.
  bool append(Bytes bytes) {
    if (bytes.size() > room_ - size_) return append_slowly(bytes);
    std::memcpy(window_ + (size_ - window_at_), bytes.data(), bytes.size());
    size_ += bytes.size();
    __atomic_store_n(header_, size_, __ATOMIC_RELEASE);
    return true;
  }
  /// The file says from here on that it is cut, and takes no more.
  void cut();
  void close();
  [[nodiscard]] uint64_t size() const { return size_; }
  /// Where the owner's part of the header is mapped, zeros at first; null if the file is not open.
  [[nodiscard]] std::byte* owner_area() const { return header_ != nullptr ? reinterpret_cast<std::byte*>(header_) + kMappedLogOwnerAt : nullptr; }

 private:
  bool append_slowly(Bytes bytes);
  void release_full_pages();
  bool map_window();
  bool make_room();
  void unmap_window();
  std::string path_;
  uint64_t* header_ = nullptr;
  std::byte* window_ = nullptr;
  uint64_t window_at_ = 0, window_bytes_ = 0;  ///< data that is mapped
  uint64_t room_ = 0;                          ///< data up to here has its place on the disk
  uint64_t released_ = 0;                      ///< data up to here is no longer in the process's memory
  uint64_t size_ = 0;
  bool failed_ = true;
};

/// A number in a file that processes share, also those that are forked and can no longer reach the file.
class SharedCount {
 public:
  /// Creates the file with 0 in it; false if the system refuses.
  static bool create(const std::string& path);
  static uint64_t read(const std::string& path);
  /// Overwrites the number in the file, which needs no further disk space.
  static void write(const std::string& path, uint64_t value);
  void open(const std::string& path);
  void add();

 private:
  uint64_t* count_ = nullptr;  // mapped as long as the process lives
};

}  // namespace ptd::emulate
