// ParallelDecode: exceptions of any thread are thrown by next(), and a system without more threads costs nothing but time.
#include "recording/parallel.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <cerrno>
#include <new>

#include "ptdecode/flow_decoder.h"

namespace {

std::atomic<int> threads_left{-1};  // that the system gives; negative: any number

}  // namespace

// Replaces the C library's for the whole test program.
extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*start)(void*), void* argument) {
  using Create = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  if (threads_left == 0) return EAGAIN;
  if (threads_left > 0) --threads_left;
  static const auto create = reinterpret_cast<Create>(::dlsym(RTLD_NEXT, "pthread_create"));
  return create(thread, attributes, start, argument);
}

namespace ptd {
namespace {

constexpr uint64_t kSegments = 60, kSegmentBytes = 4096;
constexpr int kBatches = 3;  // of a segment

/// Throws at the n-th call of any thread.
struct Bomb {
  std::atomic<int> calls_left{-1};
  void tick() {
    if (calls_left >= 0 && calls_left-- == 0) throw std::bad_alloc();
  }
};

/// Each segment has kBatches batches of one event, whose payload is their number.
class FakeDecoder final : public FlowDecoder {
 public:
  explicit FakeDecoder(Bomb& bomb) : bomb_(bomb) {}
  void begin(const AuxSegment& segment) override {
    bomb_.tick();
    at_ = segment.stream_offset_bytes / kSegmentBytes * kBatches;
    end_ = at_ + kBatches;
  }
  [[nodiscard]] const BlockTable& blocks() const override { return blocks_; }

 private:
  bool fill(Batch& batch, size_t) override {
    bomb_.tick();
    Event event;
    event.kind = EventKind::ptwrite;
    event.payload = at_++;
    batch.events.assign(2000, event);  // enough that others must wait for space
    return at_ < end_;
  }
  Bomb& bomb_;
  BlockTable blocks_;
  uint64_t at_ = 0, end_ = 0;
};

ParallelJob job_of(unsigned threads, Bomb& bomb) {
  ParallelJob job;
  job.last_offset = ~uint64_t{0};
  job.threads = threads;
  job.held_bytes = 1U << 16;
  job.find = [](uint64_t at) {
    const uint64_t next = (at + kSegmentBytes - 1) / kSegmentBytes;
    return next < kSegments ? next * kSegmentBytes : ~uint64_t{0};
  };
  job.segment = [&bomb](uint64_t at, std::vector<std::byte>&) {
    bomb.tick();
    AuxSegment segment;
    segment.stream_offset_bytes = at;
    return segment;
  };
  job.make_decoder = [&bomb] {
    bomb.tick();
    return std::make_unique<FakeDecoder>(bomb);
  };
  return job;
}

/// Runs a job whose n-th call of a function throws (n < 0: none does). Returns how many batches came, in order from the first one.
uint64_t run(unsigned threads, int bad_call, bool& failed) {
  Bomb bomb;
  bomb.calls_left = bad_call;
  uint64_t batches = 0;
  failed = false;
  try {
    ParallelDecode decode(job_of(threads, bomb));
    DecodedBatch next;
    while (decode.next(next)) {
      bomb.tick();
      EXPECT_EQ(batches, next.batch->events[0].payload);
      ++batches;
    }
  } catch (const std::bad_alloc&) {
    failed = true;
  }
  return batches;
}

TEST(Parallel, AnExceptionOfAnyThreadIsThrownByTheCall) {
  for (const unsigned threads : {1U, 2U, 5U}) {
    bool failed = false;
    EXPECT_EQ(kSegments * kBatches, run(threads, -1, failed));
    EXPECT_FALSE(failed);
    for (int bad_call = 0; bad_call < 400; bad_call += bad_call < 20 ? 1 : 7) {
      EXPECT_LT(run(threads, bad_call, failed), kSegments * kBatches);
      EXPECT_TRUE(failed) << threads << " threads, call " << bad_call;
    }
  }
}

TEST(Parallel, FewerThreadsThanAskedForGiveTheSame) {
  for (const int available : {0, 1, 3}) {
    threads_left = available;
    bool failed = false;
    EXPECT_EQ(kSegments * kBatches, run(8, -1, failed));
    EXPECT_FALSE(failed);
  }
  threads_left = -1;
}

}  // namespace
}  // namespace ptd
