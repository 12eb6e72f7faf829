// Segments side by side: one mutex, touched once a batch.
#include "recording/parallel.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "decoder/event_join.h"

namespace ptd {
namespace {

using Sink = std::function<bool(const Batch&, const FlowDecoder&, const AuxSegment&)>;
constexpr size_t kBatchBlocks = 1U << 14;
constexpr unsigned kMaxThreads = 256;
constexpr uint64_t kNone = ~uint64_t{0};  // see ParallelJob::find

size_t bytes_of(const Batch& batch) {
  return batch.blocks.size() * sizeof(Block) + batch.marks.size() * sizeof(Mark) + batch.events.size() * sizeof(Event) +
         batch.gaps.size() * sizeof(Gap);
}

/// A segment that a worker has taken.
struct Lane {
  AuxSegment segment;
  std::vector<std::byte> scratch;
  const FlowDecoder* decoder = nullptr;
  std::deque<Batch> batches;
  size_t held_bytes = 0;
  bool done = false;
};

class Crew {
 public:
  Crew(const ParallelJob& job, unsigned threads) : job_(job), next_(job.find(job.first_offset)) {
    share_bytes_ = std::max<uint64_t>(job.held_bytes / threads, 1U << 20);
    most_ahead_ = 4 * uint64_t{threads};
    for (unsigned i = 0; i < threads; ++i) decoders_.push_back(job.make_decoder());
    for (unsigned i = 0; i < threads; ++i) workers_.emplace_back([this, i] { work(*decoders_[i]); });
  }
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void deliver(const Sink& sink) {
    EventJoin join;
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return lanes_.empty() ? all_taken() : !lanes_.front()->batches.empty() || lanes_.front()->done; });
      if (lanes_.empty()) return;
      Lane& lane = *lanes_.front();
      if (lane.batches.empty()) {
        lanes_.pop_front();
        changed_.notify_all();
        continue;
      }
      Batch batch = std::move(lane.batches.front());
      lane.batches.pop_front();
      lane.held_bytes -= bytes_of(batch);
      lock.unlock();
      changed_.notify_all();
      join.apply(batch);
      const bool more = sink(batch, *lane.decoder, lane.segment);
      lock.lock();
      batch.clear();
      spare_.push_back(std::move(batch));
      if (!more) return;
    }
  }

 private:
  // Lane of the segment taken next; null: there is none. The lanes stand in the order of segments.
  Lane* take(const FlowDecoder& decoder) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stopped_ || all_taken() || lanes_.size() < most_ahead_; });
    if (stopped_ || all_taken()) return nullptr;
    lanes_.push_back(std::make_unique<Lane>());
    Lane* lane = lanes_.back().get();
    lane->decoder = &decoder;
    const uint64_t at = next_;
    next_ = job_.find(at + 1);
    const bool last = all_taken();
    lock.unlock();
    if (last) changed_.notify_all();
    lane->segment = job_.segment(at, lane->scratch);
    return lane;
  }

  [[nodiscard]] bool all_taken() const { return next_ >= job_.last_offset || next_ == kNone; }

  void work(FlowDecoder& decoder) {
    while (Lane* lane = take(decoder)) {
      decoder.begin(lane->segment);
      for (bool more = true; more;) {
        Batch batch = empty_batch();
        more = decoder.next(batch);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return stopped_ || lane->held_bytes < share_bytes_; });
        if (stopped_) return;
        lane->held_bytes += bytes_of(batch);
        lane->batches.push_back(std::move(batch));
        lane->done = !more;
        const bool awaited = lanes_.front().get() == lane;
        lock.unlock();
        if (awaited) changed_.notify_all();
      }
    }
  }

  Batch empty_batch() {
    const std::lock_guard lock(mutex_);
    Batch batch;
    if (!spare_.empty()) {
      batch = std::move(spare_.back());
      spare_.pop_back();
    }
    batch.capacity_blocks = kBatchBlocks;
    return batch;
  }

  const ParallelJob& job_;
  uint64_t share_bytes_ = 0, most_ahead_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t next_;  // where the segment begins that is taken next
  bool stopped_ = false;
  std::deque<std::unique_ptr<Lane>> lanes_;
  std::vector<Batch> spare_;
  std::vector<std::unique_ptr<FlowDecoder>> decoders_;
  std::vector<std::thread> workers_;
};

void run_alone(const ParallelJob& job, const Sink& sink) {
  const std::unique_ptr<FlowDecoder> decoder = job.make_decoder();
  EventJoin join;
  Batch batch;
  batch.capacity_blocks = kBatchBlocks;
  std::vector<std::byte> scratch;
  for (uint64_t at = job.find(job.first_offset); at < job.last_offset && at != kNone; at = job.find(at + 1)) {
    const AuxSegment piece = job.segment(at, scratch);
    decoder->begin(piece);
    for (bool more = true; more;) {
      batch.clear();
      more = decoder->next(batch);
      join.apply(batch);
      if (!sink(batch, *decoder, piece)) return;
    }
  }
}

}  // namespace

void run_job(const ParallelJob& job, const Sink& sink) {
  unsigned threads = 0;  // no more than there are segments
  for (uint64_t at = job.find(job.first_offset); at < job.last_offset && at != kNone && threads < std::min(job.threads, kMaxThreads);
       at = job.find(at + 1))
    ++threads;
  if (threads <= 1) return run_alone(job, sink);
  Crew(job, threads).deliver(sink);
}

}  // namespace ptd
