// Converts a thread's raw ground truth to ETMv4 or ETE packets and the matching ground truth file.
#pragma once

#include <functional>
#include <string>

#include "capture/emulate/etm/truth_file.h"

namespace ptd::emulate {

/// Files that encode_etm() writes.
struct EtmFiles {
  std::string packets;
  std::string truth;  ///< a raw log (TruthLog): the same blocks, synchronisations where the packets have them
};

/// Options that differ between a cpu of a whole machine and a program's thread.
struct EtmMachineOptions {
  bool whole_machine = false;     ///< the log has contexts and exceptions to traced code, and no synchronisations after the first
  uint64_t sync_bytes = 1 << 14;  ///< between synchronisations: TRCSYNCPR
  bool ete = false;               ///< ETE in place of ETMv4
};

/// Encodes the flow of a raw log (of A64 code), up to its last whole record. `lookup` gives its blocks; `tid` becomes the context
/// id; `on_passed` is called with parts of the log that are encoded. Packets represent executed code only: the emulator's times at
/// synchronisations are the only times. Errors: of the file system.
[[nodiscard]] Status encode_etm(Bytes log, const TruthFileWriter::Lookup& lookup, int32_t tid, const EtmFiles& files,
                                const std::function<void(Bytes)>& on_passed, const EtmMachineOptions& machine = {});

}  // namespace ptd::emulate
