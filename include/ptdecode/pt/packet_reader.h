// Splits Intel PT bytes into packets. Its only state is the PEBS block context (BBP .. BEP).
#pragma once

#include "ptdecode/export.h"
#include "ptdecode/pt/config.h"
#include "ptdecode/pt/packet.h"

namespace ptd::pt {

/// Finds the next PSB at or after `from`: 16 bytes of 02 82. Returns bytes.size() if there is none. A run of the pattern that is longer
/// than 16 bytes (a cut PSB before a complete one, or a packet that ends in 02 82 before a PSB) gives its last 16 bytes: no packet but
/// PSB begins with 02 82, so the run ends where the PSB does. libipt does the same. A `from` inside a PSB does not find that PSB.
[[nodiscard]] PTD_API uint64_t find_psb(Bytes bytes, uint64_t from);

/// Reads packets one by one. Cheap to copy; not thread-safe. The bytes must outlive it.
class PTD_API PacketReader {
 public:
  PacketReader() = default;
  explicit PacketReader(Bytes bytes, uint64_t offset_bytes = 0) : bytes_(bytes), offset_(offset_bytes) {}

  enum class Status : uint8_t {
    ok,
    end,         ///< no bytes left
    cut,         ///< the bytes end inside a packet
    bad_packet,  ///< unknown opcode or reserved form at offset(); the caller resyncs at the next PSB
  };
  /// Reads the packet at offset() and moves past it. On any status but ok, nothing moves and `packet` has kind bad. Reserved bits are
  /// ignored; reserved forms are bad_packet: IPBytes 5 and 7, unknown opcodes, MODE leaves and leaf values, a long TNT without branches,
  /// a CYC of more than 64 bits.
  Status next(Packet& packet);

  [[nodiscard]] uint64_t offset() const { return offset_; }
  void seek(uint64_t offset_bytes) {
    offset_ = offset_bytes;
    block_items_ = 0;
  }

  /// Errata that change where packets begin and end:
  /// - SKZ84: a TMA with reserved bits set is corrupt and a bogus byte follows it. Both are returned as one PAD of 8 bytes.
  /// - SKD007: the first byte of a CYC followed by an OVF looks like two CYCs in a row. A processor writes two CYCs only when the counter
  ///   wraps, and then the first value is the maximum. In other cases the bytes are returned as one OVF of 3 bytes.
  void set_errata(const Errata& errata) {
    skip_corrupt_tma_ = errata.skz84;
    ovf_in_cyc_ = errata.skd007;
  }

  /// Returns the size in bytes of an item's payload inside a block (from BBP on); 0 outside. Inside a block a byte xxxxx100 is a BIP, not a
  /// TNT. Packets that are not allowed inside a block end it ([SDM] "BEP Packet"; timing, power and FUP packets are allowed).
  [[nodiscard]] uint8_t block_items() const { return block_items_; }
  void set_block_items(uint8_t bytes) { block_items_ = bytes; }

 private:
  Status slow(Packet& packet, uint64_t left);
  Status fixed(unsigned index, Packet& packet, uint64_t left);
  Status take_cyc(Packet& packet, uint64_t left);
  Status take_block_item(Packet& packet, uint64_t left);
  Status take_psb(Packet& packet, uint64_t left);
  Status take_tnt_long(Packet& packet, uint64_t left);

  Bytes bytes_;
  uint64_t offset_ = 0;
  uint8_t block_items_ = 0;  ///< 0: outside; 4 or 8: size of the items between BBP and BEP
  bool skip_corrupt_tma_ = false, ovf_in_cyc_ = false;
};

}  // namespace ptd::pt
