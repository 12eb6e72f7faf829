// AuxRing: the AUX area of a live perf event, into which the hardware writes the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "perfio/ring/event_ring.h"
#include "perfio/ring/ring_math.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// How the kernel fills the area ([perf_event.h] "struct perf_event_mmap_page", aux_*). `full`: it never overwrites data that was not
/// released, and sets PERF_AUX_FLAG_TRUNCATED where it had to stop. `overwrite`: it wraps around; the area is read while the event is
/// disabled.
enum class AuxMode : uint8_t { full, overwrite };

/// One mapped AUX area. Hardware and kernel write, one thread reads in place, without a copy.
class AuxRing {
 public:
  /// Maps `size_bytes` (a power of two of pages) after the data pages of the event `fd`, whose ring is `ring` and must outlive the area.
  /// Mapped a second time, in this process or another, it is the same area. Errors: usage for the size, unsupported for an
  /// event whose PMU has no such area, file_open with the kernel's reason.
  static Result<std::unique_ptr<AuxRing>> map(int fd, const EventRing& ring, uint64_t size_bytes, AuxMode mode);
  /// Uses memory of the caller, which must outlive it: a control page and the area. Errors: file_format.
  static Result<std::unique_ptr<AuxRing>> over(std::span<std::byte> control_page, std::span<std::byte> area, AuxMode mode);
  ~AuxRing();
  AuxRing(const AuxRing&) = delete;
  AuxRing& operator=(const AuxRing&) = delete;

  /// Full mode: returns the data that was written and not yet read. Does not release it.
  [[nodiscard]] RingPart pending() const;
  /// Full mode: marks everything before `end` as read without releasing it; pending() continues from there.
  void read_to(uint64_t end) { position_ = end; }
  /// Full mode: returns what was read to the kernel. True if the writer may have found no space until now: then it has stopped (see
  /// LiveEvent::restart()).
  bool release();
  /// Overwrite mode, while the event is disabled: returns the content of the area, oldest first. Valid until the event is enabled again.
  [[nodiscard]] RingPart snapshot() const;

  [[nodiscard]] AuxMode mode() const { return mode_; }
  [[nodiscard]] uint64_t position() const { return position_; }
  [[nodiscard]] uint64_t head() const;  ///< as the kernel gives it
  [[nodiscard]] uint64_t capacity_bytes() const { return area_.size(); }

 private:
  AuxRing(std::span<std::byte> control, std::span<std::byte> area, AuxMode mode, bool mapped);

  std::span<std::byte> control_;
  std::span<std::byte> area_;
  AuxMode mode_;
  bool mapped_;
  uint64_t position_ = 0, released_ = 0;
};

}  // namespace ptd::perfio
