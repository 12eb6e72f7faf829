// Disassembles one instruction. This file: x86, through Zydis; arm_disassembler.h: Arm.
#pragma once

#include <memory>
#include <string>

#include "ptdecode/export.h"
#include "ptdecode/types.h"

namespace ptd {

/// Formats instructions. Not thread-safe: use one per thread. Refers to nothing outside of itself.
class PTD_API Disassembler {
 public:
  enum class Syntax : uint8_t { intel, att };
  explicit Disassembler(Syntax syntax = Syntax::att);
  ~Disassembler();
  Disassembler(Disassembler&&) noexcept;
  Disassembler& operator=(Disassembler&&) noexcept;

  /// Returns the instruction at the start of `bytes` as text, with absolute targets. An instruction that the library does not support
  /// becomes ".byte 0x.., ..." with the length that classify() found, never a wrong mnemonic.
  [[nodiscard]] std::string text(Bytes bytes, Ip ip, ExecMode mode) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
