// TextWatch: reports changes of kernel code on arm64, whose kernels write no TEXT_POKE record.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/text_writes.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::live {

/// Sets a kprobe at __set_fixmap() and passes its samples to TextWrites. One round is look(), then take(). Not thread-safe.
class TextWatch {
 public:
  /// Sets the probe and opens its event on each cpu. Returns null if the kernel has no such function or no kprobe events, and on other
  /// processors.
  static std::unique_ptr<TextWatch> start(int32_t cpus);
  ~TextWatch();
  TextWatch(const TextWatch&) = delete;
  TextWatch& operator=(const TextWatch&) = delete;

  /// Notes the code as it is. Changes before are not reported. Errors: of find_kernel_text().
  Status begin(const KernelMemory& memory, std::string_view kallsyms);
  [[nodiscard]] std::vector<CodeChange> take(const KernelMemory& memory, const TextWrites::OnUnknown& on_unknown);
  /// Notes code that was loaded, of which a reader has `code`, or freed (no bytes).
  void on_code(const KernelMemory& memory, MemoryExtent extent, Bytes code);
  [[nodiscard]] std::vector<int> fds() const;
  [[nodiscard]] const TextWrites& writes() const { return writes_; }

 private:
  struct Ring {
    int32_t cpu = 0;
    perfio::LiveEvent event;
    std::unique_ptr<perfio::EventRing> ring;
  };
  TextWatch() = default;
  bool open(int32_t cpus);

  std::vector<Ring> rings_;
  TextWrites writes_;
};

}  // namespace ptd::live
