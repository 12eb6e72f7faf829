// LiveEvent: an open perf event on this machine, and the attrs of the recorder's events.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "perfio/perf_reader.h"
#include "ptdecode/error.h"

namespace ptd::perfio {

/// Whose event it is ([perf_event_open(2)] "pid", "cpu"): of one thread on any cpu or on one, or of all threads on one cpu.
struct EventTarget {
  int32_t tid = -1;   ///< -1: all
  int32_t cpu = -1;   ///< -1: any; then a thread is named
  int group_fd = -1;  ///< the event that leads its group
};

/// What an event counts and which sideband its ring gets: the fields of perf_event_attr that a trace recorder sets.
struct EventSpec {
  uint32_t type = 1;                                           ///< PERF_TYPE_SOFTWARE
  uint64_t config = 9, config1 = 0, config2 = 0, config3 = 0;  ///< PERF_COUNT_SW_DUMMY
  uint64_t period = 1;                                         ///< of its samples
  uint32_t aux_sample_bytes = 0;                               ///< of the group leader's trace in each sample (PERF_SAMPLE_AUX); 0: none
  uint32_t aux_action = 0;  ///< kAuxStartPaused of a trace; kAuxPause, kAuxResume of an event in its group
  bool exclude_user = false, exclude_kernel = false, exclude_hv = false;
  bool inherit = false;         ///< threads and processes that the target starts get it too
  bool disabled = false;        ///< until enable()
  bool enable_on_exec = false;  ///< and on from the target's next exec
  bool tasks = false;           ///< MMAP2, COMM, FORK, EXIT
  bool build_ids = false;       ///< MMAP2 carries the build id instead of the inode
  bool switches = false;        ///< SWITCH, or SWITCH_CPU_WIDE of an event of a cpu
  bool namespaces = false;      ///< NAMESPACES
  bool ksymbols = false, bpf = false, text_pokes = false;
  bool losses = false;          ///< the event counts records that did not fit into its ring (PERF_FORMAT_LOST)
  uint32_t wake_bytes = 0;      ///< who polls is woken when so many bytes wait; 0: half the ring
  uint32_t aux_wake_bytes = 0;  ///< the same of the AUX area
};

/// Owns the file descriptor of an event. Movable.
class LiveEvent {
 public:
  /// Opens any event. Errors: file_open, with advice on a refusal; `number` gets errno.
  static Result<LiveEvent> open(const EventSpec& spec, const EventTarget& target, int* number = nullptr);
  /// Same without the features that this kernel does not support or this user may not use: see omit_what_is_refused().
  static Result<LiveEvent> open_what_is_known(EventSpec& spec, const EventTarget& target, std::vector<std::string>& without,
                                              int* number = nullptr);
  /// Opens a software event on one cpu that counts nothing and whose ring gets MMAP2, COMM, FORK, EXIT, SWITCH_CPU_WIDE, KSYMBOL, BPF_EVENT
  /// and TEXT_POKE records of what happens there; it is on from the start, and counts losses where the kernel does. Needs Linux 5.12 and
  /// CAP_PERFMON or root. Errors: file_open.
  static Result<LiveEvent> open_sideband(int32_t cpu);
  /// Opens a tracepoint on one cpu: its samples hold time (8 bytes) and raw data (4 bytes of size, then so many); each wakes
  /// who polls. Other records end with their time. `id` is tracefs'. The same needs and errors.
  static Result<LiveEvent> open_tracepoint(int32_t cpu, uint64_t id);
  ~LiveEvent();
  LiveEvent(LiveEvent&& other) noexcept : fd_(std::exchange(other.fd_, -1)), id_(other.id_), losses_(other.losses_) {}
  LiveEvent& operator=(LiveEvent&& other) noexcept {
    std::swap(fd_, other.fd_);
    id_ = other.id_;
    losses_ = other.losses_;
    return *this;
  }

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] uint64_t id() const { return id_; }  ///< of the event, as its records carry it
  /// Returns the records of this event, and of those that inherit it, that did not fit into its ring; nothing if they are not counted.
  [[nodiscard]] std::optional<uint64_t> lost() const;
  void disable() const;
  void enable() const;
  /// Off and on again. What makes a trace go on whose AUX area was full: the kernel turns such an event off (kernel/events/ring_buffer.c,
  /// perf_aux_output_begin() and _end(), pending_disable), but for Linux 5.19 to 6.15, which may leave it on without its hardware
  /// ("perf/aux: Fix pending disable flow when the AUX ring buffer overruns"); then enable() alone does nothing.
  void restart() const;
  /// Sends its records to the ring of another event of the same cpu or thread.
  [[nodiscard]] Status send_to(const LiveEvent& other) const;
  /// Sets address filters in the kernel's syntax ([perf_event.h] "PERF_EVENT_IOC_SET_FILTER").
  [[nodiscard]] Status set_filter(const std::string& filter) const;

 private:
  explicit LiveEvent(int fd) : fd_(fd) {}
  static Result<LiveEvent> open(const void* attr, const EventTarget& target, int* number);
  int fd_;
  uint64_t id_ = 0;
  bool losses_ = false;
};

/// Takes out of `spec` what `attempt` refuses and an event may do without: kinds of sideband that the kernel does not support (EINVAL,
/// EOPNOTSUPP, E2BIG), kinds that this user may not have and the kernel's own code (EACCES, EPERM). `without` gets a sentence for each.
/// `attempt`: 0, or the errno of opening such an event. Returns 0; else the first errno, and `spec` stays.
int omit_what_is_refused(EventSpec& spec, std::vector<std::string>& without, const std::function<int(const EventSpec&)>& attempt);

/// Returns the attr of an event as stored in perf.data.
[[nodiscard]] EventAttr file_attr(const EventSpec& spec, const std::string& name);
/// Returns the attr of open_sideband(), named "dummy:u".
[[nodiscard]] EventAttr sideband_attr();
/// Returns the attr of an Intel PT event with the same sample_type; it is not used to open an event.
[[nodiscard]] EventAttr trace_attr(uint32_t type, uint64_t config);

}  // namespace ptd::perfio
