// Splits the bytes of one ETMv4 or ETE source into packets.
#pragma once

#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "ptdecode/arm/packet_table.h"
#include "ptdecode/export.h"

namespace ptd::arm {

/// Bytes of an A-Sync packet: eleven of 00, then 80.
inline constexpr uint64_t kAsyncBytes = 12;
/// Finds the next A-Sync at or after `from`; in a longer run of zeros the last eleven count. Returns bytes.size() if there is none.
[[nodiscard]] PTD_API uint64_t find_async(Bytes bytes, uint64_t from);

/// A timestamp packet that is wrong: the true time is `late_by` ticks earlier, modulo 2^64, or unknown.
struct TimestampRepair {
  uint64_t offset_bytes = 0;
  uint64_t late_by = 0;
  bool use = true;
};

/// Reads packets one by one, with decompressed addresses and timestamps ([ETMv4] "Address compression", "Timestamp instruction trace
/// packet"). Cheap to copy; not thread-safe. The bytes must outlive it.
class PTD_API PacketReader {
 public:
  PacketReader() = default;
  PacketReader(Bytes bytes, const TraceConfig& config);

  enum class Status : uint8_t {
    ok,
    end,         ///< no bytes left
    cut,         ///< the bytes end inside a packet
    bad_packet,  ///< reserved header, or malformed; packet.size_bytes is the number of bytes examined. Resync at the next A-Sync
  };
  /// Reads the packet at offset() and moves past it. On any status but ok the offset does not change.
  Status next(Packet& packet);

  struct Address {
    uint64_t value = 0;
    uint8_t isa = 0;
  };
  /// Maximum length of an address packet.
  static constexpr uint64_t kLongestAddress = 9;
  /// Reads the address packet at `at`; kLongestAddress bytes must be readable there. Returns the packet's end. Updates the addresses used
  /// for decompression, but not offset().
  const std::byte* plain_address(const std::byte* at, AddressForm form, Address& address);

  /// Fast form of next() for a packet whose PlainForm is `aside`. Fields of `packet` that this kind does not use may keep their old values.
  Status next_aside(Packet& packet) {
    if (bytes_.size() - offset_ < kLongestAside || !short_aside(bytes_.data() + offset_, packet)) return next(packet);
    offset_ += packet.size_bytes;
    return Status::ok;
  }

  /// Sets which timestamps are wrong, in order of their offsets; they must outlive the reader's use of these bytes. A correction also
  /// applies to the following timestamps that keep the wrong byte. One that is not used has kFlagNoTime.
  void set_repairs(std::span<const TimestampRepair> repairs) { repairs_ = repairs; }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] uint64_t offset() const { return offset_; }
  /// Continues at another offset and keeps the decompression state.
  void seek(uint64_t offset_bytes) { offset_ = offset_bytes; }
  /// Starts with other bytes of the same source and resets the decompression state.
  void restart(Bytes bytes);
  /// Resets the decompression state: bytes before the next A-Sync were lost.
  void reset();

 private:
  Status take(const PacketForm& form, Packet& packet);
  Status extension(Packet& packet);
  static constexpr uint64_t kLongestAside = 10;  // maximum length of the packets that short_aside() reads
  bool short_aside(const std::byte* at, Packet& packet);
  Status trace_info(Packet& packet);
  Status timestamp(Packet& packet);
  Status exception(Packet& packet);
  Status cycles_1(Packet& packet);
  Status cycles_2(Packet& packet);
  bool set_committed(uint8_t header, uint8_t second, Packet& packet) const;
  Status two_results(Packet& packet);
  Status q(Packet& packet);
  bool context(Packet& packet);
  bool short_address(uint8_t isa, Packet& packet);
  bool long_address(unsigned bytes, uint8_t isa, Packet& packet);
  [[nodiscard]] uint64_t short_value(uint8_t isa, uint64_t raw) const;
  [[nodiscard]] uint64_t long_value(unsigned bytes, uint8_t isa, uint64_t raw) const;
  void push_address(uint64_t value, uint8_t isa);
  void repair(Packet& packet);

  bool byte(uint8_t& value);
  bool number(unsigned most_bytes, uint64_t& value);
  bool little(unsigned bytes, uint64_t& value);

  Bytes bytes_;
  uint64_t offset_ = 0;
  uint64_t at_ = 0;  ///< position inside the packet being read
  const Dispatch* dispatch_ = &dispatch_of({});
  TraceConfig config_;
  uint8_t vmid_bytes_ = 0, context_id_bytes_ = 0;
  uint32_t cycle_mask_ = 0;
  std::array<Address, 3> last_{};  ///< the newest first
  bool is64_ = false;              ///< the last context was AArch64
  uint64_t timestamp_ = 0;
  uint32_t cycle_threshold_ = 0;
  std::span<const TimestampRepair> repairs_;
};

[[gnu::always_inline]] inline const std::byte* PacketReader::plain_address(const std::byte* at, AddressForm form, Address& address) {
  static_assert(std::endian::native == std::endian::little);
  uint64_t raw = 0;
  std::memcpy(&raw, at + 1, sizeof raw);
  address.isa = static_cast<uint8_t>(form) & 1;
  uint64_t size = kLongestAddress;
  switch (static_cast<AddressForm>(static_cast<uint8_t>(form) | 1)) {
    case AddressForm::short_is1:
      address.value = short_value(address.isa, raw);
      size = 2 + (raw >> 7 & 1);
      break;
    case AddressForm::match:
      address = last_[static_cast<uint8_t>(*at) & 3];
      size = 1;
      break;
    case AddressForm::long_32is1:
      address.value = long_value(4, address.isa, raw & 0xffffffff);
      size = 5;
      break;
    default:
      address.value = long_value(8, address.isa, raw);
  }
  push_address(address.value, address.isa);
  return at + size;
}

/// Decodes the first byte of `raw`, and the second one if bit 7 of the first is set: seven and eight bits, above one or two 0 bits.
inline uint64_t PacketReader::short_value(uint8_t isa, uint64_t raw) const {
  const unsigned zeros = isa == 0 ? 2 : 1;
  const uint64_t value = ((raw & 0x7f) | (raw >> 1 & 0x7f80)) << zeros;
  const uint64_t told = ((raw & 0x80) != 0 ? uint64_t{0x7fff} : uint64_t{0x7f}) << zeros | ((uint64_t{1} << zeros) - 1);
  return (last_[0].value & ~told) | (value & told);
}

inline uint64_t PacketReader::long_value(unsigned bytes, uint8_t isa, uint64_t raw) const {
  // IS0: bits 8:2 and 15:9 in seven bits each. IS1: bits 7:1 in seven bits, then whole bytes.
  const uint64_t low = isa == 0 ? ((raw & 0x7f) << 2) | ((raw >> 8 & 0x7f) << 9) : ((raw & 0x7f) << 1) | (raw & 0xff00);
  const uint64_t value = (raw & ~uint64_t{0xffff}) | low;
  // In AArch64, 32 bits leave the upper half unchanged. AArch32 has none.
  return bytes == 4 && is64_ ? value | (last_[0].value & ~uint64_t{0xffffffff}) : value;
}

inline void PacketReader::push_address(uint64_t value, uint8_t isa) {
  last_[2] = last_[1];
  last_[1] = last_[0];
  last_[0] = {value, isa};
}

}  // namespace ptd::arm
