// Decodes streams in parallel and merges their steps by time: see call_walk.h.
#include "ptdecode/call_walk.h"

#include <algorithm>
#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <thread>
#include <unordered_map>
#include <utility>

#include "analysis/call_flow.h"
#include "analysis/flow_clock.h"
#include "analysis/flow_dates.h"
#include "analysis/gap_marks.h"
#include "analysis/walk/group_builder.h"
#include "analysis/walk/recorded_steps.h"
#include "decoder/uncounted_rounds.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

constexpr size_t kGivenSteps = 2048;
constexpr unsigned kWarmUpSegments = 8;
static_assert(kWarmUpSegments > FlowDates::kRateSegments && kWarmUpSegments > CycleShare::kRateSegments);
// With more streams than kManyStreams, each decodes smaller batches, and only so many at a time have threads of their own: memory is for each.
constexpr size_t kManyStreams = 64, kSmallBatchBlocks = 1U << 10;
// Of them, short ones decode some steps ahead. If a stream ends with them, its decoder is freed, which takes more memory than the steps.
constexpr uint64_t kShortBytes = 4096;
constexpr size_t kStepsAhead = 1024, kBatchesAhead = 8;
constexpr size_t kFirstSteps = 64;  // the first ones are output early, for a short time to the first line

/// When a step comes, of those of all streams. A thread that moves leaves one cpu before it comes to the other: of equal times, a switch_in and
/// what follows it in its stream come later.
struct Moment {
  TimeNs time;
  bool late = false;
  size_t stream = 0;  ///< index of its StreamWalk
  friend auto operator<=>(const Moment&, const Moment&) = default;
};
constexpr Moment kNever{kTimeMax, true, ~size_t{0}};

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
      : recording_(shared.recording), options_(shared.options), functions_(shared.functions), stream_(stream.index), threads_(stream.threads),
        schedule_(shared.schedule), inlined_(shared.inlined), index_(index), is_one_of_many_(shared.streams > kManyStreams),
        looks_ahead_(is_one_of_many_ && recording_.streams()[stream_].size_bytes <= kShortBytes), helped_(shared.helped), finished_(shared.finished) {}
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
    flow_.emplace(recording_.symbolizer(), recording_.timeline(), functions_, info.cpu, info.tid, flow_clock(recording_, stream_, schedule_), inlined_);
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
  [[nodiscard]] Moment moment(const FlowStep& step) const { return {step.time, step.kind == FlowKind::switch_in || step.time == switched_in_, index_}; }
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
    if (step.kind == FlowKind::switch_in) [[unlikely]] switched_in_ = step.time;
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
    const auto take_gap = [this](const Gap& gap, const Mark& mark) { gap.time.overlaps(options_.time) ? options_.on_gap(gap, mark) : void(); };
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
  std::optional<CallFlow> flow_;  ///< until the stream's end, as decode_
  std::optional<RecordedSteps> recorded_;  ///< in place of both
  uint64_t segment_ = ~uint64_t{0};  ///< where the last batch's began
  uint64_t offset_ = 0;              ///< of the trace, that progress was told of
  GapMarks gaps_;
  bool ended_ = false;               ///< nothing more is decoded
  bool whole_ = false;               ///< because the stream is over
  Status status_;
  StepItems items_;
  size_t at_ = 0, group_at_ = 0;    ///< the next of them
  bool given_ = false;              ///< the step at at_; its moves from move_ up to move_end_ were not
  size_t move_ = 0, move_end_ = 0;
  bool group_open_ = false;         ///< the next group has begun
  std::vector<FlowStep> expanded_;  ///< they come before items_
  size_t expanded_at_ = 0;
  TimeNs switched_in_ = kTimeMin;  ///< the last switch_in
  FunctionProfile& finished_;
};

/// The groups that have begun, of all streams. A group is taken when it ends, unless another stream has a step of its thread in between.
class OpenGroups {
 public:
  enum class Answer : uint8_t { opened, refused, later };
  using Expand = std::function<void(size_t stream)>;
  using OnGroup = std::function<void(uint32_t unit, uint32_t group, uint32_t depth)>;
  /// `expand`: puts the steps of a stream's open group in its place, and gives the stream another turn.
  OpenGroups(CallTree& tree, Expand expand, OnGroup on_group) : tree_(tree), expand_(std::move(expand)), on_group_(std::move(on_group)) {
    recount_.drop_calls();
  }

  Answer open(const CallGroup& group, size_t stream) {
    const Thread thread = thread_of(group.tid, group.cpu);
    if (!alone(thread, stream)) return Answer::later;
    if (!tree_.accepts(group)) return Answer::refused;
    open_.emplace(thread, stream);
    return Answer::opened;
  }
  /// False: the step comes later, because steps of an open group of its thread come first.
  bool may_take(const FlowStep& step, size_t stream) { return open_.empty() || alone(thread_of(step.tid, step.cpu), stream); }
  void close(const CallGroup& group, std::span<const CallGroup::Function> functions, uint32_t unit) {
    open_.erase(thread_of(group.tid, group.cpu));
    const uint32_t depth = tree_.take(group);
    for (const CallGroup::Function& each : functions) {
      if (!tree_.is_open(each.id)) continue;
      FunctionTotals& inner = removed_.of(each.id);
      inner.total_ns += each.total_ns;
      inner.instructions += each.instructions;
      inner.cycles += each.cycles;
    }
    if (on_group_) on_group_(unit, group.number, depth);
  }
  /// The calls of these steps of a group are followed one by one: their unit has counted them.
  void expanded(const std::vector<FlowStep>& steps) {
    recount_.expect_group();
    for (const FlowStep& step : steps) recount_.take(step);
    recount_.flush();
    recount_.items.clear();
  }
  /// Returns what units counted and a merge must not count.
  [[nodiscard]] FunctionProfile removed() const {
    FunctionProfile removed = removed_;
    removed.add(recount_.totals());
    return removed;
  }

 private:
  using Thread = std::pair<int32_t, int32_t>;
  static Thread thread_of(int32_t tid, int32_t cpu) { return {tid, tid > 0 ? -1 : cpu}; }
  bool alone(const Thread& thread, size_t stream) {
    const auto other = open_.find(thread);
    if (other == open_.end() || other->second == stream) return true;
    const size_t place = other->second;
    open_.erase(other);
    expand_(place);
    return false;
  }
  CallTree& tree_;
  const Expand expand_;
  const OnGroup on_group_;
  std::map<Thread, size_t> open_;  ///< the stream of each
  GroupBuilder recount_;           ///< counts the calls of all groups that are followed step by step
  FunctionProfile removed_;        ///< what calls inside calls of their function add to sums
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
  bool take(const FlowStep& step);
  size_t take_moves(const FlowStep& step, std::span<const InlinedMove> moves, TimeNs last);
  bool begins(TimeNs time);
  bool make_space();
  void clear() {
    steps_.clear();
    left_out_ = 0;
  }
  void give_turn(size_t index);
  void finish();

  const Recording& recording_;
  const CallWalkOptions options_;
  const ThreadSchedule schedule_;
  InlineChains inlined_;
  std::vector<uint32_t> streams_;
  size_t helped_ = 0;  ///< see StreamWalk::Shared
  std::vector<std::unique_ptr<StreamWalk>> walks_;
  std::priority_queue<Moment, std::vector<Moment>, std::greater<>> order_;
  std::vector<CallStep> steps_;
  bool full_ = false;    ///< steps_ are to be given
  bool inside_ = false;  ///< of the wanted time
  bool past_ = false, stopped_ = false;
  size_t given_at_once_ = kFirstSteps;
  size_t left_out_ = 0;  ///< steps that are left out of steps_ and count as if they were in it

 public:
  CallTree tree{&schedule_};
  OpenGroups groups;
  FunctionProfile finished;  ///< of the calls that units followed
  bool timed = false;
  Status status;
};

CallCursor::State::State(const Recording& recording, CallWalkOptions options, FunctionTable& functions)
    : recording_(recording),
      options_(std::move(options)),
      schedule_(recording.contexts()),
      streams_(options_.streams),
      inside_(options_.time.first == kTimeMin),
      groups(tree, [this](size_t stream) {
        walks_[stream]->expand(groups);
        order_.push(walks_[stream]->next());
      }, options_.on_group) {
  if (!options_.enters) tree.leave_out_enters();
  if (inside_ && options_.totals != nullptr) tree.add_to(*options_.totals);
  if (options_.inlined) tree.follow_inlined(inlined_);
  if (options_.fibres && options_.steps)
    status = Error{ErrorCode::contradictory_options, "fibres are not followed in steps that units of a plan have left: decode the plan itself", 0};
  for (uint32_t i = 0; options_.streams.empty() && i < recording.streams().size(); ++i) streams_.push_back(i);
  const bool is_undated = std::any_of(streams_.begin(), streams_.end(), [&](uint32_t stream) { return recording.streams()[stream].time.first == kTimeMin; });
  if (options_.fibres && is_undated && streams_.size() > 1)
    status = Error{ErrorCode::not_recorded, "the trace has no times, so the order in which threads ran a fibre is not known: follow fibres in one stream (cpu, thread) at a time", 0};
  const StreamWalk::Shared shared{recording, options_, functions, schedule_, options_.inlined ? &inlined_ : nullptr, finished, streams_.size(), helped_};
  for (const StreamWalk::Stream& stream : share_threads(recording, streams_, options_.threads)) {
    walks_.push_back(std::make_unique<StreamWalk>(shared, stream, walks_.size()));
    order_.push(walks_.back()->next());
  }
}

// Returns whether a step or move at `time` is taken; not if it is after the wanted time, or not for now.
inline bool CallCursor::State::begins(TimeNs time) {
  if (steps_.size() + left_out_ >= given_at_once_ && !make_space()) [[unlikely]] return false;
  if (!inside_ && options_.time.first <= time) [[unlikely]] {
    inside_ = true;
    clear();
    tree.restart(options_.time.first, steps_);
    if (options_.totals != nullptr) tree.add_to(*options_.totals);
  }
  past_ = options_.time.last < time;
  return !past_;
}

// False: the step is not taken, at least not for now.
inline bool CallCursor::State::take(const FlowStep& step) {
  if (!begins(step.time)) [[unlikely]] return false;
  left_out_ += tree.take(step, steps_);
  return true;
}

// Returns how many of the moves are taken for now: none after `last`.
size_t CallCursor::State::take_moves(const FlowStep& step, std::span<const InlinedMove> moves, TimeNs last) {
  InlinedRun run{step, {}};
  run.kind = FlowKind::moves;
  size_t count = 0;
  while (count < moves.size() && moves[count].time <= last && begins(moves[count].time)) {
    const TimeNs wanted = inside_ ? options_.time.last : TimeNs{options_.time.first.value - 1};
    const size_t used = steps_.size() + left_out_;
    run.run = moves.subspan(count);
    run.last = std::min(last, wanted);
    run.limit = given_at_once_ - std::min(used, given_at_once_);
    left_out_ += tree.take(run, steps_);
    count += run.taken;
  }
  return count;
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
  while (!order_.empty() && !full_ && !past_ && !stopped_ && status) {
    const Moment turn = order_.top();
    order_.pop();
    // A stream has several turns where a group of it was expanded; one of them is right.
    if (walks_[turn.stream] != nullptr && walks_[turn.stream]->next() == turn) give_turn(turn.stream);
  }
  if (!full_) finish();
  given = steps_;
  return full_ || inside_;
}

void CallCursor::State::give_turn(size_t index) {
  StreamWalk& walk = *walks_[index];
  const Moment until = order_.empty() ? kNever : order_.top();
  const auto take_step = [this](const FlowStep& step) { return take(step); };
  const auto take_all = [this](const FlowStep& step, std::span<const InlinedMove> moves, TimeNs last) { return take_moves(step, moves, last); };
  const bool more = !walk.started() ? walk.start() : options_.steps ? walk.give_recorded(until, take_step, groups) : walk.give(until, take_step, take_all);
  timed = timed || walk.timed();
  if (more) return order_.push(walk.next());
  if (status && !walk.status()) status = walk.status();
  walks_[index].reset();
}

void CallCursor::State::finish() {
  if (!inside_) steps_.clear();
  if (past_) {
    for (const auto& walk : walks_) {
      if (walk != nullptr) walk->use_next([this](const FlowStep& next) { tree.take_until(options_.time.last, next); });
    }
  }
  // A stream of one thread is over with it; a cpu's goes on with others.
  std::unordered_map<int32_t, bool> goes_on;  // by thread with a stream
  for (size_t i = 0; i < streams_.size(); ++i) {
    const StreamInfo& info = recording_.streams()[streams_[i]];
    if (info.cpu < 0) goes_on.try_emplace(info.tid, walks_[i] != nullptr);
  }
  tree.finish(steps_, past_ ? options_.time.last : kTimeMin, [&](const CallThread& thread) {
    if (const auto own = goes_on.find(thread.tid); own != goes_on.end()) return own->second;
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
bool CallCursor::add_finished(FunctionProfile& profile) const {
  profile.add(state_->finished);
  return profile.subtract(state_->groups.removed());
}

Status walk_calls(const Recording& recording, const CallWalkOptions& options, FunctionTable& functions, const CallSink& sink, bool* timed) {
  CallCursor cursor(recording, options, functions);
  std::span<const CallStep> steps;
  while (cursor.next(steps) && sink(steps, cursor.tree())) {
  }
  if (timed != nullptr) *timed = cursor.timed();
  return cursor.status();
}

}  // namespace ptd
