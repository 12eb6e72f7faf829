// TimeAhead: a second, quick pass over a segment's packets that stops at those which tell time.
#include "decoder/pt/time_ahead.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/pt/plain_packets.h"

namespace ptd::pt {
namespace {

constexpr size_t kDropAtOnce = 4096;
constexpr std::byte kMtc{0x59};

TimeNs minus(TimeNs t, uint64_t slack) { return TimeNs{t.value > slack ? t.value - slack : 0}; }
TimeNs plus(TimeNs t, uint64_t slack) { return TimeNs{t.value > kTimeMax.value - slack ? kTimeMax.value : t.value + slack}; }

/// Bit 8k+7 set for each of the eight bytes that is no short TNT: odd, 00 or 02.
uint64_t other_bytes(uint64_t word) {
  constexpr uint64_t kHigh = 0x8080808080808080ULL;
  const uint64_t odd = word << 7;                                           // bit 0 of each byte
  const uint64_t large = ((word & ~kHigh) + 0x7d7d7d7d7d7d7d7dULL) | word;  // bit 7: the byte is 3 or more
  return (odd | ~large) & kHigh;
}

}  // namespace

uint64_t skip_tnt(Bytes bytes, uint64_t at, uint64_t end) {
  const std::byte* data = bytes.data();
  while (end - at >= 8) {
    uint64_t word;
    std::memcpy(&word, data + at, 8);
    const uint64_t other = other_bytes(word);
    if (other != 0) return at + static_cast<uint64_t>(std::countr_zero(other)) / 8;
    at += 8;
  }
  while (at < end && is_short_tnt(static_cast<unsigned>(data[at]))) ++at;
  return at;
}

uint64_t skip_plain(Bytes bytes, uint64_t at, uint64_t end) {
  constexpr uint8_t kTipBytes[8] = {1, 3, 5, 7, 7, 0, 9, 0};  // by IPBytes; 0: reserved
  const std::byte* data = bytes.data();
  for (;;) {
    while (end - at >= kLongTntBytes && long_tnt(data + at) != 0) at += kLongTntBytes;
    at = skip_tnt(bytes, at, end);
    if (at >= end) return at;
    const auto byte = static_cast<unsigned>(data[at]);
    if (byte == 0) {
      ++at;
      continue;
    }
    if (byte == 0x02 && end - at >= kLongTntBytes && long_tnt(data + at) != 0) continue;
    const uint64_t size = (byte & kIpOpcodeMask) == kTipOpcode ? kTipBytes[byte >> 5] : 0;
    if (size == 0 || end - at < size) return at;
    at += size;
  }
}

bool is_ovf_in_cyc(Bytes segment, uint64_t offset) {
  const Bytes bytes = segment.subspan(offset);
  if (bytes.size() < 3 || bytes[1] != std::byte{0x02} || bytes[2] != std::byte{0xf3}) return false;
  PacketReader ahead(segment, offset + 1);
  Packet packet;
  while (ahead.next(packet) == PacketReader::Status::ok) {
    if (packet.kind == PacketKind::ovf || packet.kind == PacketKind::pad || is_timing(packet.kind)) continue;
    return packet.kind == PacketKind::fup || packet.kind == PacketKind::tip_pge;
  }
  return false;
}

void TimeAhead::begin(const AuxSegment& segment, const Config& config, uint64_t slack_ns) {
  segment_ = segment;
  config_ = config;
  slack_ns_ = slack_ns;
  reader_ = PacketReader(segment.bytes);
  reader_.set_skip_corrupt_tma(config.errata.skz84);
  clock_ = PtClock(config);
  own_bytes_ = segment.bytes.size() - std::min<uint64_t>(segment.tail_bytes, segment.bytes.size());
  window_ = 0;
  first_ = segment.time.first;
  last_ = end_ = segment.time.last;
  points_.clear();
  head_ = bound_ = 0;
  dropped_ = 0;
  kept_ = ~uint64_t{0};
  in_start_ = true;
  done_ = false;
}

void TimeAhead::add(uint64_t offset, uint64_t end, bool bounds) {
  if (bounds) {
    const Interval told = config_.time.to_interval(clock_.earliest(), clock_.latest());
    first_ = std::max({first_, minus(told.first, slack_ns_), segment_.time.first});
    last_ = std::max(std::min(plus(told.last, slack_ns_), segment_.time.last), first_);
    window_ = end;
  }
  points_.push_back({offset, end, first_, last_, clock_.cycles(), bounds});
}

// Goes on to the next point. False: there is none.
bool TimeAhead::scan() {
  if (head_ >= kDropAtOnce) drop_passed();
  const size_t before = points_.size();
  while (!done_ && points_.size() == before) {
    if (reader_.block_items() == 0 && !in_start_)
      reader_.seek(skip_plain(segment_.bytes, reader_.offset(), std::max(own_bytes_, reader_.offset())));
    if (!scan_packet()) done_ = true;
    if (reader_.offset() - window_ >= kMaxAheadBytes) {
      window_ = reader_.offset();
      points_.push_back({window_, window_, first_, std::max(end_, first_), clock_.cycles(), true});
    }
  }
  return points_.size() != before;
}

// Reads one packet. False at the end.
bool TimeAhead::scan_packet() {
  const uint64_t offset = reader_.offset();
  if (offset >= own_bytes_) {
    scan_tail();
    return false;
  }
  Packet packet;
  if (reader_.block_items() == 0 && segment_.bytes[offset] == kMtc && own_bytes_ - offset >= 2) {  // by far the most: without the reader
    packet.kind = PacketKind::mtc;
    packet.value = static_cast<uint64_t>(segment_.bytes[offset + 1]);
    reader_.seek(offset + 2);
  } else if (reader_.next(packet) != PacketReader::Status::ok) {
    return false;
  }
  switch (packet.kind) {
    case PacketKind::psb:
      if (in_start_ && offset == 0) return true;
      reader_.seek(offset);
      scan_tail();
      return false;
    case PacketKind::cbr:
      clock_.on_packet(packet, offset);
      return true;
    case PacketKind::cyc:
      if (config_.errata.skd007 && is_ovf_in_cyc(segment_.bytes, offset)) {
        reader_.seek(offset + 1);
        return true;
      }
      [[fallthrough]];
    case PacketKind::tsc:
    case PacketKind::tma:
    case PacketKind::mtc: {
      const bool told = clock_.on_packet(packet, offset) && clock_.known();
      add(offset, reader_.offset(), told);
      return true;
    }
    case PacketKind::ovf:  // [SDM] "Overflow": one inside PSB+ ends it
      if (!in_start_) clock_.on_packet(packet, offset);
      in_start_ = false;
      return true;
    case PacketKind::pad:
    case PacketKind::fup:
    case PacketKind::mode_exec:
    case PacketKind::mode_tsx:
    case PacketKind::pip:
    case PacketKind::vmcs:
      return true;
    default:
      in_start_ = false;
      return true;
  }
}

// The PSB+ of the next segment bounds what stands before it.
void TimeAhead::scan_tail() {
  Packet packet;
  if (reader_.next(packet) != PacketReader::Status::ok || packet.kind != PacketKind::psb) return;
  for (;;) {
    const uint64_t offset = reader_.offset();
    if (reader_.next(packet) != PacketReader::Status::ok || packet.kind == PacketKind::psbend || packet.kind == PacketKind::ovf) return;
    if (packet.kind == PacketKind::tsc && clock_.on_packet(packet, offset) && clock_.known()) add(offset, reader_.offset(), true);
  }
}

bool TimeAhead::pass(uint64_t offset, TimeNs& first, uint64_t& cycles) {
  bool told = false;
  while (next() != nullptr && points_[head_].offset_bytes <= offset) {
    const TimePoint& point = points_[head_++];
    cycles = point.cycles;
    if (!point.bounds) continue;
    told = true;
    first = point.first;
  }
  return told;
}

void TimeAhead::drop_passed() {
  const size_t drop = static_cast<size_t>(std::min<uint64_t>(dropped_ + head_, std::max(kept_, dropped_)) - dropped_);
  if (drop < kDropAtOnce) return;
  points_.erase(points_.begin(), points_.begin() + static_cast<std::ptrdiff_t>(drop));
  head_ -= drop;
  bound_ -= std::min(bound_, drop);
  dropped_ += drop;
}

}  // namespace ptd::pt
