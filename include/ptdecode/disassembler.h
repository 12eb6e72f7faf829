// Text of one instruction, for people. x86 here, the only door to Zydis; Arm in arm_disassembler.h.
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

  /// The instruction at the start of `bytes` as text, targets absolute. What the library does not know comes as
  /// ".byte 0x.., ..." of the length that our classifier found, never as a wrong mnemonic.
  [[nodiscard]] std::string text(Bytes bytes, Ip ip, ExecMode mode) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
