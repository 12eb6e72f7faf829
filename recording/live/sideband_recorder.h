// SidebandRecorder: records what a decoder of a trace must know of the system beside the trace itself, on every cpu, while it happens.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "perfio/event_ring.h"
#include "perfio/live_event.h"
#include "perfio/perf_writer.h"
#include "recording/live/kernel_memory.h"
#include "recording/live/module_watch.h"

namespace ptd::live {

struct RecorderOptions {
  std::string path = "perf.data";  ///< of the recording, perf's directory form
  uint32_t ring_pages = 1024;      ///< of each cpu's ring; a power of two. Too few: the kernel writes LOST records
  uint32_t trace_type = 8;         ///< perf_event_attr.type of the trace that belongs to it (PMU number)
  uint64_t trace_config = 0;       ///< its config
};

struct RecorderCounts {
  uint64_t records = 0, lost = 0, text_pokes = 0, bpf_programs = 0, bpf_gone = 0, images_read = 0;
  ModuleCounts modules;
};

/// Opens one software event a cpu and keeps its records: MMAP2, COMM, FORK, EXIT, SWITCH_CPU_WIDE, KSYMBOL, BPF_EVENT, TEXT_POKE. These
/// reach the events of the cpu where they happen only, so every cpu has one. To what the kernel says it adds:
///  - what is there at the start: kernel text, modules, tasks and their code, BPF programs (as `perf record` does);
///  - the code of BPF programs, asked for as soon as their load is read (feature BPF_PROG_INFO);
///  - the code of BPF trampolines and dispatchers, for which the kernel gives a name and no bytes: read from memory when the name is read,
///    and written as TEXT_POKE with old_len 0 at the time of the KSYMBOL; likewise that of a program that was unloaded before it could be
///    asked for, as long as its memory is not cleared;
///  - the code of modules loaded meanwhile, in the same form (module_watch.h);
///  - kcore_dir: the kernel's text, copied after the events were opened.
/// The recording has two events: the trace, whose AUX data are added by who wrote them, and "dummy:u". Needs root. One thread.
class SidebandRecorder {
 public:
  /// Opens events, then notes what is there, then copies the kernel. From here on drain() is to be called often enough.
  static Result<std::unique_ptr<SidebandRecorder>> start(const RecorderOptions& options);
  ~SidebandRecorder();

  /// Waits for what had better be read at once (the code of a module that is loaded), at most so long.
  void wait(uint32_t timeout_ms) const;
  /// Takes what the rings hold, one round.
  Status drain();
  /// Closes the events, takes the rest, writes features. The recording is complete, but for AUX data.
  Status stop();
  [[nodiscard]] const RecorderCounts& counts() const { return counts_; }

 private:
  explicit SidebandRecorder(RecorderOptions options) : options_(std::move(options)) {}
  Status open_events();
  Status write_start(const std::string& kallsyms);
  Status write_kernel_maps(const std::string& kallsyms);
  Status write_tasks();
  Status write_task(int32_t pid);
  Status write_bpf_at_start();
  void on_record(Bytes record);
  void on_ksymbol(Bytes record);
  void on_bpf_load(uint32_t id);
  [[nodiscard]] bool has_bytes(uint64_t bpf_address) const;
  Status read_images();
  Status write_module_code();

  struct CpuRing {
    int32_t cpu = -1;
    perfio::LiveEvent event;
    std::unique_ptr<perfio::EventRing> ring;
  };
  struct Image {
    uint64_t address = 0, time_ns = 0;
    uint32_t size_bytes = 0;
    int32_t cpu = -1;
    uint64_t id = 0;
    bool program = false;  // one whose bytes the kernel gives, as long as it is loaded
  };
  RecorderOptions options_;
  perfio::EventAttr trace_, dummy_;
  std::unique_ptr<perfio::PerfWriter> writer_;
  std::unique_ptr<KernelMemory> memory_;
  std::unique_ptr<ModuleWatch> modules_;  // null where there is no tracefs
  std::vector<CpuRing> rings_;
  std::vector<Image> images_;   // registered in this round and not gone
  size_t programs_before_ = 0;  // of programs_, known before this round
  std::vector<perfio::BpfProgInfo> programs_;
  std::set<uint32_t> program_ids_;
  RecorderCounts counts_;
  Status first_error_;
};

}  // namespace ptd::live
