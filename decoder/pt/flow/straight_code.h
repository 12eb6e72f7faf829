// StraightCode: instructions that follow each other in memory, the unit in which the walker reads and caches code.
#pragma once

#include <array>
#include <cstdint>

#include "ptdecode/flow.h"
#include "ptdecode/insn.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

inline constexpr NodeId kNoNode = 0xffffffffU;

/// An instruction and where the flow may go from it.
struct Step {
  Insn insn;
  Ip next;    ///< the instruction after it in memory
  Ip target;  ///< of a direct branch
};
[[nodiscard]] Step step_of(const Insn& insn, Ip ip, ExecMode mode);

/// The instructions from `ip` on, up to the first that needs a look at the trace: a branch, or one to which an event may bind. All but the
/// last only move the ip. They are read as they are throughout `certain`.
struct StraightCode {
  static constexpr uint16_t kMost = 64;            ///< instructions
  static constexpr uint16_t kUnknownSole = 0xffff;
  Ip ip;
  SpaceId space = kNoSpace;
  ExecMode mode = ExecMode::unknown;
  uint16_t block_flags = 0;  ///< BlockFlag bits
  bool plain = false;      ///< the fetches took no steps
  bool ambiguous = false;  ///< see Candidate; valid only for all of `certain`
  uint16_t count = 0;      ///< number of instructions
  uint16_t last_at = 0;    ///< offset of the last one
  uint16_t sole = kUnknownSole;  ///< leading instructions of which all contents ever known continue in the same way
  NodeId node = kNoNode;         ///< the block of exactly these instructions, if it was output before
  Step last;
  Interval certain;
  const std::byte* in_timeline = nullptr;    ///< the bytes, valid as long as the timeline
  std::array<std::byte, 15> own{};           ///< the bytes if they are not in the timeline; then there is one instruction

  [[nodiscard]] uint32_t size_bytes() const { return uint32_t{last_at} + last.insn.length_bytes; }
  [[nodiscard]] Bytes bytes() const { return {in_timeline != nullptr ? in_timeline : own.data(), size_bytes()}; }
  /// Sets the instructions from plain code. Returns false if there is none.
  bool read(Bytes code);
  /// Returns the size of the first `instructions` of them.
  [[nodiscard]] uint32_t size_of(uint32_t instructions) const;
  /// Returns the number of instructions before the one at `offset`; `count` if there is none.
  [[nodiscard]] uint32_t index_at(uint64_t offset) const;
};

/// Returns whether StraightCode ends with `insn`.
[[nodiscard]] constexpr bool ends_straight(const Insn& insn) {
  return insn.cls != InsnClass::other || insn.detail == InsnDetail::vmptrld || insn.detail == InsnDetail::xbegin || insn.detail == InsnDetail::hlt;
}

}  // namespace ptd::pt
