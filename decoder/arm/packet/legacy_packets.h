// ETMv3, PTM and STM packets from OpenCSD's packet processors, and ITM packets from our reader. The only file that includes OpenCSD.
#pragma once

#include <memory>
#include <vector>

#include "ptdecode/arm/config.h"
#include "ptdecode/types.h"

namespace ptd::arm {

enum class LegacyKind : uint8_t {
  not_sync,  ///< bytes before the first synchronisation
  async,
  isync,     ///< address and context; starts or restarts the flow, or confirms its position
  branch,    ///< address, perhaps with an exception
  atoms,     ///< bits, the oldest in bit 0
  waypoint,  ///< PTM: the flow reached this address without a branch
  context_id,
  vmid,
  timestamp,
  cycles,
  trigger,
  exception_return,
  exception_entry,
  data,  ///< data trace; values written by software (STM, ITM) or observed by the DWT
  overflow,
  other,  ///< does not affect the flow
  bad,    ///< invalid packet
};

/// One packet; fields that its kind does not use are 0.
struct LegacyPacket {
  LegacyKind kind = LegacyKind::other;
  const char* name = "";      ///< of the packet type
  uint64_t offset_bytes = 0;  ///< offset in the reader's bytes
  Ip ip;
  ExecMode mode = ExecMode::unknown;
  bool has_ip = false;
  bool exception = false, cancels = false;        ///< branch: an exception was taken; it undoes the last instruction
  bool periodic = false, after_overflow = false;  ///< isync
  bool non_secure = false, hypervisor = false;
  bool has_context = false, has_context_id = false, has_vmid = false;
  bool has_cycles = false;
  uint8_t atoms = 0;
  uint32_t bits = 0;
  uint32_t number = 0;  ///< of the exception
  uint32_t context_id = 0, vmid = 0, cycles = 0;
  uint64_t value = 0;                ///< timestamp, also a Gray-coded one as a number; STM, ITM: data
  uint32_t channel = 0, master = 0;  ///< STM; ITM: channel = stimulus port or packet type of the DWT
  bool has_timestamp = false;        ///< STM: the packet's own, in `timestamp`
  uint64_t timestamp = 0;
};

/// Reads packets from the bytes of one source.
class LegacyReader {
 public:
  /// Protocols other than etmv3, ptm, stm and itm give no packets.
  LegacyReader(Bytes bytes, const TraceConfig& config);
  ~LegacyReader();
  LegacyReader(LegacyReader&&) noexcept;
  LegacyReader& operator=(LegacyReader&&) noexcept;

  /// Returns the next packets, several at a time; empty at the end. Valid until the next call.
  const std::vector<LegacyPacket>& next();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd::arm
