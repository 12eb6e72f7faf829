// Walker: follows one flow exactly, instruction by instruction. It is the slow path, and the reference for the fast one.
#pragma once

#include <algorithm>
#include <array>
#include <map>
#include <tuple>
#include <vector>

#include "decoder/pt/flow/context_follower.h"
#include "decoder/pt/flow/flow_state.h"
#include "decoder/pt/flow/item.h"
#include "decoder/pt/flow/straight_code.h"
#include "image/base/growing_cache.h"
#include "image/fetch_steps.h"
#include "ptdecode/code_view.h"
#include "ptdecode/flow.h"
#include "ptdecode/pt/decoder.h"

namespace ptd::pt {

/// One possible version of an instruction.
struct Candidate {
  Insn insn;
  std::array<std::byte, 15> bytes{};
  Interval possible, certain;
  SiteId site = kNoSite;
  uint32_t version = 0;
  CodeFlag flags = CodeFlag::none;
  bool ambiguous = false;  ///< other contents are possible that the flow executes in the same way; these bytes are the likeliest
  bool in_time = true;     ///< the timeline allows it at the flow's current time; false: content of another time (see Walker::survey)

  /// Returns whether the instruction raises an exception each time (INT3, INT1, UD). Its FUP is taken before the bytes are read ([SDM] "FUP
  /// Cases and IP Payload"), so flow that reads the bytes did not execute it.
  [[nodiscard]] bool always_faults() const;
};

/// Returns the candidate that was live in the middle of `now`, with each edit at the middle of its own interval. `candidates` must not be
/// empty.
[[nodiscard]] size_t likely_candidate(const std::vector<Candidate>& candidates, Interval now);

/// A version at `ip` that packets have proven against the timeline, because a record was lost. It is valid during `during`.
struct Pin {
  Ip ip;
  SpaceId space = kNoSpace;
  Interval during;
  Candidate candidate;
};

/// One flow: its state, the block under construction and its output.
struct Flow {
  FlowState state;
  Batch* out = nullptr;
  uint64_t most_blocks = kNoLimit;     ///< limit for `out`, at which the walk stops
  Batch pending;                       ///< output while several flows are alive
  std::vector<std::byte> block_bytes;  ///< of the block under construction, unless `block_plain` has them
  Bytes block_plain;                   ///< the same, in memory that outlives the flow
  NodeId block_node = kNoNode;         ///< node of the block under construction, if it is already known
  Ip block_ip;
  SpaceId block_space = kKernelSpace;
  uint16_t block_instructions = 0;
  uint16_t block_flags = 0;
  Mark mark;  ///< the last mark output
  bool mark_valid = false;
  bool mode_given = false;  ///< the segment gave an execution mode, and RFLAGS.IF
  uint32_t penalty = 0;     ///< number of unlikely candidates taken
  std::vector<Pin> pins;    ///< valid within the segment

  static constexpr uint64_t kNoLimit = ~uint64_t{0};
  /// Appends instructions to the block under construction, or begins it.
  void add_bytes(Bytes bytes, bool lasting) {
    if (block_instructions == 0 && lasting) {
      block_plain = bytes;
    } else {
      add_more(bytes, lasting);
    }
  }
  void add_more(Bytes bytes, bool lasting);
  void clear_block() {
    block_bytes.clear();
    block_plain = {};
    block_node = kNoNode;
    block_instructions = 0;
  }
  void write_to(Batch& batch, uint64_t most) {
    out = &batch;
    most_blocks = most;
  }
  [[nodiscard]] Moment marked() const { return {mark.about, mark.cycles}; }
  /// Outputs a mark if its content has changed. `left` comes from the item that the flow takes next.
  void put_mark(Interval time, const Moment& left, size_t before_block);
  /// Same after a mark with the same context and mode. (It does not copy fields that were just written: that waits for the stores.)
  void put_time(Interval time, const Moment& left, size_t before_block) {
    if (mark.time == time && marked().serves(left)) return;
    Mark& next = out->marks.emplace_back(mark);
    next.before_block = static_cast<uint32_t>(before_block);
    next.time = mark.time = time;
    next.time_known = mark.time_known = time.first > kTimeMin && time.last < kTimeMax;
    next.about = mark.about = left.about;
    next.cycles = mark.cycles = left.cycles;
  }
  void write_to_pending() { write_to(pending, kNoLimit); }
};

/// The reason for which run() returned.
enum class WalkStop : uint8_t {
  full,      ///< the output is at its capacity
  position,  ///< state.position reached the requested one
  fork,      ///< several candidates: see candidates()
  lost,      ///< see loss(): the flow cannot continue
  done,      ///< the segment's end
};

/// Number of blocks before a contradiction that nothing explains. They become suspect, so they are held back until then.
inline constexpr uint64_t kDoubtfulBlocks = 256;

struct Loss {
  GapReason reason = GapReason::image_mismatch;
  Ip ip;
  SpaceId space = kNoSpace;
  SectionId section = kNoSection;
  uint64_t offset_bytes = 0;
  bool at_given_ip = false;  ///< a packet gave this ip: every path leads there
};

class Runner;

/// The data that all flows of one decoder share: items, code and its cache, block table.
class Walker {
 public:
  Walker(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options);

  void begin(const AuxSegment& segment, Flow& flow);
  WalkStop run(Flow& flow, uint64_t until_position);
  /// Executes the instruction at the flow's ip as `candidate`, after a fork was decided. `block_flags`: how it was decided, unless the
  /// candidate itself is ambiguous. Returns true if run() can continue.
  bool choose(Flow& flow, const Candidate& candidate, uint16_t block_flags);
  /// While on, run() returns `fork` wherever the timeline has other versions of any time; those valid at this time (or pinned) come first.
  /// For the search after a contradiction; slow.
  void survey(bool on) { surveying_ = on; }
  /// Returns true if the timeline has code at this address at any time.
  [[nodiscard]] bool ever_has_code(SpaceId space, Ip ip);
  /// Returns the number of instructions that all flows have walked.
  [[nodiscard]] uint64_t walked() const { return walked_; }
  /// Returns the steps (FetchSteps::taken) of the fetches that found several versions, and of all fetches while they are counted.
  [[nodiscard]] uint64_t fetch_work() const { return fetch_work_; }
  [[nodiscard]] uint64_t work() const { return walked_ + fetch_work_; }
  /// Counts the copy of a flow, which costs as much as walking some instructions.
  void count_copy() { fetch_work_ += kCopyWork; }
  /// While on, for flows in parallel and for searching backwards, each fetch of changing code is made and counted, even if it was made
  /// before. So the work depends only on the segment.
  void count_fetches(bool on) { counting_ = on; }
  /// While on, an address with many versions loses the flow (GapReason::limit).
  void only_modest_fetches(bool on);
  /// run() returns `position` at the first ambiguous instruction after `most` further steps of fetch_work(), so that the limit applies at
  /// the same place however far the caller lets it run. While fetches are counted, it goes on with modest fetches instead: the caller
  /// decides after each position. begin() removes the limit.
  void limit_fetch_work(uint64_t most) { fetch_work_limit_ = most == kNoWorkLimit ? most : fetch_work_ + most; }
  [[nodiscard]] bool work_is_spent() const { return fetch_work_ >= fetch_work_limit_ && !counting_; }
  static constexpr uint64_t kNoWorkLimit = ~uint64_t{0};
  /// After `lost`: outputs the gap and skips to the next item that gives a certain position, or to the segment's end.
  void recover(Flow& flow, Gap gap);

  [[nodiscard]] const std::vector<Candidate>& candidates() const { return candidates_; }
  [[nodiscard]] const Loss& loss() const { return loss_; }
  [[nodiscard]] const BlockTable& blocks() const { return table_; }
  /// Sets the time bounds for the next fetch from the head item and `state.not_before`.
  void refresh_now(FlowState& state);
  void begin_with(FlowState& state, const Candidate& code);
  /// Lets the time of a flow begin at `not_before` rather than at the versions of code that it chose: for a flow that was chosen among
  /// several.
  void forget_chosen_times(FlowState& state, TimeNs not_before);
  /// Returns whether the items from `next` on, which the flow has taken, give its place: every flow that fits the packets is there then.
  /// With `stacks`, returns false if such flows may have other return stacks.
  [[nodiscard]] bool is_placed_since(const FlowState& state, uint64_t next, bool stacks);
  [[nodiscard]] bool merges_stacks() const { return options_.config.return_compression != ReturnCompression::off; }
  /// Returns true if the flow is at the segment's end.
  bool at_end(const FlowState& state) { return done_flow(state); }
  void finish_block(Flow& flow, uint16_t flags);
  void give_gap(Flow& flow, const Gap& gap);
  ItemReader& items() { return items_; }
  [[nodiscard]] const AuxSegment& segment() const { return segment_; }
  [[nodiscard]] const DecoderOptions& options() const { return options_; }
  /// Returns whether the cpu switches threads within the segment's bounds and no TSC packet tells how often before the segment.
  [[nodiscard]] bool thread_is_unknown() const;

 private:
  static constexpr uint64_t kCopyWork = 16;      ///< see count_copy()
  static constexpr uint64_t kModestFetch = 256;  ///< steps: see only_modest_fetches()
  enum class Go : uint8_t { on, lost, disabled };
  friend class Runner;  // the fast path takes over the walker's state and returns it

  // threads
  /// Numbers of switches that a flow may have passed.
  struct Switches {
    uint32_t least = 0, most = 0;
    bool resumes = false;     ///< a lost flow goes on: the thread that it had is the likeliest
    TimeNs until = kTimeMin;  ///< user code that begins now certainly still runs then
  };
  /// Whether a thread runs the code at an address.
  enum class Runs : uint8_t {
    no,       ///< none of its programs has code there
    unknown,  ///< no record names one of its programs
    yes,      ///< one of its programs has code there
  };
  /// Which of the possible switches a flow has passed last.
  struct Likely {
    uint32_t switches = 0;
    Runs runs = Runs::no;   ///< of the thread after them
    bool differ = false;    ///< other threads may run there, too
    bool codeless = false;  ///< one of the threads has no code there
  };
  [[nodiscard]] bool is_after_switch(const FlowState& state) const;
  void set_context(Flow& flow, Context context);
  void set_thread(Flow& flow, Context context, TimeNs first, TimeNs last);
  void update_context(Flow& flow, TimeNs first, TimeNs last);
  [[nodiscard]] Context program_at(const Context& context, TimeNs time) const;
  [[nodiscard]] Context likely_program(FlowState& state, const Context& late, bool was_open, Interval time) const;
  template <typename Add>
  void each_program(const Context& late, Interval time, const Add& add) const;
  [[nodiscard]] bool find_execs() const;
  [[nodiscard]] Switches switches_at(uint32_t before, Ip ip, Interval time, bool starts) const;
  [[nodiscard]] Runs runs_at(Ip ip, const Context& thread, Interval time) const;
  [[nodiscard]] Likely likely_switches(const FlowState& state, Switches passed, Interval time) const;
  [[nodiscard]] Likely likely_beside(const FlowState& state, Switches passed, Interval time) const;
  void set_switches(Flow& flow, Switches passed, Interval time, const Likely& likely);
  void set_switches(Flow& flow, Switches passed, Interval time) {
    set_switches(flow, passed, time, likely_switches(flow.state, passed, time));
  }
  [[nodiscard]] Context counted_context(FlowState& state, Interval time) const;
  enum class From : uint8_t { before, start, loss };  ///< the flow before it, the start of tracing, lost flow
  void find_thread(Flow& flow, Interval time, uint64_t next, From from, uint32_t most_switches = ~uint32_t{0});
  void enter_user(Flow& flow, const Item& item, TimeNs first);
  [[nodiscard]] uint32_t left_ahead(uint64_t next, uint32_t most);
  template <typename Enough>
  [[nodiscard]] TimeNs user_until(uint64_t next, const Enough& enough);
  class Ahead;
  void look_ahead(const Flow& flow, Interval time, uint64_t next, Switches& passed);
  /// How far user code fits the packets ahead.
  struct Fit {
    bool fits = false;          ///< up to where it is left, or as far as was asked
    bool ends = false;          ///< the flow is lost before
    bool contradicted = false;  ///< and the packets contradict the code
    uint64_t position = 0;      ///< up to which it was followed
  };
  [[nodiscard]] Fit fit_ahead(const Flow& flow, const Context& context, uint64_t next, From from, uint64_t enough);
  [[nodiscard]] std::vector<Context> possible_programs(const FlowState& state, Switches passed, Interval time) const;
  void fit_program(Flow& flow, Switches passed, Interval time, uint64_t next, From from);
  void check_switches(Flow& flow, const Item& item);
  void pass_switch(Flow& flow);
  void pass_dated_switches(Flow& flow);
  /// Returns whether the thread may change where the flow does not show it, or is not known.
  [[nodiscard]] bool may_switch_unseen(const FlowState& state);
  [[nodiscard]] bool is_only_by_time(const FlowState& state, Ip ip) const;
  /// Return whether find_thread() at `ip`, or enter_user(), needs nothing but the time. `starts`: tracing starts there.
  [[nodiscard]] bool is_thread_clear(const FlowState& state, Ip ip, Interval time, bool starts) const;
  [[nodiscard]] bool enters_clearly(const FlowState& state, const Item& item) const;

  // fetching
  bool read_candidates(Flow& flow, SpaceId space);
  void charge_open(bool found);
  FetchResult ask(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors, std::span<CodeCandidate> out,
                  unsigned span_bytes = kFetchSpanBytes);
  FetchResult fetch_contents(SpaceId space, Ip ip, Interval when, std::span<const VersionFloor> floors);
  bool fetch_certain(const Flow& flow, SpaceId space);
  void join_alike(Interval now);
  [[nodiscard]] bool is_file_missing(SectionId section) const;
  void doubt_beside_missing(const FlowState& state, SpaceId space);
  bool read_survey(Flow& flow, SpaceId space);
  const std::vector<Candidate>& ever(const FlowState& state, SpaceId space, Ip ip);
  [[nodiscard]] const Candidate* pinned(const Flow& flow, SpaceId space) const;
  [[nodiscard]] StraightCode* known_code(const FlowState& state, SpaceId space);
  StraightCode* read_straight(const FlowState& state, SpaceId space);
  /// Returns the code at the flow's ip if nothing changes it near this time, else null.
  const StraightCode* read_plain(const FlowState& state, SpaceId space) {
    const StraightCode* code = known_code(state, space);
    return code != nullptr && code->plain ? code : read_straight(state, space);
  }
  StraightCode* read_single(Flow& flow, SpaceId space, WalkStop& stop);
  uint32_t sole_count(const Flow& flow, StraightCode& code);
  [[nodiscard]] uint32_t count_due(const Flow& flow, SpaceId space, StraightCode& code);
  void lose(const Flow& flow, GapReason reason);
  void correct_target(Flow& flow);
  bool reaches(Flow& flow, Ip ip);
  bool comes_back(Flow& flow);
  [[nodiscard]] SpaceId space_of(const FlowState& state, Ip ip) const { return space_at(state.context.space, ip); }

  bool done_flow(const FlowState& state);

  [[nodiscard]] bool in_filter(Ip ip) const;
  [[nodiscard]] uint64_t max_silent() const;
  bool count_silent(Flow& flow) const;

  // executing
  bool take(Flow& flow, SpaceId space, StraightCode& code);
  Go execute(Flow& flow, const Step& step);
  Go after_sequential(Flow& flow, const Step& step);
  bool ends_at_mov_cr3(Flow& flow, const Step& step, Ip at, bool without_pip);
  Go direct_branch(Flow& flow, const Step& step);
  Go conditional(Flow& flow, const Step& step);
  Go near_return(Flow& flow, const Step& step);
  Go indirect(Flow& flow, const Step& step);
  void doubt_path(Flow& flow);
  [[nodiscard]] bool meets_limit(Flow& flow, bool begins);
  bool open_block(Flow& flow, SpaceId space, uint16_t flags);
  void append(Flow& flow, const Candidate& candidate, uint16_t block_flags);

  // consuming items
  bool load_tnt(FlowState& state);
  void load_bits_before_deferred_tip(FlowState& state);
  bool take_bit(FlowState& state, bool& taken);
  void took(Flow& flow, bool anchors = true);
  [[nodiscard]] Gap gap_at(const FlowState& state, const Item& item, GapReason reason) const;
  void settle(Flow& flow);
  bool settle_one(Flow& flow, const Item& item);
  bool retire_vm_entry(Flow& flow);
  bool retire_ptwrite(Flow& flow);
  bool settle_lost(Flow& flow, const Item& item);
  bool ends_loss(Flow& flow, const Item& item);
  void pass_lost(Flow& flow, const Item& item);
  bool resumes_at(Flow& flow, const Item& item, SectionId& missing);
  [[nodiscard]] uint64_t find_whole_ip(uint64_t offset) const;
  bool at_stop(Flow& flow);
  void give_uncounted_loop(Flow& flow, const Item& item);
  void narrow_by_sync_points(FlowState& state);
  void enable_at(Flow& flow, const Item& item, Ip ip);
  void disable(Flow& flow, const Item& item, EventKind kind, Ip from, Ip resume);
  void set_mode(Flow& flow, ExecMode mode, const Item& item, Ip ip);
  void set_interrupt_flag(Flow& flow, const Item& item, Ip ip);
  void count_down(Flow& flow, uint64_t count);
  void give_overdue(Flow& flow);
  /// Returns whether a guest runs whose code is not that of the recording's own machine.
  [[nodiscard]] bool in_guest(const FlowState& state) const { return state.non_root && options_.image_is_of_root; }
  /// Threads of guests that the flow may be of.
  struct GuestThreads {
    Context likely;
    bool found = false;    ///< it has code at the flow's ip
    bool unknown = false;  ///< no record names the program of one of them
    bool differ = false;   ///< others have, too, or may have
    Switches passed;       ///< of the host
  };
  void add_guest_threads(Ip ip, const Context& host, Interval time, GuestThreads& all) const;
  [[nodiscard]] GuestThreads guest_threads(const FlowState& state, Ip ip, Interval time, bool counted) const;
  void find_guest_thread(Flow& flow, Interval time, uint64_t next, bool counted);
  void set_non_root(Flow& flow, bool non_root, const Item& item);
  [[nodiscard]] bool changes_machine(const FlowState& state);
  void change_machine(Flow& flow, const Item& item, EventKind leaves, Ip from, Ip to);
  [[nodiscard]] Event event_of(const Item& item, EventKind kind, uint8_t flags, Ip from, Ip to) const;
  void give_event(Flow& flow, const Item& item, EventKind kind, uint8_t flags, Ip from, Ip to);
  void give_item_event(Flow& flow, const Item& item, Ip from);
  void give_bound_event(Flow& flow, const Item& item);
  void put_mark(Flow& flow, Interval time);
  /// Returns the bounds of the time of the item's packet. The clock may be beyond the segment's end, which then bounds nothing.
  [[nodiscard]] static Interval time_of(const Item& item) { return {item.before, std::max(item.before, item.hi)}; }

  Timeline timeline_;
  const ContextTrack* contexts_;
  DecoderOptions options_;
  CodeView view_;
  ItemReader items_;
  AuxSegment segment_;
  ContextFollower follower_;
  int32_t follower_cpu_ = -1;
  bool looks_ahead_ = false;   ///< see Ahead
  bool has_execs_ = false;     ///< see find_execs()
  bool resumes_ = false;       ///< the flow goes on where tracing was last disabled
  uint32_t switches_met_ = 0;  ///< executions of the switch function in look_ahead()
  uint64_t fit_work_ = 0;      ///< instructions walked for programs that did not become the flow's guess first, in this segment
  BlockTable table_;
  GrowingCache<StraightCode> cache_;
  StraightCode own_code_;                ///< what read_single() read for one flow alone
  std::vector<CodeCandidate> contents_;  ///< contents of the current fetch
  std::vector<Candidate> candidates_;
  std::vector<SectionId> missing_;  ///< sections without code at which a lost flow resumed in this segment
  bool surveying_ = false;
  uint64_t walked_ = 0, fetch_work_ = 0, fetch_work_limit_ = kNoWorkLimit;
  uint64_t silent_limit_ = 0;  ///< limit of the current segment, see max_silent()
  uint64_t most_steps_ = kMostFetchSteps;
  uint64_t asked_ = 0;  ///< steps of the fetches of the current read_candidates()
  bool counting_ = false;
  /// All instructions that were ever at an address, by address and mode. They depend only on the timeline.
  std::map<std::tuple<Ip, SpaceId, ExecMode>, std::vector<Candidate>> ever_;
  Loss loss_;
};

// Returns the latest time at which user code, which begins at item `next`, certainly still runs; stops once `enough` returns true.
template <typename Enough>
TimeNs Walker::user_until(uint64_t next, const Enough& enough) {
  constexpr uint64_t kMostItems = 1U << 9;
  TimeNs until;
  for (const uint64_t end = next + kMostItems; next != end && !enough(until); ++next) {
    const Item& item = items_.at(next);
    const bool is_tip = item.kind == ItemKind::tip, is_tnt = item.kind == ItemKind::tnt;
    until = std::max(until, is_tip || is_tnt ? item.lo : item.before);
    const bool stays = is_tnt || item.kind == ItemKind::now || item.kind == ItemKind::at_insn || item.kind == ItemKind::after_insns ||
                       item.kind == ItemKind::at_ip || (is_tip && (item.flags & kItemNoIp) == 0 && !is_kernel_half(Ip{item.ip}));
    if (!stays) break;
  }
  return until;
}

// Calls `add` with each program of a thread within `time`, and its last moment there; the last one, `late`, first.
template <typename Add>
void Walker::each_program(const Context& late, Interval time, const Add& add) const {
  constexpr uint32_t kMostPrograms = 64;
  add(late, time.last);
  const std::vector<ContextTrack::Switch>& changes = contexts_->thread_changes(late.tid);
  auto change = std::ranges::upper_bound(changes, time.last, {}, &ContextTrack::Switch::time);
  for (uint32_t left = kMostPrograms; change != changes.begin() && (--change)->time > time.first && left-- != 0;) {
    const TimeNs until{change->time.value - 1};
    add(program_at(late, until), until);
  }
}

}  // namespace ptd::pt
