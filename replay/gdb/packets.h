// Packets of GDB's remote protocol: framing, checksums, escapes, hex. Source: [GDB] "Remote Protocol".
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

namespace ptd::replay {

inline constexpr const char* kError = "E01";

/// Splits the bytes of a peer into packets. Any bytes are fine: what is no packet is skipped, and a packet with a wrong checksum, or
/// longer than kMostBytes, is refused.
class PacketReader {
 public:
  static constexpr size_t kMostBytes = 1U << 17;

  void add(std::string_view bytes);
  enum class Kind : uint8_t { none, packet, interrupt, bad, repeat };
  struct Item {
    Kind kind = Kind::none;
    std::string text;  ///< of a packet, without escapes
  };
  /// Returns the next item: a packet, an interrupt (0x03), a packet with a wrong checksum, or a request to repeat the last reply ('-').
  Item next();
  [[nodiscard]] bool empty() const { return items_.empty(); }
  /// Takes an interrupt if one has arrived, also before packets that arrived earlier.
  bool take_interrupt();
  /// Sets whether checksums are compared; they are not in no-ack mode.
  void set_checked(bool checked) { checked_ = checked; }

 private:
  void finish();
  enum class State : uint8_t { idle, body, sum_high, sum_low } state_ = State::idle;
  static constexpr size_t kMostItems = 1024;
  std::string body_;
  unsigned sum_ = 0, wanted_ = 0;
  bool checked_ = true, too_long_ = false;
  std::deque<Item> items_;
};

/// Returns a packet with this content, which is escaped.
[[nodiscard]] std::string packet_of(std::string_view text);

[[nodiscard]] std::string to_hex(std::string_view bytes);
/// Returns nothing for an odd number of digits or for other characters.
[[nodiscard]] std::optional<std::string> from_hex(std::string_view digits);
/// Reads hex digits (1 to 16) from the start of `text` and removes them. Nothing if there are none or too many.
[[nodiscard]] std::optional<uint64_t> take_hex(std::string_view& text);
/// Removes `prefix` from the start of `text` if it is there.
[[nodiscard]] bool take(std::string_view& text, std::string_view prefix);

}  // namespace ptd::replay
