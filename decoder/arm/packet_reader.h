// Splits the bytes of one ETMv4 or ETE source into packets.
#pragma once

#include <array>

#include "decoder/arm/packet_table.h"

namespace ptd::arm {

/// Bytes of an A-Sync packet: eleven of 00, then 80.
inline constexpr uint64_t kAsyncBytes = 12;
/// Finds the next A-Sync at or after `from`; of a longer run of zeros the last eleven count. bytes.size() if there is none.
[[nodiscard]] uint64_t find_async(Bytes bytes, uint64_t from);

/// Pulls packets. Addresses and timestamps come whole: the reader keeps what they are compressed against ([ETMv4] "Address compression",
/// "Timestamp instruction trace packet"). Plain state, cheap to copy; the bytes must outlive it.
class PacketReader {
 public:
  PacketReader() = default;
  PacketReader(Bytes bytes, const TraceConfig& config);

  enum class Status : uint8_t {
    ok,
    end,         ///< no bytes left
    cut,         ///< the bytes end inside a packet
    bad_packet,  ///< reserved header, or malformed; packet.size_bytes says how much was looked at. The caller resyncs at the next A-Sync
  };
  /// Reads the packet at offset() and moves past it. On any status but ok nothing moves.
  Status next(Packet& packet);

  /// Reads the packet at offset(), if it is an address without a context, and moves past it. False: next() must do it; it is another
  /// packet, or near the end.
  bool next_address(uint64_t& value, uint8_t& isa);

  [[nodiscard]] uint64_t offset() const { return offset_; }
  /// Goes on at another place; what packets are compressed against is kept.
  void seek(uint64_t offset_bytes) { offset_ = offset_bytes; }
  /// Begins with other bytes of the same source; nothing is known of what came before.
  void restart(Bytes bytes);
  /// Forgets what packets are compressed against: bytes before the next A-Sync were lost.
  void reset();

 private:
  struct Address {
    uint64_t value = 0;
    uint8_t isa = 0;
  };
  Status take(const PacketForm& form, Packet& packet);
  Status extension(Packet& packet);
  Status trace_info(Packet& packet);
  Status timestamp(Packet& packet);
  Status exception(Packet& packet);
  Status cycles_1(Packet& packet);
  Status cycles_2(Packet& packet);
  Status two_results(Packet& packet);
  Status q(Packet& packet);
  bool context(Packet& packet);
  bool short_address(uint8_t isa, Packet& packet);
  bool long_address(unsigned bytes, uint8_t isa, Packet& packet);
  [[nodiscard]] uint64_t short_value(uint8_t isa, uint8_t low, uint8_t high) const;
  [[nodiscard]] uint64_t long_value(unsigned bytes, uint8_t isa, uint64_t raw) const;
  void push_address(uint64_t value, uint8_t isa);

  bool byte(uint8_t& value);
  bool number(unsigned most_bytes, uint64_t& value);
  bool little(unsigned bytes, uint64_t& value);

  Bytes bytes_;
  uint64_t offset_ = 0;
  uint64_t at_ = 0;  ///< inside the packet that is read
  Dispatch dispatch_{};
  TraceConfig config_;
  uint8_t vmid_bytes_ = 0, context_id_bytes_ = 0;
  uint32_t cycle_mask_ = 0;
  std::array<Address, 3> last_{};  ///< the newest first
  bool is64_ = false;              ///< the last context was AArch64
  uint64_t timestamp_ = 0;
  uint32_t cycle_threshold_ = 0;
};

}  // namespace ptd::arm
