// TextWrites: derives the changes of an arm64 kernel's code from samples of a probe.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "capture/live/kernel/kernel_memory.h"
#include "capture/live/kernel/module_watch.h"

namespace ptd::live {

struct TextCounts {
  uint64_t changes = 0;  ///< that are known
  uint64_t unknown = 0;  ///< writes whose address or bytes are not known, or whose sample was lost
};

/// An arm64 kernel changes an instruction of its code through a mapping of the page in the fixmap ([Linux] arch/arm64/kernel/patching.c,
/// __aarch64_insn_write()). A sample at __set_fixmap() holds the physical address and the stack just before the write. A second one, with
/// address 0, comes just after the write. The new word is on the stack, at an offset that is the same for all writes and is found by
/// comparing the stack with memory. Needs no kernel itself. Not thread-safe.
class TextWrites {
 public:
  static constexpr size_t kStackWords = 16;
  using ReadMemory = std::function<std::vector<std::byte>(MemoryExtent)>;
  /// Receives a time and a cpu: code that last changed before that time is not known from there on.
  using OnUnknown = std::function<void(uint64_t time_ns, int32_t cpu)>;

  TextWrites() = default;
  /// `image`: the kernel's own code. `place`: its physical address; 0: not known.
  TextWrites(MemoryExtent image, uint64_t place) : image_(image), image_place_(place) {}

  /// Notes code as it is now.
  void on_code(uint64_t address, Bytes code);
  /// Notes that code was freed.
  void on_free(MemoryExtent code);
  /// Adds a SAMPLE or LOST record of a cpu's ring (LiveEvent::open_tracepoint()).
  void on_record(Bytes record, int32_t cpu);
  /// Returns a change of the image that leaves it as it is, before all others: a reader recognises by it that changes are reported. It has
  /// no bytes if the image's are not known.
  [[nodiscard]] CodeChange first_change() const;
  /// Returns the changes since the last call, in order of time. Each has two records: one before the write, with the old and the new bytes,
  /// and one after the write, with the new bytes twice. The first one is omitted if the old bytes are not known. Calls `on_unknown` for
  /// each write that is not known, and for the begin and the end of each loss of samples.
  [[nodiscard]] std::vector<CodeChange> take(const ReadMemory& read, const OnUnknown& on_unknown);
  [[nodiscard]] const TextCounts& counts() const { return counts_; }

 private:
  struct Sample {
    uint64_t time_ns = 0, index = 0, place = 0;
    int32_t cpu = 0;
    std::array<uint64_t, kStackWords> stack = {};
    uint64_t lost = 0;     // a LOST record: so many samples
    uint64_t last_ns = 0;  // then: the sample before it
  };
  struct Write {
    Sample begin;  // or a loss
    uint64_t end_ns = 0, address = 0;
    unsigned rounds = 0;  // that its address has been unknown
  };
  struct Extent {
    uint64_t address = 0;
    std::vector<std::byte> bytes;
  };
  [[nodiscard]] std::vector<Write> writes();
  [[nodiscard]] bool is_image(const Sample& sample) const;
  [[nodiscard]] uint64_t address_of(const Sample& sample) const;
  [[nodiscard]] uint64_t other_code(const Sample& sample) const;
  [[nodiscard]] std::byte* known(uint64_t address);
  void calibrate(const std::vector<Write>& writes, const ReadMemory& read);
  [[nodiscard]] std::optional<uint32_t> word_of(const Sample& sample) const;
  void add_change(const Write& write, bool old_known, std::vector<CodeChange>& changes);
  void wait_for_code(const OnUnknown& on_unknown);
  void read_again(uint64_t address, const ReadMemory& read);

  MemoryExtent image_;
  uint64_t image_place_ = 0;
  std::map<uint64_t, Extent> code_;                  // as it is now, by end
  std::vector<Sample> samples_;                      // not processed yet
  std::map<int32_t, uint64_t> last_;                 // by cpu: time of its latest sample
  std::map<int32_t, Sample> open_;                   // by cpu: writes whose end was not seen yet
  uint64_t poke_index_ = 0;                          // of the fixmap; 0: not known
  std::array<uint64_t, 2 * kStackWords> fits_ = {};  // by half of a stack word: writes whose word it held
  std::map<uint64_t, uint64_t> pages_;               // virtual by physical page, of code whose address was unknown when it was written
  std::vector<Write> unplaced_;  // writes to code of no known address: of a module or BPF program that is being loaded, mostly
  TextCounts counts_;
};

}  // namespace ptd::live
