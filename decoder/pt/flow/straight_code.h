// StraightCode: instructions that follow each other in memory, the unit in which the walker reads and caches code.
#pragma once

#include <cstdint>

#include "ptdecode/flow.h"
#include "ptdecode/insn.h"
#include "ptdecode/timeline.h"

namespace ptd::pt {

inline constexpr NodeId kNoNode = 0xffffffffU;

/// An instruction and where the flow may go from it.
struct Step {
  InsnClass cls = InsnClass::bad;
  InsnDetail detail = InsnDetail::none;
  bool pushes = false;  ///< a direct call whose return may be compressed
  Ip next;              ///< the instruction after it in memory
  Ip target;            ///< of a direct branch
};
[[nodiscard]] Step step_of(const Insn& insn, Ip ip, ExecMode mode);

/// The instructions from `ip` on, up to the first that needs a look at the trace: a branch, or one to which an event may bind. All but the
/// last only move the ip. They are read as they are throughout `certain`. One cache line.
struct alignas(64) StraightCode {
  static constexpr uint8_t kMost = 64;  ///< instructions
  static constexpr uint8_t kUnknownSole = 0xff;
  Ip ip;
  Interval certain;
  const std::byte* first_byte = nullptr;  ///< valid as long as the walker
  Ip target;                              ///< the last Step
  SpaceId space = kNoSpace;
  NodeId node = kNoNode;  ///< the block of exactly these instructions, if it is known
  uint16_t last_at = 0;   ///< offset of the last instruction
  uint16_t size = 0;      ///< bytes
  uint16_t block_flags = 0;
  uint8_t count = 0;            ///< instructions
  uint8_t sole = kUnknownSole;  ///< leading instructions of which all contents ever known continue in the same way
  ExecMode mode = ExecMode::unknown;
  InsnClass cls = InsnClass::bad;  ///< the last Step
  InsnDetail detail = InsnDetail::none;
  bool pushes = false;
  bool plain = false;      ///< the fetches took no steps
  bool ambiguous = false;  ///< see Candidate; valid only for all of `certain`

  [[nodiscard]] Bytes bytes() const { return {first_byte, size}; }
  /// Returns the last instruction.
  [[nodiscard]] Step last() const {
    const uint64_t next = ip.value + size;
    return {cls, detail, pushes, Ip{mode == ExecMode::bits64 ? next : next & 0xffffffff}, target};
  }
  /// Returns whether the flow needs a look at the trace after these instructions.
  [[nodiscard]] bool is_ended() const;
  /// Sets the instructions from plain code. Returns false if there is none.
  bool read(Bytes code);
  /// Sets a single instruction.
  void set(const Insn& insn, const std::byte* first);
  /// Returns the size of the first `instructions` of them.
  [[nodiscard]] uint32_t size_of(uint32_t instructions) const;
  /// Returns the number of instructions before the one at `offset`; `count` if there is none.
  [[nodiscard]] uint32_t index_at(uint64_t offset) const;

 private:
  void set_last(const Insn& insn, size_t offset);
};
static_assert(sizeof(StraightCode) == 64);

/// Returns whether StraightCode ends with such an instruction.
[[nodiscard]] constexpr bool ends_straight(InsnClass cls, InsnDetail detail) {
  return cls != InsnClass::other || detail == InsnDetail::vmptrld || detail == InsnDetail::xbegin || detail == InsnDetail::hlt;
}

inline bool StraightCode::is_ended() const { return ends_straight(cls, detail); }

}  // namespace ptd::pt
