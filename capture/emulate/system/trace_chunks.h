// The trace of a cpu of an emulated machine in pieces, each an AUX record.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace ptd::emulate {

/// A part of a cpu's trace, from one PSB to another or to the end.
struct TraceChunk {
  int32_t cpu = 0;
  uint64_t offset_bytes = 0, size_bytes = 0;
  uint64_t end_ns = 0;  ///< no byte of it was written later: the time of the PSB after it, or of the trace's end
};

/// What `trace_chunks` cuts.
struct CutTrace {
  int32_t cpu = 0;
  uint64_t size_bytes = 0;
  std::span<const uint64_t> psbs;  ///< offset and TSC of each, in order
  uint64_t end_tsc = 0;            ///< the trace ends at this TSC
};

/// Cuts a trace at PSBs into chunks of about `chunk_bytes`. `to_ns` converts a TSC.
[[nodiscard]] std::vector<TraceChunk> trace_chunks(const CutTrace& trace, uint64_t chunk_bytes,
                                                   const std::function<uint64_t(uint64_t)>& to_ns);

}  // namespace ptd::emulate
