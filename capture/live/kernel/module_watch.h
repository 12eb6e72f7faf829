// ModuleWatch: captures the code of modules that are loaded during a recording; the kernel writes no record of it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "capture/live/kernel/kernel_memory.h"
#include "perfio/ring/event_ring.h"
#include "perfio/ring/live_event.h"

namespace ptd::live {

/// A change of code that the recorder records itself, as a TEXT_POKE record; old_bytes is empty for new code.
struct CodeChange {
  uint64_t time_ns = 0;
  int32_t cpu = 0;
  perfio::TextPokeRecord poke;
};

struct ModuleCounts {
  uint64_t loaded = 0;  ///< modules whose load was seen
  uint64_t read = 0;    ///< extents of code that were read: core and init
  uint64_t gone = 0;    ///< extents freed before they were read
};

/// Listens to the tracepoints module:module_load, which the kernel passes when a module's code is final and before its init function runs
/// ([Linux] kernel/module/main.c, load_module), and module:module_free. look() reads the code from memory at once: init code is freed only
/// after an RCU grace period after init returned. Patches in between are undone, so that the bytes are those at the time of the load.
/// One round is look(), then the round's TEXT_POKE records through on_poke(), then take(). Not thread-safe.
class ModuleWatch {
 public:
  /// Null where tracefs is not mounted at /sys/kernel/tracing or the tracepoint cannot be opened: then modules stay unknown.
  static std::unique_ptr<ModuleWatch> start(int32_t cpus);

  /// Waits until a module is loaded or unloaded, or for the timeout.
  void wait(uint32_t timeout_ms) const;
  /// Returns the descriptors that wait() waits for.
  [[nodiscard]] std::vector<int> fds() const;
  void look(const KernelMemory& memory);
  void on_poke(uint64_t time_ns, const perfio::TextPokeRecord& poke);
  /// Returns the code that was added and removed since the last call, in time order.
  [[nodiscard]] std::vector<CodeChange> take();
  [[nodiscard]] const ModuleCounts& counts() const { return counts_; }

 private:
  struct Ring {
    int32_t cpu = 0;
    bool load = false;         // or free
    uint32_t name_offset = 0;  // of the name's place in a sample
    perfio::LiveEvent event;
    std::unique_ptr<perfio::EventRing> ring;
  };
  struct Code {
    std::string module;
    uint64_t address = 0, time_ns = 0;
    int32_t cpu = 0;
    std::vector<std::byte> bytes;
  };
  struct Left {
    MemoryExtent extent;
    uint64_t time_ns = 0;
  };
  struct Gone {
    std::string module;
    uint64_t time_ns = 0;
    int32_t cpu = 0;
  };
  struct Poke {
    uint64_t time_ns = 0;
    perfio::TextPokeRecord poke;
  };
  ModuleWatch() = default;
  bool open(const char* event, bool load, int32_t cpus);
  void on_sample(Bytes record, const Ring& ring, const KernelMemory& memory);
  void read_module(const std::string& name, uint64_t time_ns, int32_t cpu, const KernelMemory& memory);
  void come(Code code, std::vector<CodeChange>& changes);
  void go_back(Code& code) const;
  void leave(const Code& code, uint64_t time_ns, int32_t cpu, std::vector<CodeChange>& changes);

  std::vector<Ring> rings_;
  std::vector<Code> found_;               // in this round
  std::vector<Gone> gone_;                // likewise
  std::vector<Code> known_;               // as it is now
  std::vector<Left> left_;                // places that became free, the last ones
  std::vector<Gone> frees_;               // the last ones
  std::vector<Poke> pokes_, past_pokes_;  // of this round and of those before, a second long
  ModuleCounts counts_;
};

}  // namespace ptd::live
