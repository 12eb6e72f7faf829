// check_segment(): divides a segment at its contexts and timestamps, then compares each piece with the records.
#include "decoder/arm/context_check.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "decoder/arm/packet/walk_packets.h"

namespace ptd::arm {
namespace {

using Switches = std::vector<ContextTrack::Switch>;

/// Returns the first switch after `time`.
Switches::const_iterator switch_after(const Switches& switches, TimeNs time) {
  return std::upper_bound(switches.begin(), switches.end(), time, [](TimeNs t, const auto& known) { return t < known.time; });
}

/// Flow between two packets with a context or a time. If no switch is between, it is one piece.
struct FlowPiece {
  uint64_t from_bytes = 0, to_bytes = 0;
  int32_t tid = -1;
  uint8_t level = 0;
  bool has_tid = false;
  bool is_joined = false;      ///< no flow is missing before it
  bool changes_level = false;  ///< at its first packet
  bool has_atoms = false;
  Interval time;
};

/// Cuts a segment into pieces.
class FlowPieces {
 public:
  FlowPieces(const AuxSegment& segment, const FollowOptions& options, const Switches& switches)
      : options_(options), switches_(switches), until_(segment.time.last) {
    now_.time.first = segment.time.first;
  }
  void run(Bytes bytes, const TraceConfig& config, std::span<const TimestampRepair> repairs);
  // Of walk_packets().
  void on_atoms() { now_.has_atoms = true; }
  bool on_bad(uint64_t offset) {
    break_flow(offset);
    return pieces_.size() < kMost;
  }
  bool on_packet(const Packet& packet, uint64_t offset);
  /// None if there are more than a trace unit writes.
  [[nodiscard]] std::vector<FlowPiece> take() { return pieces_.size() < kMost ? std::move(pieces_) : std::vector<FlowPiece>(); }

 private:
  static constexpr size_t kMost = size_t{1} << 18;
  void close(uint64_t offset);
  void date(TimeNs last) {
    for (; undated_ < pieces_.size(); ++undated_) pieces_[undated_].time.last = last;
  }
  void join_last();
  void break_flow(uint64_t offset) {
    close(offset);
    now_.has_tid = now_.is_joined = false;
  }
  void on_context(const PacketContext& context, uint64_t offset);
  void on_time(uint64_t ticks, uint64_t offset);

  const FollowOptions& options_;
  const Switches& switches_;
  TimeNs until_;
  FlowPiece now_;
  std::vector<FlowPiece> pieces_;
  size_t undated_ = 0;  ///< the first piece whose end is not dated
};

void FlowPieces::close(uint64_t offset) {
  now_.to_bytes = offset;
  if (offset > now_.from_bytes) pieces_.push_back(now_);
  now_.from_bytes = offset;
  now_.is_joined = true;
  now_.changes_level = now_.has_atoms = false;
}

/// Joins the last two pieces, which are dated, if the records say the same of both.
void FlowPieces::join_last() {
  if (pieces_.size() < 2) return;
  const FlowPiece& last = pieces_.back();
  FlowPiece& before = pieces_[pieces_.size() - 2];
  const bool is_same =
      last.is_joined && !last.changes_level && last.has_tid == before.has_tid && last.tid == before.tid && last.level == before.level;
  if (!is_same || last.time.last < before.time.last ||
      switch_after(switches_, before.time.first) != switch_after(switches_, last.time.last))
    return;
  before.to_bytes = last.to_bytes;
  before.time.last = last.time.last;
  before.has_atoms = before.has_atoms || last.has_atoms;
  pieces_.pop_back();
  undated_ = pieces_.size();
}

// Other worlds and hypervisors have context ids of their own.
void FlowPieces::on_context(const PacketContext& context, uint64_t offset) {
  if (!context.present) return;
  const bool by_vmid = options_.names == ContextNames::vmid;
  if (!context.non_secure || context.root_or_realm || context.level > (by_vmid ? 2 : 1)) return break_flow(offset);
  close(offset);
  now_.changes_level = now_.has_tid && now_.level != context.level;
  now_.level = context.level;
  if (!(by_vmid ? context.has_vmid : context.has_context_id)) return;
  now_.tid = static_cast<int32_t>(by_vmid ? context.vmid : context.context_id);
  now_.has_tid = true;
}

void FlowPieces::on_time(uint64_t ticks, uint64_t offset) {
  const Interval at = options_.time.to_interval(Tsc{ticks}, Tsc{ticks});
  const uint64_t slack = options_.slack_ns;
  close(offset);
  date(TimeNs{std::max(at.first, at.last).value + slack});
  join_last();
  now_.time.first = TimeNs{at.first.value > slack ? at.first.value - slack : 0};
}

bool FlowPieces::on_packet(const Packet& packet, uint64_t offset) {
  if (packet.kind == PacketKind::ctxt || is_address_context(packet.kind)) {
    on_context(packet.context, offset);
  } else if (packet.kind == PacketKind::timestamp && (packet.flags & kFlagNoTime) == 0 && packet.value != 0) {
    on_time(packet.value, offset);
  } else if (packet.kind == PacketKind::trace_on || packet.kind == PacketKind::overflow || packet.kind == PacketKind::discard) {
    break_flow(offset);
  } else {
    now_.has_atoms = now_.has_atoms || is_atom(packet.kind);
  }
  return pieces_.size() < kMost;
}

void FlowPieces::run(Bytes bytes, const TraceConfig& config, std::span<const TimestampRepair> repairs) {
  PacketReader reader(bytes, config);
  reader.set_repairs(repairs);
  now_.from_bytes = find_async(bytes, 0);
  walk_packets(reader, bytes, *this);
  close(bytes.size());
  date(until_);
}

/// Pieces without a break that have one thread.
struct NamedRun {
  size_t first = 0, end = 0;  ///< pieces
};

class ContextJudge {
 public:
  ContextJudge(std::vector<FlowPiece> pieces, const Switches& switches, std::span<const Interval> lost)
      : pieces_(std::move(pieces)), switches_(switches), lost_(lost) {
    for (size_t i = 0; i < pieces_.size(); ++i) {
      if (!pieces_[i].has_tid) continue;
      const bool joins = !runs_.empty() && runs_.back().end == i && pieces_[i].is_joined && pieces_[i - 1].tid == pieces_[i].tid;
      if (!joins) runs_.push_back({i, i});
      runs_.back().end = i + 1;
    }
    for (size_t i = 0; i < runs_.size(); ++i) taken_as_.push_back(tid_of(i));
  }

  [[nodiscard]] uint64_t steps() const { return steps_; }

  std::vector<WrongContext> run() {
    size_t wrong = 0;
    for (const bool whole : {true, false}) {
      for (size_t i = 0; i < runs_.size(); ++i) {
        const size_t before = wrong_.size();
        const bool is_whole = fit(time_of(runs_[i].first, runs_[i].end), tid_of(i)) == Fit::no;
        if (whole && is_whole) judge_whole(i);
        if (!whole && !is_whole) judge_ends(i);
        if (wrong_.size() != before) ++wrong;
      }
    }
    // Else ids and records are not of one clock, or not of one name space.
    if (steps_ > kMostSteps || wrong > std::max<size_t>(2, runs_.size() / 4) || !has_whole_fit()) return {};
    std::ranges::sort(wrong_, {}, &WrongContext::from_bytes);
    return std::move(wrong_);
  }

 private:
  enum class Fit : uint8_t { no, perhaps, yes };

  /// Returns whether records name `tid` in this time.
  [[nodiscard]] Fit fit(Interval time, int32_t tid) const {
    auto at = switch_after(switches_, time.first);
    if (at == switches_.begin() || time.last < time.first) return Fit::perhaps;
    bool is_unknown = steps_ > kMostSteps;
    for (--at; at != switches_.end() && (at->time <= time.first || at->time <= time.last) && steps_ <= kMostSteps; ++at, ++steps_) {
      if (at->to.tid == tid) return Fit::yes;
      is_unknown = is_unknown || at->to.tid < 0;
    }
    return is_unknown ? Fit::perhaps : Fit::no;
  }
  /// Returns the thread if records name one in this time, except these, else -1.
  [[nodiscard]] int32_t only_thread(Interval time, std::initializer_list<int32_t> except = {}) const {
    int32_t only = -1;
    auto at = switch_after(switches_, time.first);
    if (at == switches_.begin()) return -1;
    for (--at; at != switches_.end() && (at->time <= time.first || at->time <= time.last) && steps_ <= kMostSteps; ++at, ++steps_) {
      if (std::ranges::find(except, at->to.tid) != except.end()) continue;
      if (only >= 0 && at->to.tid != only) return -1;
      only = at->to.tid;
    }
    return only;
  }
  /// Returns whether all records from before to after this time are there.
  [[nodiscard]] bool is_recorded(Interval time) const {
    const auto next = switch_after(switches_, time.last), from = switch_after(switches_, time.first);
    if (next == switches_.end() || from == switches_.begin() || std::prev(from)->time == kTimeMin) return false;
    const auto window = std::ranges::lower_bound(lost_, std::prev(from)->time, {}, [this](Interval lost) {
      ++steps_;
      return lost.last;
    });
    return window == lost_.end() || next->time < window->first;
  }
  [[nodiscard]] Interval time_of(size_t first, size_t end) const { return {pieces_[first].time.first, pieces_[end - 1].time.last}; }
  [[nodiscard]] bool joins_before(size_t i) const {
    return i > 0 && runs_[i - 1].end == runs_[i].first && pieces_[runs_[i].first].is_joined;
  }
  [[nodiscard]] bool joins_after(size_t i) const { return i + 1 < runs_.size() && joins_before(i + 1); }
  [[nodiscard]] int32_t tid_of(size_t i) const { return pieces_[runs_[i].first].tid; }
  /// Returns whether the records agree with some run from its start to its end.
  [[nodiscard]] bool has_whole_fit() const {
    return std::ranges::any_of(runs_, [this](const NamedRun& run) {
      bool is_named = false;
      for (size_t p = run.first; p < run.end; ++p) {
        const Fit how = fit(pieces_[p].time, pieces_[p].tid);
        if (how == Fit::no) return false;
        is_named = is_named || how == Fit::yes;
      }
      return is_named;
    });
  }
  [[nodiscard]] bool fits(size_t i) const { return fit(time_of(runs_[i].first, runs_[i].end), tid_of(i)) == Fit::yes; }
  [[nodiscard]] bool changes_level(size_t i) const { return pieces_[runs_[i].first].changes_level; }

  /// Returns whether the run before `i`, or after it, cannot be the other side of a switch between a run and what the records say of
  /// `piece`.
  [[nodiscard]] bool is_no_switch(size_t i, size_t piece, bool at_end) const {
    if (at_end ? !joins_after(i) : !joins_before(i)) return false;
    const size_t other = at_end ? i + 1 : i - 1;
    return changes_level(at_end ? i + 1 : i) || fit(pieces_[piece].time, taken_as_[other]) == Fit::no;
  }

  /// Judges a run that fits somewhere.
  void judge_ends(size_t i) {
    const NamedRun run = runs_[i];
    size_t first = run.end, last = run.first;  // pieces that fit the records
    for (size_t p = run.first; p < run.end; ++p) {
      if (fit(pieces_[p].time, tid_of(i)) == Fit::no) continue;
      first = std::min(first, p);
      last = p;
    }
    if (first > last || !fits(i)) return;
    if (first > run.first && (is_no_switch(i, first - 1, false) || has_user(run.first, first))) add(run.first, first, -1);
    for (size_t p = first, end = first; p < last; p = end + 1) {
      for (end = p; fit(pieces_[end].time, tid_of(i)) == Fit::no;) ++end;  // up to `last`
      if (end > p) add(p, end, -1);
    }
    if (last + 1 < run.end && (is_no_switch(i, last + 1, true) || has_user(last + 1, run.end))) add(last + 1, run.end, -1);
  }

  void judge_whole(size_t i) {
    const NamedRun run = runs_[i];
    const Interval time = time_of(run.first, run.end);
    const bool before = joins_before(i), after = joins_after(i);
    if (!(before && fits(i - 1)) && !(after && fits(i + 1))) return;
    // The rest of a run that the segment does not hold.
    if (!before && !is_no_switch(i, run.end - 1, true)) return;
    if (!after && !is_no_switch(i, run.first, false)) return;
    taken_as_[i] = likeliest(i, time);
    add(run.first, run.end, taken_as_[i]);
  }

  /// The thread of a run that names a wrong one; -1: unknown. The kernel writes the id without a change of level: with one the thread
  /// stays.
  [[nodiscard]] int32_t likeliest(size_t i, Interval time) const {
    const int32_t only = only_thread(time), before = joins_before(i) ? tid_of(i - 1) : -1, after = joins_after(i) ? tid_of(i + 1) : -1;
    if (only >= 0) return only;
    if (before >= 0 && changes_level(i)) return fit(time, before) == Fit::yes ? before : -1;
    if (after >= 0 && changes_level(i + 1)) return fit(time, after) == Fit::yes ? after : -1;
    return only_thread(time, {before, after});
  }

  [[nodiscard]] bool has_user(size_t first, size_t end) const {
    return std::any_of(pieces_.begin() + static_cast<std::ptrdiff_t>(first), pieces_.begin() + static_cast<std::ptrdiff_t>(end),
                       [](const FlowPiece& piece) { return piece.has_atoms && piece.level == 0; });
  }

  /// Adds pieces of a thread; -1: of those that the records name.
  void add(size_t first, size_t end, int32_t of) {
    const bool has_atoms =
        std::any_of(pieces_.begin() + static_cast<std::ptrdiff_t>(first), pieces_.begin() + static_cast<std::ptrdiff_t>(end),
                    [](const FlowPiece& piece) { return piece.has_atoms; });
    if (!has_atoms || !is_recorded(time_of(first, end))) return;
    for (size_t p = first; p < end; ++p) {
      const int32_t tid = of >= 0 ? of : only_thread(pieces_[p].time);
      if (p > first && wrong_.back().tid == tid) {
        wrong_.back().to_bytes = pieces_[p].to_bytes;
        wrong_.back().time.last = pieces_[p].time.last;
      } else {
        wrong_.push_back({pieces_[p].from_bytes, pieces_[p].to_bytes, tid, pieces_[p].tid, pieces_[p].time});
      }
    }
  }

  std::vector<FlowPiece> pieces_;
  std::vector<NamedRun> runs_;
  std::vector<int32_t> taken_as_;  ///< the thread of each run, right if it is wrong in the packets
  const Switches& switches_;
  std::span<const Interval> lost_;
  static constexpr uint64_t kMostSteps = uint64_t{1} << 22;
  mutable uint64_t steps_ = 0;  ///< switches and windows that were compared
  std::vector<WrongContext> wrong_;
};

void check_contexts(CheckedSegment& checked, const TraceConfig& config, const FollowOptions& options, const KnownSwitches& known) {
  constexpr size_t kLeast = 3;  // switches: one is the thread with which a trace begins
  const AuxSegment& segment = checked.segment;
  if (!has_ids(options.names) || !options.use_time || segment.cpu < 0) return;
  const Switches& switches = known.contexts.switches(segment.cpu);
  if (switches.size() < kLeast) return;
  FlowPieces pieces(segment, options, switches);
  pieces.run(segment.bytes.first(segment.bytes.size() - segment.tail_bytes), config, checked.timestamps.repairs);
  ContextJudge judge(pieces.take(), switches, known.lost);
  checked.wrong_contexts = judge.run();
  checked.steps = judge.steps();
}

}  // namespace

CheckedSegment check_segment(const AuxSegment& segment, const TraceConfig& config, const FollowOptions& options,
                             const KnownSwitches& known) {
  CheckedSegment checked{segment, {}, {}};
  const Bytes bytes = segment.bytes.first(segment.bytes.size() - segment.tail_bytes);
  if (options.use_time) checked.timestamps = check_timestamps(bytes, config, segment.timestamps, segment.tsc.use);
  // The segment's bounds are those of its own first timestamp.
  const TickRange around = segment.timestamps;
  if (checked.timestamps.first_is_wrong && segment.tsc.use) {
    const uint64_t first = around.first == 0 ? 0 : options.time.to_ns(Tsc{around.first}).value;
    checked.segment.time.first = first > options.slack_ns ? TimeNs{first - options.slack_ns} : kTimeMin;
  }
  check_contexts(checked, config, options, known);
  return checked;
}

}  // namespace ptd::arm
