// The table of Intel PT packets, for little-endian hosts. Source: [SDM] "Packet Definitions"; TRIG: [SDM] "Trigger Tracing".
#include "decoder/pt/packet/packet_table.h"

#include <cstring>

namespace ptd::pt {
namespace {

using enum PacketKind;

constexpr Field field(Slot slot, int first_byte, int bit, int width, int shift = 0) {
  return {slot, static_cast<uint8_t>(first_byte * 8 + bit), static_cast<uint8_t>(width), static_cast<uint8_t>(shift)};
}

constexpr PacketForm one(PacketKind kind, Layout layout, int first, int mask, int size) {
  PacketForm form;
  form.kind = kind;
  form.layout = layout;
  form.first = static_cast<uint8_t>(first);
  form.first_mask = static_cast<uint8_t>(mask);
  form.size_bytes = static_cast<uint8_t>(size);
  return form;
}

constexpr PacketForm two(PacketKind kind, int first, int second, int mask, int size, std::array<Field, kMaxFields> fields = {},
                         int bits = 0) {
  PacketForm form = one(kind, Layout::fields, first, 0xff, size);
  form.second = static_cast<uint8_t>(second);
  form.second_mask = static_cast<uint8_t>(mask);
  form.bits = static_cast<uint8_t>(bits);
  form.fields = fields;
  return form;
}

constexpr PacketForm with_fields(PacketForm form, std::array<Field, kMaxFields> fields) {
  form.fields = fields;
  return form;
}

constexpr PacketForm with_third(PacketForm form, int third, int mask, int bits = 0) {
  form.third = static_cast<uint8_t>(third);
  form.third_mask = static_cast<uint8_t>(mask);
  form.bits = static_cast<uint8_t>(bits);
  return form;
}

constexpr PacketForm with_layout(PacketForm form, Layout layout) {
  form.layout = layout;
  return form;
}

// Bits 7..0 of each byte, in stream order; lower case letters are fields, '-' is reserved and ignored.
// clang-format off
constexpr PacketForm kForms[] = {
    // 00000000
    one(pad, Layout::fields, 0x00, 0xff, 1),
    // 1bbbbbb0 ... 000001b0: the highest set bit is the stop bit
    one(tnt_short, Layout::tnt_short, 0x00, 0x01, 1),
    // iii01101 + 0, 2, 4, 6 or 8 bytes; iii = IPBytes
    one(tip, Layout::ip, 0x0d, 0x1f, 0),
    // iii10001 + ip
    one(tip_pge, Layout::ip, 0x11, 0x1f, 0),
    // iii00001 + ip
    one(tip_pgd, Layout::ip, 0x01, 0x1f, 0),
    // iii11101 + ip
    one(fup, Layout::ip, 0x1d, 0x1f, 0),
    // ccccce11 [ccccccce]...: e = another byte follows
    one(cyc, Layout::cyc, 0x03, 0x03, 0),
    // 01011001 cccccccc
    with_fields(one(mtc, Layout::fields, 0x59, 0xff, 2), {field(Slot::value, 1, 0, 8)}),
    // 00011001 t[55:0]
    with_fields(one(tsc, Layout::fields, 0x19, 0xff, 8), {field(Slot::value, 1, 0, 56)}),
    // 10011001 000--fdl: f = RFLAGS.IF, d = CS.D, l = CS.L; dl = 11 is reserved
    two(mode_exec, 0x99, 0x00, 0xe0, 2, {field(Slot::flag_cs_l, 1, 0, 1), field(Slot::flag_cs_d, 1, 1, 1), field(Slot::flag_if, 1, 2, 1)}),
    // 10011001 001---ai: a = abort, i = in transaction; ai = 11 is reserved
    two(mode_tsx, 0x99, 0x20, 0xe0, 2, {field(Slot::flag_in_tx, 1, 0, 1), field(Slot::flag_abort, 1, 1, 1)}),
    // 11011001 p0m----- vvvvvvvv: p = FUP follows, m = more triggers, v = trigger bits
    with_fields(with_third(two(trig, 0xd9, 0x00, 0x40, 3), 0, 0),
                {field(Slot::flag_ip, 1, 7, 1), field(Slot::flag_hw, 1, 5, 1), field(Slot::extra, 2, 0, 8)}),
    // 11011001 p1m----- vvvvvvvv n[15:0]: with a count of instructions
    with_fields(with_third(two(trig, 0xd9, 0x40, 0x40, 5), 0, 0, 2),
                {field(Slot::flag_ip, 1, 7, 1), field(Slot::flag_hw, 1, 5, 1), field(Slot::extra, 2, 0, 8), field(Slot::value, 3, 0, 16)}),
    // 00000010 10000010 eight times
    with_layout(two(psb, 0x02, 0x82, 0xff, 16), Layout::psb),
    // 00000010 00100011
    two(psbend, 0x02, 0x23, 0xff, 2),
    // 00000010 10100011 b[47:0]: the highest set bit is the stop bit
    with_layout(two(tnt_long, 0x02, 0xa3, 0xff, 8), Layout::tnt_long),
    // 00000010 01000011 cr3[11:5]n cr3[51:12]: n = non-root
    two(pip, 0x02, 0x43, 0xff, 8, {field(Slot::flag_non_root, 2, 0, 1), field(Slot::value, 2, 1, 47, 5)}),
    // 00000010 11001000 base[51:12]
    two(vmcs, 0x02, 0xc8, 0xff, 7, {field(Slot::value, 2, 0, 40, 12)}),
    // 00000010 00000011 rrrrrrrr --------
    two(cbr, 0x02, 0x03, 0xff, 4, {field(Slot::value, 2, 0, 8)}),
    // 00000010 01110011 ctc[15:0] -------- f[7:0] -------f: f = FastCounter
    two(tma, 0x02, 0x73, 0xff, 7, {field(Slot::value, 2, 0, 16), field(Slot::aux, 5, 0, 9)}),
    // 00000010 11110011
    two(ovf, 0x02, 0xf3, 0xff, 2),
    // 00000010 10000011
    two(trace_stop, 0x02, 0x83, 0xff, 2),
    // 00000010 11000011 10001000 p[63:0]
    with_third(two(mnt, 0x02, 0xc3, 0xff, 11, {field(Slot::value, 3, 0, 64)}), 0x88, 0xff),
    // 00000010 p0010010 o[31:0]: p = FUP follows
    two(ptw, 0x02, 0x12, 0x7f, 6, {field(Slot::flag_ip, 1, 7, 1), field(Slot::value, 2, 0, 32)}, 4),
    // 00000010 p0110010 o[63:0]
    two(ptw, 0x02, 0x32, 0x7f, 10, {field(Slot::flag_ip, 1, 7, 1), field(Slot::value, 2, 0, 64)}, 8),
    // 00000010 p1100010
    two(exstop, 0x02, 0x62, 0x7f, 2, {field(Slot::flag_ip, 1, 7, 1)}),
    // 00000010 11000010 h[31:0] e[31:0]: h = hints, e = extensions
    two(mwait, 0x02, 0xc2, 0xff, 10, {field(Slot::value, 2, 0, 32), field(Slot::aux, 6, 0, 32)}),
    // 00000010 00100010 h------- sssstttt: h = hardware, s = C-state, t = sub C-state
    two(pwre, 0x02, 0x22, 0xff, 4, {field(Slot::value, 2, 0, 16), field(Slot::flag_hw, 2, 7, 1)}),
    // 00000010 10100010 lllldddd ----wwww -------- -------- --------: l = last, d = deepest core C-state, w = wake reason
    two(pwrx, 0x02, 0xa2, 0xff, 7, {field(Slot::value, 2, 0, 40), field(Slot::extra, 3, 0, 4)}),
    // 00000010 01100011 1--ttttt: items of four bytes, t = type
    with_third(two(bbp, 0x02, 0x63, 0xff, 3, {field(Slot::extra, 2, 0, 5)}), 0x80, 0x80, 4),
    // 00000010 01100011 0--ttttt: items of eight bytes
    with_third(two(bbp, 0x02, 0x63, 0xff, 3, {field(Slot::extra, 2, 0, 5)}), 0x00, 0x80, 8),
    // ddddd100 p[31:0] or p[63:0], according to the preceding BBP: d = id
    one(bip, Layout::block_item, 0x04, 0x07, 0),
    // 00000010 p0110011: p = FUP follows
    two(bep, 0x02, 0x33, 0x7f, 2, {field(Slot::flag_ip, 1, 7, 1)}),
    // 00000010 00010011 p--ttttt vvvvvvvv: t = type, v = vector
    two(cfe, 0x02, 0x13, 0xff, 4, {field(Slot::flag_ip, 2, 7, 1), field(Slot::bits, 2, 0, 5), field(Slot::extra, 3, 0, 8)}),
    // 00000010 01010011 --tttttt p[63:0]
    two(evd, 0x02, 0x53, 0xff, 11, {field(Slot::bits, 2, 0, 6), field(Slot::value, 3, 0, 64)}),
};
// clang-format on

constexpr bool second_matches(const PacketForm& form, unsigned byte) { return (byte & form.second_mask) == form.second; }

constexpr Lead lead_of(const PacketForm& form) {
  switch (form.kind) {
    case pad:
      return Lead::pad;
    case tnt_short:
      return Lead::tnt_short;
    case tip:
      return Lead::ip_tip;
    case tip_pge:
      return Lead::ip_pge;
    case tip_pgd:
      return Lead::ip_pgd;
    case fup:
      return Lead::ip_fup;
    case cyc:
      return Lead::cyc;
    case mtc:
      return Lead::mtc;
    case mode_exec:
    case mode_tsx:
      return Lead::mode;
    default:
      return form.first == 0x02 ? Lead::escape : Lead::form;
  }
}

constexpr void enter(Dispatch& out, const PacketForm& form, uint8_t index) {
  for (unsigned byte = 0; byte < 256; ++byte) {
    if ((byte & form.first_mask) != form.first) continue;
    if (form.kind == tnt_short && (byte == 0x00 || byte == 0x02)) continue;  // PAD and the escape byte
    out.lead[byte] = lead_of(form);
    if (out.form_of_first[byte] == kNoForm) out.form_of_first[byte] = index;
  }
  for (unsigned byte = 0; form.second_mask != 0 && byte < 256; ++byte) {
    if (!second_matches(form, byte)) continue;
    auto& table = form.first == 0x02 ? out.form_of_escape : out.form_of_mode;
    if ((form.first == 0x02 || form.first == 0x99) && table[byte] == kNoForm) table[byte] = index;
  }
}

constexpr Dispatch build_dispatch() {
  Dispatch out;
  out.lead.fill(Lead::bad);
  out.form_of_first.fill(kNoForm);
  out.form_of_escape.fill(kNoForm);
  out.form_of_mode.fill(kNoForm);
  out.ip_size = {0, 2, 4, 6, 6, kNoForm, 8, kNoForm};
  uint8_t index = 0;
  for (const PacketForm& form : kForms) {
    if (form.layout != Layout::block_item) enter(out, form, index);
    ++index;
  }
  return out;
}

constexpr uint8_t flag_of(Slot slot) {
  return slot >= Slot::flag_ip ? static_cast<uint8_t>(1U << (static_cast<unsigned>(slot) - static_cast<unsigned>(Slot::flag_ip)))
                               : uint8_t{0};
}
static_assert(flag_of(Slot::flag_ip) == kFlagIp && flag_of(Slot::flag_non_root) == kFlagNonRoot && flag_of(Slot::flag_cs_l) == kFlagCsL &&
              flag_of(Slot::flag_cs_d) == kFlagCsD && flag_of(Slot::flag_if) == kFlagIf && flag_of(Slot::flag_in_tx) == kFlagInTx &&
              flag_of(Slot::flag_abort) == kFlagAbort && flag_of(Slot::flag_hw) == kFlagHw);

constexpr uint64_t low_bits(unsigned width) { return width >= 64 ? ~uint64_t{0} : (uint64_t{1} << width) - 1; }

uint64_t load(const std::byte* bytes) {
  uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

bool reserved(const Packet& packet) {
  if (packet.kind == mode_exec) return (packet.flags & kFlagCsL) != 0 && (packet.flags & kFlagCsD) != 0;
  return packet.kind == mode_tsx && (packet.flags & kFlagInTx) != 0 && (packet.flags & kFlagAbort) != 0;
}

uint64_t get(const Packet& packet, Slot slot) {
  switch (slot) {
    case Slot::value:
      return packet.value;
    case Slot::aux:
      return packet.aux;
    case Slot::bits:
      return packet.bits;
    case Slot::extra:
      return packet.extra;
    default:
      return (packet.flags & flag_of(slot)) != 0 ? 1 : 0;
  }
}

void set(Packet& packet, Slot slot, uint64_t value) {
  switch (slot) {
    case Slot::value:
      packet.value = value;
      break;
    case Slot::aux:
      packet.aux = value;
      break;
    case Slot::bits:
      packet.bits = static_cast<uint8_t>(value);
      break;
    case Slot::extra:
      packet.extra = static_cast<uint8_t>(value);
      break;
    default:
      if (value != 0) packet.flags = static_cast<uint8_t>(packet.flags | flag_of(slot));
  }
}

}  // namespace

constinit const Dispatch kDispatch = build_dispatch();
std::span<const PacketForm> packet_forms() { return kForms; }

bool decode_fields(const PacketForm& form, const std::byte* bytes, Packet& packet) {
  std::byte buffer[kMaxPacketBytes + sizeof(uint64_t)] = {};
  std::memcpy(buffer, bytes, form.size_bytes);
  if (form.third_mask != 0 && (static_cast<uint8_t>(buffer[2]) & form.third_mask) != form.third) return false;
  packet.kind = form.kind;
  packet.size_bytes = form.size_bytes;
  packet.bits = form.bits;
  for (const Field& f : form.fields) {
    if (f.slot == Slot::none) break;
    set(packet, f.slot, ((load(buffer + f.bit / 8) >> (f.bit % 8)) & low_bits(f.width)) << f.shift);
  }
  return !reserved(packet);
}

bool encode_fields(const PacketForm& form, const Packet& packet, std::byte* out) {
  if (reserved(packet) || (form.bits != 0 && packet.bits != form.bits)) return false;
  std::byte buffer[kMaxPacketBytes + sizeof(uint64_t)] = {};
  buffer[0] = std::byte{form.first};
  if (form.second_mask != 0) buffer[1] = std::byte{form.second};
  if (form.third_mask != 0) buffer[2] = std::byte{form.third};
  for (const Field& f : form.fields) {
    if (f.slot == Slot::none) break;
    const uint64_t value = (get(packet, f.slot) >> f.shift) & low_bits(f.width);
    const uint64_t merged = load(buffer + f.bit / 8) | (value << (f.bit % 8));
    std::memcpy(buffer + f.bit / 8, &merged, sizeof(merged));
  }
  Packet told;  // reject packets with members that the bytes do not encode
  Packet wanted = packet;
  wanted.size_bytes = form.size_bytes;
  if (!decode_fields(form, buffer, told) || !(wanted == told)) return false;
  std::memcpy(out, buffer, form.size_bytes);
  return true;
}

const char* name(PacketKind kind) {
  static constexpr const char* kNames[kPacketKinds] = {
      "PAD",    "PSB",   "PSBEND", "TNT",  "TNT.64", "TIP", "TIP.PGE", "TIP.PGD", "FUP",       "MODE.Exec", "MODE.TSX",
      "PIP",    "VMCS",  "CBR",    "TSC",  "MTC",    "TMA", "CYC",     "OVF",     "TraceStop", "MNT",       "PTW",
      "EXSTOP", "MWAIT", "PWRE",   "PWRX", "BBP",    "BIP", "BEP",     "CFE",     "EVD",       "TRIG",      "BAD"};
  const auto index = static_cast<unsigned>(kind);
  return index < kPacketKinds ? kNames[index] : "BAD";
}

}  // namespace ptd::pt
