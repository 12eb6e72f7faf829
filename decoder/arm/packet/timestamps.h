// Timestamps: finds timestamp packets that others contradict. Private to the project.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ptdecode/arm/packet_reader.h"
#include "ptdecode/aux_segment.h"

namespace ptd::arm {

/// Returns whether a timestamp between `least` and `most` differs from `value` in one byte of its packet.
[[nodiscard]] bool is_one_byte_off(uint64_t value, uint64_t least, uint64_t most);

/// Calls `visit` with the offset and value of each timestamp from the first A-Sync on.
void visit_timestamps(Bytes bytes, const TraceConfig& config, const std::function<void(uint64_t offset, uint64_t value)>& visit);

/// What is wrong with the timestamps of a segment.
struct TimestampCheck {
  std::vector<TimestampRepair> repairs;  ///< in order of their offsets
  bool first_is_wrong = false;           ///< the first timestamp is among them
  uint64_t last = 0;                     ///< the last timestamp that is not wrong; 0 if there is none
};

/// Checks the timestamps of a segment. `first_is_known`: false if its first timestamp is known to be wrong.
///
/// A packet has only the low bytes of a timestamp ([ETMv4] "Timestamp instruction trace packet"), so a wrong byte is in all timestamps up
/// to the next packet with that byte. Timestamps never go back. Where one does, it or an earlier one is wrong: the one that last wrote the
/// highest byte in which the two differ. It is wrong if another value of one byte makes it fit the timestamps before and after it. If there
/// is exactly one such value, the byte is corrected. Otherwise no timestamp with this byte is used. If either may be wrong, neither is
/// used. If one byte explains nothing, the clock has changed, as where a guest with an offset begins to run, and nothing is wrong.
///
/// Limitations: a wrong byte that contradicts no other timestamp is not found. Of several wrong packets without right ones between them,
/// none may be found.
[[nodiscard]] TimestampCheck check_timestamps(Bytes bytes, const TraceConfig& config, TickRange bounds, bool first_is_known);

/// The timestamps of a segment, to look ahead of the flow. They are read on first use. The bytes and the repairs must outlive it.
class TimestampIndex {
 public:
  void begin(Bytes bytes, const TraceConfig& config, std::span<const TimestampRepair> repairs);
  /// Returns the value of the first timestamp after the packet at `offset`; 0 if there is none.
  [[nodiscard]] uint64_t after(uint64_t offset);
  /// Returns the value of the last timestamp after the packet at `offset` up to which no packet leaves user code; 0 if there is none.
  [[nodiscard]] uint64_t last_of_user(uint64_t offset);

 private:
  void read();
  struct Known {
    uint64_t offset_bytes = 0, value = 0;
    uint64_t left_bytes = 0;  ///< the offset of the last packet before it that leaves user code
  };
  Bytes bytes_;
  TraceConfig config_;
  std::span<const TimestampRepair> repairs_;
  std::vector<Known> known_;
  bool is_read_ = false;
};

}  // namespace ptd::arm
