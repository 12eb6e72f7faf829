// Length and branch class of x86 instructions, from the tables of opcode_table.h.
#include "ptdecode/insn.h"

#include <algorithm>

#include "decoder/insn/opcode_table.h"
#include "decoder/insn/quick_length.h"
#include "ptdecode/arm_insn.h"

namespace ptd {
namespace {

using namespace opcodes;

constexpr uint32_t kMaxInsnBytes = 15;

enum class Scanned : uint8_t { ok, bad, cut };

enum PrefixBit : uint8_t { kHas66 = 1, kHas67 = 2, kHasLock = 4, kHasRep = 8 };

/// One pass over the bytes of an instruction. Every read checks `limit`; a read past it ends the pass with Scanned::cut.
class Scanner {
 public:
  Scanner(Bytes bytes, ExecMode mode)
      : bytes_(reinterpret_cast<const uint8_t*>(bytes.data())),
        limit_(static_cast<uint32_t>(std::min<size_t>(bytes.size(), kMaxInsnBytes))),
        mode_(mode) {}

  Scanned scan(Insn& out);
  /// True if all bytes of a maximum-length instruction are available: then reaching the end means that the instruction is too long.
  [[nodiscard]] bool at_maximum() const { return limit_ == kMaxInsnBytes; }

 private:
  [[nodiscard]] bool is64() const { return mode_ == ExecMode::bits64; }
  [[nodiscard]] bool has(uint8_t bits) const { return (prefixes_ & bits) != 0; }
  [[nodiscard]] uint8_t mod() const { return modrm_ >> 6; }
  [[nodiscard]] uint8_t reg() const { return (modrm_ >> 3) & 7; }
  /// Operand size of an immediate is 16 bits. REX.W overrides 66 ([SDM] "Operand-Size ... in 64-bit Mode").
  [[nodiscard]] bool imm_is16() const { return (mode_ == ExecMode::bits16) != has(kHas66) && !rex_w_; }
  [[nodiscard]] bool peek(uint8_t& byte) const {
    if (pos_ >= limit_) return false;
    byte = bytes_[pos_];
    return true;
  }

  Scanned read_opcode(Form& f);
  Scanned read_escape(Form& f);
  Scanned read_rex2(Form& f);
  Scanned read_vector(Special kind, Form& f);
  Scanned vector_form(Special kind, uint8_t map, uint8_t opcode, Form& f);
  Scanned read_modrm(Form f);
  Scanned resolve_group(Form& f);
  [[nodiscard]] uint32_t imm_bytes(Imm imm) const;
  [[nodiscard]] int64_t read_signed(uint32_t count) const;
  [[nodiscard]] uint8_t branch_bits() const;
  void classify_flow(Form f, uint32_t imm_count, Insn& out) const;
  void classify_group5(Insn& out) const;
  void classify_group7(Insn& out) const;
  void classify_system(Special special, Insn& out) const;

  const uint8_t* bytes_;
  uint32_t limit_;
  uint32_t pos_ = 0;
  uint32_t opcode_pos_ = 0;
  ExecMode mode_;
  uint8_t prefixes_ = 0;  // PrefixBit
  uint8_t rep_ = 0;       // the last of F2 and F3, which selects the instruction
  uint8_t modrm_ = 0;
  uint8_t reg_high_ = 0;  // bits 3 and 4 of the register number in ModRM.reg
  bool rex_ = false;
  bool rex_w_ = false;
  bool rex2_ = false;
};

/// Prefixes and opcode. A REX counts only directly before the opcode: a legacy prefix or another REX after it cancels it.
Scanned Scanner::read_opcode(Form& f) {
  for (;;) {
    if (pos_ >= limit_) return Scanned::cut;
    const uint8_t byte = bytes_[pos_++];
    f = kMap0[byte];
    if (!steers(special_of(f))) return Scanned::ok;
    switch (special_of(f)) {
      case Special::prefix:
        rex_ = rex_w_ = false;
        reg_high_ = 0;
        switch (byte) {
          case 0x66:
            prefixes_ |= kHas66;
            break;
          case 0x67:
            prefixes_ |= kHas67;
            break;
          case 0xf0:
            prefixes_ |= kHasLock;
            break;
          case 0xf2:
          case 0xf3:
            prefixes_ |= kHasRep;
            rep_ = byte;
            break;
          default:
            break;  // segment override
        }
        continue;
      case Special::rex:
        if (!is64()) {
          f = 0;
          return Scanned::ok;
        }
        rex_ = true;
        rex_w_ = (byte & 8) != 0;
        reg_high_ = static_cast<uint8_t>((byte & 4) << 1);
        continue;
      case Special::esc_0f:
        return read_escape(f);
      case Special::rex2:
        if (is64()) return read_rex2(f);
        f = form(Imm::b);
        return Scanned::ok;
      case Special::vex2:
      case Special::vex3:
      case Special::evex:
      case Special::xop:
        return read_vector(special_of(f), f);
      default:
        return Scanned::ok;
    }
  }
}

Scanned Scanner::read_escape(Form& f) {
  if (pos_ >= limit_) return Scanned::cut;
  f = kMap1[bytes_[pos_++]];
  const Special special = special_of(f);
  if (special != Special::esc_0f38 && special != Special::esc_0f3a) return Scanned::ok;
  if (pos_ >= limit_) return Scanned::cut;
  ++pos_;
  f = special == Special::esc_0f38 ? kMap2[0] : kMap3[0];
  return Scanned::ok;
}

/// D5, payload M0 R4 X4 B4 W R3 X3 B3, opcode. M0 selects map 0 or 1.
Scanned Scanner::read_rex2(Form& f) {
  if (rex_) return Scanned::bad;
  if (limit_ - pos_ < 2) return Scanned::cut;
  const uint8_t payload = bytes_[pos_];
  const uint8_t opcode = bytes_[pos_ + 1];
  pos_ += 2;
  rex2_ = true;
  rex_w_ = (payload & 8) != 0;
  reg_high_ = static_cast<uint8_t>(((payload & 0x40) >> 2) | ((payload & 4) << 1));
  const uint8_t row = opcode >> 4;
  if ((payload & 0x80) != 0) {
    f = kMap1[opcode];
    return row == 3 || row == 8 ? Scanned::bad : Scanned::ok;
  }
  f = kMap0[opcode];
  const Special special = special_of(f);
  if (opcode == 0xa1) {
    if (rex_w_ || prefixes_ != 0) return Scanned::bad;
    return Scanned::ok;
  }
  if (row == 4 || row == 7 || row == 0xa || row == 0xe) return Scanned::bad;
  if (special == Special::xop) {
    f = form(Special::pop_ev) | kModrm;
    return Scanned::ok;
  }
  return special >= Special::prefix && special <= Special::evex ? Scanned::bad : Scanned::ok;
}

/// C5, C4, 62 and 8F: a vector prefix, or outside 64-bit mode LDS, LES, BOUND, or POP r/m, distinguished by the next byte.
Scanned Scanner::read_vector(Special kind, Form& f) {
  uint8_t next = 0;
  if (!peek(next)) return Scanned::cut;
  const bool legacy = kind == Special::xop ? (next & 0x1f) < 8 : !is64() && (next >> 6) != 3;
  if (legacy) {
    f = kind == Special::xop ? form(Special::pop_ev) | kModrm : kModrm;
    return Scanned::ok;
  }
  if (rex_ || has(kHas66 | kHasLock | kHasRep)) return Scanned::bad;
  const uint32_t payload_bytes = kind == Special::vex2 ? 1 : kind == Special::evex ? 3 : 2;
  if (limit_ - pos_ < payload_bytes + 1) return Scanned::cut;
  const uint8_t map = kind == Special::vex2 ? 1 : next & (kind == Special::evex ? 0x07 : 0x1f);
  const uint8_t second = bytes_[pos_ + 1];
  const uint8_t opcode = bytes_[pos_ + payload_bytes];
  if (kind == Special::evex && map == 4) {  // sizes of immediates: W, and pp == 1 in place of 66
    rex_w_ = (second & 0x80) != 0;
    if ((second & 3) == 1) prefixes_ |= kHas66;
  }
  pos_ += payload_bytes + 1;
  return vector_form(kind, map, opcode, f);
}

Scanned Scanner::vector_form(Special kind, uint8_t map, uint8_t opcode, Form& f) {
  const bool evex = kind == Special::evex;
  if (kind == Special::xop) {
    if (map > 10) return Scanned::bad;
    f = map == 8 ? kMap3[opcode] : map == 9 ? kMap2[opcode] : kMapXopA[opcode];
    return Scanned::ok;
  }
  switch (map) {
    case 1:
      f = evex ? kEvexMap1[opcode] : kVexMap1[opcode];
      return Scanned::ok;
    case 2:
    case 5:
    case 6:
      f = kMap2[opcode];
      return Scanned::ok;
    case 3:
      f = kMap3[opcode];
      return Scanned::ok;
    case 4:
      f = kEvexMap4[opcode];
      return evex && is64() ? Scanned::ok : Scanned::bad;
    case 7:
      f = kMap7[opcode];
      return is64() ? Scanned::ok : Scanned::bad;
    default:
      return Scanned::bad;
  }
}

/// ModRM, SIB and displacement ([SDM] "ModR/M and SIB Bytes").
Scanned Scanner::read_modrm(Form f) {
  if (pos_ >= limit_) return Scanned::cut;
  modrm_ = bytes_[pos_++];
  if (mod() == 3 || special_of(f) == Special::mov_cr) return Scanned::ok;  // MOV CR, DR: mod is ignored
  const uint8_t rm = modrm_ & 7;
  uint32_t disp_bytes = 0;
  const bool address16 = !is64() && (mode_ == ExecMode::bits16) != has(kHas67);
  if (address16) {
    disp_bytes = mod() == 0 ? (rm == 6 ? 2 : 0) : mod();
  } else {
    disp_bytes = mod() == 0 ? 0 : mod() == 1 ? 1 : 4;
    uint8_t base = rm;
    if (rm == 4) {
      if (pos_ >= limit_) return Scanned::cut;
      base = bytes_[pos_++] & 7;
    }
    if (mod() == 0 && base == 5) disp_bytes = 4;
  }
  pos_ += disp_bytes;
  return pos_ <= limit_ ? Scanned::ok : Scanned::cut;
}

/// Opcodes whose form, or existence, depends on ModRM or prefixes.
Scanned Scanner::resolve_group(Form& f) {
  switch (special_of(f)) {
    case Special::group3:  // F6, F7: /0 and its alias /1 are TEST with immediate
      if (reg() < 2) f |= (bytes_[opcode_pos_] & 1) != 0 ? form(Imm::z) : form(Imm::b);
      return Scanned::ok;
    case Special::group4:
      return reg() < 2 ? Scanned::ok : Scanned::bad;
    case Special::group5:
      if (reg() == 7 || ((reg() == 3 || reg() == 5) && mod() == 3)) return Scanned::bad;
      return Scanned::ok;
    case Special::pop_ev:
      return reg() == 0 ? Scanned::ok : Scanned::bad;
    case Special::group_c6:
    case Special::group_c7:
      return reg() == 0 || modrm_ == 0xf8 ? Scanned::ok : Scanned::bad;
    case Special::sse4a:
      if (has(kHas66) || rep_ == 0xf2) f |= form(Imm::bb);
      return Scanned::ok;
    case Special::popcnt:
      return rep_ == 0xf3 ? Scanned::ok : Scanned::bad;
    default:
      return Scanned::ok;
  }
}

uint32_t Scanner::imm_bytes(Imm imm) const {
  switch (imm) {
    case Imm::none:
      return 0;
    case Imm::b:
    case Imm::jb:
      return 1;
    case Imm::w:
    case Imm::bb:
      return 2;
    case Imm::wb:
      return 3;
    case Imm::d:
      return 4;
    case Imm::z:
      return imm_is16() ? 2 : 4;
    case Imm::v:
      return rex_w_ ? 8 : imm_is16() ? 2 : 4;
    case Imm::jz:
      return is64() || !imm_is16() ? 4 : 2;  // Intel ignores 66 on near branches in 64-bit mode
    case Imm::far:
      return imm_is16() ? 4 : 6;
    case Imm::moffs: {
      if (is64()) return has(kHas67) ? 4 : 8;
      return (mode_ == ExecMode::bits16) != has(kHas67) ? 2 : 4;
    }
  }
  return 0;
}

/// Returns the last `count` bytes read, sign-extended.
int64_t Scanner::read_signed(uint32_t count) const {
  uint64_t raw = 0;
  for (uint32_t i = 0; i < count; ++i) raw |= static_cast<uint64_t>(bytes_[pos_ - count + i]) << (8 * i);
  const uint32_t shift = 64 - 8 * count;
  return static_cast<int64_t>(raw << shift) >> shift;
}

Scanned Scanner::scan(Insn& out) {
  if (mode_ == ExecMode::unknown) return Scanned::bad;
  Form f = 0;
  if (const Scanned status = read_opcode(f); status != Scanned::ok) return status;
  if ((f & kBad) != 0 || ((f & kBad64) != 0 && is64())) return Scanned::bad;
  opcode_pos_ = pos_ - 1;
  if ((f & kModrm) != 0) {
    if (const Scanned status = read_modrm(f); status != Scanned::ok) return status;
    if (special_of(f) != Special::none) {
      if (const Scanned status = resolve_group(f); status != Scanned::ok) return status;
    }
  }
  const uint32_t imm_count = imm_bytes(imm_of(f));
  pos_ += imm_count;
  if (pos_ > limit_) return Scanned::cut;
  out.cls = InsnClass::other;
  out.length_bytes = static_cast<uint8_t>(pos_);
  if (special_of(f) != Special::none) classify_flow(f, imm_count, out);
  return Scanned::ok;
}

/// Operand size of a near branch: 64-bit mode forces 64 bits.
uint8_t Scanner::branch_bits() const { return is64() ? 64 : imm_is16() ? 16 : 32; }

void Scanner::classify_flow(Form f, uint32_t imm_count, Insn& out) const {
  const Special special = special_of(f);
  const auto near = [&](InsnClass cls, InsnDetail detail = InsnDetail::none) {
    out.cls = cls;
    out.detail = detail;
    out.operand_bits = branch_bits();
    const Imm imm = imm_of(f);
    if (imm == Imm::jb || imm == Imm::jz) out.displacement = read_signed(imm_count);
  };
  switch (special) {
    case Special::jmp:
      return near(InsnClass::jump_direct);
    case Special::call:
      return near(InsnClass::call_direct);
    case Special::jcc:
      return near(InsnClass::jcc);
    case Special::loop:
      return near(InsnClass::jcc, InsnDetail::loop);
    case Special::jcxz:
      return near(InsnClass::jcc, InsnDetail::jcxz);
    case Special::ret:
      return near(InsnClass::ret);
    case Special::group5:
      return classify_group5(out);
    case Special::group7:
      return classify_group7(out);
    case Special::moffs_a1:
      if (!rex2_) return;
      out.cls = InsnClass::jmpabs;
      out.operand_bits = 64;
      out.displacement = read_signed(8);
      return;
    default:
      return classify_system(special, out);
  }
}

void Scanner::classify_group5(Insn& out) const {
  switch (reg()) {
    case 2:
      out.cls = InsnClass::call_indirect;
      break;
    case 4:
      out.cls = InsnClass::jump_indirect;
      break;
    case 3:
      out.cls = InsnClass::far_call, out.detail = InsnDetail::far_call;
      return;
    case 5:
      out.cls = InsnClass::far_jump, out.detail = InsnDetail::far_jump;
      return;
    default:
      return;
  }
  out.operand_bits = branch_bits();
}

/// 0F 01 with a register operand: the whole ModRM byte is the opcode. [SDM] does not mark VMCALL, VMLAUNCH and VMRESUME with NP, so they
/// keep their class under 66, F2 and F3. If a processor faults instead, the trace shows the fault before the class matters.
void Scanner::classify_group7(Insn& out) const {
  const auto set = [&](InsnClass cls, InsnDetail detail) { out.cls = cls, out.detail = detail; };
  const bool plain = rep_ == 0 && !has(kHas66);
  switch (modrm_) {
    case 0xc1:
      set(InsnClass::far_call, InsnDetail::vmcall);
      break;
    case 0xc2:
      set(InsnClass::far_ret, InsnDetail::vmlaunch);
      break;
    case 0xc3:
      set(InsnClass::far_ret, InsnDetail::vmresume);
      break;
    case 0xc6:
      if (plain) set(InsnClass::other, InsnDetail::wrmsr);
      break;  // WRMSRNS
    case 0xc9:
      if (plain) set(InsnClass::other, InsnDetail::mwait);
      break;
    case 0xca:
      if (is64() && !has(kHas66) && rep_ == 0xf3) set(InsnClass::far_ret, InsnDetail::eretu);
      if (is64() && !has(kHas66) && rep_ == 0xf2) set(InsnClass::far_ret, InsnDetail::erets);
      break;
    case 0xd5:
      if (plain) set(InsnClass::other, InsnDetail::xend);
      break;
    case 0xec:
      if (is64() && rep_ == 0xf3) set(InsnClass::far_ret, InsnDetail::uiret);
      break;
    default:
      break;
  }
}

void Scanner::classify_system(Special special, Insn& out) const {
  const auto set = [&](InsnClass cls, InsnDetail detail) { out.cls = cls, out.detail = detail; };
  switch (special) {
    case Special::far_call:
      return set(InsnClass::far_call, InsnDetail::far_call);
    case Special::far_jmp:
      return set(InsnClass::far_jump, InsnDetail::far_jump);
    case Special::far_ret:
      return set(InsnClass::far_ret, InsnDetail::far_ret);
    case Special::int3:
      return set(InsnClass::far_call, InsnDetail::int3);
    case Special::int_n:
      return set(InsnClass::far_call, InsnDetail::int_n);
    case Special::into:
      return set(InsnClass::far_call, InsnDetail::into);
    case Special::int1:
      return set(InsnClass::far_call, InsnDetail::int1);
    case Special::iret:
      return set(InsnClass::far_ret, InsnDetail::iret);
    case Special::hlt:
      return set(InsnClass::other, InsnDetail::hlt);
    case Special::syscall:
      return set(InsnClass::far_call, InsnDetail::syscall);
    case Special::sysret:
      return set(InsnClass::far_ret, InsnDetail::sysret);
    case Special::sysenter:
      return set(InsnClass::far_call, InsnDetail::sysenter);
    case Special::sysexit:
      return set(InsnClass::far_ret, InsnDetail::sysexit);
    case Special::wrmsr:
      return set(InsnClass::other, InsnDetail::wrmsr);
    case Special::rsm:
      return set(InsnClass::far_ret, InsnDetail::rsm);
    case Special::ud:
      return set(InsnClass::other, InsnDetail::ud);
    case Special::mov_cr:  // 0F 22 is MOV to CR; REX.R makes CR11
      if (bytes_[opcode_pos_] == 0x22 && (reg() | reg_high_) == 3) out.cls = InsnClass::mov_cr3;
      return;
    case Special::nop_1e:
      if (rep_ == 0xf3 && (modrm_ == 0xfa || modrm_ == 0xfb)) out.detail = InsnDetail::endbr;
      return;
    case Special::group_c6:
      if (modrm_ == 0xf8) out.detail = InsnDetail::xabort;
      return;
    case Special::group_c7:
      if (modrm_ == 0xf8) out.detail = InsnDetail::xbegin;
      return;
    case Special::group9:
      if (reg() != 6) return;
      if (mod() != 3 && rep_ == 0 && !has(kHas66)) out.detail = InsnDetail::vmptrld;
      if (mod() == 3 && rep_ == 0xf3 && is64()) out.detail = InsnDetail::senduipi;
      return;
    case Special::group15:
      if (rep_ == 0xf3 && reg() == 4 && !has(kHas66)) out.cls = InsnClass::ptwrite;
      if (mod() == 3 && reg() == 6 && (rep_ == 0xf2 || (rep_ == 0 && has(kHas66)))) out.detail = InsnDetail::umwait;  // and TPAUSE
      return;
    default:
      return;
  }
}

constexpr uint64_t low_bits(uint64_t value, unsigned bits) { return bits >= 64 ? value : value & ((uint64_t{1} << bits) - 1); }

InsnClass class_of(const ArmInsn& arm) {
  switch (arm.cls) {
    case ArmClass::direct:
      return arm.link ? InsnClass::call_direct : arm.conditional ? InsnClass::jcc : InsnClass::jump_direct;
    case ArmClass::indirect:
      if (arm.link) return InsnClass::call_indirect;
      return arm.detail == ArmDetail::eret ? InsnClass::far_ret : arm.detail == ArmDetail::ret ? InsnClass::ret : InsnClass::jump_indirect;
    case ArmClass::bad:
      return InsnClass::bad;
    default:
      return InsnClass::other;
  }
}

// Converts an instruction to the classes that both architectures share.
Insn from_arm(const ArmInsn& arm) {
  Insn insn;
  insn.cls = class_of(arm);
  if (insn.cls == InsnClass::bad) return insn;
  insn.length_bytes = arm.length_bytes;
  if (arm.cls == ArmClass::direct) insn.displacement = arm.displacement - arm.length_bytes;
  if (arm.detail == ArmDetail::eret) insn.detail = InsnDetail::eret;
  if (arm.detail == ArmDetail::svc) insn.detail = InsnDetail::svc;
  if (arm.changes_set) insn.detail = InsnDetail::blx;
  return insn;
}

}  // namespace

Insn classify(Bytes bytes, ExecMode mode) {
  if (is_arm(mode)) return from_arm(classify_arm(bytes, mode));
  Insn insn;
  if (mode == ExecMode::bits64 && bytes.size() >= kMaxInsnBytes) {
    if (const uint32_t length = quick_length(reinterpret_cast<const uint8_t*>(bytes.data())); length != 0) {
      insn.cls = InsnClass::other;
      insn.length_bytes = static_cast<uint8_t>(length);
      return insn;
    }
  }
  Scanner scanner(bytes, mode);
  if (scanner.scan(insn) != Scanned::ok) return Insn{};
  return insn;
}

bool needs_more_bytes(Bytes bytes, ExecMode mode) {
  if (is_arm(mode)) return classify_arm(bytes, mode).length_bytes == 0;
  Insn insn;
  Scanner scanner(bytes, mode);
  return scanner.scan(insn) == Scanned::cut && !scanner.at_maximum();
}

Ip direct_target(const Insn& insn, Ip ip, ExecMode mode) {
  const auto offset = static_cast<uint64_t>(insn.displacement);
  if (insn.cls == InsnClass::jmpabs) return Ip{offset};
  if (mode == ExecMode::t32 && insn.detail == InsnDetail::blx) ip.value &= ~uint64_t{3};
  const uint64_t target = next_sequential(insn, ip, mode).value + offset;
  if (mode == ExecMode::a64) return Ip{target};
  if (mode == ExecMode::bits64 || mode == ExecMode::unknown) return Ip{target};
  // A 16-bit operand truncates EIP, not the linear address. The CS base is unknown; it is taken as 0 only if the address permits it.
  const bool truncate = insn.operand_bits == 16 && (mode == ExecMode::bits32 || ip.value <= 0xffff);
  return Ip{low_bits(target, truncate ? 16 : 32)};
}

Ip next_sequential(const Insn& insn, Ip ip, ExecMode mode) {
  const uint64_t next = ip.value + insn.length_bytes;
  return Ip{mode == ExecMode::bits64 || mode == ExecMode::a64 || mode == ExecMode::unknown ? next : low_bits(next, 32)};
}

}  // namespace ptd
