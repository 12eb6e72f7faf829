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
  /// Called on any thread: returns the start of the first segment at or after `at`, ~0 if there is none.
  std::function<uint64_t(uint64_t at)> find;
  /// Called on any thread: returns the segment that begins at `at`. Its bytes are valid until its scratch is reused.
  std::function<AuxSegment(uint64_t at, std::vector<std::byte>& scratch)> segment;
  std::function<std::unique_ptr<FlowDecoder>()> make_decoder;
  MakeBatchFilter make_filter;  ///< called by the thread that calls run_job(); may be empty
};

/// Calls `sink` on this thread with every batch of every segment in order; it stops if `sink` returns false. With one thread no batch is
/// buffered.
///
/// Each thread, including this one, takes the next free segments and decodes them into batches. The sink takes the oldest batches; a thread
/// that is ahead waits when its share of held_bytes is full. So the oldest never wait for others, and memory is bounded for segments of any
/// length. This thread decodes while the next batch is not ready.
///
/// What a function of the job or the sink throws, on any thread, ends the job and is thrown by this call.
void run_job(const ParallelJob& job, const std::function<bool(const Batch&, const FlowDecoder&, const AuxSegment&)>& sink);

}  // namespace ptd
