// Decodes streams in parallel and merges their steps by time: see call_walk.h.
#include "ptdecode/call_walk.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <queue>
#include <thread>
#include <utility>

#include "analysis/call_flow.h"
#include "analysis/flow_clock.h"
#include "analysis/flow_dates.h"
#include "analysis/step_file.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

constexpr size_t kGivenSteps = 2048;
constexpr unsigned kWarmUpSegments = 8;
static_assert(kWarmUpSegments > FlowDates::kRateSegments);
constexpr size_t kFirstSteps = 64;  // the first ones are output early, for a short time to the first line

/// The steps of one stream that units left in files.
class RecordedSteps {
 public:
  explicit RecordedSteps(const std::vector<std::string>& paths) : paths_(paths) {}
  /// Appends the next steps. False: there are no more, or it failed.
  Result<bool> next(std::vector<FlowStep>& steps, FunctionTable& functions) {
    for (;;) {
      if (!reader_) {
        if (at_ >= paths_.size()) return false;
        auto opened = StepFileReader::open(paths_[at_++]);
        if (!opened) return opened.error();
        reader_ = std::move(*opened);
      }
      const Result<bool> more = reader_->next(steps, functions);
      if (!more) return more;
      if (!steps.empty()) steps.front().instructions = static_cast<uint32_t>(std::min<uint64_t>(steps.front().instructions + std::exchange(left_, 0), UINT32_MAX));
      if (more.value()) return true;
      left_ += reader_->tail();
      timed_ = timed_ || reader_->timed();
      reader_.reset();
    }
  }
  [[nodiscard]] bool timed() const { return timed_; }

 private:
  const std::vector<std::string>& paths_;
  size_t at_ = 0;
  std::unique_ptr<StepFileReader> reader_;
  uint64_t left_ = 0;  ///< instructions since the last step
  bool timed_ = false;
};

/// The steps of one stream.
class StreamWalk {
 public:
  struct Stream {
    uint32_t index = 0;
    unsigned threads = 1;
  };
  /// What the streams of a walk share. `inlined`: null if inlined functions are not followed.
  struct Shared {
    const Recording& recording;
    const CallWalkOptions& options;
    FunctionTable& functions;
    const ThreadSchedule& schedule;
    InlineChains* inlined;
  };
  StreamWalk(const Shared& shared, const Stream& stream)
      : recording_(shared.recording), options_(shared.options), functions_(shared.functions), stream_(stream.index), threads_(stream.threads),
        schedule_(shared.schedule), inlined_(shared.inlined) {}
  StreamWalk(const StreamWalk&) = delete;
  StreamWalk& operator=(const StreamWalk&) = delete;

  [[nodiscard]] bool started() const { return flow_.has_value() || recorded_.has_value(); }
  /// Returns the time of the next step.
  [[nodiscard]] TimeNs time() const { return started() ? steps_[at_].time : recording_.streams()[stream_].time.first; }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool timed() const { return recorded_ ? recorded_->timed() : flow_ && flow_->timed(); }

  /// Starts decoding and continues to the first step; false if there is none.
  bool start() {
    if (options_.steps) {
      const auto files = options_.steps->by_stream.find(stream_);
      static const std::vector<std::string> kNone;
      recorded_.emplace(files == options_.steps->by_stream.end() ? kNone : files->second);
      return fetch();
    }
    const StreamInfo& info = recording_.streams()[stream_];
    flow_.emplace(recording_.symbolizer(), recording_.timeline(), functions_, info.cpu, info.tid, flow_clock(recording_, stream_, schedule_), inlined_);
    auto decode = start_decode(recording_, {stream_, first_segment(), Recording::kStreamEnd, threads_});
    if (decode) {
      decode_ = std::move(*decode);
    } else {
      status_ = decode.error();
    }
    return fetch();
  }
  /// Calls `take` with each step up to `until`; false when the stream is over.
  template <typename Take>
  bool give(TimeNs until, const Take& take) {
    for (;;) {
      for (; at_ < steps_.size(); ++at_) {
        if (until < steps_[at_].time) return true;
        if (!take(steps_[at_])) return true;
      }
      if (!fetch()) return false;
    }
  }

 private:
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
  [[nodiscard]] bool stopped() const { return options_.stopped && options_.stopped(); }
  void note(const Batch& batch, const AuxSegment& segment) {
    if (options_.on_gap) {
      for (const Gap& gap : batch.gaps) options_.on_gap(gap);
    }
    if (segment.stream_offset_bytes <= offset_) return;
    if (options_.progress) options_.progress(segment.stream_offset_bytes - offset_);
    offset_ = segment.stream_offset_bytes;
  }
  // Decodes up to the next steps. False: there are no more.
  bool fetch() {
    at_ = 0;
    steps_.clear();
    if (recorded_) return fetch_recorded();
    while (steps_.empty() && !ended_) {
      ended_ = !take_batch();
      if (ended_) flow_->finish(options_.time.last == kTimeMax && !stopped() ? recording_.streams()[stream_].time.last : kTimeMin);
      flow_->give(steps_);
    }
    if (ended_) decode_.reset();
    return !steps_.empty();
  }
  bool fetch_recorded() {
    while (steps_.empty()) {
      const Result<bool> more = recorded_->next(steps_, functions_);
      if (!more) status_ = more.error();
      if (!more || !more.value()) break;
    }
    return !steps_.empty() && status_.ok();
  }
  // False: it was the last that is wanted.
  bool take_batch() {
    DecodedBatch next;
    if (decode_ == nullptr || !decode_->next(next)) return false;
    const AuxSegment& segment = *next.segment;
    if (std::exchange(segment_, segment.stream_offset_bytes) != segment.stream_offset_bytes) flow_->begin_segment(segment.time);
    flow_->take(*next.batch, next.decoder->blocks());
    note(*next.batch, segment);
    return options_.time.last >= segment.time.first && !stopped();
  }

  const Recording& recording_;
  const CallWalkOptions& options_;
  FunctionTable& functions_;
  const uint32_t stream_;
  const unsigned threads_;
  const ThreadSchedule& schedule_;
  InlineChains* const inlined_;
  std::unique_ptr<ParallelDecode> decode_;
  std::optional<CallFlow> flow_;
  std::optional<RecordedSteps> recorded_;  ///< in place of both
  uint64_t segment_ = ~uint64_t{0};  ///< where the last batch's began
  uint64_t offset_ = 0;              ///< of the trace, that progress was told of
  bool ended_ = false;               ///< nothing more is decoded
  Status status_;
  std::vector<FlowStep> steps_;
  size_t at_ = 0;  ///< the next of them
};

// How many threads decode each stream, including that of CallCursor::next(), which decodes what is missing and follows the calls: of those
// for all streams that overlap it in time, its share by size. With more threads than one, each stream has one of its own.
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
    shares.push_back({stream, std::max(std::min(threads, 2U), static_cast<unsigned>(std::min(share, 1.0) * threads + 0.5))});
  }
  return shares;
}

}  // namespace

struct CallCursor::State {
  State(const Recording& recording, CallWalkOptions options, FunctionTable& functions);
  bool next(std::span<const CallStep>& given);

 private:
  using Turn = std::pair<TimeNs, size_t>;
  bool take(const FlowStep& step);
  bool make_space();
  void clear() {
    steps_.clear();
    left_out_ = 0;
  }
  void finish();

  const Recording& recording_;
  const CallWalkOptions options_;
  const ThreadSchedule schedule_;
  InlineChains inlined_;
  std::vector<uint32_t> streams_;
  std::vector<std::unique_ptr<StreamWalk>> walks_;
  std::priority_queue<Turn, std::vector<Turn>, std::greater<>> order_;
  std::vector<CallStep> steps_;
  bool full_ = false;    ///< steps_ are to be given
  bool inside_ = false;  ///< of the wanted time
  bool past_ = false, stopped_ = false;
  size_t given_at_once_ = kFirstSteps;
  /// Steps that are left out of steps_ and count as if they were in it: of streams with equal times, which one comes next depends on where
  /// steps_ was full.
  size_t left_out_ = 0;

 public:
  CallTree tree{&schedule_};
  bool timed = false;
  Status status;
};

CallCursor::State::State(const Recording& recording, CallWalkOptions options, FunctionTable& functions)
    : recording_(recording),
      options_(std::move(options)),
      schedule_(recording.contexts()),
      streams_(options_.streams),
      inside_(options_.time.first == kTimeMin) {
  if (!options_.enters) tree.leave_out_enters();
  if (options_.inlined) tree.follow_inlined(inlined_);
  for (uint32_t i = 0; options_.streams.empty() && i < recording.streams().size(); ++i) streams_.push_back(i);
  const StreamWalk::Shared shared{recording, options_, functions, schedule_, options_.inlined ? &inlined_ : nullptr};
  for (const StreamWalk::Stream& stream : share_threads(recording, streams_, options_.threads)) {
    walks_.push_back(std::make_unique<StreamWalk>(shared, stream));
    order_.emplace(walks_.back()->time(), walks_.size() - 1);
  }
}

// False: the step is not taken, at least not for now.
inline bool CallCursor::State::take(const FlowStep& step) {
  if (steps_.size() + left_out_ >= given_at_once_ && !make_space()) [[unlikely]] return false;
  if (!inside_ && options_.time.first <= step.time) [[unlikely]] {
    inside_ = true;
    clear();
    tree.restart(options_.time.first, steps_);
  }
  past_ = options_.time.last < step.time;
  if (past_) [[unlikely]] return false;
  left_out_ += tree.take(step, steps_);
  return true;
}

// There are enough steps to give, if they are wanted. False: no more are taken now.
bool CallCursor::State::make_space() {
  stopped_ = options_.stopped && options_.stopped();
  full_ = inside_;
  if (inside_) {
    given_at_once_ = kGivenSteps;
  } else {
    clear();
  }
  return !full_ && !stopped_;
}

bool CallCursor::State::next(std::span<const CallStep>& given) {
  if (tree.finished()) return false;
  clear();
  full_ = false;
  while (!order_.empty() && !full_ && !past_ && !stopped_) {
    const size_t index = order_.top().second;
    order_.pop();
    StreamWalk& walk = *walks_[index];
    if (!walk.started()) {
      if (walk.start()) {
        order_.emplace(walk.time(), index);
      } else if (status && !walk.status()) {
        status = walk.status();
      }
      continue;
    }
    const bool more = walk.give(order_.empty() ? kTimeMax : order_.top().first, [this](const FlowStep& step) { return take(step); });
    if (more) order_.emplace(walk.time(), index);
    timed = timed || walk.timed();
    if (more) continue;
    if (status && !walk.status()) status = walk.status();
    walks_[index].reset();
  }
  if (!full_) finish();
  given = steps_;
  return full_ || inside_;
}

void CallCursor::State::finish() {
  if (!inside_) steps_.clear();
  // A stream of one thread is over with it; a cpu's goes on with others.
  tree.finish(steps_, past_ ? options_.time.last : kTimeMin, [this](const CallThread& thread) {
    for (size_t i = 0; i < streams_.size(); ++i) {
      const StreamInfo& info = recording_.streams()[streams_[i]];
      if (info.cpu < 0 && info.tid == thread.tid) return walks_[i] != nullptr;
    }
    return thread.tid <= 0 || schedule_.runs_after(thread.tid, options_.time.last);
  });
}

CallCursor::CallCursor(const Recording& recording, CallWalkOptions options, FunctionTable& functions)
    : state_(std::make_unique<State>(recording, std::move(options), functions)) {}
CallCursor::~CallCursor() = default;
bool CallCursor::next(std::span<const CallStep>& steps) { return state_->next(steps); }
const CallTree& CallCursor::tree() const { return state_->tree; }
bool CallCursor::timed() const { return state_->timed; }
const Status& CallCursor::status() const { return state_->status; }

Status walk_calls(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const CallSink& sink, bool* timed) {
  CallCursor cursor(recording, options, functions);
  std::span<const CallStep> steps;
  while (cursor.next(steps) && sink(steps, cursor.tree())) {
  }
  if (timed != nullptr) *timed = cursor.timed();
  return cursor.status();
}

}  // namespace ptd
