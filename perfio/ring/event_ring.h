// EventRing: the ring buffer of a live perf event, read as records.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "perfio/format/records.h"
#include "ptdecode/error.h"
#include "ptdecode/types.h"

namespace ptd::perfio {

/// One mapped ring: a control page (struct perf_event_mmap_page) and 2^n pages of records ([perf_event.h] "struct perf_event_mmap_page").
/// The kernel writes, one thread reads. Read records are released to the kernel one by one.
class EventRing {
 public:
  /// Maps the ring of the event `fd` with `data_pages` pages of records (a power of two). `fd` stays the caller's and may be closed: the
  /// mapping keeps the ring, though not an event that it is the only reference to. Errors: file_open with the kernel's reason.
  static Result<std::unique_ptr<EventRing>> map(int fd, uint32_t data_pages);
  /// Uses memory of the caller, which must outlive it: a control page and the data at its data_offset and data_size. Errors: file_format.
  static Result<std::unique_ptr<EventRing>> over(std::span<std::byte> memory);
  ~EventRing();
  EventRing(const EventRing&) = delete;
  EventRing& operator=(const EventRing&) = delete;

  /// Calls `on_record` with every whole record there is, oldest first; a view is valid during its call. A record whose size makes no sense
  /// ends the ring's use: everything up to the head is thrown away and counted. Returns the number of records.
  uint64_t drain(const std::function<void(Bytes record)>& on_record);
  /// The same without giving anything back: the kernel may not write over it until release(). For readers that must first have it
  /// elsewhere.
  uint64_t read(const std::function<void(Bytes record)>& on_record);
  /// Releases everything that was read to the kernel.
  void release();
  /// Returns the read position, in bytes since the ring was created.
  [[nodiscard]] uint64_t position() const { return position_; }
  /// Sets the read position to that of a former holder of the same ring. Never moves back before released data.
  void seek(uint64_t position);
  /// Returns the number of unread bytes.
  [[nodiscard]] uint64_t pending_bytes() const;
  [[nodiscard]] uint64_t capacity_bytes() const { return data_.size(); }
  /// Returns the control page and the memory after it, for the ring's AUX area.
  [[nodiscard]] std::span<std::byte> control_page() const { return memory_; }
  /// Returns how often drain() found a record of an impossible size.
  [[nodiscard]] uint64_t damaged() const { return damaged_; }
  /// TSC to the event's clock, as the kernel publishes it for this cpu; nothing where it publishes none ([perf_event.h]
  /// "cap_user_time_zero").
  [[nodiscard]] std::optional<TimeConvRecord> time_conversion() const;

 private:
  EventRing(std::span<std::byte> memory, std::span<std::byte> data, bool mapped);
  uint64_t read_some(const std::function<void(Bytes record)>& on_record, bool give_back);

  std::span<std::byte> memory_;  // control page and records
  std::span<std::byte> data_;
  bool mapped_ = false;  // memory_ is ours to unmap
  std::vector<std::byte> straddling_;
  uint64_t damaged_ = 0;
  uint64_t position_ = 0;
};

/// The records of a ring that its event writes backwards, over the oldest ones (perf_event_attr.write_backward), newest first, while its
/// output is paused. `head` is the control page's data_head. Returns the number of records; a record of an impossible size ends it, as does
/// the place where the oldest one was written over.
uint64_t read_backward_ring(Bytes data, uint64_t head, const std::function<void(Bytes record)>& on_record);

}  // namespace ptd::perfio
