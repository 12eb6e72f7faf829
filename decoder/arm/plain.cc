// PlainFlow: its sources, which are the bytes of a segment, a queue of elements and the atoms of one element.
#include "decoder/arm/plain.h"

#include "ptdecode/arm/packet_reader.h"

namespace ptd::arm {
namespace {

/// Returns the offset of the packet that contains atom number `taken`, counted from the first atom of the packet at `offset_bytes`. All
/// packets in between must be atom packets.
uint64_t place_of_atom(const std::byte* trace, uint64_t offset_bytes, unsigned taken) {
  for (;; ++offset_bytes) {
    const unsigned here = plain_forms()[static_cast<uint8_t>(trace[offset_bytes])].count;
    if (taken < here || here == 0) return offset_bytes;
    taken -= here;
  }
}

/// Reads plain packets from the trace up to an offset. Packets that commit elements end it, and with kForks also a packet with a fork.
template <bool kForks>
class PacketSource {
 public:
  static constexpr unsigned kMostAtoms = 64;
  static constexpr bool kMayStop = true;
  PacketSource(PacketReader& reader, uint64_t end_offset, const Choices& choices)
      : reader_(reader),
        choices_(choices),
        forms_(plain_forms().data()),
        begin_(reader.bytes().data()),
        end_(begin_ + std::min<uint64_t>(reader.bytes().size(), end_offset)),
        addresses_end_(begin_ + reader.bytes().size() - std::min<uint64_t>(reader.bytes().size(), PacketReader::kLongestAddress - 1)),
        at_(begin_ + reader.offset()) {}

  /// Returns the next input; combines the atoms of adjacent packets, at most 64. `lost`: skips atoms, which cannot be followed.
  [[gnu::always_inline]] PlainKind next(bool lost) {
    if (kForks && choices_.met_fork()) return PlainKind::end;
    const std::byte* at = at_;
    uint64_t atoms = 0;
    unsigned count = 0;
    packet_ = at;
    for (; at < end_; ++at) {
      const PlainForm& form = forms_[static_cast<uint8_t>(*at)];
      if (form.count == 0) {
        if (count != 0) break;
        at_ = at;
        return other(form);
      }
      if (lost) continue;
      if (count + form.count > kMostAtoms) break;
      atoms |= uint64_t{form.atoms} << count;
      count += form.count;
      if (kForks) {  // a fork ends the source after its packet
        ++at;
        break;
      }
    }
    at_ = at;
    atoms_ = atoms;
    count_ = count;
    return count != 0 ? PlainKind::atoms : PlainKind::end;
  }
  [[nodiscard]] uint64_t atoms() const { return atoms_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] uint64_t address() const { return address_.value; }
  [[nodiscard]] uint8_t isa() const { return address_.isa; }
  [[nodiscard]] const Packet& aside() const { return aside_; }
  [[nodiscard]] uint64_t offset(unsigned left) const {
    if (left == count_) return static_cast<uint64_t>(packet_ - begin_);
    return place_of_atom(begin_, static_cast<uint64_t>(packet_ - begin_), count_ - left);
  }
  [[nodiscard]] size_t blocks_ahead() const { return at_ < end_ ? std::min<size_t>(2 * static_cast<size_t>(end_ - at_), 1U << 10) : 0; }
  /// Returns the offset after the consumed packets.
  [[nodiscard]] uint64_t reached() const { return static_cast<uint64_t>(at_ - begin_); }

 private:
  /// Reads a packet that is not an atom packet.
  [[gnu::always_inline]] PlainKind other(const PlainForm& form) {
    packet_ = at_;
    count_ = 0;
    if (form.address != AddressForm::none && at_ < addresses_end_) {
      at_ = reader_.plain_address(at_, form.address, address_);
      return PlainKind::address;
    }
    return form.aside && read_aside() ? PlainKind::aside : PlainKind::end;
  }
  [[gnu::noinline]] bool read_aside() {
    reader_.seek(reached());
    if (reader_.next_aside(aside_) != PacketReader::Status::ok) return false;
    if (aside_.kind == PacketKind::commit || (aside_.flags & kFlagCommit) != 0) return false;
    at_ = begin_ + reader_.offset();
    return true;
  }

  PacketReader& reader_;
  const Choices& choices_;
  const PlainForm* forms_;
  const std::byte *begin_, *end_;   ///< an address or aside packet may end after end_
  const std::byte* addresses_end_;  ///< the longest address packet can be read before this point
  const std::byte* at_;
  const std::byte* packet_ = nullptr;  ///< the first packet of the current atoms
  uint64_t atoms_ = 0;
  unsigned count_ = 0;
  PacketReader::Address address_;
  Packet aside_;
};

/// Reads packets that were examined before, until `left` atoms are taken.
class AheadSource {
 public:
  static constexpr bool kMayStop = false;
  AheadSource(Bytes trace, const PlaceAhead& place, uint64_t left)
      : forms_(plain_forms().data()),
        begin_(trace.data()),
        end_(begin_ + place.end_bytes),
        at_(begin_ + place.offset_bytes),
        noted_(place.noted),
        left_(left),
        gone_(place.taken) {}

  [[gnu::always_inline]] PlainKind next(bool) {
    const unsigned most = static_cast<unsigned>(std::min<uint64_t>(64, left_));
    if (most == 0) return PlainKind::end;
    const std::byte* at = packet_ = at_;
    unsigned gone = skipped_ = gone_;
    uint64_t atoms = 0;
    unsigned count = 0;
    for (; at != end_; ++at) {
      const PlainForm& form = forms_[static_cast<uint8_t>(*at)];
      if (form.count == 0) {
        if (count != 0) break;
        return other();
      }
      atoms |= uint64_t{form.atoms} >> gone << count;
      count += form.count - gone;
      gone = 0;
      if (count < most) continue;
      gone = form.count - (count - most);  // of this packet, if atoms remain in it
      count = most;
      if (gone == form.count) {
        ++at;
        gone = 0;
      }
      break;
    }
    at_ = at;
    gone_ = gone;
    atoms_ = atoms;
    count_ = count;
    left_ -= count;
    return count != 0 ? PlainKind::atoms : PlainKind::end;
  }
  [[nodiscard]] uint64_t atoms() const { return atoms_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] uint64_t address() const { return noted_[-1].value; }
  [[nodiscard]] uint8_t isa() const { return noted_[-1].isa; }
  [[nodiscard]] const Noted& aside() const { return noted_[-1]; }
  [[nodiscard]] uint64_t offset(unsigned left) const {
    return place_of_atom(begin_, static_cast<uint64_t>(packet_ - begin_), skipped_ + count_ - left);
  }
  [[nodiscard]] size_t blocks_ahead() const {
    return std::min<size_t>(2 * std::min<uint64_t>(static_cast<size_t>(end_ - at_), left_), 1U << 10);
  }
  /// Reports the position reached and the number of atoms left.
  void reached(PlaceAhead& place, uint64_t& left) const {
    place.offset_bytes = static_cast<uint64_t>(at_ - begin_);
    place.taken = static_cast<uint8_t>(gone_);
    place.noted = noted_;
    left = left_;
  }

 private:
  /// Consumes the current packet, which is not an atom packet.
  [[gnu::always_inline]] PlainKind other() {
    count_ = 0;
    at_ += noted_->size_bytes;
    return is_address(noted_++->kind) ? PlainKind::address : PlainKind::aside;
  }

  const PlainForm* forms_;
  const std::byte *begin_, *end_, *at_;
  const Noted* noted_;
  const std::byte* packet_ = nullptr;  ///< the first packet of the current atoms
  uint64_t atoms_ = 0, left_;
  unsigned count_ = 0, gone_;
  unsigned skipped_ = 0;  ///< atoms of packet_ that precede the current ones
};

/// Takes the oldest elements of a queue, until `left` atoms are taken or the next element is not plain.
class QueueSource {
 public:
  static constexpr bool kMayStop = false;
  QueueSource(ElementQueue& queue, uint64_t& left) : queue_(queue), left_(left) {}
  PlainKind next(bool) {
    if (left_ == 0 || queue_.empty() || !is_plain(queue_.front().kind)) return PlainKind::end;
    const Element& oldest = queue_.front();
    value_ = oldest.value;
    offset_ = oldest.offset_bytes;
    if (oldest.kind == ElementKind::atoms) {
      count_ = static_cast<unsigned>(std::min<uint64_t>(left_, oldest.count));
      left_ -= count_;
      queue_.take(count_);
      return PlainKind::atoms;
    }
    const bool address = oldest.kind == ElementKind::address;
    isa_ = oldest.isa;
    if (!address) aside_ = {oldest.value, oldest.cycles, packet_of(oldest.kind), 0, oldest.flags, 0};
    queue_.pop_front();
    return address ? PlainKind::address : PlainKind::aside;
  }
  [[nodiscard]] uint64_t atoms() const { return value_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] uint64_t address() const { return value_; }
  [[nodiscard]] uint8_t isa() const { return isa_; }
  [[nodiscard]] const Noted& aside() const { return aside_; }
  [[nodiscard]] uint64_t offset(unsigned) const { return offset_; }
  [[nodiscard]] size_t blocks_ahead() const { return std::min<uint64_t>(left_, 256); }

 private:
  static PacketKind packet_of(ElementKind kind) {
    return kind == ElementKind::timestamp ? PacketKind::timestamp
           : kind == ElementKind::marker  ? PacketKind::ts_marker
                                          : PacketKind::ccnt_f1;
  }

  ElementQueue& queue_;
  uint64_t& left_;
  uint64_t value_ = 0, offset_ = 0;
  unsigned count_ = 0;
  uint8_t isa_ = 0;
  Noted aside_;
};

/// Provides the atoms of one packet.
class AtomSource {
 public:
  static constexpr bool kMayStop = false;
  AtomSource(uint64_t atoms, uint32_t count, uint64_t offset) : atoms_(atoms), count_(count), offset_(offset) {}
  PlainKind next(bool) { return std::exchange(given_, true) ? PlainKind::end : PlainKind::atoms; }
  [[nodiscard]] uint64_t atoms() const { return atoms_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] static uint64_t address() { return 0; }
  [[nodiscard]] static uint8_t isa() { return 0; }
  [[nodiscard]] static Noted aside() { return {}; }
  [[nodiscard]] uint64_t offset(unsigned) const { return offset_; }
  [[nodiscard]] static size_t blocks_ahead() { return 0; }

 private:
  uint64_t atoms_;
  uint32_t count_;
  uint64_t offset_;
  bool given_ = false;
};

}  // namespace

template <typename Source>
void Follower::follow(Source& source) {
  if (runs_->changes()) {
    PlainFlow<true, Source>(*this, source).run();
  } else {
    PlainFlow<false, Source>(*this, source).run();
  }
}

bool Follower::plain_packets(PacketReader& reader, uint64_t end_offset) {
  const uint64_t before = reader.offset();
  const Bytes bytes = reader.bytes();
  if (before == bytes.size()) return false;
  const PlainForm& form = plain_forms()[static_cast<uint8_t>(bytes[before])];
  if (form.count == 0 && !form.aside) {
    if (form.address == AddressForm::none || bytes.size() - before < PacketReader::kLongestAddress) return false;
    if (need_context_ || has_exception_ || starting_) {  // often only one address comes before the next packet of another kind
      PacketReader::Address at;
      reader.seek(static_cast<uint64_t>(reader.plain_address(bytes.data() + before, form.address, at) - bytes.data()));
      address(Ip{at.value}, at.isa, before);
      return true;
    }
  }
  const auto take = [&](auto source) {
    follow(source);
    reader.seek(source.reached());
  };
  if (runs_->changes()) {
    take(PacketSource<true>(reader, end_offset, choices_));
  } else {
    take(PacketSource<false>(reader, end_offset, choices_));
  }
  return reader.offset() != before;
}

void Follower::packets_ahead(Bytes trace, PlaceAhead& place, uint64_t& left) {
  AheadSource source(trace, place, left);
  follow(source);
  source.reached(place, left);
}

void Follower::queued(ElementQueue& queue, uint64_t& left) {
  QueueSource source(queue, left);
  follow(source);
}

void Follower::atoms(uint64_t atoms, uint32_t count, uint64_t offset) {
  if (!options_.exact_only) {
    AtomSource source(atoms, count, offset);
    return follow(source);
  }
  for (; count != 0 && !is_lost(); --count, atoms >>= 1) atom(atoms, offset);
}

}  // namespace ptd::arm
