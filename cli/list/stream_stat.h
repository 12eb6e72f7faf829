// StreamStat: counts of one stream, for `ptdecode stat`.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "cli/report/missing_report.h"
#include "ptdecode/pt/packet.h"
#include "ptdecode/recording.h"

namespace ptd::cli {

inline constexpr size_t kEventKinds = static_cast<size_t>(EventKind::interrupt_flag) + 1;
inline constexpr size_t kBlockFlagBits = 7;

/// Plain counters.
struct StreamStat {
  StreamInfo info;
  bool is_decoded = true;  ///< if not, only the packets and windows are counted
  std::array<uint64_t, pt::kPacketKinds> packets{};
  std::map<std::string, uint64_t> arm_packets;  ///< of CoreSight, by name
  uint64_t segments = 0;
  uint64_t packet_bytes = 0, bad_bytes = 0;
  uint64_t instructions = 0, blocks = 0, int3_hits = 0;
  std::array<uint64_t, kEventKinds> events{};
  std::array<uint64_t, kBlockFlagBits> flagged_blocks{}, flagged_instructions{};  ///< by bit of Block::flags
  uint64_t uncertain_instructions = 0;
  std::map<std::string, uint64_t> windows;           ///< AUX samples by event
  uint64_t window_bytes = 0, undecoded_windows = 0;  ///< bytes with repetitions; windows without a PSB
  GapTally gaps;

  /// Counts the AUX samples of a stream.
  void add_windows(const Recording& recording, uint32_t stream);

  void add_packets(const AuxSegment& segment);
  void add_arm_packets(const arm::TraceConfig& config, const AuxSegment& segment);
  void add(const Batch& batch);

 private:
  static constexpr size_t kBlocksAtOnce = 16;
  void add_some(std::span<const Block, kBlocksAtOnce> some);
  void add_flagged(std::span<const Block> some);
};

/// Text for people.
[[nodiscard]] std::string stat_text(const StreamStat& stat);
[[nodiscard]] nlohmann::json stat_json(const StreamStat& stat);

}  // namespace ptd::cli
