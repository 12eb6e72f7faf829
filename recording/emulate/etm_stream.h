// From a thread's raw ground truth to its ETMv4 packets, and the ground truth that goes with them.
#pragma once

#include <vector>

#include "recording/emulate/truth_file.h"

namespace ptd::emulate {

struct EtmStream {
  std::vector<std::byte> packets;
  std::vector<std::byte> truth;  ///< a raw log (TruthLog): the same blocks, synchronisations where the packets have them
};

/// Encodes what a raw log (of A64 code) says that ran, up to its last whole record. `lookup` gives its blocks; `tid` becomes the context
/// id. Packets stand for what ran alone: the emulator's times at synchronisations are the only times.
[[nodiscard]] EtmStream encode_etm(Bytes log, const TruthFileWriter::Lookup& lookup, int32_t tid);

}  // namespace ptd::emulate
