// x86 disassembly through Zydis, checked against our own instruction length.
#include "ptdecode/disassembler.h"

#include <Zydis/Zydis.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "decoder/insn/arm_disassembler.h"
#include "ptdecode/arm_insn.h"
#include "ptdecode/insn.h"

namespace ptd {
namespace {

std::optional<ZydisDecoder> make_decoder(ZydisMachineMode mode, ZydisStackWidth width) {
  ZydisDecoder decoder;
  if (!ZYAN_SUCCESS(ZydisDecoderInit(&decoder, mode, width))) return std::nullopt;
  return decoder;
}

uint8_t byte_at(Bytes bytes, size_t i) { return std::to_integer<uint8_t>(bytes[i]); }

/// Returns ".byte 0x.., ..." with `count` bytes, at least one if there is one, so that a listing always advances.
std::string byte_text(Bytes bytes, size_t count) {
  std::string text = ".byte";
  char item[8];
  for (size_t i = 0; i < std::min(std::max<size_t>(count, 1), bytes.size()); ++i) {
    std::snprintf(item, sizeof item, "%s0x%02x", i == 0 ? " " : ", ", byte_at(bytes, i));
    text += item;
  }
  return text;
}

/// Text of the two bytes after 0F (00 or 01, ModRM) for instructions newer than the library.
std::string lkgs_text(Bytes insn, uint8_t modrm, bool att) {
  static constexpr const char* kNames[] = {"ax",  "cx",  "dx",   "bx",   "sp",   "bp",   "si",   "di",
                                           "r8w", "r9w", "r10w", "r11w", "r12w", "r13w", "r14w", "r15w"};
  unsigned number = modrm & 7;
  const uint8_t before = byte_at(insn, insn.size() - 4);
  if ((before & 0xf0) == 0x40) number |= (before & 1) << 3;
  return std::string(att ? "lkgs %" : "lkgs ") + kNames[number];
}

/// Formats instructions that our classifier supports and Zydis 4.0 does not: eretu, erets, jmpabs, wrmsrns, lkgs with a register.
std::string own_text(const Insn& insn, Bytes bytes, ExecMode mode, bool att) {
  if (insn.cls == InsnClass::jmpabs) {
    char text[40];
    std::snprintf(text, sizeof text, att ? "jmpabs $0x%llx" : "jmpabs 0x%llx", static_cast<unsigned long long>(insn.displacement));
    return text;
  }
  if (insn.detail == InsnDetail::eretu) return "eretu";
  if (insn.detail == InsnDetail::erets) return "erets";
  const size_t n = insn.length_bytes;
  if (n < 3 || byte_at(bytes, n - 3) != 0x0f) {
    return {};
  }
  const uint8_t opcode = byte_at(bytes, n - 2);
  const uint8_t modrm = byte_at(bytes, n - 1);
  if (insn.detail == InsnDetail::wrmsr && opcode == 0x01) return "wrmsrns";
  const bool lkgs = mode == ExecMode::bits64 && n >= 4 && opcode == 0x00 && (modrm & 0xf8) == 0xf0 && byte_at(bytes, 0) == 0xf2;
  return lkgs ? lkgs_text(bytes.first(n), modrm, att) : std::string{};
}

}  // namespace

struct Disassembler::State {
  std::optional<ZydisDecoder> decoders[3];
  ZydisFormatter formatter;
  bool formatter_ok = false;
  bool att = false;
  std::optional<ArmDisassembler> arm;  ///< created on first use
};

Disassembler::Disassembler(Syntax syntax) : state_(std::make_unique<State>()) {
  state_->decoders[0] = make_decoder(ZYDIS_MACHINE_MODE_LEGACY_16, ZYDIS_STACK_WIDTH_16);
  state_->decoders[1] = make_decoder(ZYDIS_MACHINE_MODE_LEGACY_32, ZYDIS_STACK_WIDTH_32);
  state_->decoders[2] = make_decoder(ZYDIS_MACHINE_MODE_LONG_64, ZYDIS_STACK_WIDTH_64);
  state_->att = syntax == Syntax::att;
  const auto style = state_->att ? ZYDIS_FORMATTER_STYLE_ATT : ZYDIS_FORMATTER_STYLE_INTEL;
  state_->formatter_ok =
      ZYAN_SUCCESS(ZydisFormatterInit(&state_->formatter, style)) &&
      ZYAN_SUCCESS(ZydisFormatterSetProperty(&state_->formatter, ZYDIS_FORMATTER_PROP_HEX_UPPERCASE, ZYAN_FALSE)) &&
      ZYAN_SUCCESS(ZydisFormatterSetProperty(&state_->formatter, ZYDIS_FORMATTER_PROP_ADDR_PADDING_ABSOLUTE, ZYDIS_PADDING_DISABLED));
}

Disassembler::~Disassembler() = default;
Disassembler::Disassembler(Disassembler&&) noexcept = default;
Disassembler& Disassembler::operator=(Disassembler&&) noexcept = default;

std::string Disassembler::text(Bytes bytes, Ip ip, ExecMode mode) const {
  const Insn insn = classify(bytes, mode);
  if (is_arm(mode)) {
    if (!state_->arm) state_->arm.emplace();
    const std::string text = state_->arm->text(bytes, ip, mode);
    return text.empty() ? byte_text(bytes, insn.length_bytes) : text;
  }
  if (insn.cls == InsnClass::bad) return byte_text(bytes, 1);
  if (std::string own = own_text(insn, bytes, mode, state_->att); !own.empty()) return own;
  const auto& decoder = state_->decoders[mode == ExecMode::bits16 ? 0 : mode == ExecMode::bits32 ? 1 : 2];
  ZydisDecodedInstruction decoded;
  ZydisDecodedOperand operands[ZYDIS_MAX_OPERAND_COUNT];
  char text[256];
  const bool ok = decoder && state_->formatter_ok &&
                  ZYAN_SUCCESS(ZydisDecoderDecodeFull(&*decoder, bytes.data(), insn.length_bytes, &decoded, operands)) &&
                  decoded.length == insn.length_bytes &&
                  ZYAN_SUCCESS(ZydisFormatterFormatInstruction(&state_->formatter, &decoded, operands, decoded.operand_count_visible, text,
                                                               sizeof text, ip.value, nullptr));
  return ok ? std::string(text) : byte_text(bytes, insn.length_bytes);
}

}  // namespace ptd
