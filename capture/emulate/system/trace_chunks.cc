// Cuts traces at PSBs.
#include "capture/emulate/system/trace_chunks.h"

#include <algorithm>

namespace ptd::emulate {

std::vector<TraceChunk> trace_chunks(const CutTrace& trace, uint64_t chunk_bytes, const std::function<uint64_t(uint64_t)>& to_ns) {
  std::vector<TraceChunk> chunks;
  uint64_t begin = 0, last_tsc = 0;
  for (size_t i = 0; i + 1 < trace.psbs.size(); i += 2) {
    const uint64_t offset = trace.psbs[i];
    last_tsc = trace.psbs[i + 1];
    if (offset > trace.size_bytes || offset < begin || offset - begin < chunk_bytes) continue;
    chunks.push_back({trace.cpu, begin, offset - begin, to_ns(last_tsc)});
    begin = offset;
  }
  if (begin < trace.size_bytes) chunks.push_back({trace.cpu, begin, trace.size_bytes - begin, to_ns(std::max(last_tsc, trace.end_tsc))});
  return chunks;
}

}  // namespace ptd::emulate
