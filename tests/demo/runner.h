// Runs the demonstration's kernel on two cpus while it patches itself, and collects trace, sideband and ground truth. For tests only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "perfio/format/records.h"
#include "tests/demo/kernel.h"
#include "tests/demo/pt_stream.h"

namespace ptd::demo {

inline constexpr int kCpus = 2;
inline constexpr uint16_t kTimeShift = 31;  ///< perf ns = kTimeZero + (tsc * kTimeMult >> kTimeShift)
inline constexpr uint32_t kTimeMult = 715827883;
inline constexpr uint64_t kTimeZero = 1000;
[[nodiscard]] uint64_t perf_time(uint64_t tsc);

/// A write of text_poke(), and how a cpu that meets the INT3 there goes on from now on.
struct TextWrite {
  uint64_t address = 0;
  std::vector<std::byte> bytes;
  bool more = false;                  ///< another site of the same batch follows
  std::vector<std::byte> emulated{};  ///< the instruction that an INT3 at `address` replaces; empty: as before
};
struct PokeRecord {
  uint64_t address = 0;
  std::vector<std::byte> old_bytes, new_bytes;
};
struct SymbolRecord {
  uint64_t address = 0, size_bytes = 0;
  std::string name;
  bool unregister = false;
};
/// One call of a kernel function by the worker of `cpu`, with what its steps do, in order.
struct Change {
  int cpu = 0;
  std::string function;
  std::deque<TextWrite> writes;
  std::deque<PokeRecord> records;
  std::deque<SymbolRecord> symbols;
  std::vector<std::byte> emulated{};  ///< the instruction that an INT3 at `emulated_at` replaces as soon as this begins, if not empty
  uint64_t emulated_at = 0;
};
/// All that happens to the text, in order.
[[nodiscard]] std::vector<Change> plan_changes(const Kernel& kernel);

struct Task {
  int32_t tid = 0;
  std::string comm;
  uint64_t stack = 0;
};

struct SidebandRecord {
  uint64_t time_ns = 0;
  int cpu = 0;
  int32_t tid = 0;  ///< current
  perfio::Payload payload;
};

/// Running hashes over the instructions that retired (FNV-1a-64), with a checkpoint every kPeriod.
class Truth {
 public:
  void instruction(uint64_t ip, const std::vector<std::byte>& bytes, uint64_t tsc);
  [[nodiscard]] std::string text() const;  ///< lines "count ips bytes last-ip tsc"
  [[nodiscard]] uint64_t count() const { return count_; }

 private:
  static constexpr uint64_t kPeriod = 1000;
  uint64_t count_ = 0, ips_ = 0xcbf29ce484222325, bytes_ = 0xcbf29ce484222325;
  std::string text_ = "# count  fnv1a(ips)  fnv1a(insn bytes)  last-ip  tsc\n";
};

class Runner {
 public:
  explicit Runner(const Kernel& kernel);
  /// False if the machine met bytes that it cannot execute.
  [[nodiscard]] bool run();

  [[nodiscard]] const std::vector<SidebandRecord>& sideband() const { return sideband_; }
  [[nodiscard]] const PtStream& stream(int cpu) const { return *sides_[static_cast<size_t>(cpu)].stream; }
  [[nodiscard]] const Truth& truth(int cpu) const { return sides_[static_cast<size_t>(cpu)].truth; }
  [[nodiscard]] const std::vector<Task>& tasks(int cpu) const { return sides_[static_cast<size_t>(cpu)].tasks; }
  [[nodiscard]] uint64_t breakpoints(int cpu) const { return sides_[static_cast<size_t>(cpu)].breakpoints; }
  /// Bytes of the stream that were there at some time: the end of each piece that perf would have taken from the ring.
  struct Piece {
    uint64_t end_bytes = 0, tsc = 0;
  };
  [[nodiscard]] const std::vector<Piece>& pieces(int cpu) const { return sides_[static_cast<size_t>(cpu)].pieces; }

 private:
  struct Side {
    Cpu cpu;
    std::unique_ptr<PtStream> stream = std::make_unique<PtStream>();
    Truth truth;
    std::vector<Task> tasks;
    size_t current = 0;
    uint64_t loops = 0, breakpoints = 0;
    std::vector<Piece> pieces;
  };
  using Hook = void (Runner::*)(Side&);

  void start_side(int number);
  bool step(Side& side);
  void at_next_work(Side& side);
  void at_text_map(Side& side);
  void at_text_write(Side& side);
  void at_sync_send(Side& side);
  void at_grace_start(Side& side);
  void at_poke_record(Side& side);
  void at_symbol_record(Side& side);
  void at_emulate(Side& side);
  void at_switch_out(Side& side);
  void at_swap(Side& side);
  void at_switch_in(Side& side);
  void record(const Side& side, perfio::Payload payload);
  Side& other(const Side& side) { return sides_[side.cpu.number == 0 ? 1 : 0]; }

  const Kernel& kernel_;
  Memory memory_;
  std::array<Side, kCpus> sides_;
  std::map<uint64_t, Hook> hooks_;
  std::vector<SidebandRecord> sideband_;
  std::vector<Change> changes_;
  size_t next_change_ = 0;
  bool changing_ = false;
  uint64_t next_change_tsc_ = 0, end_tsc_ = ~uint64_t{0};
  std::map<uint64_t, std::vector<std::byte>> emulated_;
  int call_target_ = -1;  ///< cpu with an interrupt under way
  uint64_t call_tsc_ = 0, grace_loops_ = 0;
  int grace_for_ = -1;
};

}  // namespace ptd::demo
