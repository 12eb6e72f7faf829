// Packet writer: uses the layouts of the table, and compresses ips like hardware.
#include "ptdecode/pt/packet_writer.h"

#include <cstring>

#include "decoder/pt/packet/packet_table.h"

namespace ptd::pt {
namespace {

constexpr unsigned kShortTntBits = 6;
/// Has no bits in common with an ip. Processors do not compress the first ip after a PSB, although [SDM] "Packet Stream Boundary (PSB)"
/// allows it for low addresses; perf 6.1 would take the upper bits from the ip before the PSB.
constexpr uint64_t kNoLastIp = uint64_t{1} << 63;

/// Bytes of one packet under construction.
struct Made {
  std::byte bytes[kMaxPacketBytes] = {};
  unsigned size = 0;
  void put(uint64_t value, unsigned count) {
    std::memcpy(bytes + size, &value, count);
    size += count;
  }
};

bool has_only(const Packet& packet, bool bits, bool extra, bool ip_bytes) {
  return packet.flags == 0 && packet.aux == 0 && (bits || packet.bits == 0) && (extra || packet.extra == 0) &&
         (ip_bytes || packet.ip_bytes == IpBytes::suppressed);
}

bool make_tnt(const Packet& packet, Made& made) {
  const unsigned most = packet.kind == PacketKind::tnt_short ? kShortTntBits : kLongTntBits;
  if (!has_only(packet, true, false, false) || packet.bits == 0 || packet.bits > most || (packet.value >> packet.bits) != 0) return false;
  const uint64_t stopped = packet.value | (uint64_t{1} << packet.bits);
  if (packet.kind == PacketKind::tnt_short) {
    made.put(stopped << 1, 1);
  } else {
    made.put(0xa302, 2);
    made.put(stopped, 6);
  }
  return true;
}

bool make_ip(const PacketForm& form, const Packet& packet, Made& made) {
  const auto ip_bytes = static_cast<unsigned>(packet.ip_bytes);
  if (!has_only(packet, false, false, true) || ip_bytes > 7 || kDispatch.ip_size[ip_bytes] == kNoForm) return false;
  const unsigned size = kDispatch.ip_size[ip_bytes];
  if (size < 8 && (packet.value >> (size * 8)) != 0) return false;
  made.put(form.first | (ip_bytes << 5), 1);
  made.put(packet.value, size);
  return true;
}

bool make_cyc(const Packet& packet, Made& made) {
  if (!has_only(packet, false, false, false)) return false;
  uint64_t rest = packet.value >> 5;
  made.put(((packet.value & 0x1f) << 3) | (rest != 0 ? 4U : 0U) | 3U, 1);
  while (rest != 0) {
    const uint64_t bits = rest & 0x7f;
    rest >>= 7;
    made.put((bits << 1) | (rest != 0 ? 1U : 0U), 1);
  }
  return true;
}

bool make_block_item(const Packet& packet, Made& made) {
  if (!has_only(packet, true, true, false) || packet.bits > 31 || (packet.extra != 4 && packet.extra != 8)) return false;
  if (packet.extra == 4 && (packet.value >> 32) != 0) return false;
  made.put((unsigned{packet.bits} << 3) | 4U, 1);
  made.put(packet.value, packet.extra);
  return true;
}

bool make(const PacketForm& form, const Packet& packet, Made& made) {
  switch (form.layout) {
    case Layout::tnt_short:
    case Layout::tnt_long:
      return make_tnt(packet, made);
    case Layout::ip:
      return make_ip(form, packet, made);
    case Layout::cyc:
      return make_cyc(packet, made);
    case Layout::block_item:
      return make_block_item(packet, made);
    case Layout::psb:
      if (!has_only(packet, false, false, false) || packet.value != 0) return false;
      for (int i = 0; i < 8; ++i) made.put(0x8202, 2);
      return true;
    case Layout::fields:
      made.size = form.size_bytes;
      return encode_fields(form, packet, made.bytes);
  }
  return false;
}

Packet packet_of(PacketKind kind, uint64_t value = 0, uint64_t aux = 0, uint8_t flags = 0) {
  Packet packet;
  packet.kind = kind;
  packet.value = value;
  packet.aux = aux;
  packet.flags = flags;
  return packet;
}

uint8_t flag_if(bool on, uint8_t flag) { return on ? flag : uint8_t{0}; }

}  // namespace

bool PacketWriter::write(const Packet& packet) {
  for (const PacketForm& form : packet_forms()) {
    if (form.kind != packet.kind) continue;
    Made made;
    if (!make(form, packet, made)) continue;
    out_.insert(out_.end(), made.bytes, made.bytes + made.size);
    return true;
  }
  return false;
}

void PacketWriter::pad(unsigned count) { out_.insert(out_.end(), count, std::byte{0}); }

void PacketWriter::psb() {
  write(packet_of(PacketKind::psb));
  last_ip_ = kNoLastIp;
}

void PacketWriter::ip_packet(PacketKind kind, uint64_t ip) {
  Packet packet = packet_of(kind);
  const bool canonical48 = static_cast<uint64_t>(static_cast<int64_t>(ip << 16) >> 16) == ip;
  if (compress_ && (ip >> 16) == (last_ip_ >> 16)) {
    packet.ip_bytes = IpBytes::update16;
    packet.value = ip & 0xffff;
  } else if (compress_ && (ip >> 32) == (last_ip_ >> 32)) {
    packet.ip_bytes = IpBytes::update32;
    packet.value = ip & 0xffffffff;
  } else if (canonical48) {
    packet.ip_bytes = IpBytes::sext48;
    packet.value = ip & 0xffffffffffff;
  } else if (compress_ && (ip >> 48) == (last_ip_ >> 48)) {
    packet.ip_bytes = IpBytes::update48;
    packet.value = ip & 0xffffffffffff;
  } else {
    packet.ip_bytes = IpBytes::full64;
    packet.value = ip;
  }
  write(packet);
  last_ip_ = ip;
}

void PacketWriter::tnt(uint64_t branches, unsigned bits) {
  if (bits > 64) bits = 64;
  while (bits != 0) {
    const unsigned now = bits > kLongTntBits ? kLongTntBits : bits;
    bits -= now;
    Packet packet = packet_of(now <= kShortTntBits ? PacketKind::tnt_short : PacketKind::tnt_long);
    packet.bits = static_cast<uint8_t>(now);
    packet.value = (branches >> bits) & ((uint64_t{1} << now) - 1);
    write(packet);
  }
}

void PacketWriter::mode_exec(ExecMode mode, bool rflags_if) {
  uint8_t flags = flag_if(rflags_if, kFlagIf);
  if (mode == ExecMode::bits64) flags |= kFlagCsL;
  if (mode == ExecMode::bits32) flags |= kFlagCsD;
  write(packet_of(PacketKind::mode_exec, 0, 0, flags));
}

void PacketWriter::mode_tsx(bool in_tx, bool abort) {
  write(packet_of(PacketKind::mode_tsx, 0, 0, static_cast<uint8_t>(flag_if(in_tx, kFlagInTx) | flag_if(abort, kFlagAbort))));
}

void PacketWriter::ptw(uint64_t payload, bool eight_bytes, bool with_ip) {
  Packet packet = packet_of(PacketKind::ptw, eight_bytes ? payload : payload & 0xffffffff, 0, flag_if(with_ip, kFlagIp));
  packet.bits = eight_bytes ? 8 : 4;
  write(packet);
}

void PacketWriter::pwre(uint8_t state, uint8_t sub_state, bool hw) {
  const uint64_t payload = ((state & 0xfU) << 12) | ((sub_state & 0xfU) << 8) | (hw ? 0x80U : 0U);
  write(packet_of(PacketKind::pwre, payload, 0, flag_if(hw, kFlagHw)));
}

void PacketWriter::pwrx(uint8_t last_core, uint8_t deepest_core, uint8_t wake_reason) {
  Packet packet = packet_of(PacketKind::pwrx, (deepest_core & 0xfU) | ((last_core & 0xfU) << 4) | ((wake_reason & 0xfU) << 8));
  packet.extra = wake_reason & 0xf;
  write(packet);
}

void PacketWriter::cfe(uint8_t type, uint8_t vector, bool with_ip) {
  Packet packet = packet_of(PacketKind::cfe, 0, 0, flag_if(with_ip, kFlagIp));
  packet.bits = type & 0x1f;
  packet.extra = vector;
  write(packet);
}

void PacketWriter::evd(uint8_t type, uint64_t payload) {
  Packet packet = packet_of(PacketKind::evd, payload);
  packet.bits = type & 0x3f;
  write(packet);
}

void PacketWriter::bbp(uint8_t item_bytes, uint8_t type) {
  Packet packet = packet_of(PacketKind::bbp);
  packet.bits = item_bytes == 4 ? 4 : 8;
  packet.extra = type & 0x1f;
  write(packet);
}

void PacketWriter::bip(uint8_t item_bytes, uint8_t id, uint64_t payload) {
  Packet packet = packet_of(PacketKind::bip, item_bytes == 4 ? payload & 0xffffffff : payload);
  packet.bits = id & 0x1f;
  packet.extra = item_bytes == 4 ? 4 : 8;
  write(packet);
}

void PacketWriter::tip(uint64_t ip) { ip_packet(PacketKind::tip, ip); }
void PacketWriter::tip_pge(uint64_t ip) { ip_packet(PacketKind::tip_pge, ip); }
void PacketWriter::tip_pgd(uint64_t ip) { ip_packet(PacketKind::tip_pgd, ip); }
void PacketWriter::fup(uint64_t ip) { ip_packet(PacketKind::fup, ip); }
void PacketWriter::tip_suppressed() { write(packet_of(PacketKind::tip)); }
void PacketWriter::tip_pgd_suppressed() { write(packet_of(PacketKind::tip_pgd)); }
void PacketWriter::fup_suppressed() { write(packet_of(PacketKind::fup)); }
void PacketWriter::psbend() { write(packet_of(PacketKind::psbend)); }
void PacketWriter::pip(uint64_t cr3, bool non_root) {
  write(packet_of(PacketKind::pip, cr3 & 0xfffffffffffe0, 0, flag_if(non_root, kFlagNonRoot)));
}
void PacketWriter::vmcs(uint64_t base) { write(packet_of(PacketKind::vmcs, base & 0xffffffffff000)); }
void PacketWriter::cbr(uint8_t ratio) { write(packet_of(PacketKind::cbr, ratio)); }
void PacketWriter::tsc(uint64_t tsc) { write(packet_of(PacketKind::tsc, tsc & 0xffffffffffffff)); }
void PacketWriter::mtc(uint8_t ctc) { write(packet_of(PacketKind::mtc, ctc)); }
void PacketWriter::tma(uint16_t ctc, uint16_t fast_counter) { write(packet_of(PacketKind::tma, ctc, fast_counter & 0x1ffU)); }
void PacketWriter::cyc(uint64_t cycles) { write(packet_of(PacketKind::cyc, cycles)); }
void PacketWriter::ovf() { write(packet_of(PacketKind::ovf)); }
void PacketWriter::trace_stop() { write(packet_of(PacketKind::trace_stop)); }
void PacketWriter::mnt(uint64_t payload) { write(packet_of(PacketKind::mnt, payload)); }
void PacketWriter::exstop(bool with_ip) { write(packet_of(PacketKind::exstop, 0, 0, flag_if(with_ip, kFlagIp))); }
void PacketWriter::mwait(uint32_t hints, uint32_t extensions) { write(packet_of(PacketKind::mwait, hints, extensions)); }
void PacketWriter::bep(bool with_ip) { write(packet_of(PacketKind::bep, 0, 0, flag_if(with_ip, kFlagIp))); }

}  // namespace ptd::pt
