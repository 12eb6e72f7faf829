// One Intel PT packet as text: see packet_text.h.
#include "cli/list/packet_text.h"

#include <array>

namespace ptd::cli {

namespace {

using pt::Packet;
using pt::PacketKind;

constexpr std::array<std::string_view, pt::kPacketKinds> kPacketNames = {
    "pad",    "psb",   "psbend", "tnt.8", "tnt.64", "tip", "tip.pge", "tip.pgd", "fup",  "mode.exec", "mode.tsx",
    "pip",    "vmcs",  "cbr",    "tsc",   "mtc",    "tma", "cyc",     "ovf",     "stop", "mnt",       "ptw",
    "exstop", "mwait", "pwre",   "pwrx",  "bbp",    "bip", "bep",     "cfe",     "evd",  "trig",      "bad",
};

bool has(const Packet& packet, uint8_t flag) { return (packet.flags & flag) != 0; }

/// IPBytes, then the payload with '?' for the digits that come from the last ip.
void append_ip(TextBuffer& out, const Packet& packet) {
  out.dec(static_cast<uint64_t>(packet.ip_bytes));
  out.text(": ");
  unsigned digits = 16;
  uint64_t value = packet.value, last_ip = 0;
  switch (packet.ip_bytes) {
    case pt::IpBytes::suppressed:
      return out.fill(16, '?');
    case pt::IpBytes::update16:
      digits = 4;
      break;
    case pt::IpBytes::update32:
      digits = 8;
      break;
    case pt::IpBytes::update48:
      digits = 12;
      break;
    default:
      if (pt::decompress_ip(packet, last_ip)) value = last_ip;
  }
  out.fill(16 - digits, '?');
  out.hex_padded(value, digits, '0');
}

void append_branches(TextBuffer& out, const Packet& packet) {
  for (unsigned bit = packet.bits; bit-- != 0;) out.ch(((packet.value >> bit) & 1) != 0 ? '!' : '.');
}

/// "a, b" in hex.
void append_pair(TextBuffer& out, uint64_t a, uint64_t b) {
  out.hex(a);
  out.text(", ");
  out.hex(b);
}

void append_ip_flag(TextBuffer& out, const Packet& packet) {
  if (has(packet, pt::kFlagIp)) out.text(out.size() != 0 && out.view().back() != ' ' ? ", ip" : "ip");
}

/// The rarer packets: power, PEBS, events.
void append_rare(TextBuffer& out, const Packet& packet) {
  switch (packet.kind) {
    case PacketKind::ptw:
      out.dec(packet.bits);
      out.text(": ");
      out.hex_padded(packet.value, packet.bits * 2U, '0');
      return append_ip_flag(out, packet);
    case PacketKind::exstop:
    case PacketKind::bep:
      return append_ip_flag(out, packet);
    case PacketKind::mwait:
      return append_pair(out, packet.value, packet.aux);
    case PacketKind::pwre:
      out.ch('c');
      out.dec(pt::pwre_state(packet) + 1U);
      out.ch('.');
      out.dec(pt::pwre_sub_state(packet));
      return out.text(has(packet, pt::kFlagHw) ? ", hw" : "");
    case PacketKind::pwrx:
      append_pair(out, pt::pwrx_last(packet), pt::pwrx_deepest(packet));
      out.text(", wake ");
      return out.hex(packet.extra);
    case PacketKind::bbp:
      out.text("type ");
      out.hex(packet.extra);
      out.text(", items of ");
      return out.dec(packet.bits);
    case PacketKind::bip:
      out.text("id ");
      out.hex(packet.bits);
      out.text(": ");
      return out.hex_padded(packet.value, packet.extra * 2U, '0');
    case PacketKind::cfe:
      out.text("type ");
      out.hex(packet.bits);
      out.text(", vector ");
      out.dec(packet.extra);
      return append_ip_flag(out, packet);
    case PacketKind::evd:
      out.text("type ");
      out.hex(packet.bits);
      out.text(": ");
      return out.hex_padded(packet.value, 16, '0');
    case PacketKind::trig:
      out.text("vector ");
      out.hex(packet.extra);
      if (has(packet, pt::kFlagMult)) out.text(", mult");
      if (packet.bits != 0) {
        out.text(", icnt ");
        out.hex(packet.value);
      }
      return append_ip_flag(out, packet);
    default:
      return;
  }
}

}  // namespace

std::string_view short_name(PacketKind kind) { return kPacketNames[static_cast<size_t>(kind) % kPacketNames.size()]; }

void append_packet_name(TextBuffer& out, const Packet& packet) { out.left(short_name(packet.kind), 11); }

void append_packet_fields(TextBuffer& out, const Packet& packet) {
  switch (packet.kind) {
    case PacketKind::tnt_short:
    case PacketKind::tnt_long:
      return append_branches(out, packet);
    case PacketKind::tip:
    case PacketKind::tip_pge:
    case PacketKind::tip_pgd:
    case PacketKind::fup:
      return append_ip(out, packet);
    case PacketKind::mode_exec:
      if (has(packet, pt::kFlagCsL)) out.text("cs.l");
      if (has(packet, pt::kFlagCsD)) out.text("cs.d");
      return out.text(has(packet, pt::kFlagIf) ? ", if" : "");
    case PacketKind::mode_tsx:
      return out.text(has(packet, pt::kFlagInTx) ? "intx" : has(packet, pt::kFlagAbort) ? "abrt" : "");
    case PacketKind::pip:
      out.hex(packet.value);
      return out.text(has(packet, pt::kFlagNonRoot) ? ", nr" : "");
    case PacketKind::vmcs:
    case PacketKind::cbr:
    case PacketKind::tsc:
    case PacketKind::mtc:
    case PacketKind::cyc:
    case PacketKind::mnt:
      return out.hex(packet.value);
    case PacketKind::tma:
      return append_pair(out, packet.value, packet.aux);
    default:
      return append_rare(out, packet);
  }
}

}  // namespace ptd::cli
