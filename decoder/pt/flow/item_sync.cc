// ItemReader: the PSB+ with which a segment begins, and the one after its end.
#include <algorithm>

#include "decoder/pt/flow/item.h"

namespace ptd::pt {

// Reads the segment's PSB+. Returns false if zeroed trace cuts it short.
bool ItemReader::read_start() {
  Packet packet;
  uint64_t offset = reader_.offset();
  if (reader_.next(packet) != PacketReader::Status::ok || packet.kind != PacketKind::psb) {
    reader_.seek(offset);
    return true;
  }
  for (;;) {
    offset = reader_.offset();
    const PacketReader::Status status = offset < own_bytes_ ? reader_.next(packet) : PacketReader::Status::end;
    const bool in_zeros = zeros_.cuts(offset, reader_.offset());
    if (status != PacketReader::Status::ok || in_zeros) {
      reader_.seek(offset);
      return !in_zeros;
    }
    start_time_.add(packet);
    switch (packet.kind) {
      case PacketKind::psbend:
        if (start_.has_ip && config_.errata.bdm70 && is_off_at(reader_.offset())) start_.has_ip = false;
        return true;
      case PacketKind::fup:
        start_.has_ip = decompress_ip(packet, cursor_.last_ip);
        start_.ip = Ip{cursor_.last_ip};
        break;
      case PacketKind::mode_exec:
        start_.mode = exec_mode_of(packet);
        start_.interrupts = (packet.flags & kFlagIf) != 0;
        break;
      case PacketKind::mode_tsx:
        start_.in_tx = (packet.flags & kFlagInTx) != 0;
        break;
      case PacketKind::pip:
        start_.has_cr3 = true;
        start_.cr3 = packet.value;
        start_.non_root = (packet.flags & kFlagNonRoot) != 0;
        break;
      case PacketKind::ovf:  // [SDM] "Overflow": a PSB+ cut short by OVF ends without PSBEND
        start_.has_ip = false;
        on_ovf(offset);
        return true;
      case PacketKind::pad:
        break;
      case PacketKind::vmcs: {
        Item item;
        item.kind = ItemKind::now;
        item.event = EventKind::vmcs;
        item.value = packet.value;
        start_items_.push_back(item);
        break;
      }
      case PacketKind::tsc:
      case PacketKind::tma:
      case PacketKind::mtc:
      case PacketKind::cyc:
        pass_time(offset);
        break;
      case PacketKind::cbr:
        break;
      default:  // no PSBEND: not a PSB+ group; take the packet as ordinary flow
        reader_.seek(offset);
        return true;
    }
  }
}

// Reads a FUP after the PSB+ that belongs to an OVF before it ([SDM] "Compound Packet Event Summary"). Where the OVF is not known, a TNT
// shows that the FUP is not that of an asynchronous branch.
void ItemReader::read_fup_of_overflow() {
  PacketReader ahead = reader_;
  Packet packet;
  uint64_t offset = 0;
  const auto next = [&] {
    do {
      offset = ahead.offset();
      if (offset >= plain_end() || ahead.next(packet) != PacketReader::Status::ok || ahead.offset() > plain_end()) return false;
    } while (packet.kind == PacketKind::pad || (is_timing(packet.kind) && packet.kind != PacketKind::cbr));
    return true;
  };
  uint64_t ip = cursor_.last_ip;
  if (!next() || packet.kind != PacketKind::fup || !decompress_ip(packet, ip)) return;
  const uint64_t at = offset, after = ahead.offset();
  const bool is_other = start_.has_ip && start_.ip.value != ip;
  if (!segment_.after_overflow && (is_other || !next() || (packet.kind != PacketKind::tnt_short && packet.kind != PacketKind::tnt_long)))
    return;
  if (config_.errata.apl12 && is_off_at(after)) return;
  pass_time(at);
  reader_.seek(after);
  cursor_.last_ip = ip;
  start_.has_ip = true;
  start_.ip = Ip{ip};
}

// Returns whether the packets from `offset` on show that tracing is off, although a FUP precedes them (errata BDM70, APL12): TIP.PGE,
// TraceStop or a PSB+ without FUP comes before any packet that is written only while tracing is on.
bool ItemReader::is_off_at(uint64_t offset) const {
  PacketReader ahead = reader_;
  ahead.seek(offset);
  Packet packet;
  for (bool in_psb = false; ahead.next(packet) == PacketReader::Status::ok;) {
    switch (packet.kind) {
      case PacketKind::tip_pge:
      case PacketKind::trace_stop:
        return true;
      case PacketKind::psb:
        in_psb = true;
        break;
      case PacketKind::psbend:
        return in_psb;
      case PacketKind::tnt_short:
      case PacketKind::tnt_long:
      case PacketKind::tip:
      case PacketKind::tip_pgd:
      case PacketKind::fup:
      case PacketKind::ovf:
        return false;
      default:
        break;
    }
  }
  return false;
}

// Reads the PSB+ of the next segment, which ends this segment's flow.
void ItemReader::read_sync() {
  const uint64_t offset = reader_.offset();
  if (has_fup_ && !fup_optional_) return fail(fup_offset_);
  flush_tsx(offset);
  give_waiting();
  give_unbound();
  if (in_overflow_) end_overflow(false, 0);
  Packet packet;
  if (reader_.next(packet) != PacketReader::Status::ok || packet.kind != PacketKind::psb) {
    push(ItemKind::end, offset);
    return;
  }
  uint64_t ip = 0;
  bool has_ip = false;
  bool whole = false;
  PsbTime time;
  while (!whole && reader_.next(packet) == PacketReader::Status::ok && packet.kind != PacketKind::ovf) {
    if (packet.kind == PacketKind::fup) has_ip = decompress_ip(packet, ip);
    time.add(packet);
    whole = packet.kind == PacketKind::psbend;
  }
  if (is_before_start(time)) push(ItemKind::missing, offset);
  Item& item = push(ItemKind::sync, offset);
  item.ip = ip;
  if (!has_ip || !whole || !config_.has_flow) item.flags = kItemNoIp;
}

void PsbTime::add(const Packet& packet) {
  if (packet.kind == PacketKind::tsc && !is_known) {
    tsc = packet.value;
    is_known = true;
  }
  in_guest = in_guest || packet.kind == PacketKind::vmcs || (packet.kind == PacketKind::pip && (packet.flags & kFlagNonRoot) != 0);
}

// Returns whether the PSB+ after the segment was written before the segment's packets. If the TSC goes back by more than 2^32 ticks, it
// comes from another clock. Two PSBs with the same TSC are the same PSB if time passed between them, unless the clock is coarse. A TSC that
// contradicts the crystal clock is not compared. While tracing is off a thread may move to another processor, whose TSC may differ a
// little.
bool ItemReader::is_before_start(const PsbTime& after) const {
  constexpr uint64_t kTscMask = (uint64_t{1} << 56) - 1, kMostBack = uint64_t{1} << 32, kSkew = uint64_t{1} << 14;
  if (slack_ns_ == kTimeMax.value || !start_time_.is_known || !after.is_known || start_time_.in_guest || after.in_guest) return false;
  if (!segment_.tsc.use || !segment_.tail_tsc.use) return false;
  const uint64_t back = (start_time_.tsc - segment_.tsc.late_by - after.tsc + segment_.tail_tsc.late_by) & kTscMask;
  if (back != 0 || slack_ns_ != 0) return back > (segment_.cpu < 0 && !enabled_ ? kSkew : 0) && back < kMostBack;
  return ahead_.passed_end();
}

}  // namespace ptd::pt
