// SystemMachine: what the plugins for whole machines share: vcpus, blocks, the clock, the summary, the start.
#pragma once

#include <cstdio>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "capture/emulate/plugin/system_glue.h"
#include "capture/emulate/unit/block.h"

#define PTD_EXPORT __attribute__((visibility("default")))

namespace ptd::emulate {

inline constexpr int kPluginVersion = 4;
inline constexpr size_t kCommitBytes = size_t{1} << 20;

/// A block as QEMU translated it. QEMU runs one translation at every address where its page is mapped: each process has its own address of
/// a library.
struct TranslatedBlock {
  Block* block = nullptr;            ///< where it was translated
  mutable Block* current = nullptr;  ///< where it ran last
  mutable std::unordered_map<uint64_t, Block*> elsewhere;

  /// Returns the block that runs. The kernel's code is mapped once, a program's at any address: `ip()` returns that, `add(ip, insns)` the
  /// block there. `leads_to(ip)`: whether the block that ran before leads to that address without an indirect branch. `ip()` reads a
  /// register, which takes as long as all else that is done for a block, and is not called then: events lead to the kernel, so of two
  /// addresses of this code the flow is at that one.
  template <class LeadsTo, class Ip, class Add>
  const Block& running(const LeadsTo& leads_to, const Ip& ip, const Add& add) const {
    if (block->kernel || leads_to(current->ip)) return *(block->kernel ? block : current);
    const uint64_t at = ip();
    if (current->ip == at) return *current;
    Block*& known = elsewhere[at];
    if (known == nullptr) known = add(at, insns_of(*block));
    current = known;
    return *known;
  }
  /// Returns the instructions of a block; valid until the next call.
  static const std::vector<SeenInsn>& insns_of(const Block& block);
};

/// Virtual time in ns: as QEMU settled it last, and the instructions since.
class VirtualClock {
 public:
  [[nodiscard]] uint64_t now() const { return settled_ + since_; }
  void count(uint64_t ns) { since_ += ns; }
  /// Takes QEMU's time over. `halted`: time passed without instructions. Returns when the block that was counted last ended.
  uint64_t settle(uint64_t settled, bool halted);
  [[nodiscard]] uint64_t times_settled() const { return times_; }
  [[nodiscard]] uint64_t times_wrong() const { return wrong_; }

 private:
  uint64_t settled_ = 0, since_ = 0;
  uint64_t times_ = 0, wrong_ = 0;  // times settled by QEMU, and those that are not the instructions counted since the last one
};

/// What a vcpu executed.
struct VcpuCounts {
  uint64_t insns = 0, kernel_insns = 0, events = 0, irregular = 0, stops_inside = 0;
};

/// FOLDER/summary: lines of a name and a number, which the recorder reads.
class SummaryFile {
 public:
  explicit SummaryFile(const std::string& folder) : file_(std::fopen((folder + "/summary").c_str(), "w")) {}
  ~SummaryFile() {
    if (file_ != nullptr) (void)std::fclose(file_);
  }
  SummaryFile(const SummaryFile&) = delete;
  SummaryFile& operator=(const SummaryFile&) = delete;
  void line(const std::string& name, uint64_t value);
  void lines(const VirtualClock& clock);
  void lines(unsigned vcpu, const VcpuCounts& counts);

 private:
  FILE* file_;
};

/// Writes `items` to a file and clears them.
template <class T>
void write_out(std::vector<T>& items, FILE* file, uint64_t& failures) {
  if (!items.empty() && (file == nullptr || std::fwrite(items.data(), sizeof(T), items.size(), file) != items.size())) ++failures;
  items.clear();
}

/// `Translated` is a TranslatedBlock.
template <class Vcpu, class Translated>
struct SystemMachine {
  qemu_plugin_id_t id = 0;
  SystemGlue glue;
  BlockStore store;
  std::deque<Translated> translations;
  std::unique_ptr<Vcpu> vcpus[kMaxVcpus];
  bool tracing = false, ended = false;
  VirtualClock clock;
  Vcpu* running = nullptr;  // the vcpu that entered a block last
  uint64_t failed_writes = 0;
};

/// Checks QEMU's version and machine, and passes each argument "name=value" to `take`, which returns false if it does not know the name.
/// Returns why the plugin cannot run; empty if it can.
[[nodiscard]] std::string start_plugin(const qemu_info_t& info, const char* target, std::span<char* const> arguments,
                                       const std::function<bool(const std::string& name, const std::string& value)>& take);
/// Prints why the plugin does not run. Returns what QEMU expects then.
int refuse_plugin(const std::string& why);

}  // namespace ptd::emulate
