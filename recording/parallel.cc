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

constexpr uint64_t kMostLaneBytes = 1U << 17;      // trace of one lane: a millisecond's work, so that nobody wakes anybody often
constexpr uint64_t kLanesGrowBy = 8;               // a lane is no larger than what was taken before it, divided by this
constexpr size_t kMostDeliveredBytes = 1U << 20;   // output that is worth waking for
constexpr size_t kFirstDeliveredBytes = 1U << 12;  // at first, so that the first line comes soon

struct Piece {
  AuxSegment segment;
  std::vector<std::byte> scratch;
};

/// Output that waits for its turn.
struct Held {
  Batch batch;
  const Piece* piece = nullptr;
};

/// Neighbouring segments that a worker has taken.
struct Lane {
  uint64_t first = 0, last = 0;  ///< segments that begin in [first, last)
  unsigned worker = 0;
  std::deque<Piece> pieces;
  std::vector<Held> held;
  size_t held_bytes = 0;
  bool done = false;
};

class Crew {
 public:
  Crew(const ParallelJob& job, unsigned threads) : job_(job), next_(job.find(job.first_offset)), spare_(threads) {
    share_bytes_ = std::max<uint64_t>(job.held_bytes / threads, 1U << 20);
    most_ahead_ = 4 * uint64_t{threads};
    for (unsigned i = 0; i < threads; ++i) decoders_.push_back(job.make_decoder());
    for (unsigned i = 0; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  }
  ~Crew() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  void deliver(const Sink& sink) {
    EventJoin join;
    std::vector<Held> taken;
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [&] { return lanes_.empty() ? all_taken() : is_ready(*lanes_.front()); });
      if (lanes_.empty()) return;
      Lane& lane = *lanes_.front();
      const bool last = lane.done;
      taken.clear();
      taken.swap(lane.held);
      lane.held_bytes = 0;
      enough_bytes_ = std::min(2 * enough_bytes_, std::min<size_t>(kMostDeliveredBytes, share_bytes_ / 2));
      const bool wake = waiting_ != 0;
      lock.unlock();
      if (wake) room_.notify_all();
      for (Held& held : taken) {
        join.apply(held.batch);
        if (!sink(held.batch, *decoders_[lane.worker], held.piece->segment)) return;
        held.batch.clear();
      }
      lock.lock();
      // Back to who filled them, whose caches they are in.
      for (Held& held : taken) spare_[lane.worker].push_back(std::move(held.batch));
      if (!last) continue;
      lanes_.pop_front();
      if (waiting_ != 0) room_.notify_all();
    }
  }

 private:
  [[nodiscard]] bool all_taken() const { return next_ >= job_.last_offset || next_ == kNone; }
  [[nodiscard]] bool is_ready(const Lane& lane) const { return lane.done || lane.held_bytes >= enough_bytes_; }

  template <typename Condition>
  void wait_for_room(std::unique_lock<std::mutex>& lock, Condition&& condition) {
    if (condition()) return;
    ++waiting_;
    room_.wait(lock, condition);
    --waiting_;
  }

  // The lane taken next; null: there is none. The lanes stand in the order of segments.
  Lane* take(unsigned worker) {
    std::unique_lock lock(mutex_);
    wait_for_room(lock, [&] { return stopped_ || all_taken() || lanes_.size() < most_ahead_; });
    if (stopped_ || all_taken()) return nullptr;
    lanes_.push_back(std::make_unique<Lane>());
    Lane* lane = lanes_.back().get();
    lane->worker = worker;
    lane->first = next_;
    const uint64_t enough = lane->first + std::min(taken_bytes_ / kLanesGrowBy, kMostLaneBytes);
    do {
      next_ = job_.find(next_ + 1);
    } while (next_ < enough && !all_taken());
    lane->last = std::min(next_, job_.last_offset);
    taken_bytes_ += std::min(next_ - lane->first, kMostLaneBytes);
    if (all_taken()) ready_.notify_all();
    return lane;
  }

  void work(unsigned worker) {
    FlowDecoder& decoder = *decoders_[worker];
    std::vector<Batch> batches;
    while (Lane* lane = take(worker)) {
      const uint64_t end = lane->last;  // when it is done, the lane may be gone
      for (uint64_t at = lane->first; at < end && at != kNone;) {
        Piece& piece = lane->pieces.emplace_back();
        piece.segment = job_.segment(at, piece.scratch);
        at = job_.find(at + 1);
        const bool last = at >= end || at == kNone;
        decoder.begin(piece.segment);
        for (bool more = true; more;) {
          Batch batch;
          if (!batches.empty()) {
            batch = std::move(batches.back());
            batches.pop_back();
          }
          batch.capacity_blocks = kBatchBlocks;
          more = decoder.next(batch);
          if (!hand_over(*lane, {std::move(batch), &piece}, last && !more, batches)) return;
        }
      }
    }
  }

  // False: all is to end.
  bool hand_over(Lane& lane, Held held, bool done, std::vector<Batch>& batches) {
    std::unique_lock lock(mutex_);
    wait_for_room(lock, [&] { return stopped_ || lane.held_bytes < share_bytes_; });
    if (stopped_) return false;
    lane.held_bytes += bytes_of(held.batch);
    lane.held.push_back(std::move(held));
    lane.done = done;
    if (batches.empty()) batches.swap(spare_[lane.worker]);
    const bool awaited = lanes_.front().get() == &lane && is_ready(lane);
    lock.unlock();
    if (awaited) ready_.notify_all();
    return true;
  }

  const ParallelJob& job_;
  uint64_t share_bytes_ = 0, most_ahead_ = 0;
  std::mutex mutex_;
  std::condition_variable ready_;  // for who delivers
  std::condition_variable room_;   // for the workers
  uint64_t next_;                  // where the segment begins that is taken next
  uint64_t taken_bytes_ = 0;       // about
  size_t enough_bytes_ = kFirstDeliveredBytes;
  unsigned waiting_ = 0;  // workers
  bool stopped_ = false;
  std::deque<std::unique_ptr<Lane>> lanes_;
  std::vector<std::vector<Batch>> spare_;  // by worker
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
