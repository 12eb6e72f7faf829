// Packet reader: frequent kinds have hand-written code, the others use the fields of the table.
#include "ptdecode/pt/packet_reader.h"

#include <bit>
#include <cstring>

#include "decoder/pt/packet/packet_table.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kMaxCycBytes = 10;  // 5 + 8 * 7 + 3 bits
constexpr std::byte kOvf[] = {std::byte{0x02}, std::byte{0xf3}};
constexpr uint8_t kOvfBytes = 2;
constexpr uint8_t kPsbFirst = 0x02;
constexpr uint8_t kPsbSecond = 0x82;

uint8_t byte_at(const std::byte* p) { return static_cast<uint8_t>(*p); }

/// Loads little-endian bytes, at most eight, and reads none past `size`.
uint64_t load_le(const std::byte* p, unsigned size) {
  uint64_t value = 0;
  std::memcpy(&value, p, size);
  return value;
}

/// Loads an ip payload. Constant sizes compile to single loads; a variable size would be a call of memcpy.
uint64_t load_ip(const std::byte* p, unsigned size) {
  switch (size) {
    case 2:
      return load_le(p, 2);
    case 4:
      return load_le(p, 4);
    case 6:
      return load_le(p, 6);
    case 8:
      return load_le(p, 8);
    default:
      return 0;
  }
}

/// Returns whether a packet of this kind leaves a block of items open.
constexpr bool stands_in_block(PacketKind kind) {
  using enum PacketKind;
  switch (kind) {
    case pad:
    case tsc:
    case tma:
    case mtc:
    case cyc:
    case cbr:
    case fup:
    case mnt:
    case exstop:
    case pwre:
    case pwrx:
    case bbp:
    case bip:
    case trig:
    case bad:
      return true;
    default:
      return false;
  }
}

bool pair_at(const std::byte* p) { return byte_at(p) == kPsbFirst && byte_at(p + 1) == kPsbSecond; }

}  // namespace

uint64_t find_psb(Bytes bytes, uint64_t from) {
  const std::byte* data = bytes.data();
  const uint64_t size = bytes.size();
  if (from > size) return size;
  // A PSB that begins in [at, at + 15] covers at + 15, so probing one byte in sixteen is enough.
  for (uint64_t at = from; size - at >= kPsbBytes;) {
    const uint64_t probe = at + kPsbBytes - 1;
    const uint8_t seen = byte_at(data + probe);
    if (seen != kPsbFirst && seen != kPsbSecond) {
      at = probe + 1;
      continue;
    }
    uint64_t begin = seen == kPsbFirst ? probe : probe - 1;  // of the run of pairs around the probe
    if (begin + 2 > size || !pair_at(data + begin)) {
      at = probe + 1;
      continue;
    }
    uint64_t end = begin + 2;
    while (begin >= at + 2 && pair_at(data + begin - 2)) begin -= 2;
    while (end + 2 <= size && pair_at(data + end)) end += 2;
    if (end - begin >= kPsbBytes) return end - kPsbBytes;
    at = end;
  }
  return size;
}

PacketReader::Status PacketReader::next(Packet& packet) {
  packet = Packet{};
  const uint64_t size = bytes_.size();
  if (offset_ >= size) return Status::end;
  const uint64_t left = size - offset_;
  const std::byte* p = bytes_.data() + offset_;
  const unsigned first = byte_at(p);
  if (block_items_ != 0) return slow(packet, left);

  const Lead lead = kDispatch.lead[first];
  switch (lead) {
    case Lead::tnt_short: {
      const unsigned stop = static_cast<unsigned>(std::bit_width(first)) - 1;  // 2..7
      packet.kind = PacketKind::tnt_short;
      packet.size_bytes = 1;
      packet.bits = static_cast<uint8_t>(stop - 1);
      packet.value = (first ^ (1U << stop)) >> 1;
      offset_ += 1;
      return Status::ok;
    }
    case Lead::pad:
      packet.kind = PacketKind::pad;
      packet.size_bytes = 1;
      offset_ += 1;
      return Status::ok;
    case Lead::ip_tip:
    case Lead::ip_pge:
    case Lead::ip_pgd:
    case Lead::ip_fup: {
      const unsigned payload = kDispatch.ip_size[first >> 5];
      if (payload == kNoForm) return Status::bad_packet;
      if (left < payload + 1) return Status::cut;
      constexpr auto kFirstIp = static_cast<unsigned>(Lead::ip_tip);
      packet.kind = static_cast<PacketKind>(static_cast<unsigned>(PacketKind::tip) + static_cast<unsigned>(lead) - kFirstIp);
      packet.size_bytes = static_cast<uint8_t>(payload + 1);
      packet.ip_bytes = static_cast<IpBytes>(first >> 5);
      // Sizes vary without a pattern: if eight bytes may be read, a mask avoids a branch on the size.
      packet.value = left > 8 ? load_le(p + 1, 8) & kIpMask[first >> 5] : load_ip(p + 1, payload);
      offset_ += payload + 1;
      return Status::ok;
    }
    case Lead::mtc:
      if (left < 2) return Status::cut;
      packet.kind = PacketKind::mtc;
      packet.size_bytes = 2;
      packet.value = byte_at(p + 1);
      offset_ += 2;
      return Status::ok;
    case Lead::cyc:
      if ((first & 4) == 0) {
        packet.kind = PacketKind::cyc;
        packet.size_bytes = 1;
        packet.value = first >> 3;
        offset_ += 1;
        return Status::ok;
      }
      return take_cyc(packet, left);
    default:
      return slow(packet, left);
  }
}

PacketReader::Status PacketReader::slow(Packet& packet, uint64_t left) {
  const std::byte* p = bytes_.data() + offset_;
  const unsigned first = byte_at(p);
  Status status = Status::bad_packet;
  if (block_items_ != 0 && (first & 7) == 4) {
    status = take_block_item(packet, left);
  } else {
    switch (kDispatch.lead[first]) {
      case Lead::bad:
        break;
      case Lead::form:
        status = fixed(kDispatch.form_of_first[first], packet, left);
        break;
      case Lead::mode:
        status = left < 2 ? Status::cut : fixed(kDispatch.form_of_mode[byte_at(p + 1)], packet, left);
        break;
      case Lead::escape:
        status = left < 2 ? Status::cut : fixed(kDispatch.form_of_escape[byte_at(p + 1)], packet, left);
        break;
      default: {  // the frequent kinds, inside a block
        PacketReader outside = *this;
        outside.block_items_ = 0;
        status = outside.next(packet);
        offset_ = outside.offset_;
        break;
      }
    }
  }
  if (status != Status::ok) {
    packet = Packet{};
  } else if (packet.kind == PacketKind::bbp) {
    block_items_ = packet.bits;
  } else if (!stands_in_block(packet.kind)) {
    block_items_ = 0;
  }
  return status;
}

PacketReader::Status PacketReader::fixed(unsigned index, Packet& packet, uint64_t left) {
  if (index == kNoForm) return Status::bad_packet;
  const auto forms = packet_forms();
  const std::byte* p = bytes_.data() + offset_;
  // Forms of one kind are adjacent and differ in the second byte (TRIG) or in the third (BBP).
  for (; index < forms.size(); ++index) {
    const PacketForm& form = forms[index];
    if (byte_at(p) != form.first) break;
    if (form.second_mask != 0) {
      if (left < 2) return Status::cut;
      if ((byte_at(p + 1) & form.second_mask) != form.second) continue;
    }
    if (form.layout == Layout::psb) return take_psb(packet, left);
    if (form.layout == Layout::tnt_long) return take_tnt_long(packet, left);
    if (form.third_mask != 0) {
      if (left < 3) return Status::cut;
      if ((byte_at(p + 2) & form.third_mask) != form.third) continue;
    }
    if (left < form.size_bytes) return Status::cut;
    if (skip_corrupt_tma_ && form.kind == PacketKind::tma && (byte_at(p + 4) != 0 || (byte_at(p + 6) & 0xfe) != 0)) {
      if (left <= form.size_bytes) return Status::cut;
      packet.kind = PacketKind::pad;
      packet.size_bytes = static_cast<uint8_t>(form.size_bytes + 1);
      offset_ += packet.size_bytes;
      return Status::ok;
    }
    if (!decode_fields(form, p, packet)) return Status::bad_packet;
    offset_ += form.size_bytes;
    return Status::ok;
  }
  return Status::bad_packet;
}

PacketReader::Status PacketReader::take_psb(Packet& packet, uint64_t left) {
  const std::byte* p = bytes_.data() + offset_;
  const uint64_t have = left < kPsbBytes ? left : kPsbBytes;
  for (uint64_t i = 0; i < have; ++i) {
    if (byte_at(p + i) != (i % 2 == 0 ? kPsbFirst : kPsbSecond)) return Status::bad_packet;
  }
  if (have < kPsbBytes) return Status::cut;
  packet.kind = PacketKind::psb;
  packet.size_bytes = kPsbBytes;
  offset_ += kPsbBytes;
  return Status::ok;
}

PacketReader::Status PacketReader::take_tnt_long(Packet& packet, uint64_t left) {
  if (left < 8) return Status::cut;
  const uint64_t payload = load_le(bytes_.data() + offset_ + 2, 6);
  if (payload <= 1) return Status::bad_packet;  // no stop bit, or no branch above it
  const auto stop = static_cast<unsigned>(std::bit_width(payload)) - 1;
  packet.kind = PacketKind::tnt_long;
  packet.size_bytes = 8;
  packet.bits = static_cast<uint8_t>(stop);
  packet.value = payload ^ (uint64_t{1} << stop);
  offset_ += 8;
  return Status::ok;
}

PacketReader::Status PacketReader::take_cyc(Packet& packet, uint64_t left) {
  const std::byte* p = bytes_.data() + offset_;
  if (ovf_in_cyc_ && left > kOvfBytes && p[1] == kOvf[0] && p[2] == kOvf[1]) {
    packet.kind = PacketKind::ovf;
    packet.size_bytes = 1 + kOvfBytes;
    offset_ += packet.size_bytes;
    return Status::ok;
  }
  uint64_t value = byte_at(p) >> 3;
  bool more = (byte_at(p) & 4) != 0;
  uint64_t size = 1;
  for (unsigned shift = 5; more; shift += 7) {
    if (size >= kMaxCycBytes) return Status::bad_packet;
    if (size >= left) return Status::cut;
    const uint64_t byte = byte_at(p + size++);
    const uint64_t bits = byte >> 1;
    if ((bits << shift) >> shift != bits) return Status::bad_packet;
    value |= bits << shift;
    more = (byte & 1) != 0;
  }
  packet.kind = PacketKind::cyc;
  packet.size_bytes = static_cast<uint8_t>(size);
  packet.value = value;
  offset_ += size;
  return Status::ok;
}

PacketReader::Status PacketReader::take_block_item(Packet& packet, uint64_t left) {
  const unsigned payload = block_items_;
  if (left < payload + 1) return Status::cut;
  const std::byte* p = bytes_.data() + offset_;
  packet.kind = PacketKind::bip;
  packet.size_bytes = static_cast<uint8_t>(payload + 1);
  packet.bits = static_cast<uint8_t>(byte_at(p) >> 3);
  packet.extra = static_cast<uint8_t>(payload);
  packet.value = load_ip(p + 1, payload);
  offset_ += payload + 1;
  return Status::ok;
}

}  // namespace ptd::pt
