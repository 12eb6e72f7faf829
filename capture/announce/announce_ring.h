// AnnounceRing: the reader of one process's ring of announcements (docs/ANNOUNCE.md). Nothing in the ring is trusted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "image/base/fd.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::announce {

/// Where a ring is mapped, and which file it is: identifies it across processes.
struct RingPlace {
  uint64_t address = 0, end = 0;  ///< of the mapping of its header
  uint64_t device = 0, inode = 0;
  friend bool operator==(const RingPlace&, const RingPlace&) = default;
};

/// Returns the rings that a process maps, from /proc/PID/maps; empty if the process is gone or another user's.
[[nodiscard]] std::vector<RingPlace> find_rings(int32_t pid);
/// Returns whether the mappings of a process can be read.
[[nodiscard]] bool is_readable(int32_t pid);
/// Returns whether no thread of the process runs any more. False if that cannot be known.
[[nodiscard]] bool has_ended(int32_t pid);

/// A mapped ring. One reader at a time: a lock on the file keeps others out and ends with the reader. Not thread-safe.
class AnnounceRing {
 public:
  /// Errors: busy if another reader listens; untrusted_file if it is not a sealed memfd of the process's user; bad_version, bad_header;
  /// of the system.
  static Result<std::unique_ptr<AnnounceRing>> open(int32_t pid, const RingPlace& place);
  /// Opens a ring that a process of user `uid` offered. Errors: as above.
  static Result<std::unique_ptr<AnnounceRing>> adopt(int32_t pid, uint32_t uid, Fd file);
  ~AnnounceRing();
  AnnounceRing(const AnnounceRing&) = delete;
  AnnounceRing& operator=(const AnnounceRing&) = delete;

  [[nodiscard]] const RingPlace& place() const { return place_; }
  [[nodiscard]] uint64_t instance() const { return instance_; }
  /// Returns whether the ring was made by this process, and not by one that it was forked from.
  [[nodiscard]] bool is_of(int32_t pid) const;
  /// Asks a forked child that still shares this ring to make its own.
  void ask_forked();
  /// Turns announcements on. A process that did not announce from its start is asked to tell its code. Returns the first number that will
  /// be read. `continues`: what an earlier reader has not read is read.
  uint64_t enable(bool continues = false);
  void disable();
  /// Calls `on_record` with each complete record, at most `most`, and keeps the space until release(). Returns their number. The process
  /// may write meanwhile.
  uint64_t read(const std::function<void(Bytes record)>& on_record, uint64_t most = ~uint64_t{0});
  /// Gives the space of what was read back to the process.
  void release();
  /// The process is gone: also reads past records that were begun and not completed. Returns how many bytes it searched for the next
  /// record, at most size_bytes(). Holes of the file are skipped.
  uint64_t read_rest(const std::function<void(Bytes record)>& on_record);
  /// Returns how many bytes it has for records.
  [[nodiscard]] uint64_t size_bytes() const { return ring_bytes_; }
  /// Returns how many numbers were given out.
  [[nodiscard]] uint64_t given_out() const;

 private:
  struct Mapping;
  AnnounceRing() = default;
  Status map(int32_t pid, uint32_t uid);
  bool take(const std::function<void(Bytes record)>& on_record);
  [[nodiscard]] uint64_t past_hole(uint64_t position, uint64_t end) const;
  void copy_out(uint64_t position, void* to, uint64_t size_bytes) const;

  RingPlace place_;
  Fd fd_;
  char* base_ = nullptr;
  uint64_t mapped_bytes_ = 0, ring_offset_ = 0, ring_bytes_ = 0, instance_ = 0;
  uint64_t tail_ = 0;
  int32_t owner_ = -1;  ///< as the process sees itself
  bool from_start_ = false;
  std::vector<std::byte> record_;
};

}  // namespace ptd::announce
