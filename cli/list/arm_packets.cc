// Arm packets: see arm_packets.h.
#include "cli/list/arm_packets.h"

#include <algorithm>

#include "decoder/arm/packet/legacy_packets.h"

namespace ptd::cli {

namespace {

constexpr size_t kFieldsColumn = 48;
constexpr size_t kNameColumn = 20;
constexpr uint64_t kMaxShownBytes = 24;

void hex(TextBuffer& out, const char* label, uint64_t value) {
  out.text(label);
  out.text("0x");
  out.hex(value);
}

void append_context(TextBuffer& out, const arm::PacketContext& context) {
  if (!context.present) return out.text(" unchanged");
  out.text(" EL");
  out.dec(context.level);
  out.text(context.root_or_realm ? (context.non_secure ? " realm" : " root") : context.non_secure ? " NS" : " S");
  out.text(context.is64 ? " AArch64" : " AArch32");
  if (context.has_context_id) hex(out, " context ", context.context_id);
  if (context.has_vmid) hex(out, " vmid ", context.vmid);
}

void append_atoms(TextBuffer& out, uint64_t atoms, unsigned count) {
  for (unsigned i = 0; i < count; ++i) out.ch((atoms >> i & 1) != 0 ? 'E' : 'N');
}

void append_cycles(TextBuffer& out, const arm::Packet& packet) {
  if ((packet.flags & arm::kFlagCycles) == 0) return;
  out.text(" cycles ");
  out.dec(packet.cycles);
}

bool is_legacy(const arm::TraceConfig& config) { return config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete; }

void append_legacy_fields(TextBuffer& out, const arm::LegacyPacket& packet, arm::Protocol protocol) {
  switch (packet.kind) {
    case arm::LegacyKind::isync:
    case arm::LegacyKind::branch:
    case arm::LegacyKind::waypoint:
      if (packet.has_ip) hex(out, "", packet.ip.value);
      if (packet.mode == ExecMode::t32) out.text(" T32");
      if (packet.exception) hex(out, " exception ", packet.number);
      if (packet.cancels) out.text(" cancels");
      break;
    case arm::LegacyKind::atoms:
      append_atoms(out, packet.bits, packet.atoms);
      break;
    case arm::LegacyKind::context_id:
      hex(out, "", packet.context_id);
      break;
    case arm::LegacyKind::vmid:
      hex(out, "", packet.vmid);
      break;
    case arm::LegacyKind::timestamp:
      hex(out, "", packet.value);
      break;
    case arm::LegacyKind::data:
      if (protocol == arm::Protocol::stm) hex(out, "master ", packet.master);
      if (protocol != arm::Protocol::stm && protocol != arm::Protocol::itm) break;
      hex(out, protocol == arm::Protocol::stm ? " channel " : "port ", packet.channel);
      hex(out, " value ", packet.value);
      break;
    default:
      break;
  }
  if (packet.has_timestamp) hex(out, " time ", packet.timestamp);
  if (packet.has_cycles) {
    out.text(" cycles ");
    out.dec(packet.cycles);
  }
}

uint64_t list_legacy_segment(const Recording& recording, uint32_t stream, const AuxSegment& segment, TextBuffer& out) {
  const arm::TraceConfig& config = *recording.arm_config(stream);
  arm::LegacyReader reader(segment.bytes, config);
  uint64_t bad = 0;
  for (const auto* packets = &reader.next(); !packets->empty(); packets = &reader.next()) {
    for (const arm::LegacyPacket& packet : *packets) {
      const size_t start = out.size();
      bad += packet.kind == arm::LegacyKind::bad ? 1 : 0;
      out.hex_padded(recording.buffer_offset(stream, segment.stream_offset_bytes + packet.offset_bytes), 16, '0');
      out.text("  ");
      out.left(packet.name, kNameColumn);
      append_legacy_fields(out, packet, config.protocol);
      while (out.size() > start && out.view().back() == ' ') out.truncate(out.size() - 1);
      out.ch('\n');
    }
  }
  return bad;
}

}  // namespace

void append_arm_fields(TextBuffer& out, const arm::Packet& packet) {
  using enum arm::PacketKind;
  if (arm::is_atom(packet.kind)) return append_atoms(out, packet.value, packet.bits);
  if (arm::is_address(packet.kind) || arm::is_source_address(packet.kind)) {
    hex(out, "", packet.value);
    if (packet.isa != 0) out.text(" IS1");
    if (arm::is_address_context(packet.kind)) append_context(out, packet.context);
    return;
  }
  switch (packet.kind) {
    case ctxt:
      return append_context(out, packet.context);
    case except:
    case pe_reset:
    case trans_fail:
      hex(out, "type ", packet.extra);
      if (packet.aux == 1) out.text(" return address follows");
      if (packet.aux == 2) out.text(" return address follows, it is a target too");
      return;
    case trace_info:
      hex(out, "info ", packet.value);
      if ((packet.flags & arm::kFlagSpeculation) != 0) hex(out, " speculation ", packet.extra);
      if (packet.cycles != 0) hex(out, " threshold ", packet.cycles);
      return;
    case timestamp:
      hex(out, "", packet.value);
      return append_cycles(out, packet);
    case ccnt_f1:
    case ccnt_f2:
    case ccnt_f3:
      append_cycles(out, packet);
      if ((packet.flags & arm::kFlagCommit) != 0) hex(out, " commit ", packet.value);
      return;
    case commit:
    case cancel_f1:
    case cancel_f1_mispred:
    case cancel_f2:
    case cancel_f3:
    case mispredict:
      out.dec(packet.value);
      out.ch(' ');
      return append_atoms(out, packet.aux, packet.bits);
    case q:
      if ((packet.flags & arm::kFlagCount) != 0) hex(out, "instructions ", packet.aux);
      if ((packet.flags & arm::kFlagAddress) != 0) hex(out, " next ", packet.value);
      return;
    case ite:
      hex(out, "value ", packet.value);
      return hex(out, " level ", packet.bits);
    case event:
    case num_ds_mkr:
    case unnum_ds_mkr:
    case cond_i_f1:
    case cond_i_f3:
    case cond_res_f1:
    case cond_res_f3:
      return hex(out, "", packet.value);
    default:
      return;
  }
}

uint64_t list_arm_segment(const Recording& recording, uint32_t stream, const AuxSegment& segment, bool plain, TextBuffer& out) {
  if (is_legacy(*recording.arm_config(stream))) return list_legacy_segment(recording, stream, segment, out);
  uint64_t bad = 0;
  arm::PacketReader reader(segment.bytes, *recording.arm_config(stream));
  arm::Packet packet;
  while (true) {
    const uint64_t at = reader.offset();
    const arm::PacketReader::Status status = reader.next(packet);
    if (status == arm::PacketReader::Status::end) return bad;
    const size_t start = out.size();
    out.hex_padded(recording.buffer_offset(stream, segment.stream_offset_bytes + at), 16, '0');
    out.text("  ");
    out.left(arm::name(packet.kind), kNameColumn);
    const size_t fields = out.size();
    uint64_t size = packet.size_bytes;
    if (status == arm::PacketReader::Status::ok) {
      append_arm_fields(out, packet);
    } else {
      ++bad;
      const bool cut = status == arm::PacketReader::Status::cut;
      size = cut ? segment.bytes.size() - at : 1;
      out.text(cut ? "cut by the end of the trace" : "no packet of this configuration");
      reader.seek(at + size);
    }
    if (!plain) {
      if (out.size() - fields < kFieldsColumn) out.fill(kFieldsColumn - (out.size() - fields));
      out.text(" |");
      for (const std::byte byte : segment.bytes.subspan(at, std::min(size, kMaxShownBytes))) {
        out.ch(' ');
        out.hex_padded(static_cast<uint64_t>(byte), 2, '0');
      }
    }
    while (out.size() > start && out.view().back() == ' ') out.truncate(out.size() - 1);
    out.ch('\n');
  }
}

void count_arm_packets(const arm::TraceConfig& config, const AuxSegment& segment,
                       const std::function<void(const char* name, uint64_t bad_bytes)>& on_packet) {
  if (is_legacy(config)) {
    arm::LegacyReader legacy(segment.bytes, config);
    for (const auto* packets = &legacy.next(); !packets->empty(); packets = &legacy.next()) {
      for (const arm::LegacyPacket& packet : *packets) on_packet(packet.name, 0);
    }
    return;
  }
  arm::PacketReader reader(segment.bytes, config);
  arm::Packet packet;
  while (true) {
    const uint64_t at = reader.offset();
    const arm::PacketReader::Status status = reader.next(packet);
    if (status == arm::PacketReader::Status::ok) {
      on_packet(arm::name(packet.kind), 0);
      continue;
    }
    if (status == arm::PacketReader::Status::end) return;
    const uint64_t next = status == arm::PacketReader::Status::cut ? segment.bytes.size() : arm::find_async(segment.bytes, at + 1);
    on_packet(arm::name(arm::PacketKind::bad), std::min<uint64_t>(next, segment.bytes.size()) - at);
    if (next >= segment.bytes.size()) return;
    reader.seek(next);
  }
}

}  // namespace ptd::cli
