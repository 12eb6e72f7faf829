// ParallelDecode: decodes the segments of one stream in parallel and outputs them in order.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ptdecode/flow_decoder.h"
#include "ptdecode/recording.h"

namespace ptd {

inline constexpr size_t kBatchBlocks = 1U << 14;

struct ParallelJob {
  uint64_t first_offset = 0, last_offset = 0;  ///< segments that begin in [first, last)
  unsigned threads = 1;                        ///< including the one that calls next()
  uint64_t held_bytes = 0;                     ///< output of all threads that may wait for its turn, about
  /// Called on any thread: returns the start of the first segment at or after `at`, ~0 if there is none.
  std::function<uint64_t(uint64_t at)> find;
  /// Called on any thread: returns the segment that begins at `at`. Its bytes are valid until its scratch is reused.
  std::function<AuxSegment(uint64_t at, std::vector<std::byte>& scratch)> segment;
  std::function<std::unique_ptr<FlowDecoder>()> make_decoder;
  size_t batch_blocks = kBatchBlocks;
};

/// A batch with what it is from.
struct DecodedBatch {
  const Batch* batch = nullptr;
  const FlowDecoder* decoder = nullptr;
  const AuxSegment* segment = nullptr;
};

/// Outputs every batch of every segment in order, on the thread that calls next(). With one thread no batch is buffered.
///
/// Each thread, including that of next(), takes the next free segments and decodes them into batches. next() takes the oldest batches; a
/// thread that is ahead waits when its share of held_bytes is full. So the oldest never wait for others, and memory is bounded for segments
/// of any length. The thread of next() decodes while the next batch is not ready.
class ParallelDecode {
 public:
  /// Starts the other threads: no more than there are segments, and fewer if the system gives no more. What is missing costs only time.
  explicit ParallelDecode(ParallelJob job);
  /// Ends them.
  ~ParallelDecode();
  ParallelDecode(const ParallelDecode&) = delete;
  ParallelDecode& operator=(const ParallelDecode&) = delete;

  /// Sets `next` to the next batch, valid until the next call; false if there are no more. What a function of the job throws, on any
  /// thread, ends the job and is thrown by this call. After a fork, the child has no other threads: this throws std::system_error there.
  [[nodiscard]] bool next(DecodedBatch& next);

 private:
  class Crew;
  std::unique_ptr<Crew> crew_;
};

struct StreamPart {
  uint32_t stream = 0;
  uint64_t first_offset = 0, last_offset = Recording::kStreamEnd;
  unsigned threads = 1;
  size_t batch_blocks = kBatchBlocks;
};

/// Starts the decoding of what Recording::decode_parallel decodes. Errors: no_such_stream.
[[nodiscard]] Result<std::unique_ptr<ParallelDecode>> start_decode(const Recording& recording, const StreamPart& part);

}  // namespace ptd
