// FibreStacks: which stack of calls runs on which thread, where programs announce switches of fibres. Private to CallTree.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "ptdecode/flow.h"

namespace ptd {

/// An announcement of a fibre: the bits 63:48 of a PTWRITE's operand (docs/ANNOUNCE.md). The others are the fibre's number.
inline constexpr uint64_t kFibreMark = 0xf1be;
inline constexpr unsigned kFibreBits = 48;
[[nodiscard]] constexpr bool is_fibre(uint64_t operand) { return operand >> kFibreBits == kFibreMark; }
[[nodiscard]] constexpr uint64_t fibre_of(uint64_t operand) { return operand & ((uint64_t{1} << kFibreBits) - 1); }

/// Stacks have the numbers of CallTree::threads(). A thread that has announced a fibre has up to three kinds of them: its own, those of
/// fibres, and one for flow of which it is not known which fibre it is.
///
///     T1:  own | fibre 1 | fibre 2 | (flow lost) unknown | fibre 1 |
///     T2:      own                   | fibre 2 | own
///
/// Where flow of a thread is lost, announcements may be lost with it. Up to its next announcement, the thread may have run every fibre of
/// the process that ran on no other thread. Invariant: such a fibre goes on without the calls that it had before. Not thread-safe.
///
/// Limitation: a thread that has announced nothing is taken to run no fibre, also after a loss.
struct FibreStacks {
  static constexpr uint32_t kNone = ~uint32_t{0};
  static constexpr size_t kMostWithCounts = 1U << 10;  ///< with more fibres, those that do not run have no Stack::open
  static constexpr size_t kMostFibres = 1U << 16;      ///< that have a stack of their own; the others are unknown ones
  struct Loss {
    uint64_t count = 0;
    GapReason reason = GapReason::bad_packet;  ///< of the last one
  };
  /// A thread that has announced a fibre.
  struct Thread {
    uint32_t runs = kNone;
    uint32_t unknown = kNone;  ///< the stack of unknown fibres; none before it is used
    Loss loss;
    bool lost = false;  ///< it may run every fibre: nothing was announced since flow was lost
  };
  struct Process {
    std::map<uint64_t, uint32_t> stacks;  ///< by number of the fibre
    Loss loss;
    size_t lost = 0;     ///< threads that are
    bool begun = false;  ///< its start was seen: a thread runs on its own stack up to its first announcement
  };
  struct Stack {
    uint32_t thread = kNone;       ///< of a fibre: the own stack of the thread that it runs on
    uint32_t last_thread = kNone;  ///< likewise, that it ran on before it stopped
    TimeNs stopped = kTimeMax;     ///< upper bound of that moment
    uint64_t losses = 0;           ///< Loss::count of its thread or process when it stopped
  };
  std::map<uint32_t, Thread> threads;    ///< by their own stacks
  std::map<int32_t, Process> processes;  ///< by pid
  std::vector<Stack> stacks;
  size_t count = 0;  ///< fibres with a stack

  [[nodiscard]] uint32_t running(uint32_t own) const {
    const auto found = threads.find(own);
    return found == threads.end() ? own : found->second.runs;
  }
  Stack& stack(uint32_t index) {
    if (index >= stacks.size()) stacks.resize(std::max<size_t>(size_t{index} + 1, 2 * stacks.size()));
    return stacks[index];
  }
};

}  // namespace ptd
