// StateFold: reduces a sequence of sideband records to its final state: threads, mappings, kernel code.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "capture/live/session/session_log.h"

namespace ptd::live {

/// Takes records in their order and keeps only what still holds after the last one. A process that forks hands its mappings and name to the
/// child, in records of the child's numbers. Not kept: switches but the last of each ring, changes of the kernel's text (it is copied
/// when somebody asks), losses. Memory: at most kMaxMaps mappings a process; the rest is bounded by who is alive.
class StateFold {
 public:
  static constexpr size_t kMaxMaps = 65536;
  void take(const LogEntry& entry);
  /// The process that a record of threads and mappings is of; -1 for others.
  [[nodiscard]] static int32_t process_of(const LogEntry& entry);
  /// Takes out the processes for which `gone` says so.
  void forget(const std::function<bool(int32_t pid)>& gone);
  /// Entries that give the state again, with position 0.
  void each(const std::function<void(const LogEntry&)>& on_entry) const;

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

  std::map<int32_t, Process> processes_;
  std::map<uint64_t, Code> code_;
  std::map<uint32_t, Program> programs_;
  std::map<uint16_t, Stored> switches_, hardware_ids_;  // by ring
};

}  // namespace ptd::live
