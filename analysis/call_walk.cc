// Streams decoded side by side, their steps merged by time: see call_walk.h.
#include "ptdecode/call_walk.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <thread>
#include <utility>

#include "analysis/call_condenser.h"
#include "analysis/flow_clock.h"
#include "recording/batch_filter.h"

namespace ptd {
namespace {

constexpr size_t kQueuedChunks = 4, kChunkSteps = 4096, kGivenSteps = 2048;
constexpr unsigned kWarmUpSegments = 8;
constexpr size_t kFirstSteps = 64;  // the first ones go out early: somebody waits for the first line

/// A stream on a thread of its own, and the steps that it has ready.
class StreamWalk {
 public:
  struct Stream {
    uint32_t index = 0;
    unsigned threads = 1;
  };
  StreamWalk(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const Stream& stream,
             const ThreadRuns& runs, std::mutex& gap_mutex)
      : recording_(recording),
        options_(options),
        functions_(functions),
        stream_(stream.index),
        threads_(stream.threads),
        runs_(runs),
        gap_mutex_(gap_mutex) {}
  ~StreamWalk() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    room_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  StreamWalk(const StreamWalk&) = delete;
  StreamWalk& operator=(const StreamWalk&) = delete;

  [[nodiscard]] bool started() const { return thread_.joinable(); }
  [[nodiscard]] TimeNs time() const { return started() ? chunk_[at_].time : recording_.streams()[stream_].time.first; }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool timed() const { return timed_; }

  /// Starts it and waits for its first step; false if it has none.
  bool start() {
    thread_ = std::thread([this] { run(); });
    return fetch();
  }
  /// Calls `take` with each step up to `until`; false when the stream is over.
  template <typename Take>
  bool give(TimeNs until, const Take& take) {
    for (;;) {
      for (; at_ < chunk_.size(); ++at_) {
        if (until < chunk_[at_].time) return true;
        if (!take(chunk_[at_])) return true;
      }
      if (!fetch()) return false;
    }
  }

 private:
  void run() {
    uint64_t offset = 0;
    const uint64_t first = first_segment();
    const StreamInfo& info = recording_.streams()[stream_];
    flow_.emplace(recording_.symbolizer(), recording_.timeline(), functions_, info.cpu, info.tid, flow_clock(recording_, stream_, runs_));
    FunctionTable compared;
    const auto condense = [&](const BlockTable& blocks) { return std::make_unique<CallCondenser>(recording_, blocks, compared, info.tid); };
    const auto stopped = [this] { return options_.stopped && options_.stopped(); };
    status_ = decode_filtered(recording_, {stream_, first, Recording::kStreamEnd, threads_}, condense,
                              [&](const Batch& batch, const auto& decoder, const AuxSegment& segment) {
                                if (std::exchange(segment_, segment.stream_offset_bytes) != segment.stream_offset_bytes)
                                  flow_->begin_segment(segment.time);
                                flow_->take(batch, decoder.blocks());
                                note(batch, segment, offset);
                                if (options_.time.last < segment.time.first || stopped()) return false;
                                return flow_->out().size() < (pushed_ ? kChunkSteps : kFirstSteps) || push();
                              });
    flow_->finish(options_.time.last == kTimeMax && !stopped() ? info.time.last : kTimeMin);
    push();
    flow_.reset();
    const std::lock_guard lock(mutex_);
    ended_ = true;
    filled_.notify_one();
  }
  /// Decoding begins a few segments before the time that is wanted: dates depend on packets before it, and so does which calls are open.
  [[nodiscard]] uint64_t first_segment() const {
    if (options_.time.first == kTimeMin) return 0;
    uint64_t first = recording_.segment_at(stream_, options_.time.first);
    std::vector<std::byte> scratch;
    for (unsigned earlier = 0; earlier < kWarmUpSegments && first != 0; ++earlier) {
      AuxSegment segment;
      uint64_t at = first;
      if (!recording_.next_segment(stream_, at, segment, scratch) || segment.time.first == kTimeMin) break;
      first = std::min(first, recording_.segment_at(stream_, TimeNs{segment.time.first.value - 1}));
    }
    return first;
  }
  void note(const Batch& batch, const AuxSegment& segment, uint64_t& offset) {
    if (options_.on_gap && !batch.gaps.empty()) {
      const std::lock_guard lock(gap_mutex_);
      for (const Gap& gap : batch.gaps) options_.on_gap(gap);
    }
    if (segment.stream_offset_bytes <= offset) return;
    if (options_.progress) options_.progress(segment.stream_offset_bytes - offset);
    offset = segment.stream_offset_bytes;
  }
  bool push() {
    std::unique_lock lock(mutex_);
    room_.wait(lock, [this] { return queue_.size() < kQueuedChunks || stop_; });
    if (stop_) return false;
    timed_ = flow_->timed();
    pushed_ = true;
    queue_.push_back(std::move(flow_->out()));
    flow_->out() = std::move(spare_);
    flow_->out().clear();
    spare_.clear();
    filled_.notify_one();
    return true;
  }
  bool fetch() {
    at_ = 0;
    std::unique_lock lock(mutex_);
    do {
      filled_.wait(lock, [this] { return !queue_.empty() || ended_; });
      if (queue_.empty()) return false;
      spare_ = std::move(chunk_);
      chunk_ = std::move(queue_.front());
      queue_.pop_front();
      room_.notify_one();
    } while (chunk_.empty());
    return true;
  }

  const Recording& recording_;
  const CallWalkOptions& options_;
  FunctionTable& functions_;
  const uint32_t stream_;
  const unsigned threads_;
  const ThreadRuns& runs_;
  std::mutex& gap_mutex_;
  std::optional<CallFlow> flow_;  ///< of the stream's thread
  uint64_t segment_ = ~uint64_t{0};  ///< where the last batch's began
  Status status_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable room_, filled_;
  std::deque<std::vector<FlowStep>> queue_;
  bool stop_ = false, ended_ = false, pushed_ = false;
  std::atomic<bool> timed_{false};
  std::vector<FlowStep> spare_;  ///< memory of a chunk that is done with
  std::vector<FlowStep> chunk_;
  size_t at_ = 0;
};

// How many threads decode each stream: of those for all streams that overlap it in time, its share by size.
std::vector<StreamWalk::Stream> share_threads(const Recording& recording, const std::vector<uint32_t>& streams, unsigned threads) {
  if (threads == 0) threads = std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::pair<TimeNs, uint64_t>> starts, ends;  // and the bytes of the streams that begin or end until then
  for (const uint32_t stream : streams) {
    const StreamInfo& info = recording.streams()[stream];
    starts.emplace_back(info.time.first, info.size_bytes);
    ends.emplace_back(info.time.last, info.size_bytes);
  }
  for (auto* moments : {&starts, &ends}) {
    std::sort(moments->begin(), moments->end());
    for (size_t i = 1; i < moments->size(); ++i) (*moments)[i].second += (*moments)[i - 1].second;
  }
  const auto bytes_until = [](const auto& moments, const auto& place) { return place == moments.begin() ? 0 : std::prev(place)->second; };
  const auto earlier = [](const auto& moment, TimeNs t) { return moment.first < t; };
  const auto later = [](TimeNs t, const auto& moment) { return t < moment.first; };
  std::vector<StreamWalk::Stream> shares;
  for (const uint32_t stream : streams) {
    const StreamInfo& info = recording.streams()[stream];
    const uint64_t begun = bytes_until(starts, std::upper_bound(starts.begin(), starts.end(), info.time.last, later));
    const uint64_t over = bytes_until(ends, std::lower_bound(ends.begin(), ends.end(), info.time.first, earlier));
    const double share = static_cast<double>(info.size_bytes) / static_cast<double>(std::max<uint64_t>(begun - std::min(begun, over), 1));
    shares.push_back({stream, std::max(1U, static_cast<unsigned>(std::min(share, 1.0) * threads + 0.5))});
  }
  return shares;
}

}  // namespace

Status walk_calls(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const CallSink& sink, bool* timed) {
  std::mutex gap_mutex;
  const ThreadRuns runs(recording.contexts());
  std::vector<std::unique_ptr<StreamWalk>> walks;
  using Turn = std::pair<TimeNs, size_t>;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> order;
  std::vector<uint32_t> streams = options.streams;
  for (uint32_t i = 0; options.streams.empty() && i < recording.streams().size(); ++i) streams.push_back(i);
  for (const StreamWalk::Stream& stream : share_threads(recording, streams, options.threads)) {
    walks.push_back(std::make_unique<StreamWalk>(recording, options, functions, stream, runs, gap_mutex));
    order.emplace(walks.back()->time(), walks.size() - 1);
  }
  CallTree tree(&runs);
  std::vector<CallStep> steps;
  bool wanted = true, any_time = false, inside = options.time.first == kTimeMin, behind = false, given = false, stopped = false;
  Status status;
  const auto take = [&](const FlowStep& step) {
    if (!inside && options.time.first <= step.time) {
      inside = true;
      steps.clear();
      tree.restart(options.time.first, steps);
    }
    behind = options.time.last < step.time;
    if (behind) return false;
    tree.take(step, steps);
    if (steps.size() < (given ? kGivenSteps : kFirstSteps)) return true;
    given = given || inside;
    wanted = !inside || sink(steps, tree);
    steps.clear();
    stopped = options.stopped && options.stopped();
    return wanted && !stopped;
  };
  while (!order.empty() && wanted && !behind && !stopped) {
    const size_t index = order.top().second;
    order.pop();
    StreamWalk& walk = *walks[index];
    if (!walk.started()) {
      if (walk.start()) order.emplace(walk.time(), index);
      continue;
    }
    const bool more = walk.give(order.empty() ? kTimeMax : order.top().first, take);
    if (more && wanted) order.emplace(walk.time(), index);
    any_time = any_time || walk.timed();
    if (more) continue;
    if (status && !walk.status()) status = walk.status();
    walks[index].reset();
  }
  if (wanted && inside) {
    // A stream of one thread is over with it; a cpu's goes on with others.
    tree.finish(steps, behind ? options.time.last : kTimeMin, [&](const CallThread& thread) {
      for (size_t i = 0; i < streams.size(); ++i) {
        const StreamInfo& info = recording.streams()[streams[i]];
        if (info.cpu < 0 && info.tid == thread.tid) return walks[i] != nullptr;
      }
      return thread.tid <= 0 || runs.runs_after(thread.tid, options.time.last);
    });
    sink(steps, tree);
  }
  if (timed != nullptr) *timed = any_time;
  return status;
}

}  // namespace ptd
