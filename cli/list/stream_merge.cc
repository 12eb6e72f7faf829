// Threads, bounded queues and the merge: see stream_merge.h.
#include "cli/list/stream_merge.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>

namespace ptd::cli {

namespace {

constexpr size_t kQueuedChunks = 8, kSpareChunks = 2;
constexpr size_t kHeldTextBytes = 64U << 20, kMostChunkBytes = 1U << 18, kFewestChunkBytes = 1U << 12;

// A chunk is made, others are queued, spare or written. A buffer grows by doubling.
size_t chunk_bytes_for(size_t streams) {
  constexpr size_t kChunks = kQueuedChunks + kSpareChunks + 2;
  return std::clamp(kHeldTextBytes / (std::max<size_t>(streams, 1) * kChunks * 2), kFewestChunkBytes, kMostChunkBytes);
}

/// A queue of chunks between one producer and the merge.
class ChunkQueue final : public ChunkSink {
 public:
  explicit ChunkQueue(size_t chunk_bytes) : chunk_bytes_(chunk_bytes) {}
  [[nodiscard]] size_t chunk_bytes() const override { return chunk_bytes_; }
  bool push(Chunk& chunk) override {
    chunk.close();
    if (chunk.pieces.empty()) return !stopped();
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return queue_.size() < kQueuedChunks || stop_; });
    if (stop_) return false;
    const TimeNs time = chunk.current;
    queue_.push_back(std::move(chunk));
    chunk = Chunk{};
    if (!spare_.empty()) {
      chunk = std::move(spare_.back());
      spare_.pop_back();
    }
    chunk.current = time;
    filled_.notify_one();
    return true;
  }
  [[nodiscard]] bool stopped() const override { return stop_; }

  void end() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    filled_.notify_one();
  }
  /// The next chunk; false at the end of the stream.
  bool pop(Chunk& chunk) {
    std::unique_lock lock(mutex_);
    if (chunk.text.size() != 0 && spare_.size() < kSpareChunks) {
      chunk.text.clear();
      chunk.pieces.clear();
      spare_.push_back(std::move(chunk));
    }
    filled_.wait(lock, [this] { return !queue_.empty() || ended_; });
    if (queue_.empty()) return false;
    chunk = std::move(queue_.front());
    queue_.pop_front();
    room_.notify_one();
    return true;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    room_.notify_one();
  }

 private:
  const size_t chunk_bytes_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::deque<Chunk> queue_;
  std::vector<Chunk> spare_;
  bool ended_ = false;
  std::atomic<bool> stop_{false};
};

/// One stream in the merge: not started, running, or at its end.
class Lane {
 public:
  Lane(StreamTask task, size_t chunk_bytes) : task_(std::move(task)), chunk_bytes_(chunk_bytes) {}
  ~Lane() { stop(); }
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] TimeNs time() const { return queue_ == nullptr ? task_.earliest : chunk_.pieces[at_].time; }
  [[nodiscard]] bool started() const { return queue_ != nullptr; }

  /// Starts the stream and waits for its first piece; false if it has none.
  bool start() {
    queue_ = std::make_unique<ChunkQueue>(chunk_bytes_);
    thread_ = std::thread([this] {
      task_.run(*queue_);
      queue_->end();
    });
    return take_chunk();
  }
  /// Writes pieces up to and including time `until`; false when the stream has ended.
  bool write_until(TimeNs until, Output& output) {
    for (;;) {
      const size_t first = at_;
      while (at_ < chunk_.pieces.size() && chunk_.pieces[at_].time <= until) ++at_;
      if (at_ != first) {
        const size_t start = first == 0 ? 0 : chunk_.pieces[first - 1].end;
        if (!output.write(chunk_.text.view().substr(start, chunk_.pieces[at_ - 1].end - start))) return true;
      }
      if (at_ < chunk_.pieces.size()) return true;
      if (!take_chunk()) return false;
    }
  }
  void stop() {
    if (queue_ == nullptr) return;
    queue_->stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  bool take_chunk() {
    at_ = 0;
    if (queue_->pop(chunk_)) return true;
    stop();
    chunk_ = Chunk{};
    return false;
  }
  StreamTask task_;
  const size_t chunk_bytes_;
  std::unique_ptr<ChunkQueue> queue_;
  std::thread thread_;
  Chunk chunk_;
  size_t at_ = 0;
};

struct Later {
  bool operator()(const std::pair<TimeNs, size_t>& a, const std::pair<TimeNs, size_t>& b) const { return a > b; }
};

}  // namespace

bool merge_streams(std::vector<StreamTask> tasks, Output& output) {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::priority_queue<std::pair<TimeNs, size_t>, std::vector<std::pair<TimeNs, size_t>>, Later> order;
  for (StreamTask& task : tasks) {
    lanes.push_back(std::make_unique<Lane>(std::move(task), chunk_bytes_for(tasks.size())));
    order.emplace(lanes.back()->time(), lanes.size() - 1);
  }
  while (!order.empty() && !output.closed()) {
    const size_t index = order.top().second;
    order.pop();
    Lane& lane = *lanes[index];
    if (!lane.started()) {
      if (lane.start()) order.emplace(lane.time(), index);
      continue;
    }
    if (lane.write_until(order.empty() ? kTimeMax : order.top().first, output)) {
      if (!output.closed()) order.emplace(lane.time(), index);
    } else {
      lanes[index].reset();  // with its buffers
    }
  }
  lanes.clear();  // stops and joins
  return !output.closed();
}

}  // namespace ptd::cli
