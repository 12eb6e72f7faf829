// The sources of plain flow: bytes of a segment, atoms of one element.
#include "decoder/arm/plain.h"

#include "decoder/arm/packet_reader.h"

namespace ptd::arm {
namespace {

/// Packets, as they stand in the trace, up to a place. kForks: forks end them, too.
template <bool kForks>
class PacketSource {
 public:
  static constexpr bool kMayStop = true;
  PacketSource(PacketReader& reader, uint64_t end_offset, const CandidateChooser& chooser, size_t most_forks)
      : reader_(reader),
        chooser_(chooser),
        most_forks_(most_forks),
        forms_(plain_forms().data()),
        begin_(reader.bytes().data()),
        end_(begin_ + std::min<uint64_t>(reader.bytes().size(), end_offset)),
        at_(begin_ + reader.offset()) {}

  [[gnu::always_inline]] PlainKind next() {
    if (at_ == end_ || (kForks && chooser_.passed() >= most_forks_)) return PlainKind::end;
    form_ = &forms_[static_cast<uint8_t>(*at_)];
    if (form_->count != 0) {
      packet_ = at_++;
      return PlainKind::atoms;
    }
    if (form_->address == AddressForm::none || static_cast<uint64_t>(end_ - at_) < PacketReader::kLongestAddress) return PlainKind::end;
    packet_ = at_;
    at_ = reader_.plain_address(at_, form_->address, address_);
    return PlainKind::address;
  }
  [[nodiscard]] uint64_t atoms() const { return form_->atoms; }
  [[nodiscard]] unsigned count() const { return form_->count; }
  [[nodiscard]] uint64_t address() const { return address_.value; }
  [[nodiscard]] uint8_t isa() const { return address_.isa; }
  [[nodiscard]] uint64_t offset(unsigned) const { return static_cast<uint64_t>(packet_ - begin_); }
  [[nodiscard]] size_t blocks_ahead() const { return std::min<size_t>(2 * static_cast<size_t>(end_ - at_), 1U << 10); }
  /// Behind what was taken.
  [[nodiscard]] uint64_t reached() const { return static_cast<uint64_t>(at_ - begin_); }

 private:
  PacketReader& reader_;
  const CandidateChooser& chooser_;
  size_t most_forks_;
  const PlainForm* forms_;
  const std::byte *begin_, *end_, *at_;
  const std::byte* packet_ = nullptr;
  const PlainForm* form_ = nullptr;
  PacketReader::Address address_;
};

/// Atoms of one packet.
class AtomSource {
 public:
  static constexpr bool kMayStop = false;
  AtomSource(uint64_t atoms, uint32_t count, uint64_t offset) : atoms_(atoms), count_(count), offset_(offset) {}
  PlainKind next() { return std::exchange(given_, true) ? PlainKind::end : PlainKind::atoms; }
  [[nodiscard]] uint64_t atoms() const { return atoms_; }
  [[nodiscard]] unsigned count() const { return count_; }
  [[nodiscard]] static uint64_t address() { return 0; }
  [[nodiscard]] static uint8_t isa() { return 0; }
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

bool Follower::plain_packets(PacketReader& reader, uint64_t end_offset, size_t most_forks) {
  const uint64_t before = reader.offset();
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

}  // namespace ptd::arm
