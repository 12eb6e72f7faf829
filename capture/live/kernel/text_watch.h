// TextWatch: reports changes of kernel code on arm64, whose kernels write no TEXT_POKE record.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/module_watch.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::live {

struct TextCounts {
  uint64_t changes = 0;  ///< that are known
  uint64_t unknown = 0;  ///< writes whose address or bytes are not known, or whose sample was lost
};

/// An arm64 kernel changes an instruction of its code through a mapping of the page in the fixmap ([Linux] arch/arm64/kernel/patching.c,
/// __aarch64_insn_write()). A kprobe at __set_fixmap() reports the page and the stack just before the write, and the unmapping just after it. The
/// page gives the address. The new word is on the stack, at an offset that is the same for all writes and is found by comparing the stack with
/// memory. One round is look(), then take(). Not thread-safe.
class TextWatch {
 public:
  /// Sets the probe and opens its event on each cpu. Returns null if the kernel has no such function or no kprobe events, and on other processors.
  static std::unique_ptr<TextWatch> start(int32_t cpus);
  ~TextWatch();
  TextWatch(const TextWatch&) = delete;
  TextWatch& operator=(const TextWatch&) = delete;

  /// Notes the code as it is. Changes before are not reported. Errors: of find_kernel_text().
  Status begin(const KernelMemory& memory, std::string_view kallsyms);
  /// Returns a change of no bytes before all others: a reader knows by it that changes are reported.
  [[nodiscard]] CodeChange first_change() const;
  /// Returns the changes since the last call, in order of time. Each has two records: one before the write, with the old and the new bytes, and one
  /// after the write, with the new bytes twice. Calls `on_unknown` with the time since which code is not known.
  [[nodiscard]] std::vector<CodeChange> take(const KernelMemory& memory, const std::function<void(uint64_t since_ns, int32_t cpu)>& on_unknown);
  /// Notes code that was loaded.
  void on_code(uint64_t address, Bytes code);
  [[nodiscard]] std::vector<int> fds() const;
  [[nodiscard]] const TextCounts& counts() const { return counts_; }

 private:
  static constexpr size_t kStackWords = 16;
  struct Ring {
    int32_t cpu = 0;
    perfio::LiveEvent event;
    std::unique_ptr<perfio::EventRing> ring;
    uint64_t lost = 0;
  };
  struct Sample {
    uint64_t time_ns = 0, index = 0, place = 0;
    int32_t cpu = 0;
    uint64_t stack[kStackWords] = {};
  };
  struct Write {
    Sample begin;
    uint64_t end_ns = 0, address = 0;
  };
  struct Extent {
    uint64_t address = 0;
    std::vector<std::byte> bytes;
  };
  TextWatch() = default;
  bool open(int32_t cpus);
  void on_sample(Bytes record, Ring& ring);
  [[nodiscard]] std::vector<Write> writes();
  [[nodiscard]] uint64_t address_of(const Sample& sample) const;
  [[nodiscard]] std::byte* known(uint64_t address);
  void calibrate(const std::vector<Write>& writes, const KernelMemory& memory);
  [[nodiscard]] bool has_word() const { return places_ != 0 && confirmed_ != 0; }

  std::vector<Ring> rings_;
  std::vector<Sample> samples_;         // not processed yet
  std::map<int32_t, Sample> open_;      // by cpu: writes whose end was not seen yet
  std::map<uint64_t, Extent> code_;     // as it is now, by end
  uint64_t image_ = 0, image_bytes_ = 0, image_place_ = 0;  // the kernel's own code, virtual and physical
  uint64_t poke_index_ = 0;             // of the fixmap; 0: not known
  uint32_t places_ = ~0U;               // halves of stack words that may hold the written word
  uint64_t confirmed_ = 0;              // writes that narrowed them
  struct Unplaced {
    uint64_t time_ns = 0;
    int32_t cpu = 0;
    unsigned rounds = 0;
  };
  std::vector<Unplaced> unplaced_;  // writes to code of no known address: of a module that is being loaded, unless nothing loads it
  TextCounts counts_;
};

}  // namespace ptd::live
