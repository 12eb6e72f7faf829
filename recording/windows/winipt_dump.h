// The dumps of Windows' driver ipt.sys, as `ipttool --trace PID FILE` writes them. Source: [winipt]; Microsoft documents no such format.
//
//   (version u16, valid u16, size u32)              IPT_TRACE_DATA: what the driver returns; ipttool leaves it out
//   for each thread:
//     thread id u64, timing u32, MTC frequency u32,
//     ratio of frequency to TSC u32,
//     ring offset u32, size u32                     IPT_TRACE_HEADER
//     the ring's bytes                              the driver writes next at the ring offset
//
// Zeros may follow the last thread: ipttool asks for the size, allocates a zeroed buffer, reads into it, and writes all of it. If a thread
// ended in between, its trace is not in it.
//
// A ring that is full is overwritten from its start: its oldest byte is then at the ring offset. One that never was full is zero from there
// on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "image/base/mapped_file.h"
#include "ptdecode/error.h"
#include "ptdecode/finding.h"
#include "recording/trace/streams.h"

namespace ptd {

struct WiniptDump {
  static constexpr size_t kMostThreads = 1U << 14;

  /// One a thread, with its tid. A ring that was full begins at its ring offset, or at its size: stream offsets are those of the ring, plus
  /// its size after the end of it.
  std::vector<AuxStream> streams;
  bool has_psb = false;           ///< some stream can be decoded
  bool has_timing = false;        ///< some thread has timing packets (TSC, MTC)
  uint8_t mtc_period = 0;         ///< IA32_RTIT_CTL.MTCFreq of the threads with timing packets
  uint32_t tsc_ctc_ratio = 0;     ///< TSC ticks per crystal tick, 0: unknown
  std::vector<Finding> findings;  ///< without space and ip
  std::vector<std::string> warnings;
};

/// Reads a dump. Streams refer to the bytes of `file`. Damage is a finding. Errors: empty_file, truncated_header; unsupported_version of
/// IPT_TRACE_DATA.
[[nodiscard]] Result<WiniptDump> read_winipt(const MappedFile& file);

}  // namespace ptd
