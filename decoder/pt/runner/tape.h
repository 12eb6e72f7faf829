// Tape: many TNT and TIP packets at once, as a bit string and the targets between the bits.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace ptd::pt {

/// What packets are read from.
struct TapeSource {
  const std::byte* data = nullptr;
  uint64_t stop = 0;           ///< no packet at or behind it is read
  uint64_t own_bytes = 0;      ///< nor one that reaches behind it
  uint64_t segment_bytes = 0;  ///< so many may be looked at
  bool reads_cyc = true;
};

/// Reads plain packets: TNT, TIP and PAD; MTC and CYC between them are passed over. Stops before any other.
class Tape {
 public:
  static constexpr uint32_t kMostPackets = 512;
  /// A TNT or TIP.
  struct Place {
    uint32_t offset = 0;  ///< from start()
    uint32_t bit = 0;     ///< bits before it
  };
  struct Target {
    uint64_t ip = 0;
    uint32_t run = 0;    ///< for the reader's use
    uint32_t bit = 0;    ///< bits before it
    uint32_t place = 0;  ///< number among places
  };

  /// Reads up to `packets` TNTs and TIPs from `offset` on.
  void read(const TapeSource& source, uint64_t offset, uint64_t last_ip, uint32_t packets);

  [[nodiscard]] uint64_t start() const { return start_; }
  [[nodiscard]] uint64_t end() const { return end_; }  ///< behind the last packet that was read or passed over
  [[nodiscard]] uint32_t bits() const { return bits_; }
  [[nodiscard]] uint32_t places() const { return places_count_; }
  [[nodiscard]] const Place& place(uint32_t i) const { return places_[i]; }
  /// Bits up to and with those of a place.
  [[nodiscard]] uint32_t end_bit(uint32_t i) const { return i + 1 < places_count_ ? places_[i + 1].bit : bits_; }
  [[nodiscard]] uint32_t targets() const { return targets_count_; }
  [[nodiscard]] Target& target(uint32_t i) { return targets_[i]; }
  [[nodiscard]] const Target& target(uint32_t i) const { return targets_[i]; }
  /// The bits from `bit` on, at least kWindow of them, the first on top.
  [[nodiscard]] uint64_t window(uint32_t bit) const {
    uint64_t word = 0;
    std::memcpy(&word, bytes_.data() + bit / 8, sizeof word);
    return __builtin_bswap64(word) << (bit & 7);
  }
  static constexpr uint32_t kWindow = 57;
  /// Offsets in the segment of the timing packets passed over.
  [[nodiscard]] std::span<const uint64_t> timings() const { return timings_; }

 private:
  std::array<std::byte, kMostPackets * 6 + 16> bytes_{};
  std::array<Place, kMostPackets> places_;
  std::array<Target, kMostPackets> targets_;
  std::vector<uint64_t> timings_;
  uint64_t start_ = 0, end_ = 0;
  uint32_t bits_ = 0, places_count_ = 0, targets_count_ = 0;
};

}  // namespace ptd::pt
