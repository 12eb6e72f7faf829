// LiveEvent: a perf event that is open on this machine, and the attrs of what the recorder opens.
#pragma once

#include <cstdint>
#include <utility>

#include "image/base/result.h"
#include "perfio/perf_reader.h"

namespace ptd::perfio {

/// Owns the file descriptor of an event. Movable.
class LiveEvent {
 public:
  /// Opens a software event on one cpu that counts nothing and whose ring gets MMAP2, COMM, FORK, EXIT, SWITCH_CPU_WIDE, KSYMBOL, BPF_EVENT
  /// and TEXT_POKE records of what happens there; it is on from the start. Needs CAP_PERFMON or root. Errors: file_open.
  static Result<LiveEvent> open_sideband(int32_t cpu);
  /// Opens a tracepoint on one cpu: its samples hold time (8 bytes) and raw data (4 bytes of size, then so many); each wakes
  /// who polls. `id` is tracefs'. The same needs and errors.
  static Result<LiveEvent> open_tracepoint(int32_t cpu, uint64_t id);
  ~LiveEvent();
  LiveEvent(LiveEvent&& other) noexcept : fd_(std::exchange(other.fd_, -1)), id_(other.id_) {}
  LiveEvent& operator=(LiveEvent&& other) noexcept {
    std::swap(fd_, other.fd_);
    id_ = other.id_;
    return *this;
  }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] uint64_t id() const { return id_; }  ///< of the event, as its records carry it
  void disable() const;

 private:
  explicit LiveEvent(int fd) : fd_(fd) {}
  static Result<LiveEvent> open(const void* attr, int32_t cpu);
  int fd_;
  uint64_t id_ = 0;
};

/// The attr of open_sideband(), named "dummy:u".
[[nodiscard]] EventAttr sideband_attr();
/// The attr of an Intel PT event with the same sample_type; no event is opened by it.
[[nodiscard]] EventAttr trace_attr(uint32_t type, uint64_t config);

}  // namespace ptd::perfio
