// Splits Intel PT bytes into packets. Stateless but for the block-item context of PEBS (BBP .. BEP).
#pragma once

#include <optional>

#include "decoder/pt/packet.h"

namespace ptd::pt {

/// Finds the next PSB at or after `from`: 16 bytes of 02 82. Returns bytes.size() if there is none. A PSB run that is longer than
/// 16 bytes (a torn PSB before a whole one) yields the last alignment that is followed by something else.
[[nodiscard]] uint64_t find_psb(Bytes bytes, uint64_t from);

/// Pulls packets. Plain state, cheap to copy; the bytes must outlive it.
class PacketReader {
 public:
  PacketReader() = default;
  explicit PacketReader(Bytes bytes, uint64_t offset_bytes = 0) : bytes_(bytes), offset_(offset_bytes) {}

  enum class Status : uint8_t {
    ok,
    end,        ///< no bytes left
    cut,        ///< the bytes end inside a packet
    bad_packet, ///< unknown opcode or reserved form at offset(); the caller resyncs at the next PSB
  };
  /// Reads the packet at offset() and moves past it. On any status but ok, nothing moves and `packet` has kind bad.
  Status next(Packet& packet);

  [[nodiscard]] uint64_t offset() const { return offset_; }
  void seek(uint64_t offset_bytes) { offset_ = offset_bytes; block_items_ = 0; }

 private:
  Bytes bytes_;
  uint64_t offset_ = 0;
  uint8_t block_items_ = 0;  ///< 0: outside; 4 or 8: size of the items between BBP and BEP
};

}  // namespace ptd::pt
