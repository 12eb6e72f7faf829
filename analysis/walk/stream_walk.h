// StreamWalk: the steps of one stream, decoded or from files.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/flow_clock.h"
#include "analysis/flow_dates.h"
#include "analysis/gap_marks.h"
#include "analysis/walk/recorded_steps.h"
#include "decoder/uncounted_rounds.h"
#include "ptdecode/call_walk.h"
#include "recording/parallel.h"

namespace ptd {

inline constexpr unsigned kWarmUpSegments = 8;
static_assert(kWarmUpSegments > FlowDates::kRateSegments && kWarmUpSegments > CycleShare::kRateSegments);
// With more streams than kManyStreams, each decodes smaller batches, and only so many at a time have threads of their own: memory is for
// each.
inline constexpr size_t kManyStreams = 64, kSmallBatchBlocks = 1U << 10;
// Of them, short ones decode some steps ahead. If a stream ends with them, its decoder is freed, which takes more memory than the steps.
inline constexpr uint64_t kShortBytes = 4096;
inline constexpr size_t kStepsAhead = 1024, kBatchesAhead = 8;
inline constexpr size_t kFirstSteps = 64;  // the first ones are output early, for a short time to the first line

/// When a step comes, of those of all streams. A thread that moves leaves one cpu before it comes to the other: of equal times, a switch_in
/// and what follows it in its stream come later.
struct Moment {
  TimeNs time;
  bool late = false;
  size_t stream = 0;  ///< index of its StreamWalk
  friend auto operator<=>(const Moment&, const Moment&) = default;
};
inline constexpr Moment kNever{kTimeMax, true, ~size_t{0}};

/// The steps of one stream.
class StreamWalk {
 public:
  struct Stream {
    uint32_t index = 0;
    unsigned threads = 1;
  };
  /// What the streams of a walk share. `inlined`: null if inlined functions are not followed. `finished`: gets the totals of units.
  struct Shared {
    const Recording& recording;
    const CallWalkOptions& options;
    FunctionTable& functions;
    const ThreadSchedule& schedule;
    InlineChains* inlined;
    FunctionProfile& finished;
    size_t streams = 0;
    size_t& helped;  ///< streams with threads of their own that are being decoded
  };
  StreamWalk(const Shared& shared, const Stream& stream, size_t index)
      : recording_(shared.recording),
        options_(shared.options),
        functions_(shared.functions),
        stream_(stream.index),
        threads_(stream.threads),
        schedule_(shared.schedule),
        inlined_(shared.inlined),
        index_(index),
        is_one_of_many_(shared.streams > kManyStreams),
        looks_ahead_(is_one_of_many_ && recording_.streams()[stream_].size_bytes <= kShortBytes),
        helped_(shared.helped),
        finished_(shared.finished) {}
  StreamWalk(const StreamWalk&) = delete;
  StreamWalk& operator=(const StreamWalk&) = delete;

  [[nodiscard]] bool started() const { return started_ || recorded_.has_value(); }
  /// Returns when the next step, or group of steps, comes.
  [[nodiscard]] Moment next() const {
    if (!started()) return {recording_.streams()[stream_].time.first, false, index_};
    if (expanded_at_ < expanded_.size()) return moment(expanded_[expanded_at_]);
    if (at_group()) return moment(group_open_ ? group().last : group().first);
    return given_ ? moment(items_.moves[move_].time) : moment(items_.steps[at_]);
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] bool timed() const { return recorded_ ? recorded_->timed() : flow_ ? flow_->timed() : timed_; }

  /// Calls `use` with the next step, which may be one that only enters or leaves inlined functions, if it is known.
  template <typename Use>
  void use_next(const Use& use) const {
    if (!started() || (expanded_at_ == expanded_.size() && at_group())) return;
    if (expanded_at_ < expanded_.size()) return use(expanded_[expanded_at_]);
    if (at_ == items_.steps.size()) return;
    FlowStep step = items_.steps[at_];
    if (given_) {
      const InlinedMove& move = items_.moves[move_];
      step.time = move.time;
      step.instructions = move.instructions;
      step.cycles = move.cycles;
    }
    use(step);
  }

  /// Starts decoding and continues to the first step; false if there is none.
  bool start() {
    if (options_.steps) {
      const auto files = options_.steps->by_stream.find(stream_);
      static const std::vector<StepFiles::File> kNone;
      const bool all = options_.all_steps || options_.time.first != kTimeMin || options_.time.last != kTimeMax;
      recorded_.emplace(files == options_.steps->by_stream.end() ? kNone : files->second, all);
      return fetch();
    }
    started_ = true;
    const StreamInfo& info = recording_.streams()[stream_];
    gaps_ = GapMarks(info.tid);
    flow_.emplace(recording_.symbolizer(), recording_.timeline(), functions_, info.cpu, info.tid,
                  flow_clock(recording_, stream_, schedule_), inlined_);
    if (options_.fibres) flow_->follow_fibres();
    if (options_.time.first != kTimeMin || options_.time.last != kTimeMax) flow_->divide_at(options_.time);
    is_helped_ = threads_ > 1 && (!is_one_of_many_ || helped_ < std::max<size_t>(kManyStreams, std::thread::hardware_concurrency()));
    auto decode = start_decode(recording_, {stream_, first_segment(), Recording::kStreamEnd, is_helped_ ? threads_ : 1,
                                            is_one_of_many_ ? kSmallBatchBlocks : kBatchBlocks});
    if (decode) {
      decode_ = std::move(*decode);
      helped_ += is_helped_ ? 1 : 0;
    } else {
      status_ = decode.error();
    }
    return fetch();
  }
  /// Calls `take` with each step before `until`, and `take_moves` with moves; false when the stream is over.
  template <typename Take, typename TakeMoves>
  bool give(const Moment& until, const Take& take, const TakeMoves& take_moves) {
    for (;;) {
      for (; at_ < items_.steps.size(); ++at_) {
        const FlowStep& step = items_.steps[at_];
        if (!given_) {
          if (until.time <= step.time && until < moment(step)) return true;
          if (!take(step)) return true;
          pass(step);
        }
        if (step.moves != 0 && !give_moves(step, until, take_moves)) return true;
      }
      if (!fetch()) return false;
    }
  }
  /// The same for steps in files. `groups` takes the groups: see OpenGroups.
  template <typename Take, typename Groups>
  bool give_recorded(const Moment& until, const Take& take, Groups& groups) {
    for (;;) {
      const bool from_group = expanded_at_ < expanded_.size();
      if (!from_group && !at_group() && at_ == items_.steps.size()) {
        if (!fetch()) return false;
        continue;
      }
      if (until < next()) return true;
      if (!from_group && at_group()) {
        if (!take_group(groups)) return status_.ok();
        continue;
      }
      const FlowStep step = from_group ? expanded_[expanded_at_] : items_.steps[at_];
      if (!groups.may_take(step, index_) || !take(step)) return true;
      pass(step);
      ++(from_group ? expanded_at_ : at_);
    }
  }
  /// Puts the steps of the open group in its place.
  template <typename Groups>
  void expand(Groups& groups) {
    expanded_.clear();
    expanded_at_ = 0;
    group_open_ = false;
    if (Status status = recorded_->expand(group(), expanded_); !status) status_ = status;
    groups.expanded(expanded_);
    ++group_at_;
  }

 private:
  [[nodiscard]] bool at_group() const { return group_at_ < items_.groups.size() && items_.groups[group_at_].before <= at_; }
  [[nodiscard]] const CallGroup& group() const { return items_.groups[group_at_]; }
  [[nodiscard]] Moment moment(TimeNs time) const { return {time, time == switched_in_, index_}; }
  [[nodiscard]] Moment moment(const FlowStep& step) const {
    return {step.time, step.kind == FlowKind::switch_in || step.time == switched_in_, index_};
  }
  // Gives the moves of the step that was given last. False: not all of them, for now.
  template <typename TakeMoves>
  bool give_moves(const FlowStep& step, const Moment& until, const TakeMoves& take_moves) {
    if (!given_) move_end_ = move_ + step.moves;
    given_ = true;
    const bool excludes = until < moment(until.time);  // the time of `until` itself
    if (excludes && until.time == kTimeMin) return false;
    const TimeNs last{until.time.value - (excludes ? 1 : 0)};
    move_ += take_moves(step, std::span(items_.moves).subspan(move_, move_end_ - move_), last);
    given_ = move_ != move_end_;
    return !given_;
  }
  void pass(const FlowStep& step) {
    if (step.kind == FlowKind::switch_in) [[unlikely]]
      switched_in_ = step.time;
  }
  // False: not now, or it failed.
  template <typename Groups>
  bool take_group(Groups& groups) {
    if (group_open_) {
      groups.close(group(), items_.functions_of(group()), recorded_->unit());
      group_open_ = false;
      ++group_at_;
      return true;
    }
    switch (groups.open(group(), index_)) {
      case Groups::Answer::opened:
        group_open_ = true;
        return true;
      case Groups::Answer::refused:
        expand(groups);
        return status_.ok();
      case Groups::Answer::later:
        return false;
    }
    return false;
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
  [[nodiscard]] bool stopped() const { return options_.stopped && options_.stopped(); }
  void note(const Batch& batch, const AuxSegment& segment) {
    const auto take_gap = [this](const Gap& gap, const Mark& mark) {
      gap.time.overlaps(options_.time) ? options_.on_gap(gap, mark) : void();
    };
    if (options_.on_gap) gaps_.take(batch, take_gap);
    for (const Event& event : batch.events) {
      if (options_.on_rounds && is_uncounted_rounds(event)) options_.on_rounds(event);
    }
    if (segment.stream_offset_bytes <= offset_) return;
    if (options_.progress) options_.progress(segment.stream_offset_bytes - offset_);
    offset_ = segment.stream_offset_bytes;
  }
  // Decodes up to the next steps. False: there are no more.
  bool fetch() {
    at_ = group_at_ = move_ = 0;
    items_.clear();
    if (recorded_) return fetch_recorded();
    const auto is_enough = [this](size_t batches) {
      return !items_.steps.empty() && (!looks_ahead_ || items_.steps.size() >= kStepsAhead || batches >= kBatchesAhead);
    };
    for (size_t batches = 0; !ended_ && !is_enough(batches); ++batches) {
      ended_ = !take_batch();
      if (ended_) flow_->finish(whole_ ? end_of_flow(recording_, stream_) : kTimeMin);
      take_steps();
    }
    if (ended_) free_decoder();
    return !items_.steps.empty();
  }
  void take_steps() {
    if (items_.steps.empty()) return flow_->give(items_.steps, items_.moves);
    StepItems more;
    flow_->give(more.steps, more.moves);
    items_.steps.insert(items_.steps.end(), more.steps.begin(), more.steps.end());
    items_.moves.insert(items_.moves.end(), more.moves.begin(), more.moves.end());
  }
  void free_decoder() {
    if (decode_ && is_helped_) --helped_;
    decode_.reset();
    timed_ = timed();
    flow_.reset();
    if (looks_ahead_) items_.steps.shrink_to_fit();
  }
  bool fetch_recorded() {
    while (items_.empty()) {
      const Result<bool> more = recorded_->next(items_, functions_, finished_);
      if (!more) status_ = more.error();
      if (!more || !more.value()) break;
    }
    return !items_.empty() && status_.ok();
  }
  // False: it was the last that is wanted.
  bool take_batch() {
    DecodedBatch next;
    if (decode_ == nullptr || !decode_->next(next)) {
      whole_ = !stopped();
      return false;
    }
    const AuxSegment& segment = *next.segment;
    if (std::exchange(segment_, segment.stream_offset_bytes) != segment.stream_offset_bytes)
      flow_->begin_segment(segment, begins_window(recording_, stream_, segment));
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
  const size_t index_;
  const bool is_one_of_many_, looks_ahead_;
  size_t& helped_;
  bool is_helped_ = false;  ///< counted in it
  bool started_ = false, timed_ = false;
  std::unique_ptr<ParallelDecode> decode_;
  std::optional<CallFlow> flow_;           ///< until the stream's end, as decode_
  std::optional<RecordedSteps> recorded_;  ///< in place of both
  uint64_t segment_ = ~uint64_t{0};        ///< where the last batch's began
  uint64_t offset_ = 0;                    ///< of the trace, that progress was told of
  GapMarks gaps_;
  bool ended_ = false;  ///< nothing more is decoded
  bool whole_ = false;  ///< because the stream is over
  Status status_;
  StepItems items_;
  size_t at_ = 0, group_at_ = 0;  ///< the next of them
  bool given_ = false;            ///< the step at at_; its moves from move_ up to move_end_ were not
  size_t move_ = 0, move_end_ = 0;
  bool group_open_ = false;         ///< the next group has begun
  std::vector<FlowStep> expanded_;  ///< they come before items_
  size_t expanded_at_ = 0;
  TimeNs switched_in_ = kTimeMin;  ///< the last switch_in
  FunctionProfile& finished_;
};

}  // namespace ptd
