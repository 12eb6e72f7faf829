// KernelCapture: captures kernel code that is created and removed during a recording and has no bytes in the kernel's records.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <vector>

#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/module_watch.h"
#include "capture/live/kernel/text_watch.h"
#include "perfio/perf_writer.h"

namespace ptd::live {

struct CaptureCounts {
  uint64_t text_pokes = 0, bpf_programs = 0, bpf_gone = 0, images_read = 0;
  ModuleCounts modules;
  TextCounts text;
};

/// Receives records that the recorder creates itself: a file's writer, a log.
struct CaptureSink {
  std::function<Status(const perfio::TextPokeRecord&, const perfio::SampleId&)> add_code;  ///< as TEXT_POKE of the kernel
  std::function<Status(const perfio::BpfProgInfo&)> add_program;
  std::function<Status(const perfio::SampleId&)> add_unknown_code = {};  ///< as LOST: changes of code are not known since then
};

/// Inspects the records of system-wide events as they are read, and at once reads code that may soon be removed:
///  - the code of BPF programs, as soon as the record of their load is read;
///  - the code of BPF trampolines and dispatchers, whose records have a name but no bytes: read from memory and recorded as TEXT_POKE with
///    old_len 0 at the time of the KSYMBOL. The same for a program that was unloaded before its code could be read, while its memory is
///    not cleared;
///  - the code of modules loaded during the recording, in the same form (module_watch.h).
/// A round is look(), on_record() for each record, end_round(). Not thread-safe.
class KernelCapture {
 public:
  /// `memory` may be null (no right to read it): then only BPF programs are read. `modules` may be null too.
  KernelCapture(std::unique_ptr<KernelMemory> memory, std::unique_ptr<ModuleWatch> modules, CaptureSink sink)
      : memory_(std::move(memory)), modules_(std::move(modules)), sink_(std::move(sink)) {}

  /// Reports changes of code with `text`, which starts watching. Errors: those of TextWatch::begin().
  Status watch_text(std::unique_ptr<TextWatch> text, std::string_view kallsyms);
  /// Passes each loaded BPF program to the sink.
  Status note_loaded_programs();
  void look();
  /// `attr` is the attr of the record.
  void on_record(Bytes record, const perfio::EventAttr& attr);
  Status end_round();
  /// Waits until a module is loaded or unloaded.
  void wait(uint32_t timeout_ms) const;

  /// Returns descriptors that are readable when look() should be called soon.
  [[nodiscard]] std::vector<int> wake_fds() const {
    std::vector<int> fds = modules_ == nullptr ? std::vector<int>() : modules_->fds();
    if (text_ != nullptr) {
      for (const int fd : text_->fds()) fds.push_back(fd);
    }
    return fds;
  }

  [[nodiscard]] const CaptureCounts& counts() const { return counts_; }
  [[nodiscard]] const KernelMemory* memory() const { return memory_.get(); }

 private:
  struct Image {
    uint64_t address = 0;
    uint32_t size_bytes = 0;
    perfio::SampleId when;
    bool program = false;  // one whose bytes the kernel gives, as long as it is loaded
    unsigned reads = 0;    // that found no code yet
  };
  /// How much memory is known to be the image's: the records of trampolines say a page, which may hold others.
  static uint32_t taken_bytes(const Image& image);
  void on_ksymbol(Bytes record, const perfio::EventAttr& attr);
  void on_bpf_load(uint32_t id);
  Status read_images();
  Status add_change(const CodeChange& change);
  Status take_text();

  std::unique_ptr<KernelMemory> memory_;
  std::unique_ptr<ModuleWatch> modules_;
  std::unique_ptr<TextWatch> text_;
  CaptureSink sink_;
  std::vector<Image> images_;                  // registered in this round, or without code until now, and not gone
  std::vector<uint64_t> addresses_;            // of the functions of this round's programs
  std::vector<perfio::BpfProgInfo> programs_;  // of this round
  std::set<uint32_t> program_ids_;
  CaptureCounts counts_;
};

}  // namespace ptd::live
