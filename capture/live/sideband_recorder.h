// SidebandRecorder: records, on every cpu, the system events that a trace decoder needs besides the trace.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/live/events/live_clock.h"
#include "capture/live/events/ring_losses.h"
#include "capture/live/kernel/kernel_capture.h"
#include "perfio/perf_writer.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::live {

struct RecorderOptions {
  std::string path = "perf.data";  ///< of the recording, perf's directory form
  uint32_t ring_pages = 1024;      ///< of each cpu's ring; a power of two. Too few: the kernel writes LOST records
  uint32_t trace_type = 8;         ///< perf_event_attr.type of the trace that belongs to it (PMU number)
  uint64_t trace_config = 0;       ///< its config
  bool watch_text = false;         ///< report changes of kernel code where the kernel does not (text_watch.h)
};

struct RecorderCounts : CaptureCounts {
  uint64_t records = 0, lost = 0;
};

/// Opens one software event per cpu and stores its records: MMAP2, COMM, FORK, EXIT, SWITCH_CPU_WIDE, KSYMBOL, BPF_EVENT, TEXT_POKE. The
/// kernel sends these only to events of the cpu where they happen, so every cpu has one. It adds to the kernel's records:
///  - the state at the start: kernel text, modules, tasks and their code, BPF programs (like `perf record`);
///  - code that is added and removed (kernel_capture.h), BPF programs as feature BPF_PROG_INFO;
///  - kcore_dir: the kernel's text, copied after the events were opened.
/// The recording has two events: the trace, whose AUX data are added by who wrote them, and "dummy:u". Needs root. One thread.
class SidebandRecorder {
 public:
  /// Opens events, then records the current state, then copies the kernel. From then on the caller must call drain() often enough.
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
  void on_record(RingLosses& losses, Bytes record);
  Status tell_losses();
  CaptureSink capture_sink();

  struct CpuRing {
    int32_t cpu = -1;
    perfio::LiveEvent event;
    std::unique_ptr<perfio::EventRing> ring;
    RingLosses losses;
  };
  RecorderOptions options_;
  perfio::EventAttr trace_, dummy_;
  std::unique_ptr<perfio::PerfWriter> writer_;
  std::unique_ptr<KernelCapture> capture_;
  std::vector<CpuRing> rings_;
  std::vector<perfio::BpfProgInfo> programs_;
  RecorderCounts counts_;
  Status first_error_;
};

}  // namespace ptd::live
