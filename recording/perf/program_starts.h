// ProgramStarts: calls of exec whose COMM record is missing, as other records show them. Private to recording.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "perfio/format/records.h"
#include "ptdecode/types.h"

namespace ptd {

/// A process keeps its vdso until it calls exec, and the kernel maps another one after the program ([Linux] load_elf_binary()). ptdecode's
/// emulator starts the trace of a thread once, and again in each program. Not thread-safe.
class ProgramStarts {
 public:
  /// A COMM record of exec, or the end of a process: what was known of it is of another program.
  void forget(int32_t pid) { processes_.erase(pid); }
  /// A child has the vdso of its parent.
  void fork(int32_t parent, int32_t pid) {
    const auto known = processes_.find(parent);
    const uint64_t vdso = known == processes_.end() ? 0 : known->second.vdso;
    processes_[pid] = {};
    processes_[pid].vdso = vdso;
  }
  /// ITRACE_START of a thread that has a ring of its own.
  void on_start(int32_t tid, TimeNs time) {
    Process& process = processes_[tid];
    (process.started == kTimeMin ? process.started : process.again) = time;
  }
  /// How a mapping shows that its process has started another program: `vdso`, or by the time of ITRACE_START.
  struct Start {
    bool vdso = false;
  };
  std::optional<Start> on_mapping(const perfio::MmapRecord& map, TimeNs time) {
    Process& process = processes_[map.pid];
    const bool is_vdso = map.path == "[vdso]" || map.path == "[vdso32]", dated = time != kTimeMin;
    const bool begins = dated && process.started < process.again && time == process.again;
    const bool changes = dated && is_vdso && process.vdso != 0 && map.addr != process.vdso;
    if (begins || changes) process = {begins ? process.again : kTimeMin, kTimeMin, 0};
    if (is_vdso) process.vdso = map.addr;
    if (begins || changes) return Start{!begins};
    return std::nullopt;
  }

 private:
  struct Process {
    TimeNs started = kTimeMin, again = kTimeMin;  ///< ITRACE_START of its first thread: the first one, and one after it
    uint64_t vdso = 0;                            ///< its address, 0: unknown
  };
  std::unordered_map<int32_t, Process> processes_;
};

}  // namespace ptd
