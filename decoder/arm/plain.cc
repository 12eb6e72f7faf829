// The sources of plain flow: bytes of a segment, atoms of one element.
#include "decoder/arm/plain.h"

#include "decoder/arm/packet_reader.h"

namespace ptd::arm {
namespace {

/// Packets, as they stand in the trace, up to a place. kForks: forks end them, too.
template <bool kForks>
class PacketSource {
 public:
  static constexpr unsigned kMostAtoms = 64;
  static constexpr bool kMayStop = true;
  PacketSource(PacketReader& reader, uint64_t end_offset, const CandidateChooser& chooser, size_t most_forks)
      : reader_(reader),
        chooser_(chooser),
        most_forks_(most_forks),
        forms_(plain_forms().data()),
        begin_(reader.bytes().data()),
        end_(begin_ + std::min<uint64_t>(reader.bytes().size(), end_offset)),
        at_(begin_ + reader.offset()) {}

  /// Atoms of packets side by side, 64 at most. `lost`: atoms tell nothing.
  [[gnu::always_inline]] PlainKind next(bool lost) {
    if (kForks && chooser_.passed() >= most_forks_) return PlainKind::end;
    const std::byte* at = at_;
    uint64_t atoms = 0;
    unsigned count = 0;
    packet_ = at;
    for (; at != end_; ++at) {
      const PlainForm& form = forms_[static_cast<uint8_t>(*at)];
      if (form.count == 0) {
        if (count != 0) break;
        at_ = at;
        if (form.address == AddressForm::none || static_cast<uint64_t>(end_ - at) < PacketReader::kLongestAddress) return PlainKind::end;
        packet_ = at;
        at_ = reader_.plain_address(at, form.address, address_);
        return PlainKind::address;
      }
      if (lost) continue;
      if (count + form.count > kMostAtoms) break;
      atoms |= uint64_t{form.atoms} << count;
      count += form.count;
      if (kForks) {  // which are looked for behind each packet
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
  [[nodiscard]] uint64_t offset(unsigned left) const {
    const std::byte* at = packet_;
    for (unsigned taken = count_ - left;; ++at) {
      const unsigned here = forms_[static_cast<uint8_t>(*at)].count;
      if (taken < here || here == 0) return static_cast<uint64_t>(at - begin_);
      taken -= here;
    }
  }
  [[nodiscard]] size_t blocks_ahead() const { return std::min<size_t>(2 * static_cast<size_t>(end_ - at_), 1U << 10); }
  /// Behind what was taken.
  [[nodiscard]] uint64_t reached() const { return static_cast<uint64_t>(at_ - begin_); }

 private:
  PacketReader& reader_;
  const CandidateChooser& chooser_;
  size_t most_forks_;
  const PlainForm* forms_;
  const std::byte *begin_, *end_, *at_;
  const std::byte* packet_ = nullptr;  ///< the first one of those taken last
  uint64_t atoms_ = 0;
  unsigned count_ = 0;
  PacketReader::Address address_;
};

/// Atoms of one packet, or of one element.
class AtomSource {
 public:
  static constexpr bool kMayStop = false;
  AtomSource(uint64_t atoms, uint32_t count, uint64_t offset) : atoms_(atoms), count_(count), offset_(offset) {}
  AtomSource(const Element& element, uint32_t count, Bytes trace)
      : atoms_(element.value),
        count_(count),
        offset_(element.offset_bytes),
        trace_(element.packets ? trace : Bytes{}),
        gone_(element.taken) {}
  PlainKind next(bool) { return std::exchange(given_, true) ? PlainKind::end : PlainKind::atoms; }
  [[nodiscard]] uint64_t atoms() const { return atoms_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] static uint64_t address() { return 0; }
  [[nodiscard]] static uint8_t isa() { return 0; }
  [[nodiscard]] uint64_t offset(unsigned left) const {
    uint32_t taken = gone_ + count_ - left;
    return trace_.empty() ? offset_ : atom_place(trace_, offset_, taken);
  }
  [[nodiscard]] static size_t blocks_ahead() { return 0; }

 private:
  uint64_t atoms_;
  uint32_t count_;
  uint64_t offset_;
  Bytes trace_;  ///< empty: all are of the packet at offset_
  uint32_t gone_ = 0;
  bool given_ = false;
};

/// The oldest elements of a queue.
class QueueSource {
 public:
  static constexpr bool kMayStop = false;
  QueueSource(ElementQueue& queue, Bytes trace, uint64_t& left) : queue_(queue), trace_(trace), left_(left) {}
  PlainKind next(bool) {
    if (left_ == 0 || queue_.empty()) return PlainKind::end;
    const Element& oldest = queue_.front();
    value_ = oldest.value;
    offset_ = oldest.offset_bytes;
    if (oldest.kind == ElementKind::address) {
      isa_ = oldest.isa;
      packets_ = false;
      queue_.pop_front();
      return PlainKind::address;
    }
    if (oldest.kind != ElementKind::atoms) return PlainKind::end;
    packets_ = oldest.packets;
    gone_ = oldest.taken;
    count_ = static_cast<uint32_t>(std::min<uint64_t>(left_, oldest.count));
    left_ -= count_;
    queue_.take_atoms(count_, trace_);
    return PlainKind::atoms;
  }
  [[nodiscard]] uint64_t atoms() const { return value_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] uint64_t address() const { return value_; }
  [[nodiscard]] uint8_t isa() const { return isa_; }
  [[nodiscard]] uint64_t offset(unsigned left) const {
    uint32_t taken = gone_ + count_ - left;
    return packets_ ? atom_place(trace_, offset_, taken) : offset_;
  }
  [[nodiscard]] size_t blocks_ahead() const { return std::min<uint64_t>(left_, 256); }

 private:
  ElementQueue& queue_;
  Bytes trace_;
  uint64_t& left_;
  uint64_t value_ = 0, offset_ = 0;
  uint32_t count_ = 0, gone_ = 0;
  bool packets_ = false;
  uint8_t isa_ = 0;
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

bool Follower::plain_packets(PacketReader& reader, uint64_t end_offset, size_t most_forks) {
  const uint64_t before = reader.offset();
  const Bytes bytes = reader.bytes();
  if (before == bytes.size()) return false;
  const PlainForm& form = plain_forms()[static_cast<uint8_t>(bytes[before])];
  if (form.count == 0) {
    if (form.address == AddressForm::none || bytes.size() - before < PacketReader::kLongestAddress) return false;
    if (need_context_ || has_exception_ || starting_) {  // often just one address comes before the next packet of another kind
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
    take(PacketSource<true>(reader, end_offset, *chooser_, most_forks));
  } else {
    take(PacketSource<false>(reader, end_offset, *chooser_, most_forks));
  }
  return reader.offset() != before;
}

void Follower::atoms(uint64_t atoms, uint32_t count, uint64_t offset) {
  if (!options_.exact_only) {
    AtomSource source(atoms, count, offset);
    return follow(source);
  }
  for (; count != 0 && !is_lost(); --count, atoms >>= 1) atom(atoms, offset);
}

void Follower::atoms(const Element& element, uint32_t count, Bytes trace) {
  AtomSource source(element, count, trace);
  if (!options_.exact_only) return follow(source);
  for (uint32_t done = 0; done < count && !is_lost(); ++done) atom(element.value >> done, source.offset(count - done));
}

void Follower::take_queued(ElementQueue& queue, Bytes trace, uint64_t& left) {
  QueueSource source(queue, trace, left);
  follow(source);
}

}  // namespace ptd::arm
