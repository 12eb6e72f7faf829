// Differential test of the classifier against Zydis over enumerated encodings. Every allowed difference is a named rule.
#include <Zydis/Zydis.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>

#include "ptdecode/insn.h"
#include "tests/unit/insn/encodings.h"

namespace ptd {
namespace {

struct ZydisVerdict {
  bool ok = false;
  ZyanStatus status = 0;
  int length = 0;
  InsnClass cls = InsnClass::bad;
  ZydisMnemonic mnemonic = ZYDIS_MNEMONIC_INVALID;
};

InsnClass class_of(const ZydisDecodedInstruction& insn) {
  const bool far = insn.meta.branch_type == ZYDIS_BRANCH_TYPE_FAR;
  const bool direct = insn.raw.imm[0].size != 0;
  switch (insn.mnemonic) {
    case ZYDIS_MNEMONIC_CALL:
      return far ? InsnClass::far_call : direct ? InsnClass::call_direct : InsnClass::call_indirect;
    case ZYDIS_MNEMONIC_JMP:
      return far ? InsnClass::far_jump : direct ? InsnClass::jump_direct : InsnClass::jump_indirect;
    case ZYDIS_MNEMONIC_RET:
      return far ? InsnClass::far_ret : InsnClass::ret;
    case ZYDIS_MNEMONIC_IRET:
    case ZYDIS_MNEMONIC_IRETD:
    case ZYDIS_MNEMONIC_IRETQ:
    case ZYDIS_MNEMONIC_SYSRET:
    case ZYDIS_MNEMONIC_SYSEXIT:
    case ZYDIS_MNEMONIC_RSM:
    case ZYDIS_MNEMONIC_VMLAUNCH:
    case ZYDIS_MNEMONIC_VMRESUME:
    case ZYDIS_MNEMONIC_UIRET:
      return InsnClass::far_ret;
    case ZYDIS_MNEMONIC_INT:
    case ZYDIS_MNEMONIC_INT1:
    case ZYDIS_MNEMONIC_INT3:
    case ZYDIS_MNEMONIC_INTO:
    case ZYDIS_MNEMONIC_SYSCALL:
    case ZYDIS_MNEMONIC_SYSENTER:
    case ZYDIS_MNEMONIC_VMCALL:
      return InsnClass::far_call;
    case ZYDIS_MNEMONIC_PTWRITE:
      return InsnClass::ptwrite;
    case ZYDIS_MNEMONIC_MOV:
      return insn.opcode_map == ZYDIS_OPCODE_MAP_0F && insn.opcode == 0x22 && (insn.raw.modrm.reg | insn.raw.rex.R << 3) == 3
                 ? InsnClass::mov_cr3
                 : InsnClass::other;
    default:
      return insn.meta.category == ZYDIS_CATEGORY_COND_BR ? InsnClass::jcc : InsnClass::other;
  }
}

class Comparison {
 public:
  explicit Comparison(ExecMode mode) {
    const auto machine = mode == ExecMode::bits16   ? ZYDIS_MACHINE_MODE_LEGACY_16
                         : mode == ExecMode::bits32 ? ZYDIS_MACHINE_MODE_LEGACY_32
                                                    : ZYDIS_MACHINE_MODE_LONG_64;
    const auto width = mode == ExecMode::bits16   ? ZYDIS_STACK_WIDTH_16
                       : mode == ExecMode::bits32 ? ZYDIS_STACK_WIDTH_32
                                                  : ZYDIS_STACK_WIDTH_64;
    EXPECT_TRUE(ZYAN_SUCCESS(ZydisDecoderInit(&decoder_, machine, width)));
  }

  void operator()(const Encoding& bytes, ExecMode mode) {
    ++compared_;
    const Insn ours = classify(bytes, mode);
    ZydisVerdict theirs = decode(bytes);
    if (theirs.ok ? ours.length_bytes == theirs.length && ours.cls == theirs.cls && displacement_ == ours.displacement
                  : ours.cls == InsnClass::bad) {
      both_decode_ += theirs.ok;
      return;
    }
    const char* rule = rule_of(bytes, mode, ours, theirs);
    if (rule != nullptr) {
      ++by_rule_[rule];
      return;
    }
    if (++unexplained_ <= 10) ADD_FAILURE() << describe(bytes, mode, ours, theirs);
  }

  void report(const char* name) {
    std::printf("%s: %llu encodings compared, %llu decoded by both, %llu unexplained\n", name, static_cast<unsigned long long>(compared_),
                static_cast<unsigned long long>(both_decode_), static_cast<unsigned long long>(unexplained_));
    for (const auto& [rule, count] : by_rule_) std::printf("  %10llu %s\n", static_cast<unsigned long long>(count), rule.c_str());
    EXPECT_GT(both_decode_, 10000U);
    EXPECT_EQ(unexplained_, 0U);
  }

 private:
  ZydisVerdict decode(const Encoding& bytes) {
    ZydisDecodedInstruction insn;
    ZydisDecoderContext context;
    ZydisVerdict v;
    displacement_ = 0;
    v.status = ZydisDecoderDecodeInstruction(&decoder_, &context, bytes.data(), bytes.size(), &insn);
    v.ok = ZYAN_SUCCESS(v.status);
    if (!v.ok) return v;
    v.length = insn.length;
    v.mnemonic = insn.mnemonic;
    v.cls = class_of(insn);
    if (v.cls == InsnClass::jump_direct || v.cls == InsnClass::call_direct || v.cls == InsnClass::jcc)
      displacement_ = insn.raw.imm[0].value.s;
    return v;
  }

  const char* rule_of(const Encoding& bytes, ExecMode mode, const Insn& ours, const ZydisVerdict& theirs);

  static bool is_vmx(const Insn& insn) {
    return insn.detail == InsnDetail::vmcall || insn.detail == InsnDetail::vmlaunch || insn.detail == InsnDetail::vmresume;
  }
  static bool is_fred(const Insn& insn) { return insn.detail == InsnDetail::eretu || insn.detail == InsnDetail::erets; }

  /// Zydis 4.0 does not support REX2: D5 payload opcode is read like REX opcode, or REX 0F opcode, by the payload's bit 7.
  const char* same_as_rex(const Encoding& bytes, size_t at, const Insn& ours) {
    if (ours.cls == InsnClass::jmpabs) return ours.length_bytes == at + 11 ? "apx-jmpabs" : nullptr;
    const auto payload = std::to_integer<unsigned>(bytes[at + 1]);
    Encoding legacy = bytes;
    std::replace(legacy.begin(), legacy.begin() + static_cast<long>(at), std::byte{0xf0}, std::byte{0x26});
    const bool map1 = (payload & 0x80) != 0;
    legacy[at] = static_cast<std::byte>(0x40 | (payload & 0xf));
    if (map1) legacy[at + 1] = std::byte{0x0f};
    if (!map1) std::copy(bytes.begin() + static_cast<long>(at) + 2, bytes.end(), legacy.begin() + static_cast<long>(at) + 1);
    const ZydisVerdict v = decode(legacy);
    if (!v.ok && is_vmx(ours)) return ours.length_bytes == at + 4 ? "vmx-prefix" : nullptr;
    if (!v.ok && is_fred(ours)) return ours.length_bytes == at + 4 ? "fred" : nullptr;
    if (!v.ok) return ours.cls == InsnClass::other ? "apx-rex2-slot-length" : nullptr;
    const bool cr = v.cls == InsnClass::mov_cr3 && (payload & 0x40) != 0;  // R4: CR19
    const InsnClass cls = cr || transaction(v.mnemonic) ? InsnClass::other : v.cls;
    return v.length + !map1 == ours.length_bytes && cls == ours.cls ? "apx-rex2" : nullptr;
  }
  /// Zydis rejects LOCK here: replace it with a segment override and try again.
  bool same_without_lock(const Encoding& bytes, size_t at, const Insn& ours) {
    Encoding rest = bytes;
    std::replace(rest.begin(), rest.begin() + static_cast<long>(at), std::byte{0xf0}, std::byte{0x26});
    const ZydisVerdict v = decode(rest);
    if (!v.ok) return ours.cls == InsnClass::other;
    return v.length == ours.length_bytes && (v.cls == ours.cls || transaction(v.mnemonic));
  }

  /// Zydis classifies XBEGIN and XEND as conditional branches.
  static bool transaction(ZydisMnemonic mnemonic) { return mnemonic == ZYDIS_MNEMONIC_XBEGIN || mnemonic == ZYDIS_MNEMONIC_XEND; }

  static std::string describe(const Encoding& bytes, ExecMode mode, const Insn& ours, const ZydisVerdict& theirs) {
    char text[256];
    int at = std::snprintf(text, sizeof text, "mode %d:", mode == ExecMode::bits16 ? 16 : mode == ExecMode::bits32 ? 32 : 64);
    for (int i = 0; i < 15; ++i) at += std::snprintf(text + at, sizeof text - at, " %02x", std::to_integer<unsigned>(bytes[i]));
    std::snprintf(text + at, sizeof text - at, " | ours: length %d class %d | Zydis: length %d class %d %s status %x", ours.length_bytes,
                  static_cast<int>(ours.cls), theirs.length, static_cast<int>(theirs.cls),
                  theirs.ok ? ZydisMnemonicGetString(theirs.mnemonic) : "-", static_cast<unsigned>(theirs.status));
    return text;
  }

  ZydisDecoder decoder_{};
  int64_t displacement_ = 0;
  uint64_t compared_ = 0, both_decode_ = 0, unexplained_ = 0;
  std::map<std::string, uint64_t> by_rule_;
};

/// Returns the name of the rule that allows a difference, or null. docs/DIFFERENCES.md gives the reason of each rule.
const char* Comparison::rule_of(const Encoding& bytes, ExecMode mode, const Insn& ours, const ZydisVerdict& theirs) {
  const bool sequential = ours.cls == InsnClass::other;
  if (theirs.ok) {
    if (sequential && transaction(theirs.mnemonic) && ours.length_bytes == theirs.length) return "xbegin-xend-sequential";
    if (theirs.cls == InsnClass::ptwrite && sequential && ours.length_bytes == theirs.length) return "ptwrite-66";
    if (theirs.mnemonic == ZYDIS_MNEMONIC_JKZD || theirs.mnemonic == ZYDIS_MNEMONIC_JKNZD)
      return sequential || ours.cls == InsnClass::bad ? "knights-corner" : nullptr;
    return nullptr;
  }
  const size_t at = opcode_at(bytes, mode);
  const auto first = std::to_integer<unsigned>(bytes[at]);
  if (mode == ExecMode::bits64 && first == 0xd5) return same_as_rex(bytes, at, ours);
  if (first == 0x62 && sequential) return "evex-slot-length";
  if (is_fred(ours)) return ours.length_bytes == at + 3 ? "fred" : nullptr;
  if (is_vmx(ours) && theirs.status == ZYDIS_STATUS_DECODING_ERROR) return ours.length_bytes == at + 3 ? "vmx-prefix" : nullptr;
  switch (theirs.status) {
    case ZYDIS_STATUS_ILLEGAL_LOCK:
      return same_without_lock(bytes, at, ours) ? "lock-faults" : nullptr;
    case ZYDIS_STATUS_DECODING_ERROR:
      return sequential ? "slot-length" : nullptr;
    case ZYDIS_STATUS_INVALID_MAP:
      return sequential && (first == 0xc4 || first == 0x8f) ? "vector-map-length" : nullptr;
    case ZYDIS_STATUS_BAD_REGISTER:
      return sequential ? "operand-check-register" : nullptr;
    default:
      return nullptr;
  }
}

void compare_all_with_zydis(ExecMode mode, const char* name) {
  Comparison comparison(mode);
  const Density density = Density::from_environment();
  for_each_legacy(mode, density, [&](const Encoding& bytes, ExecMode m) { comparison(bytes, m); });
  for_each_vector(mode, density, [&](const Encoding& bytes, ExecMode m) { comparison(bytes, m); });
  comparison.report(name);
}

TEST(ZydisDifferential, Mode16) { compare_all_with_zydis(ExecMode::bits16, "16-bit"); }
TEST(ZydisDifferential, Mode32) { compare_all_with_zydis(ExecMode::bits32, "32-bit"); }
TEST(ZydisDifferential, Mode64) { compare_all_with_zydis(ExecMode::bits64, "64-bit"); }

}  // namespace
}  // namespace ptd
