// MappedLog: an append-only file in shared memory; appended data survives any death of the process.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "ptdecode/types.h"

namespace ptd::emulate {

inline constexpr uint64_t kMappedLogHeaderBytes = 4096, kMappedLogOwnerAt = 64;

/// Layout: kMappedLogHeaderBytes, whose first 8 bytes say how many bytes of data follow, whose next 8 are not 0 if data is missing after
/// them, and whose rest from kMappedLogOwnerAt on is the owner's; then the data. No descriptor stays open: the program that is traced
/// shares the process and may close any. What is mapped at once lasts for nearly every log, so that a program may change its root, its user
/// and its limits meanwhile; pages that are full leave the process's memory. One thread at a time.
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
  [[nodiscard]] std::byte* owner_area() const {
    return header_ != nullptr ? reinterpret_cast<std::byte*>(header_) + kMappedLogOwnerAt : nullptr;
  }

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

/// Disk space that all logs of a recording use together. Once there is too little, no log grows.
class LogSpace {
 public:
  /// Space that is always left free: this much, and at most this share of the disk. The recording, which is as large as the logs, must fit
  /// besides.
  static constexpr uint64_t kReserveBytes = uint64_t{256} << 20, kReserveShare = 20;
  /// For this process and those that it forks. `path`: of the SharedCount of bytes. `most_bytes`: of all logs; 0: no limit.
  static void open(const std::string& path, uint64_t most_bytes);
  /// A log grows by `bytes`, in a file at `path`. False, with errno ENOSPC, if it must not.
  static bool take(const std::string& path, uint64_t bytes);
};

/// A number in a file that processes share, also those that are forked and can no longer reach the file.
class SharedCount {
 public:
  /// Creates the file with 0 in it; false if the system refuses.
  static bool create(const std::string& path);
  /// Returns the sum; at least 1 if a process had something to add and could not open the file.
  static uint64_t read(const std::string& path);
  /// Overwrites the number in the file, which needs no further disk space.
  static void write(const std::string& path, uint64_t value);
  void open(const std::string& path);
  /// Returns the sum.
  uint64_t add(uint64_t number = 1);
  /// Adds 1 and stores `detail` beside it, of the first kMostDetails.
  void add_with_detail(uint64_t detail);
  [[nodiscard]] static std::vector<uint64_t> details(const std::string& path);

 private:
  static constexpr size_t kWords = 512, kMostDetails = kWords - 1;  // a page
  static constexpr long kUnopenedBytes = (kWords - 1) * sizeof(uint64_t);
  uint64_t* count_ = nullptr;  // mapped as long as the process lives
  std::string unopened_;       // the file's path if it could not be mapped
};

}  // namespace ptd::emulate
