// ITM packets ([ARMv7-M] "Debug ITM and DWT packet protocol"): software writes to stimulus ports, DWT events, timestamps.
#pragma once

#include "ptdecode/types.h"

namespace ptd::arm {

enum class ItmKind : uint8_t {
  not_sync,  ///< a byte before the first synchronisation
  sync,      ///< at least 47 zero bits and a one
  overflow,
  software,    ///< payload of a stimulus port
  hardware,    ///< payload of a DWT packet type
  extension,   ///< of the stimulus port number (a page of 32), or of the DWT's
  local_time,  ///< ticks since the last one
  global_time_low,
  global_time_high,
  bad,  ///< no packet begins with this byte
};
[[nodiscard]] const char* name(ItmKind kind);

struct ItmPacket {
  ItmKind kind = ItmKind::bad;
  uint8_t size_bytes = 0;     ///< size of the packet, at most 255 for a synchronisation
  uint8_t payload_bytes = 0;  ///< software, hardware
  uint8_t control = 0;        ///< local_time: how late it is (0: in step); global_time_low: bit 0: the clock changed, bit 1: the upper half
                              ///< changed too
  uint32_t source = 0;        ///< software: port, page * 32 included; hardware: packet type
  uint64_t value = 0;
};

/// Reads packets one by one. The bytes must outlive it.
class ItmReader {
 public:
  ItmReader() = default;
  explicit ItmReader(Bytes bytes) : bytes_(bytes) {}

  /// Reads the packet at offset() and moves past it. Returns false if there is none or the bytes end inside it.
  bool next(ItmPacket& packet);
  [[nodiscard]] uint64_t offset() const { return offset_; }

 private:
  bool read_source(uint8_t header, ItmPacket& packet);
  bool read_other(uint8_t header, ItmPacket& packet);
  bool read_number(unsigned most_bytes, ItmPacket& packet);
  [[nodiscard]] bool sync_at(uint64_t offset, uint64_t& end) const;

  Bytes bytes_;
  uint64_t offset_ = 0;
  uint64_t at_ = 0;  ///< position inside the packet being read
  uint32_t page_ = 0;
  bool synced_ = false;
};

}  // namespace ptd::arm
