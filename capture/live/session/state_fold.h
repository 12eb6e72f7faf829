// StateFold: reduces a sequence of sideband records to its final state: threads, mappings, kernel code.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "capture/live/session/fold/announce_fold.h"
#include "capture/live/session/fold/loss_fold.h"
#include "capture/live/session/fold/poke_fold.h"
#include "capture/live/session/session_log.h"

namespace ptd::live {

/// Takes records in order and keeps only those that are still valid after the last one. A fork copies mappings and name to the child, in
/// records with the child's pid. Not kept: switches except the last one of each ring. Changes of kernel code and losses: poke_fold.h,
/// loss_fold.h. A child starts with the announced code of its parent; kMaxForkedBytes of it are copied, what further children inherit is
/// unknown. Memory: at most kMaxMaps mappings per process; the rest is bounded by the number of living threads and the log's size.
class StateFold {
 public:
  static constexpr size_t kMaxMaps = 65536;
  static constexpr uint64_t kMaxForkedBytes = 64U << 20;
  void take(const LogEntry& entry);
  /// Returns the process of a record about threads or mappings; -1 for other records.
  [[nodiscard]] static int32_t process_of(const LogEntry& entry);
  /// Removes the processes for which `gone` returns true.
  void forget(const std::function<bool(int32_t pid)>& gone);
  /// Returns entries that reproduce the state, with position 0.
  void each(const std::function<void(const LogEntry&)>& on_entry);

 private:
  using Stored = std::vector<std::byte>;
  struct Map {
    uint64_t address = 0, size_bytes = 0;
    Stored record;
  };
  struct Process {
    std::map<int32_t, Stored> names;  // by thread; empty where no name is known
    std::vector<Map> maps;
    Stored namespaces;
    uint16_t ring = 0;
  };
  struct Code {
    Stored symbol, bytes;  // KSYMBOL, and what the recorder has read of it
    uint16_t ring = 0;
  };
  struct Program {
    Stored event, section;
    uint16_t ring = 0;
  };
  void take_record(const LogEntry& entry);
  void take_task(Bytes record, uint16_t ring, bool exit);
  void take_map(Bytes record, uint16_t ring);
  void take_kernel(Bytes record, uint16_t ring);
  void take_code(const LogEntry& entry);
  void take_announcement(const LogEntry& entry);
  /// Returns the records of the kernel and of rings in order of time, as readers expect them of a ring; valid until the next take().
  [[nodiscard]] std::vector<LogEntry> kernel_entries() const;

  std::map<int32_t, Process> processes_;
  std::map<int32_t, AnnounceFold> announced_;
  uint64_t forked_bytes_ = 0;
  std::map<uint64_t, Code> code_;
  LossFold losses_;
  PokeFold pokes_{losses_};
  std::map<uint32_t, Program> programs_;
  std::map<uint16_t, Stored> switches_, hardware_ids_;  // by ring
};

}  // namespace ptd::live
