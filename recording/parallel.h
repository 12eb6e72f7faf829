// Decodes the segments of one stream in parallel and outputs them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ptdecode/flow_decoder.h"
#include "recording/batch_filter.h"

namespace ptd {

struct ParallelJob {
  uint64_t first_offset = 0, last_offset = 0;  ///< segments that begin in [first, last)
  unsigned threads = 1;
  uint64_t held_bytes = 0;  ///< output of all threads that may wait for its turn, about
  /// Called by any thread: where the first segment at or behind `at` begins, ~0 if there is none.
  std::function<uint64_t(uint64_t at)> find;
  /// Called by any thread: the segment that begins at `at`. Its bytes are valid until its scratch is used again.
  std::function<AuxSegment(uint64_t at, std::vector<std::byte>& scratch)> segment;
  std::function<std::unique_ptr<FlowDecoder>()> make_decoder;
  MakeBatchFilter make_filter;  ///< called by the thread that calls run_job(); may be empty
};

/// Calls `sink` on this thread with every batch of every segment in order; false from it stops. With one thread nothing is held.
///
/// Each thread, this one too, takes the next segments that nobody has and decodes them into batches. Only the oldest batches are taken by
/// the sink; a thread ahead of them waits when its share of held_bytes is full. So the oldest never wait for others, and memory is bounded
/// however long a segment is. This thread decodes while nothing has its turn.
void run_job(const ParallelJob& job, const std::function<bool(const Batch&, const FlowDecoder&, const AuxSegment&)>& sink);

}  // namespace ptd
