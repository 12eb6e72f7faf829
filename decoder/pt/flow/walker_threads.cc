// Walker: which thread the flow is of. Switches that the flow passed unseen are found from its clock and from what it does next.
#include <algorithm>
#include <set>
#include <utility>

#include "decoder/pt/flow/segment_work.h"
#include "decoder/pt/flow/walker.h"
#include "decoder/time_offset.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kMostBlocksAhead = 1U << 14;  // searched for an execution of the switch function, or for its record's time
constexpr uint32_t kMostThreads = 64;            // switches whose threads are compared, and programs of a thread
constexpr uint32_t kMostSwitches = 1U << 12;     // of a segment, whose threads may call exec
constexpr size_t kMostPrograms = 5;              // compared with the packets ahead
constexpr uint64_t kMostFitted = 256;            // branches, targets and events for which the likeliest program is compared
constexpr uint64_t kProof = 64;                  // likewise past those that contradict it, for another one

using Changes = std::vector<ContextTrack::Switch>;

/// Returns the first change after `time`.
Changes::const_iterator first_after(const Changes& changes, TimeNs time) {
  return std::upper_bound(changes.begin(), changes.end(), time,
                          [](TimeNs t, const ContextTrack::Switch& change) { return t < change.time; });
}

bool is_end(EventKind kind) { return kind == EventKind::overflow || kind == EventKind::disabled || kind == EventKind::async_disabled; }

}  // namespace

void Walker::set_context(Flow& flow, Context context) {
  FlowState& state = flow.state;
  if (context.space == kNoSpace) context.space = options_.default_space;
  state.context = context;
  state.mark_due = true;
}

// Sets the thread of a flow at a time within [first, last], when it may call exec.
void Walker::set_thread(Flow& flow, Context context, TimeNs first, TimeNs last) {
  FlowState& state = flow.state;
  const bool was_open = std::exchange(state.program_open, false);
  if (has_execs_ && !is_kernel_half(state.ip)) {
    first = std::max(first, segment_.written.first);
    if (program_at(context, first).space != context.space) context = likely_program(state, context, was_open, {first, last});
  }
  set_context(flow, context);
}

// Returns the program of a thread at another time than that of `context`; of space kNoSpace if no record names it.
Context Walker::program_at(const Context& context, TimeNs time) const {
  const Context found = contexts_->at_thread(context.tid, time);
  return context.tid > 0 && found.pid == context.pid ? found : context;
}

// Returns the program of a thread that calls exec within `time`; `late` is the last one. exec does not return to where it was called: a
// flow that does is of the program of before. Else it is of one that has code at its ip.
Context Walker::likely_program(FlowState& state, const Context& late, bool was_open, Interval time) const {
  const Context before = state.context, early = program_at(late, time.first);
  bool is_one = before.space == early.space, found = false, differ = false, fits_before = false;
  Context likely = late;
  const auto add = [&](const Context& program, TimeNs when) {
    is_one = is_one || program.space == before.space;
    differ = differ || program.space == kNoSpace;
    if (timeline_.section_at(program.space, state.ip, when) == kNoSection) return;
    fits_before = fits_before || program.space == before.space;
    if (!found) likely = program;
    differ = differ || (found && program.space != likely.space);
    found = true;
  };
  each_program(late, time, add);
  is_one = is_one && before.tid == late.tid;
  if (is_one && !was_open && (resumes_ || before.space == late.space)) return before;
  if (found && !differ) return likely;
  state.program_open = state.thread_open = true;
  return is_one && was_open && (fits_before || !found) ? before : likely;
}

// Whether a thread of the segment may call exec in its time.
bool Walker::find_execs() const {
  const Interval time{std::max(segment_.time.first, segment_.written.first), segment_.time.last};
  const auto calls_exec = [&](int32_t tid) {
    const auto& changes = contexts_->thread_changes(tid);
    auto change = first_after(changes, time.first);
    for (; change != changes.end() && change->time <= time.last; ++change) {
      if (change != changes.begin() && std::prev(change)->to.space != change->to.space && std::prev(change)->to.pid == change->to.pid)
        return true;
    }
    return false;
  };
  if (segment_.cpu < 0) return calls_exec(segment_.tid);
  const auto& switches = contexts_->switches(segment_.cpu);
  auto at = first_after(switches, time.first);
  if (at != switches.begin()) --at;
  std::set<int32_t> seen;
  for (uint32_t left = kMostSwitches; at != switches.end() && at->time <= time.last; ++at) {
    if (seen.size() >= kMostThreads || left-- == 0) return true;
    if (at->to.tid > 0 && seen.insert(at->to.tid).second && calls_exec(at->to.tid)) return true;
  }
  return false;
}

// Updates the current thread, for a time within [first, last], where the flow has passed no switch unseen.
void Walker::update_context(Flow& flow, TimeNs first, TimeNs last) {
  FlowState& state = flow.state;
  if (in_guest(state)) return find_guest_thread(flow, {first, last}, state.next, true);
  Context context;
  state.thread_open = false;
  if (segment_.cpu < 0) {
    context = contexts_->at_thread(segment_.tid, last);
  } else if (options_.switch_entry.value != 0 && options_.config.has_flow) {
    context = counted_context(state, {first, last});
  } else {
    // A switch inside the interval happened in the kernel, before the user code that is entered now. So take the later context, unless it
    // has no user code.
    context = contexts_->at_cpu(segment_.cpu, last);
    const Context early = contexts_->at_cpu(segment_.cpu, first);
    if (context.space == kNoSpace && early.space != kNoSpace) context = early;
    state.switches = follower_.passed_at(first);
  }
  state.most_switches = state.switches;
  set_thread(flow, context, first, last);
}

// Returns how many switches a flow may have passed that comes to `ip` at `time` and had passed some before.
Walker::Switches Walker::switches_at(uint32_t before, Ip ip, Interval time, bool starts) const {
  const bool kernel = is_kernel_half(ip);
  uint32_t least = kernel ? follower_.passed_at(time.first) : follower_.left_at(time.first);
  const uint32_t most = kernel ? follower_.left_at(time.last) : follower_.passed_at(time.last);
  // A clock that lags may show one switch less than was counted. If it shows more, records were lost.
  const uint32_t counted = before > follower_.passed_at(time.last) + 1 ? 0 : before;
  least = std::max(least, counted);
  const uint32_t begun = kernel && starts ? follower_.begun_at(time.first) : 0;
  if (begun > least) return {begun, begun};  // the next thread comes: were it another, all of this one's trace would be missing
  return {least, std::max(least, most)};
}

// Returns whether a thread may run the code at `ip` of user space within `time`.
Walker::Runs Walker::runs_at(Ip ip, const Context& thread, Interval time) const {
  bool found = false, unknown = false;
  const auto add = [&](const Context& program, TimeNs when) {
    unknown = unknown || (program.space == kNoSpace && program.tid != 0);  // the idle task has no user code
    found = found || timeline_.section_at(program.space, ip, when) != kNoSection;
  };
  has_execs_&& thread.tid > 0 ? each_program(thread, time, add) : add(thread, time.last);
  return found ? Runs::yes : unknown ? Runs::unknown : Runs::no;
}

// Returns the number of switches, of those possible, after which the thread runs the code at the flow's ip: the least in the kernel and
// where a lost flow goes on (passed.resumes), else the most. A thread that has code there is likelier than one whose program is unknown.
Walker::Likely Walker::likely_switches(const FlowState& state, Switches passed, Interval time) const {
  const bool kernel = is_kernel_half(state.ip);
  const uint32_t lowest = std::max(passed.least, passed.most - std::min(passed.most, kMostThreads));
  Likely likely;
  likely.switches = passed.most;
  likely.differ = lowest != passed.least;
  Context of;
  for (uint32_t n = passed.most;; --n) {
    const Context context = follower_.after_switch(n, time.last);
    const Runs runs = kernel ? Runs::yes : runs_at(state.ip, context, time);
    if (runs == Runs::no) {
      likely.codeless = true;
    } else {
      likely.differ = likely.differ || (likely.runs != Runs::no && (context.tid != of.tid || context.pid != of.pid));
      if (runs > likely.runs || (runs == likely.runs && (kernel || passed.resumes))) likely.switches = n;
      likely.runs = std::max(likely.runs, runs);
      of = context;
    }
    if (n == lowest) break;
  }
  if (likely.runs == Runs::no && !likely.differ) {
    if (const Likely beside = likely_beside(state, passed, time); beside.runs != Runs::no) return beside;
  }
  return likely;
}

// Same if no possible thread runs there: the next thread, or the one before, if a small error of the clock explains it. Nothing proves the
// error.
Walker::Likely Walker::likely_beside(const FlowState& state, Switches passed, Interval time) const {
  const auto take = [&](uint32_t switches) {
    Likely likely;
    likely.switches = switches;
    likely.runs = runs_at(state.ip, follower_.after_switch(switches, time.last), time);
    if (likely.runs == Runs::unknown) likely.runs = Runs::no;
    likely.differ = likely.codeless = true;
    return likely;
  };
  if (follower_.passed_at(plus(time.last, ContextTrack::kClockErrorNs)) > passed.most) {
    if (const Likely next = take(passed.most + 1); next.runs != Runs::no) return next;
  }
  if (passed.least == 0 || follower_.left_at(minus(std::max(time.first, passed.until), ContextTrack::kClockErrorNs)) >= passed.least)
    return {};
  return take(passed.least - 1);
}

// Returns the context of a flow that comes to user code at a time within `time` and has counted its switches. If its thread has no code
// there, but another one of that time has, the count may be wrong: that one is the likeliest.
Context Walker::counted_context(FlowState& state, Interval time) const {
  const Context context = follower_.at(state.switches, time.first, time.last);
  const uint32_t least = follower_.passed_at(time.first), most = follower_.passed_at(time.last);
  if (is_kernel_half(state.ip) || least == most || runs_at(state.ip, context, time) != Runs::no) return context;
  const Likely likely = likely_switches(state, {least, most}, time);
  if (likely.runs != Runs::yes) return context;
  state.switches = std::max(state.switches, std::min(likely.switches, most));
  state.thread_open = true;
  return follower_.after_switch(likely.switches, time.last);
}

// Sets the thread of a flow that has passed some number of switches within `passed`.
void Walker::set_switches(Flow& flow, Switches passed, Interval time, const Likely& likely) {
  FlowState& state = flow.state;
  state.thread_open = likely.differ;
  state.switches = passed.least;
  state.most_switches = passed.most;
  set_thread(flow, follower_.after_switch(likely.switches, time.last), time.first, time.last);
}

// Updates the current thread where the flow begins or goes on at a time within [first, last], after switches that it may not have counted:
// at most `most_switches` unless the clock shows more. Its next item is `next`. If neither the clock nor what the flow does next tells the
// thread, the flow is suspect until they do.
void Walker::find_thread(Flow& flow, Interval time, uint64_t next, From from, uint32_t most_switches) {
  FlowState& state = flow.state;
  if (in_guest(state)) return find_guest_thread(flow, time, next, false);
  Switches passed;
  if (is_only_by_time(state, state.ip)) {
    update_context(flow, time.first, time.last);
    return fit_program(flow, passed, time, next, from);
  }
  passed = switches_at(state.switches, state.ip, time, from == From::start);
  passed.resumes = from == From::loss;
  const Likely likely = likely_switches(state, passed, time);
  const bool looks = !looks_ahead_ && (likely.differ || likely.codeless);
  if (looks && is_kernel_half(state.ip)) {
    look_ahead(flow, time, next, passed);
  } else if (looks) {
    passed.until = user_until(next, [&](TimeNs now) { return follower_.left_at(minus(now, ContextTrack::kClockErrorNs)) >= passed.most; });
    passed.least = std::clamp(follower_.left_at(passed.until), passed.least, passed.most);
  }
  const uint32_t most = std::min(passed.most, std::max(passed.least, most_switches));
  const bool is_done = !looks && most == passed.most;
  passed.most = most;
  is_done ? set_switches(flow, passed, time, likely) : set_switches(flow, passed, time);
  fit_program(flow, passed, time, next, from);
}

// Same where the flow goes from the kernel to user code, having counted the switches if the switch function is known.
void Walker::enter_user(Flow& flow, const Item& item, TimeNs first) {
  FlowState& state = flow.state;
  if (in_guest(state)) return find_guest_thread(flow, {first, item.hi}, state.next, true);
  const bool counts = options_.switch_entry.value != 0;
  if (counts && state.most_switches == state.switches) {
    update_context(flow, item.before, item.hi);
    return fit_program(flow, {state.switches, state.switches}, time_of(item), state.next, From::before);
  }
  const uint32_t most = counts ? state.most_switches : ~uint32_t{0};
  find_thread(flow, {first, item.hi}, state.next, counts ? From::loss : From::before, most);
}

// Returns the number of switches begun before user code, which begins at item `next`, is left; more than `most` are not counted.
uint32_t Walker::left_ahead(uint64_t next, uint32_t most) {
  return follower_.left_at(user_until(next, [&](TimeNs now) { return follower_.left_at(now) >= most; }));
}

// While it lives, the walker follows flows ahead; then its state is that of before.
class Walker::Ahead {
 public:
  explicit Ahead(Walker& walker)
      : walker_(walker),
        walked_(walker.walked_),
        fetch_work_(walker.fetch_work_),
        silent_limit_(walker.silent_limit_),
        fetch_work_limit_(std::exchange(walker.fetch_work_limit_, kNoWorkLimit)),
        missing_(walker.missing_.size()),
        loss_(walker.loss_),
        surveying_(std::exchange(walker.surveying_, false)),
        resumes_(walker.resumes_) {
    candidates_.swap(walker.candidates_);
    walker.looks_ahead_ = true;
  }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;
  ~Ahead() {
    walker_.looks_ahead_ = false;
    walker_.candidates_.swap(candidates_);
    walker_.surveying_ = surveying_;
    walker_.resumes_ = resumes_;
    walker_.loss_ = loss_;
    walker_.missing_.resize(missing_);
    walker_.walked_ = walked_;
    walker_.fetch_work_ = fetch_work_;
    walker_.silent_limit_ = silent_limit_;
    walker_.fetch_work_limit_ = fetch_work_limit_;
  }
  [[nodiscard]] uint64_t walked() const { return walked_; }
  /// Counts the instructions as walked: for flows in parallel and for searching backwards, which may come here often.
  void charge() { walked_ = walker_.walked_; }
  /// Makes a flow that goes on at item `next` as `flow` will.
  static void begin(Flow& ahead, const Flow& flow, uint64_t next) {
    ahead.state = flow.state;
    ahead.pins = flow.pins;
    ahead.state.next = next;
    ahead.state.thread_open = false;
  }

 private:
  Walker& walker_;
  const FetchStepLimit modest_{kModestFetch};
  uint64_t walked_, fetch_work_, silent_limit_, fetch_work_limit_;
  size_t missing_;
  Loss loss_;
  bool surveying_, resumes_;
  std::vector<Candidate> candidates_;
};

// Walks kernel code ahead, to see how many of the switches that are possible at `time` the flow has passed: it executes the switch function
// for each of the others. If it comes to code that follows the switch function first, it is inside a switch.
void Walker::look_ahead(const Flow& flow, Interval time, uint64_t next, Switches& passed) {
  const Ahead scope(*this);
  switches_met_ = 0;
  Flow ahead;
  Ahead::begin(ahead, flow, next);
  ahead.state.switches = ahead.state.most_switches = passed.least;
  if (ahead.state.mode == ExecMode::unknown) ahead.state.mode = options_.config.initial_mode;
  Batch blocks;
  ahead.write_to(blocks, 1);  // stop after each block
  settle(ahead);
  const bool at_moment = time.first == time.last;
  bool inside = false, goes_on = true;
  for (uint32_t i = 0; i < kMostBlocksAhead; ++i) {
    if (!blocks.gaps.empty() ||
        std::any_of(blocks.events.begin(), blocks.events.end(), [](const Event& event) { return is_end(event.kind); }))
      break;
    if (!is_kernel_half(ahead.state.ip)) {
      const uint32_t left = left_ahead(ahead.state.next, passed.most + switches_met_);
      passed.least = std::clamp(left - std::min(left, switches_met_), passed.least, passed.most);
      break;
    }
    const uint32_t sure = follower_.passed_at(ahead.state.moment_first), begun = follower_.left_at(ahead.state.now.last);
    passed.least = std::clamp(sure - std::min(sure, switches_met_), passed.least, passed.most);
    passed.most = std::clamp(begun - std::min(begun, switches_met_), passed.least, passed.most);
    if (switches_met_ != 0 && at_moment && !inside) passed.most = passed.least;
    if (switches_met_ == 0 && !inside && is_after_switch(ahead.state) && follower_.passed_at(time.first) >= passed.least) {
      passed.least = std::min(passed.least + 1, passed.most);
      inside = true;
    }
    if (passed.least == passed.most || !goes_on) break;
    blocks.clear();
    goes_on = run(ahead, ~uint64_t{0}) == WalkStop::full;
  }
}

// Returns how far the packets from item `next` on fit user code of `context`: up to where it is left, or to position `enough`.
Walker::Fit Walker::fit_ahead(const Flow& flow, const Context& context, uint64_t next, From from, uint64_t enough) {
  Ahead scope(*this);
  silent_limit_ = std::min(silent_limit_, SilentLoop::kLeast);
  Flow ahead;
  Ahead::begin(ahead, flow, next);
  FlowState& state = ahead.state;
  state.context = context;
  const ExecMode mode = from == From::start ? items_.at(next - 1).mode : ExecMode::unknown;
  if (mode != ExecMode::unknown) state.mode = mode;
  if (state.mode == ExecMode::unknown) state.mode = options_.config.initial_mode;
  state.end_silence();
  Batch blocks;
  ahead.write_to(blocks, Flow::kNoLimit);
  state.tnt_count == 0 ? settle(ahead) : refresh_now(state);
  const auto is_left = [&] {
    return is_kernel_half(state.ip) || !blocks.gaps.empty() ||
           std::ranges::any_of(blocks.events, [](const Event& event) { return is_end(event.kind); });
  };
  Fit fit;
  WalkStop stop = WalkStop::position;
  while (stop == WalkStop::position && !fit.fits) {
    fit.fits = state.position >= enough || is_left();
    blocks.clear();
    if (!fit.fits) stop = run(ahead, state.position + 1);
  }
  fit.fits = fit.fits || stop == WalkStop::done;
  fit.position = state.position;
  fit.contradicted = stop == WalkStop::lost && (loss_.reason == GapReason::image_mismatch || loss_.reason == GapReason::bad_insn);
  fit.ends =
      fit.contradicted || (stop == WalkStop::lost && (loss_.reason == GapReason::no_image || loss_.reason == GapReason::unknown_return));
  fit_work_ += walked_ - scope.walked();
  if (counting_) scope.charge();
  return fit;
}

// Returns the programs that have code at the flow's ip, each with one of its threads; the one that the flow has first, then the likeliest.
std::vector<Context> Walker::possible_programs(const FlowState& state, Switches passed, Interval time) const {
  std::vector<Context> all{state.context};
  uint32_t left = 2 * kMostThreads;
  const auto add = [&](const Context& program, TimeNs when) {
    const bool is_known = std::ranges::any_of(all, [&](const Context& other) { return other.space == program.space; });
    if (left == 0 || all.size() == kMostPrograms || is_known || program.space == kNoSpace) return;
    --left;
    if (timeline_.section_at(program.space, state.ip, when) != kNoSection) all.push_back(program);
  };
  const Interval written{std::max(time.first, segment_.written.first), time.last};
  const auto add_thread = [&](const Context& late) { has_execs_ ? each_program(late, written, add) : add(late, time.last); };
  if (segment_.cpu < 0) {
    add_thread(contexts_->at_thread(segment_.tid, time.last));
    return all;
  }
  const uint32_t count = std::min(passed.most - passed.least, kMostThreads);
  for (uint32_t i = 0; i <= count && left != 0 && all.size() != kMostPrograms; ++i)
    add_thread(follower_.after_switch(passed.resumes ? passed.least + i : passed.most - i, time.last));
  return all;
}

// If the flow may be of several programs, and the packets ahead contradict the one that was chosen, takes the first of the others that fits
// them up to where user code is left, or well past that. So it does if the code of the chosen one is missing, or calls were lost, but then
// another one must fit well past that. More than one may fit, so the flow stays suspect.
void Walker::fit_program(Flow& flow, Switches passed, Interval time, uint64_t next, From from) {
  FlowState& state = flow.state;
  if (!state.thread_open || looks_ahead_ || !state.enabled || is_kernel_half(state.ip) || !options_.config.has_flow) return;
  const uint64_t most_work = max_segment_work(segment_.bytes.size() - segment_.tail_bytes);
  if (fit_work_ >= most_work) return;
  const std::vector<Context> programs = possible_programs(state, passed, time);
  if (programs.size() == 1) return;
  const uint64_t work = fit_work_;
  const Fit first = fit_ahead(flow, programs[0], next, from, state.position + kMostFitted);
  fit_work_ = work;  // the flow walks there
  if (!first.ends) return;
  for (size_t i = 1; i < programs.size() && fit_work_ < most_work; ++i) {
    const Fit other = fit_ahead(flow, programs[i], next, from, first.position + kProof);
    if (!other.fits || (!first.contradicted && other.position < first.position + kProof)) continue;
    set_context(flow, programs[i]);
    state.program_open = has_execs_;
    return;
  }
}

// Called before a mark if not all switches are counted: updates the thread once time has passed its record.
void Walker::pass_dated_switches(Flow& flow) {
  FlowState& state = flow.state;
  if (segment_.cpu < 0 || !is_kernel_half(state.ip) || in_guest(state)) return;
  const uint32_t passed = follower_.passed_at(state.moment_first);
  if (passed <= state.switches) return;
  if (state.most_switches == state.switches) return update_context(flow, state.moment_first, state.moment_first);
  set_switches(flow, {std::min(passed, state.most_switches), state.most_switches}, state.moment());
}

// Called at an interrupt of the kernel: if the clock is past the record of a switch that the flow did not pass, the record is right.
void Walker::check_switches(Flow& flow, const Item& item) {
  const FlowState& state = flow.state;
  if (is_only_by_time(state, state.ip) || follower_.passed_at(item.before) <= state.most_switches) return;
  update_context(flow, item.before, item.hi);
}

// Called when the flow enters the function that every context switch executes.
void Walker::pass_switch(Flow& flow) {
  FlowState& state = flow.state;
  ++switches_met_;
  const bool counted = state.most_switches == state.switches;
  state.switches = std::max(state.switches, follower_.passed_at(state.moment_first)) + 1;
  if (counted) return update_context(flow, state.moment_first, state.now.last);
  const uint32_t most = std::min(state.most_switches + 1, follower_.left_at(state.now.last));
  set_switches(flow, {state.switches, std::max(state.switches, most)}, state.moment());
}

bool Walker::is_after_switch(const FlowState& state) const {
  return state.enabled && !in_guest(state) &&
         std::any_of(options_.after_switch.begin(), options_.after_switch.end(),
                     [&](const IpRange& range) { return range.first <= state.ip && state.ip <= range.last; });
}

bool Walker::may_switch_unseen(const FlowState& state) {
  if (state.thread_open) return true;
  if (options_.switch_entry.value != 0) return state.most_switches != state.switches;
  return options_.time_switches && segment_.cpu >= 0 && follower_.left_at(items_.ahead().end()) > state.switches;
}

// Returns whether nothing else tells the thread: a stream of one thread, a guest, or the kernel without its switch function.
bool Walker::is_only_by_time(const FlowState& state, Ip ip) const {
  return segment_.cpu < 0 || in_guest(state) || (is_kernel_half(ip) && options_.switch_entry.value == 0 && !follower_.is_of_threads());
}

bool Walker::is_thread_clear(const FlowState& state, Ip ip, Interval time, bool starts) const {
  if (in_guest(state)) return !guest_threads(state, ip, time, !starts).differ;
  if (has_execs_ && !is_kernel_half(ip)) return false;
  if (is_only_by_time(state, ip)) return true;
  const Switches passed = switches_at(state.switches, ip, time, starts);
  return passed.least == passed.most &&
         (is_kernel_half(ip) || runs_at(ip, follower_.after_switch(passed.least, time.last), time) != Runs::no);
}

bool Walker::enters_clearly(const FlowState& state, const Item& item) const {
  const bool counts = options_.switch_entry.value != 0 && segment_.cpu >= 0 && !has_execs_ && !in_guest(state);
  if (!counts) return is_thread_clear(state, Ip{item.ip}, {item.lo, item.hi}, false);
  uint32_t passed = state.switches;
  return runs_at(Ip{item.ip}, follower_.at(passed, item.before, item.hi), time_of(item)) != Runs::no;
}

bool Walker::thread_is_unknown() const {
  if (segment_.cpu < 0 || segment_.tsc.use) return false;
  const Interval& time = segment_.time;
  return follower_.passed_at(time.first) != follower_.left_at(time.last);
}

}  // namespace ptd::pt
