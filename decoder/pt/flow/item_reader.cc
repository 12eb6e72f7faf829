// ItemReader: converts packets to items. The rules for compounds of packets are only in this file.
#include <algorithm>
#include <bit>
#include <utility>

#include "decoder/pt/flow/item.h"
#include "decoder/pt/flow/mode_check.h"
#include "decoder/pt/flow/plain_packets.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kReleasedAtOnce = 8192;

bool is_branch(PacketKind kind) {
  using enum PacketKind;
  return kind == tnt_short || kind == tnt_long || kind == tip || kind == tip_pge || kind == tip_pgd;
}

}  // namespace

void ItemReader::begin(const AuxSegment& segment, const Config& config, uint64_t slack_ns) {
  segment_ = segment;
  config_ = config;
  reader_ = PacketReader(segment.bytes);
  reader_.set_errata(config.errata);
  ahead_.begin(segment, config, slack_ns);
  cursor_ = {};
  cursor_.now_first = segment.time.first;
  own_bytes_ = segment.bytes.size() - std::min<uint64_t>(segment.tail_bytes, segment.bytes.size());
  start_ = {};
  start_time_ = {};
  slack_ns_ = slack_ns;
  start_items_.clear();
  items_.clear();
  held_.clear();
  binding_.clear();
  waiting_.clear();
  base_ = 0;
  mode_ = ExecMode::unknown;
  zeros_ = find_zero_run(segment.bytes, 0, own_bytes_);
  done_ = ip_lost_ = has_fup_ = fup_optional_ = tsx_pending_ = in_overflow_ = false;
  const bool whole = read_start();
  if (!in_overflow_) read_fup_of_overflow();
  if (!config_.has_flow) start_.has_ip = false;
  cursor_.prompt();
  cursor_.left = cursor_.now;
  enabled_ = config_.has_flow && (start_.has_ip || !whole);
}

void ItemReader::release(uint64_t index) {
  if (index <= base_ + kReleasedAtOnce) return;
  const uint64_t drop = std::min<uint64_t>(index - base_, items_.size() - 1);
  items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(drop));
  base_ += drop;
}

Item& ItemReader::push(ItemKind kind, uint64_t offset) {
  Item& item = items_.emplace_back();
  item.kind = kind;
  item.offset_bytes = offset;
  cursor_.date(item);
  switch (kind) {
    case ItemKind::now:
    case ItemKind::at_insn:
      item.lo = cursor_.group_lo;
      break;
    case ItemKind::tnt:
      item.lo = cursor_.begin_group();
      break;  // the caller reports a full TNT with prompt() and leave_tnt()
    case ItemKind::tip:
      item.lo = cursor_.take_tip();
      cursor_.leave();
      break;
    default:
      item.lo = cursor_.emitted;
      cursor_.prompt();
      cursor_.leave();
      break;
  }
  item.hi = std::max(ahead_.next_last(), item.lo);
  return item;
}

void ItemReader::produce() {
  if (config_.has_flow && is_idle() && step_plain()) return;
  const size_t before = items_.size();
  while (!done_ && items_.size() == before) {
    if (!step()) done_ = true;
  }
  // Repeat the last item forever, so that reading past the end is harmless.
  if (items_.size() == before) {
    const Item again = items_.back();
    items_.push_back(again);
  }
}

// Returns whether the next packet is read without regard to those before it, except for its time and its ip.
bool ItemReader::is_idle() const {
  const bool open =
      has_fup_ || tsx_pending_ || in_overflow_ || mode_ != ExecMode::unknown || !held_.empty() || !binding_.empty() || !waiting_.empty();
  return !open && !done_ && !ip_lost_ && reader_.block_items() == 0;
}

bool ItemReader::plain(uint64_t index) const { return base_ + items_.size() <= index && enabled_ && is_idle(); }

// Reads TNT, TIP, TIP.PGE, TIP.PGD, PAD and timing packets up to the first item. Returns false at any other packet, which step() must read.
// Gives what step() gives.
bool ItemReader::step_plain() {
  const std::byte* data = segment_.bytes.data();
  const uint64_t end = plain_end();
  const auto next_point = [&] {
    const TimePoint* point = ahead_.next();
    return point != nullptr ? point->offset_bytes : kNoOffset;
  };
  uint64_t offset = reader_.offset(), point_offset = next_point();
  for (uint64_t next = offset; next < end; offset = next) {
    offset = next;
    if (point_offset <= offset) {
      const TimePoint point = *ahead_.next();
      if (point.offset_bytes == offset && point.end_bytes <= end) next = point.end_bytes;
      ahead_.pass(offset, cursor_.now_first, cursor_.now);
      point_offset = next_point();
      if (next != offset) continue;
    }
    const auto byte = static_cast<unsigned>(data[offset]);
    next = offset + 1;
    if (byte == 0) continue;
    if (is_short_tnt(byte)) {
      const auto bits = static_cast<uint32_t>(std::bit_width(byte)) - 2;
      push_tnt(offset, low_bits(byte >> 1, bits), bits);
    } else if (byte == 0x02 && end - offset >= kLongTntBytes && long_tnt(data + offset) != 0) {
      const uint64_t payload = long_tnt(data + offset);
      const auto bits = static_cast<uint32_t>(std::bit_width(payload)) - 1;
      next = offset + kLongTntBytes;
      push_tnt(offset, low_bits(payload, bits), bits);
    } else {
      next = push_branch(byte, offset, end);
      if (next == offset) break;
    }
    reader_.seek(next);
    return true;
  }
  reader_.seek(offset);
  return false;
}

// Reads the TIP, TIP.PGE or TIP.PGD at `offset`. Returns the offset after it, or `offset` if there is none that may be read.
uint64_t ItemReader::push_branch(unsigned byte, uint64_t offset, uint64_t end) {
  const unsigned opcode = byte & kIpOpcodeMask, form = byte >> 5;
  const bool is_tip = opcode == kTipOpcode, is_pge = opcode == kTipPgeOpcode;
  const uint64_t next = offset + 1 + kIpSize[form];
  if ((!is_tip && !is_pge && opcode != kTipPgdOpcode) || kIpSize[form] == 0) return offset;
  if (segment_.bytes.size() - offset < kWidestIp || next > end) return offset;
  const uint64_t last_ip = std::exchange(cursor_.last_ip, ip_of_tip(segment_.bytes.data() + offset, cursor_.last_ip));
  Item& item = push(is_tip ? ItemKind::tip : is_pge ? ItemKind::tip_pge : ItemKind::tip_pgd, offset);
  item.ip = cursor_.last_ip;
  if (is_tip && is_long_tip(form, item.ip, last_ip)) item.flags = kItemLongTip;
  if (!is_tip) enabled_ = is_pge;
  return next;
}

void ItemReader::push_tnt(uint64_t offset, uint64_t branches, uint32_t count) {
  Item& item = push(ItemKind::tnt, offset);
  item.bits = static_cast<uint8_t>(count);
  item.ip = branches;
  // A full TNT is written with its last branch. (Six branches may also be the rest of a long TNT.)
  if (count == kLongTntBits) cursor_.prompt();
  cursor_.leave_tnt(count);
}

void ItemReader::skip_to(const ItemCursor& cursor, uint64_t index, const Item* last) {
  cursor_ = cursor;
  reader_.seek(cursor.offset_bytes);
  items_.clear();
  base_ = index;
  if (last != nullptr) items_.push_back(*last);
}

// Binds a pending MODE.Exec to `item`.
void ItemReader::take_mode(Item& item) {
  item.mode = std::exchange(mode_, ExecMode::unknown);
  if (item.mode != ExecMode::unknown) item.flags |= interrupts_ ? kItemFlagKnown | kItemFlagOn : kItemFlagKnown;
}

// Updates the time from the timing packets up to `offset`.
void ItemReader::pass_time(uint64_t offset) {
  const TimePoint* point = ahead_.next();
  if (point != nullptr && point->offset_bytes <= offset) ahead_.pass(offset, cursor_.now_first, cursor_.now);
}

// Reads one packet. Returns false at the end of the segment.
bool ItemReader::step() {
  const uint64_t offset = reader_.offset();
  pass_time(offset);
  if (offset >= own_bytes_) {
    read_sync();
    return false;
  }
  Packet packet;
  const PacketReader::Status status = reader_.next(packet);
  if (zeros_.cuts(offset, reader_.offset())) {
    pass_zeros(offset);
    return true;
  }
  if (status == PacketReader::Status::end || (status == PacketReader::Status::cut && segment_.tail_bytes == 0)) {
    give_waiting();
    give_unbound();
    push(ItemKind::end, offset);
    return false;
  }
  if (status != PacketReader::Status::ok) {
    fail(offset);
    return false;
  }
  if (packet.kind == PacketKind::pad) return true;
  if (is_timing(packet.kind)) {
    if (packet.kind == PacketKind::cbr) {
      Item item;
      item.event = EventKind::cbr;
      item.value = packet.value;
      item.offset_bytes = offset;
      push_event(ItemKind::now, item);
    }
    return true;
  }
  if (packet.kind == PacketKind::psb) {  // a PSB+ inside the segment: a PSB at which the segment was not split
    reader_.seek(offset);
    read_sync();
    return false;
  }
  on_flow(packet, offset);
  return !done_;
}

// Skips zeroed trace that the packet at `offset` reaches into. At the end of a trace, it proves no loss.
void ItemReader::pass_zeros(uint64_t offset) {
  const ZeroRun run = zeros_;
  zeros_ = find_zero_run(segment_.bytes, run.last, own_bytes_);
  reader_.seek(run.last);
  if (run.last == own_bytes_ && segment_.tail_bytes == 0) return;
  reader_.seek(find_packet(segment_.bytes, run.last, own_bytes_, config_.errata));
  lose_packets();
  push_held();
  in_overflow_ = false;
  ip_lost_ = true;
  push(ItemKind::missing, offset).value = reader_.offset() - offset;
}

// Discards pending state whose other packets are lost. Pending events did happen, so they are output without a position.
void ItemReader::lose_packets() {
  has_fup_ = tsx_pending_ = false;
  mode_ = ExecMode::unknown;
  give_waiting();
  give_unbound();
}

// Same as decompress_ip(), for a packet of the flow. Also returns false if the ip depends on a lost one.
bool ItemReader::decompress(const Packet& packet) {
  const bool whole = packet.ip_bytes == IpBytes::sext48 || packet.ip_bytes == IpBytes::full64;
  if (ip_lost_ && !whole) return false;
  ip_lost_ = false;
  return decompress_ip(packet, cursor_.last_ip);
}

void ItemReader::fail(uint64_t offset) {
  push(ItemKind::bad, offset);
  done_ = true;
}

// Reads a packet of the flow where the trace has too few of them to follow it.
void ItemReader::skip_branch(const Packet& packet, uint64_t offset) {
  if (packet.kind != PacketKind::tnt_short && packet.kind != PacketKind::tnt_long) (void)decompress(packet);
  if (in_overflow_) end_overflow(false, 0);
  flush_tsx(offset);
  give_waiting();
  give_unbound();
  mode_ = ExecMode::unknown;
}

void ItemReader::on_flow(const Packet& packet, uint64_t offset) {
  if (!config_.has_flow && is_branch(packet.kind)) return skip_branch(packet, offset);
  switch (packet.kind) {
    case PacketKind::tnt_short:
    case PacketKind::tnt_long: {
      if (in_overflow_) end_overflow(false, 0);
      if (has_fup_ && !fup_optional_) return fail(offset);
      has_fup_ = false;
      flush_tsx(offset);
      give_waiting();
      give_unbound();
      return push_tnt(offset, packet.value, packet.bits);
    }
    case PacketKind::fup:
      return on_fup(packet, offset);
    case PacketKind::tip:
      return on_tip(packet, offset);
    case PacketKind::tip_pgd:
      return on_tip_pgd(packet, offset);
    case PacketKind::tip_pge:
      return on_tip_pge(packet, offset);
    case PacketKind::mode_exec:
      mode_ = exec_mode_of(packet);
      interrupts_ = (packet.flags & kFlagIf) != 0;
      return;
    case PacketKind::mode_tsx:
      tsx_pending_ = true;
      tsx_in_ = (packet.flags & kFlagInTx) != 0;
      tsx_abort_ = (packet.flags & kFlagAbort) != 0;
      return;
    case PacketKind::ovf:
      return on_ovf(offset);
    case PacketKind::psbend:
      return;  // a stray PSBEND does not affect the flow
    default:
      return on_event(packet, offset);
  }
}

// Outputs a MODE.TSX without a FUP: tracing was off, so it only gives the state.
void ItemReader::flush_tsx(uint64_t offset) {
  if (!tsx_pending_) return;
  tsx_pending_ = false;
  Item& item = push(ItemKind::now, offset);
  item.event = tsx_abort_ ? EventKind::tsx_abort : tsx_in_ ? EventKind::tsx_begin : EventKind::tsx_commit;
}

void ItemReader::on_fup(const Packet& packet, uint64_t offset) {
  const bool has_ip = decompress(packet);
  if (in_overflow_) {
    // Erratum APL12: outside the filter a FUP may follow OVF although tracing is off.
    enabled_ = has_ip && config_.has_flow && !(config_.errata.apl12 && is_off_at(reader_.offset()));
    end_overflow(enabled_, cursor_.last_ip);
    // Erratum SKD010: OVF's own FUP may be missing, so this one may belong to an event.
    if ((!enabled_ && config_.has_flow) || (!tsx_pending_ && binding_.empty())) return;
  }
  if (ip_lost_) return lose_packets();  // events bound to it have no position
  if ((has_fup_ && !fup_optional_) || !has_ip) return fail(offset);
  has_fup_ = false;
  bool bound = false;
  bool asynchronous = false;
  if (tsx_pending_) {
    tsx_pending_ = false;
    Item& item = push(ItemKind::at_ip, offset);
    item.event = tsx_abort_ ? EventKind::tsx_abort : tsx_in_ ? EventKind::tsx_begin : EventKind::tsx_commit;
    item.ip = cursor_.last_ip;
    bound = true;
    asynchronous = tsx_abort_;
  }
  if (mode_ != ExecMode::unknown) {  // [SDM] "MODE.Exec Packet": a change of the interrupt flag, or no change
    Item& item = push(ItemKind::at_ip, offset);
    item.event = EventKind::exec_mode;
    item.ip = cursor_.last_ip;
    take_mode(item);
    bound = true;
  }
  asynchronous |= bind_events(bound);
  if (!bound || asynchronous) {
    has_fup_ = config_.has_flow;
    fup_optional_ = bound;
    fup_ip_ = cursor_.last_ip;
    fup_offset_ = offset;
  }
}

Item& ItemReader::push_target(ItemKind bound, ItemKind alone, bool has_ip, uint64_t offset) {
  flush_tsx(offset);
  give_waiting(has_fup_ ? ItemKind::now : ItemKind::at_insn);
  give_unbound();
  Item& item = push(has_fup_ ? bound : alone, has_fup_ ? fup_offset_ : offset);
  item.ip = has_fup_ ? fup_ip_ : cursor_.last_ip;
  if (has_fup_) item.value = cursor_.last_ip;
  if (!has_ip) item.flags |= kItemNoIp;
  has_fup_ = false;
  return item;
}

void ItemReader::on_tip(const Packet& packet, uint64_t offset) {
  const uint64_t last_ip = cursor_.last_ip;
  const bool has_ip = decompress(packet);
  if (in_overflow_) {  // erratum SKD010: OVF's FUP is missing; the flow continues at the target
    enabled_ = has_ip && config_.errata.skd010;
    end_overflow(enabled_, cursor_.last_ip);
    if (enabled_) return;
  }
  const bool is_alone = !has_fup_;
  Item& item = push_target(ItemKind::async_branch, ItemKind::tip, has_ip, offset);
  if (is_alone && is_long_tip(static_cast<unsigned>(packet.ip_bytes), item.ip, last_ip)) item.flags |= kItemLongTip;
  take_mode(item);
  push_held();
}

void ItemReader::on_tip_pgd(const Packet& packet, uint64_t offset) {
  const bool has_ip = decompress(packet);
  if (in_overflow_) {
    end_overflow(false, 0);
    if (!config_.errata.apl11) return fail(offset);
  }
  push_target(ItemKind::async_disabled, ItemKind::tip_pgd, has_ip, offset);
  enabled_ = false;
  mode_ = ExecMode::unknown;
  push_held();
}

void ItemReader::on_tip_pge(const Packet& packet, uint64_t offset) {
  const bool has_ip = decompress(packet);
  if (in_overflow_) end_overflow(false, 0);
  if (has_fup_ && !fup_optional_) return fail(offset);
  has_fup_ = false;
  flush_tsx(offset);
  give_waiting();
  give_unbound();
  if (ip_lost_) {
    enabled_ = true;
    push(ItemKind::missing, offset);
  }
  if (!has_ip) return;  // without an ip the flow cannot be followed
  Item& item = push(ItemKind::tip_pge, offset);
  item.ip = cursor_.last_ip;
  take_mode(item);
  enabled_ = true;
  push_held();
}

void ItemReader::on_ovf(uint64_t offset) {
  lose_packets();
  if (in_overflow_) return;
  push_held();
  in_overflow_ = true;
  overflow_offset_ = offset;
}

void ItemReader::end_overflow(bool has_ip, uint64_t ip) {
  in_overflow_ = false;
  Item& item = push(ItemKind::overflow, overflow_offset_);
  item.ip = ip;
  if (has_ip) {
    take_mode(item);
  } else {
    item.flags = kItemNoIp;
  }
  push_held();
}

}  // namespace ptd::pt
