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

  /// The instruction at the start of `bytes` as text, targets absolute; empty where the library does not know it, or takes it for one of
  /// another length than our classifier found.
  [[nodiscard]] std::string text(Bytes bytes, Ip ip, ExecMode mode) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
