// Arm disassembly through Capstone, checked against our own instruction length.
#include "decoder/insn/arm_disassembler.h"

#include <capstone/capstone.h>

#include "ptdecode/arm_insn.h"

namespace ptd {

struct ArmDisassembler::State {
  State() {
    open_ok[0] = cs_open(CS_ARCH_ARM64, CS_MODE_LITTLE_ENDIAN, &handles[0]) == CS_ERR_OK;
    open_ok[1] = cs_open(CS_ARCH_ARM, CS_MODE_ARM, &handles[1]) == CS_ERR_OK;
    open_ok[2] = cs_open(CS_ARCH_ARM, CS_MODE_THUMB, &handles[2]) == CS_ERR_OK;
  }
  ~State() {
    for (size_t i = 0; i < 3; ++i) {
      if (open_ok[i]) cs_close(&handles[i]);
    }
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  csh handles[3] = {};
  bool open_ok[3] = {};
};

ArmDisassembler::ArmDisassembler() : state_(std::make_unique<State>()) {}
ArmDisassembler::~ArmDisassembler() = default;
ArmDisassembler::ArmDisassembler(ArmDisassembler&&) noexcept = default;
ArmDisassembler& ArmDisassembler::operator=(ArmDisassembler&&) noexcept = default;

std::string ArmDisassembler::text(Bytes bytes, Ip ip, ExecMode mode) const {
  const size_t index = mode == ExecMode::a64 ? 0 : mode == ExecMode::a32 ? 1 : 2;
  const size_t length = classify_arm(bytes, mode).length_bytes;
  if (!state_->open_ok[index] || length == 0) return {};
  cs_insn* insn = nullptr;
  const size_t count = cs_disasm(state_->handles[index], reinterpret_cast<const uint8_t*>(bytes.data()), length, ip.value, 1, &insn);
  if (count == 0) return {};
  std::string text;
  if (insn->size == length) {
    text = insn->mnemonic;
    if (insn->op_str[0] != '\0') text += std::string(" ") + insn->op_str;
  }
  cs_free(insn, count);
  return text;
}

}  // namespace ptd
