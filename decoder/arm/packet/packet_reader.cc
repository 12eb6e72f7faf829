// PacketReader: one function per layout.
#include "ptdecode/arm/packet_reader.h"

#include <algorithm>

namespace ptd::arm {
namespace {

constexpr unsigned kMaxNumberBytes = 5;
constexpr unsigned kMaxSectionBytes = 10;  // of a section of a trace info packet; longer ones, which no trace unit writes, are bad

constexpr uint64_t low_mask(unsigned bits) { return bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1; }

/// Atoms in the low two bits of a mispredict or cancel header: none, E, EE, N.
void atoms_before(uint8_t header, Packet& packet) {
  constexpr uint8_t kCount[4] = {0, 1, 2, 1};
  constexpr uint8_t kAtoms[4] = {0, 1, 3, 0};
  packet.bits = kCount[header & 3];
  packet.aux = kAtoms[header & 3];
}

}  // namespace

// Finds an A-Sync by probing one byte in eleven.
uint64_t find_async(Bytes bytes, uint64_t from) {
  constexpr uint64_t kZeros = kAsyncBytes - 1;
  constexpr std::byte kZero{0};
  for (uint64_t at = from + kZeros - 1; at < bytes.size();) {
    uint64_t begin = at, end = at;
    if (bytes[at] == kZero) {
      while (begin > from && bytes[begin - 1] == kZero) --begin;
      while (end < bytes.size() && bytes[end] == kZero) ++end;
      if (end < bytes.size() && bytes[end] == std::byte{0x80} && end - begin >= kZeros) return end - kZeros;
    }
    at = end + kZeros;
  }
  return bytes.size();
}

PacketReader::PacketReader(Bytes bytes, const TraceConfig& config)
    : bytes_(bytes),
      dispatch_(&dispatch_of(config)),
      config_(config),
      vmid_bytes_(config.vmid_bytes()),
      context_id_bytes_(config.context_id_bytes()),
      cycle_mask_(config.cycle_mask()) {}

void PacketReader::restart(Bytes bytes) {
  bytes_ = bytes;
  offset_ = 0;
  reset();
}

void PacketReader::reset() {
  last_ = {};
  is64_ = false;
  timestamp_ = 0;
  cycle_threshold_ = 0;
  dispatch_ = &dispatch_of(config_);
}

bool PacketReader::byte(uint8_t& value) {
  if (at_ >= bytes_.size()) return false;
  value = static_cast<uint8_t>(bytes_[at_++]);
  return true;
}

bool PacketReader::number(unsigned most_bytes, uint64_t& value) {
  value = 0;
  for (unsigned i = 0; i < most_bytes; ++i) {
    uint8_t part = 0;
    if (!byte(part)) return false;
    value |= static_cast<uint64_t>(part & 0x7f) << (7 * i);
    if ((part & 0x80) == 0) return true;
  }
  return true;
}

bool PacketReader::little(unsigned count, uint64_t& value) {
  value = 0;
  for (unsigned i = 0; i < count; ++i) {
    uint8_t part = 0;
    if (!byte(part)) return false;
    value |= static_cast<uint64_t>(part) << (8 * i);
  }
  return true;
}

PacketReader::Status PacketReader::next(Packet& packet) {
  packet = {};
  if (offset_ >= bytes_.size()) return Status::end;
  const auto header = static_cast<uint8_t>(bytes_[offset_]);
  at_ = offset_ + 1;
  const uint8_t index = (*dispatch_)[header];
  if (index == kNoForm) {
    packet.size_bytes = 1;
    return Status::bad_packet;
  }
  const PacketForm& form = packet_forms()[index];
  packet.kind = form.kind;
  const Status status = take(form, packet);
  packet.size_bytes = static_cast<uint32_t>(at_ - offset_);
  if (status == Status::ok) {
    offset_ = at_;
  } else {
    packet.kind = PacketKind::bad;
  }
  return status;
}

/// Fast path for the most frequent packets. Returns false for any other packet. kLongestAside bytes must be readable.
bool PacketReader::short_aside(const std::byte* at, Packet& packet) {
  const auto header = static_cast<uint8_t>(*at), second = static_cast<uint8_t>(at[1]);
  packet.flags = 0;
  if (header == 0x02) {
    constexpr uint64_t kMore = 0x8080808080808080;
    uint64_t raw = 0;
    std::memcpy(&raw, at + 1, sizeof raw);
    const uint64_t last = ~raw & kMore;  // bytes without a continuation bit
    const unsigned size = last != 0 ? static_cast<unsigned>(std::countr_zero(last)) / 8 + 1 : 9;
    if (size < 8) raw &= low_mask(8 * size);
    raw &= ~kMore;
    // Remove the gaps between the groups of seven bits: in pairs, then fours, then all.
    raw = (raw & 0x007f007f007f007f) | (raw & 0x7f007f007f007f00) >> 1;
    raw = (raw & 0x00003fff00003fff) | (raw & 0x3fff00003fff0000) >> 2;
    raw = (raw & 0x0fffffff) | (raw & 0x0fffffff00000000) >> 4;
    if (size == 9) raw |= static_cast<uint64_t>(at[9]) << 56;
    timestamp_ = size == 9 ? raw : (timestamp_ & ~low_mask(7 * size)) | raw;
    packet.kind = PacketKind::timestamp;
    packet.value = timestamp_;
    packet.size_bytes = 1 + size;
    if (!repairs_.empty()) repair(packet);
    return true;
  }
  if (header == 0x88 && (*dispatch_)[header] != kNoForm) {
    packet.kind = PacketKind::ts_marker;
    packet.value = 0;
    packet.size_bytes = 1;
    return true;
  }
  const bool in_header = (header & 0xf0) == 0x10;
  if ((!in_header && (header & 0xfe) != 0x0c) || (*dispatch_)[header] == kNoForm) return false;
  packet.kind = in_header ? PacketKind::ccnt_f3 : PacketKind::ccnt_f2;
  packet.cycles = cycle_threshold_ + (in_header ? header & 3U : second & 0xfU);
  packet.flags = kFlagCycles;
  packet.value = 0;
  packet.size_bytes = in_header ? 1 : 2;
  return config_.commit_opt1() || set_committed(header, second, packet);
}

/// Sets the number of elements that a short cycle count packet commits. Returns false if it is negative.
bool PacketReader::set_committed(uint8_t header, uint8_t second, Packet& packet) const {
  packet.flags |= kFlagCommit;
  if (packet.kind == PacketKind::ccnt_f3) {
    packet.value = ((header >> 2) & 3U) + 1;
    return true;
  }
  const int64_t base = (header & 1) != 0 ? static_cast<int64_t>(config_.max_speculation()) - 15 : 1;  // from the greatest depth
  const int64_t committed = base + (second >> 4);
  packet.value = static_cast<uint64_t>(committed);
  return committed >= 0;
}

PacketReader::Status PacketReader::take(const PacketForm& form, Packet& packet) {
  const auto header = static_cast<uint8_t>(bytes_[offset_]);
  const auto done = [](bool whole) { return whole ? Status::ok : Status::cut; };
  switch (form.layout) {
    case Layout::atoms:
      packet.bits = plain_forms()[header].count;
      packet.value = plain_forms()[header].atoms;
      return Status::ok;
    case Layout::short_address:
      return done(short_address(form.isa, packet));
    case Layout::long_32:
      return done(long_address(4, form.isa, packet));
    case Layout::long_64:
      return done(long_address(8, form.isa, packet));
    case Layout::long_32_context:
      return done(long_address(4, form.isa, packet) && context(packet));
    case Layout::long_64_context:
      return done(long_address(8, form.isa, packet) && context(packet));
    case Layout::match:
      packet.value = last_[header & 3].value;
      packet.isa = last_[header & 3].isa;
      push_address(packet.value, packet.isa);
      return Status::ok;
    case Layout::context:
      return (header & 1) == 0 ? Status::ok : done(context(packet));
    case Layout::extension:
      return extension(packet);
    case Layout::trace_info:
      return trace_info(packet);
    case Layout::timestamp:
      return timestamp(packet);
    case Layout::exception:
      return exception(packet);
    case Layout::ite: {
      uint8_t level = 0;
      if (!byte(level) || !little(8, packet.value)) return Status::cut;
      packet.bits = level;
      return Status::ok;
    }
    case Layout::cycles_1:
      return cycles_1(packet);
    case Layout::cycles_2:
      return cycles_2(packet);
    case Layout::cycles_3:
      packet.cycles = cycle_threshold_ + (header & 3);
      packet.flags = kFlagCycles;
      if (!config_.commit_opt1()) (void)set_committed(header, 0, packet);
      return Status::ok;
    case Layout::number:
      return done(number(kMaxNumberBytes, packet.value));
    case Layout::atoms_before:
      if (form.kind == PacketKind::cancel_f3) {
        packet.value = ((header >> 1) & 3U) + 2;
        packet.bits = header & 1;
        packet.aux = header & 1;
      } else {
        packet.value = form.kind == PacketKind::cancel_f2 ? 1 : 0;
        atoms_before(header, packet);
      }
      return Status::ok;
    case Layout::one_byte: {
      uint8_t low = 0;
      if (!byte(low)) return Status::cut;
      packet.value = low | (form.kind == PacketKind::cond_res_f3 ? (header & 0xfU) << 8 : 0U);
      return Status::ok;
    }
    case Layout::two_results:
      return two_results(packet);
    case Layout::q:
      return q(packet);
    case Layout::header:
      packet.value = header & (form.kind == PacketKind::event ? 0xfU : 7U);
      return Status::ok;
  }
  return Status::bad_packet;
}

PacketReader::Status PacketReader::extension(Packet& packet) {
  uint8_t second = 0;
  if (!byte(second)) return Status::cut;
  if (second == 3 || second == 5) {
    packet.kind = second == 3 ? PacketKind::discard : PacketKind::overflow;
    return Status::ok;
  }
  if (second != 0) return Status::bad_packet;
  for (unsigned i = 2; i < kAsyncBytes; ++i) {
    uint8_t value = 0;
    if (!byte(value)) return Status::cut;
    if (value != (i + 1 == kAsyncBytes ? 0x80 : 0)) return Status::bad_packet;
  }
  return Status::ok;
}

PacketReader::Status PacketReader::trace_info(Packet& packet) {
  uint64_t control = 0;
  uint64_t sections[5] = {};
  if (!number(kMaxSectionBytes, control)) return Status::cut;
  for (unsigned i = 0; i < 5; ++i) {
    if ((control >> i & 1) != 0 && !number(kMaxSectionBytes, sections[i])) return Status::cut;
  }
  packet.value = sections[0];
  packet.aux = sections[1];
  packet.extra = static_cast<uint32_t>(sections[2]);
  packet.cycles = static_cast<uint32_t>(sections[3]);
  if ((control & 4) != 0) packet.flags |= kFlagSpeculation;
  cycle_threshold_ = packet.cycles;
  // [ETMv4] "Trace Info instruction trace packet": INFO.cc_enabled. Packets with a cycle count are damage only if TRCCONFIGR.CCI agrees.
  constexpr uint32_t kCci = 0x10, kCcEnabled = 1;
  const bool counts = (config_.configr & kCci) != 0 || (packet.value & kCcEnabled) != 0;
  dispatch_ = &dispatch_of(config_, counts);
  return Status::ok;
}

PacketReader::Status PacketReader::timestamp(Packet& packet) {
  const bool with_cycles = (static_cast<uint8_t>(bytes_[offset_]) & 1) != 0;
  uint64_t value = 0;
  unsigned bits = 0;
  for (bool more = true; more;) {
    uint8_t part = 0;
    if (!byte(part)) return Status::cut;
    const bool ninth = bits == 56;
    value |= static_cast<uint64_t>(ninth ? part : part & 0x7f) << bits;
    bits = ninth ? 64 : bits + 7;
    more = !ninth && (part & 0x80) != 0;
  }
  uint64_t cycles = 0;
  if (with_cycles && !number(3, cycles)) return Status::cut;
  timestamp_ = (timestamp_ & ~low_mask(bits)) | value;
  packet.value = timestamp_;
  if (with_cycles) {
    packet.cycles = static_cast<uint32_t>(cycles) & cycle_mask_;
    packet.flags |= kFlagCycles;
  }
  if (!repairs_.empty()) repair(packet);
  return Status::ok;
}

void PacketReader::repair(Packet& packet) {
  const auto found = std::lower_bound(repairs_.begin(), repairs_.end(), offset_,
                                      [](const TimestampRepair& repair, uint64_t offset) { return repair.offset_bytes < offset; });
  if (found == repairs_.end() || found->offset_bytes != offset_) return;
  packet.value = timestamp_ -= found->late_by;
  if (!found->use) packet.flags |= kFlagNoTime;
}

PacketReader::Status PacketReader::exception(Packet& packet) {
  uint8_t first = 0, second = 0;
  if (!byte(first)) return Status::cut;
  uint32_t type = (first >> 1) & 0x1f;
  // ETE's PE reset and transaction failure packets are three bytes long and have no address.
  const bool alone = config_.is_ete() && (type == 0 || type == 0x18);
  if ((alone || (first & 0x80) != 0) && !byte(second)) return Status::cut;
  if ((first & 0x80) != 0) {
    type |= (second & 0x1fU) << 5;
    if ((second & 0x20) != 0) packet.flags |= kFlagFault;
  }
  packet.extra = type;
  packet.aux = ((first & 0x40) >> 5) | (first & 1);
  if (config_.is_ete() && type == 0) packet.kind = PacketKind::pe_reset;
  if (config_.is_ete() && type == 0x18) packet.kind = PacketKind::trans_fail;
  return Status::ok;
}

PacketReader::Status PacketReader::cycles_1(Packet& packet) {
  const bool unknown = (static_cast<uint8_t>(bytes_[offset_]) & 1) != 0;
  if (!config_.commit_opt1()) {
    if (!number(kMaxNumberBytes, packet.value)) return Status::cut;
    packet.flags |= kFlagCommit;
  }
  if (unknown) return Status::ok;
  uint64_t cycles = 0;
  if (!number(3, cycles)) return Status::cut;
  packet.cycles = cycle_threshold_ + static_cast<uint32_t>(cycles);
  packet.flags |= kFlagCycles;
  return Status::ok;
}

PacketReader::Status PacketReader::cycles_2(Packet& packet) {
  uint8_t both = 0;
  if (!byte(both)) return Status::cut;
  packet.cycles = cycle_threshold_ + (both & 0xf);
  packet.flags |= kFlagCycles;
  const bool fits = config_.commit_opt1() || set_committed(static_cast<uint8_t>(bytes_[offset_]), both, packet);
  return fits ? Status::ok : Status::bad_packet;
}

PacketReader::Status PacketReader::two_results(Packet& packet) {
  const bool one = (static_cast<uint8_t>(bytes_[offset_]) & 0xfc) == 0x6c;
  uint64_t second = 0;
  if (!number(kMaxNumberBytes, packet.value)) return Status::cut;
  if (!one && !number(kMaxNumberBytes, second)) return Status::cut;
  packet.aux = second;
  return Status::ok;
}

PacketReader::Status PacketReader::q(Packet& packet) {
  const uint8_t type = static_cast<uint8_t>(bytes_[offset_]) & 0xf;
  const std::array<Address, 3> before = last_;
  bool whole = true;
  if (type <= 2) {
    packet.value = last_[type].value;
    packet.isa = last_[type].isa;
    push_address(packet.value, packet.isa);
  } else if (type == 5 || type == 6) {
    whole = short_address(type == 5 ? 0 : 1, packet);
  } else if (type == 0xa || type == 0xb) {
    whole = long_address(4, type == 0xa ? 0 : 1, packet);
  }
  if (type < 0xc) packet.flags |= kFlagAddress;
  if (type != 0xf) {
    packet.flags |= kFlagCount;
    whole = whole && number(kMaxNumberBytes, packet.aux);
  }
  if (whole) return Status::ok;
  last_ = before;
  return Status::cut;
}

bool PacketReader::context(Packet& packet) {
  uint8_t info = 0;
  PacketContext& context = packet.context;
  if (!byte(info)) return false;
  context.present = true;
  context.level = info & 3;
  context.root_or_realm = config_.is_ete() && (info & 8) != 0;
  context.is64 = (info & 0x10) != 0;
  context.non_secure = (info & 0x20) != 0;
  uint64_t value = 0;
  if ((info & 0x40) != 0) {
    if (!little(vmid_bytes_, value)) return false;
    context.vmid = static_cast<uint32_t>(value);
    context.has_vmid = vmid_bytes_ != 0;
  }
  if ((info & 0x80) != 0) {
    if (!little(context_id_bytes_, value)) return false;
    context.context_id = static_cast<uint32_t>(value);
    context.has_context_id = context_id_bytes_ != 0;
  }
  is64_ = context.is64;
  return true;
}

bool PacketReader::short_address(uint8_t isa, Packet& packet) {
  uint8_t low = 0, high = 0;
  if (!byte(low)) return false;
  if ((low & 0x80) != 0 && !byte(high)) return false;
  packet.value = short_value(isa, low | uint64_t{high} << 8);
  packet.isa = isa;
  push_address(packet.value, isa);
  return true;
}

bool PacketReader::long_address(unsigned bytes, uint8_t isa, Packet& packet) {
  uint64_t raw = 0;
  if (!little(bytes, raw)) return false;
  packet.value = long_value(bytes, isa, raw);
  packet.isa = isa;
  push_address(packet.value, isa);
  return true;
}

}  // namespace ptd::arm
