// Disassembles one Arm instruction. The only file that includes Capstone.
#pragma once

#include <memory>
#include <string>

#include "ptdecode/types.h"

namespace ptd {

/// Formats A64, A32 and T32 instructions; not thread-safe, one per thread.
class ArmDisassembler {
 public:
  ArmDisassembler();
  ~ArmDisassembler();
  ArmDisassembler(ArmDisassembler&&) noexcept;
  ArmDisassembler& operator=(ArmDisassembler&&) noexcept;

  /// Returns the instruction at the start of `bytes` as text, with absolute targets; empty if the library does not support it
  /// or decodes another length than the classifier.
  [[nodiscard]] std::string text(Bytes bytes, Ip ip, ExecMode mode) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
