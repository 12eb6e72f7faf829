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
#include "analysis/walk/stream_walk.h"
#include "decoder/uncounted_rounds.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

constexpr size_t kGivenSteps = 2048;
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
      groups(
          tree,
          [this](size_t stream) {
            walks_[stream]->expand(groups);
            order_.push(walks_[stream]->next());
          },
          options_.on_group) {
  if (!options_.enters) tree.leave_out_enters();
  if (inside_ && options_.totals != nullptr) tree.add_to(*options_.totals);
  if (options_.inlined) tree.follow_inlined(inlined_);
  if (options_.fibres && options_.steps)
    status = Error{ErrorCode::contradictory_options,
                   "fibres are not followed in steps that units of a plan have left: decode the plan itself", 0};
  for (uint32_t i = 0; options_.streams.empty() && i < recording.streams().size(); ++i) streams_.push_back(i);
  const bool is_undated =
      std::any_of(streams_.begin(), streams_.end(), [&](uint32_t stream) { return recording.streams()[stream].time.first == kTimeMin; });
  if (options_.fibres && is_undated && streams_.size() > 1)
    status = Error{
        ErrorCode::not_recorded,
        "the trace has no times, so the order in which threads ran a fibre is not known: follow fibres in one stream (cpu, thread) at a "
        "time",
        0};
  const StreamWalk::Shared shared{recording, options_,        functions, schedule_, options_.inlined ? &inlined_ : nullptr,
                                  finished,  streams_.size(), helped_};
  for (const StreamWalk::Stream& stream : share_threads(recording, streams_, options_.threads)) {
    walks_.push_back(std::make_unique<StreamWalk>(shared, stream, walks_.size()));
    order_.push(walks_.back()->next());
  }
}

// Returns whether a step or move at `time` is taken; not if it is after the wanted time, or not for now.
inline bool CallCursor::State::begins(TimeNs time) {
  if (steps_.size() + left_out_ >= given_at_once_ && !make_space()) [[unlikely]]
    return false;
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
  if (!begins(step.time)) [[unlikely]]
    return false;
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
  const auto take_all = [this](const FlowStep& step, std::span<const InlinedMove> moves, TimeNs last) {
    return take_moves(step, moves, last);
  };
  const bool more = !walk.started()  ? walk.start()
                    : options_.steps ? walk.give_recorded(until, take_step, groups)
                                     : walk.give(until, take_step, take_all);
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
