// EventSet: the events and rings of one recording: sideband of the target, sideband of the kernel, and the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "capture/live/events/counter_event.h"
#include "capture/live/events/ring_losses.h"
#include "capture/live/events/ring_sizes.h"
#include "perfio/ring/aux_ring.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::live {

/// The target of a recording.
struct TargetChoice {
  bool everything = false;       ///< all threads of all `cpus`
  std::vector<int32_t> cpus;     ///< empty: all that are online
  std::vector<int32_t> pids;     ///< processes to attach to, with all their threads
  std::vector<int32_t> tids;     ///< single threads
  bool tree = false;             ///< also what descends from `pids`
  bool per_thread = false;       ///< one ring a thread instead of one a cpu; what the thread starts is not followed
  bool inherit = true;           ///< follow clone and fork
  int32_t waiting_command = -1;  ///< a process that has yet to exec what is to be recorded
};

/// The trace to record besides the sideband.
struct TraceChoice {
  perfio::EventSpec event;  ///< type, config, levels
  std::string name;         ///< as typed: intel_pt//u
  perfio::AuxMode mode = perfio::AuxMode::full;
  std::string filter;                    ///< in the kernel's syntax; empty: none
  std::vector<CounterEvent> companions;  ///< events in a group with the trace: they sample it, pause it and resume it
  bool sampled = false;                  ///< the trace is recorded in samples only
};

struct EventChoice {
  TargetChoice target;
  std::optional<TraceChoice> trace;
  bool switches = true;  ///< context switches, without which a per-cpu trace belongs to no thread
  RingSizes sizes;
};

/// The purpose of a ring. `target`: MMAP2, COMM, FORK, EXIT, SWITCH of the target. `kernel`: KSYMBOL, BPF_EVENT, TEXT_POKE, which
/// the kernel sends only to events of the cpu where they happen, so they are recorded on all cpus. `trace`: the AUX area and its records.
enum class RingRole : uint8_t { target, kernel, trace };

struct EventRings {
  RingRole role = RingRole::target;
  int32_t cpu = -1, tid = -1;             ///< one of them; tid -1: all that the events are of
  std::vector<perfio::LiveEvent> events;  ///< the first one owns the ring, the others send there
  std::vector<bool> ended;                ///< of each event: its threads have ended
  /// Events in a group with the trace events, and the indices of their choices. They are enabled with the trace event and write to its
  /// ring.
  std::vector<std::pair<perfio::LiveEvent, size_t>> companions;
  std::unique_ptr<perfio::EventRing> ring;
  std::unique_ptr<perfio::AuxRing> aux;  ///< of a trace
  RingLosses losses;
  bool nearly_full = false;  ///< when it was read last and there was something

  /// Returns the ids of all events whose records are in the ring.
  [[nodiscard]] std::vector<uint64_t> ids() const;
  /// Returns the number of lost records according to its events; nothing if this kernel does not count them.
  [[nodiscard]] std::optional<uint64_t> lost_total() const;
};

/// Returns whether a record is an AUX record that reports lost trace, after which the kernel turns the event off.
[[nodiscard]] bool says_trace_was_cut(Bytes record);

/// Opens all events, once. Sideband is recorded as soon as its event exists; the trace starts with enable_trace(), or with the exec of the
/// waiting command. Not thread-safe.
class EventSet {
 public:
  /// Errors: of the kernel, with advice; usage if no thread of the target is left.
  static Result<EventSet> open(const EventChoice& choice);

  void enable_trace() const;
  /// Turns the events of one of rings() off and on again.
  void restart_ring(size_t index) const;
  void disable_trace() const;
  void disable_all() const;
  /// In a child of fork(): maps the same rings again, because a child does not inherit these mappings. Must be called before anything else
  /// is mapped. Errors: as for opening.
  Status map_again();
  /// Waits for the wake-up of a ring, for a readable descriptor of `more`, or for the timeout (-1: none). Fills `ready` with the readable
  /// descriptors of `more`. Returns true if a ring woke up.
  bool wait(const std::vector<int>& more, std::vector<bool>& ready, int timeout_ms);
  /// Returns true once all threads of the target's events have ended. Only wait() updates this.
  [[nodiscard]] bool target_ended() const { return ended_; }

  [[nodiscard]] std::vector<EventRings>& rings() { return rings_; }
  [[nodiscard]] const std::vector<EventRings>& rings() const { return rings_; }
  [[nodiscard]] const std::vector<perfio::EventAttr>& attrs() const { return attrs_; }
  /// Returns the index in attrs() of the events with a role; -1 if there is none.
  [[nodiscard]] int32_t attr_of(RingRole role) const { return attr_index_[static_cast<size_t>(role)]; }
  /// Returns one sentence for each kind of record that is not available to this kernel or user.
  [[nodiscard]] const std::vector<std::string>& without() const { return without_; }
  [[nodiscard]] const EventChoice& choice() const { return choice_; }
  /// Returns the threads of the target as they are now; empty if it is everything.
  [[nodiscard]] std::vector<int32_t> wanted_threads() const;

 private:
  EventSet() = default;
  Status open_kernel();
  Status open_target();
  Status open_thread(int32_t tid);
  Status attach_all();
  [[nodiscard]] std::vector<int32_t> told_threads();
  Status add_event(RingRole role, const perfio::EventTarget& target);
  Status add_companions(const perfio::LiveEvent& leader, const perfio::EventTarget& target, EventRings& rings);
  Status map_ring(EventRings& rings) const;
  void collect_attrs();

  EventChoice choice_;
  std::vector<int32_t> cpus_;
  perfio::EventSpec specs_[3];
  bool known_[3] = {};  // whether open_what_is_known() has probed what the kernel supports
  int refused_ = 0;     // errno of the event that could not be opened last
  std::vector<EventRings> rings_;
  std::vector<perfio::EventAttr> attrs_;
  int32_t attr_index_[3] = {-1, -1, -1};
  std::vector<std::string> without_;
  bool ended_ = false;
};

}  // namespace ptd::live
