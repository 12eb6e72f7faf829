// CallFlow: extracts from one stream's flow what matters to calls: calls, returns, jumps between functions, interrupts, switches, gaps.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "analysis/branch_code.h"
#include "analysis/flow_dates.h"
#include "analysis/function_finder.h"
#include "analysis/inlined_code.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/call_tree.h"
#include "ptdecode/flow.h"
#include "ptdecode/flow_cursor.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {

enum class FlowKind : uint8_t {
  call,  ///< near call, or system call / software interrupt into traced code (flag far)
  ret,   ///< near return
  /// To another function, or an indirect jump to the first instruction of the same, which is a tail call. A jump to a return thunk, or to a
  /// bare RET without a name of its own, is part of the return.
  jump,
  interrupt,   ///< interrupt, fault, trap, signal: `return_to` is the interrupted address
  far_return,  ///< IRET, SYSRET and the like
  begin,       ///< tracing starts at `to`, or flow resumes there after a gap
  pause,       ///< tracing stops: filtered (kernel, address filter), or the thread leaves the cpu
  gap,         ///< flow is lost
  switch_in,   ///< this thread runs from here on
  switch_out,  ///< this thread has run up to here
  /// The thread announces that it runs the fibre of number `to` from here on; 0: its own stack. Between `floor` and `return_to`, which is a
  /// time. Only if fibres are followed.
  fibre,
  /// Within `function`, the flow enters or leaves inlined functions; only if these are followed. Nothing if `inlined` is kUnknownInlining.
  inlined,
  dropped,  ///< of CallFlow only: waits for a time, and will not be given out
  moves,    ///< of CallTree only: an InlinedRun
};

// FlowStep::flags. Bits 8 and 16 have two meanings, by kind. Only a test of steps that cannot be pauses may leave out the kind for
// kFlowUnseen.
inline constexpr uint8_t kFlowEntry = 1;   ///< `to` is the first address of a function
inline constexpr uint8_t kFlowPlaced = 1;  ///< pause: an interrupt, fault or signal came at `return_to`, which may be 0
inline constexpr uint8_t kFlowNamed = 2;   ///< a symbol names `function`, or a jump from another module entered it
/// System call or software interrupt; pause: the kernel, entered by a call or interrupt, is not traced.
inline constexpr uint8_t kFlowFar = 4;
inline constexpr uint8_t kFlowBreakpoint = 8;  ///< interrupt: an INT3 was met
inline constexpr uint8_t kFlowAfterCall = 8;   ///< ret: the instruction before `to` is a CALL
inline constexpr uint8_t kFlowUnseen = 16;     ///< not pause: `to` is not known: it is outside the traced code
/// pause: another snapshot or AUX sample begins after it, and what runs in between is unknown.
inline constexpr uint8_t kFlowWindow = 16;
inline constexpr uint8_t kFlowHalted = 32;      ///< pause, begin: the core waits in HLT, MWAIT or the like
inline constexpr uint8_t kFlowUncertain = 64;   ///< the branch, or what it led to, is in flow that is ambiguous or suspect
inline constexpr uint8_t kFlowEstimated = 128;  ///< between the packets that bound its time, flow is missing: FlowDates::estimated()

// FlowStep::landing is one of these, or a distance, which is less than 2^30 either way (FunctionFinder::landing_of()).
/// FlowStep::landing of a jump or return: `to` is the landing pad of an exception.
inline constexpr int32_t kLandsHere = INT32_MIN;
/// FlowStep::landing of a call or jump: it enters setjmp, or the like. longjmp goes on where that returns to.
inline constexpr int32_t kEntersSetjmp = INT32_MIN + 1;
/// FlowStep::landing of a begin: the kernel's entry for system calls, or for interrupts and faults, of code that is not traced.
inline constexpr int32_t kBySyscall = INT32_MIN + 2, kByInterrupt = INT32_MIN + 3;
/// FlowStep::landing of a jump or far return: to the slot of a kprobe. Its code stands for instructions of the function that has the probe.
inline constexpr int32_t kInSlot = INT32_MIN + 4;

/// Where the flow that makes a step is, of a part of a stream that is followed on its own.
enum class FlowPart : uint8_t { before, own, after };

/// Between two steps, the flow enters or leaves inlined functions, as with a step of kind inlined. What is not here is that of the step
/// before. Most moves of an optimized program are these: a step would be three times as large.
struct InlinedMove {
  TimeNs time{};
  uint64_t cycles = 0;        ///< since the step or move before
  uint32_t instructions = 0;  ///< likewise
  InlineId chain = kNotInlined;
  FunctionId function = kNoFunction;  ///< that the chain's functions are inlined in
  uint32_t begins = 0;                ///< InlinedPiece::begins
};

/// One transfer. Times never go back within a stream.
struct FlowStep {
  FlowKind kind = FlowKind::call;
  uint8_t flags = 0;  ///< kFlow* bits
  GapReason gap = GapReason::bad_packet;
  FlowPart part = FlowPart::before;
  int32_t pid = -1, tid = -1;
  int32_t cpu = -1;
  SpaceId space = kNoSpace;
  FunctionId function = kNoFunction;    ///< of `to`
  FunctionId from = kNoFunction;        ///< what ran before it. begin: the function if `to` is its first address, in unnamed code
  uint32_t instructions = 0;            ///< that this stream retired since its previous step
  InlineId inlined = kUnknownInlining;  ///< the functions inlined at `to`, if they are followed
  uint32_t begins = 0;                  ///< InlinedPiece::begins
  uint32_t moves = 0;                   ///< how many InlinedMoves follow it, before the next step
  /// call, interrupt, pause: the landing pad of an exception that leaves the call, minus (return_to - 1); 0: none. Or one of the above.
  int32_t landing = 0;
  uint64_t cycles = 0;  ///< core cycles of these: see CycleShare. 0 if the trace counts none
  Ip to{};
  Ip return_to{};
  TimeNs time{};   ///< from packets; between two packets interpolated by instructions
  TimeNs floor{};  ///< the last packet's time: what listings print; <= time
};

/// Returns kCallMiddle if a call goes to a named function, but not to its first address; else 0.
[[nodiscard]] constexpr uint8_t middle_of(const FlowStep& step) {
  return (step.flags & (kFlowEntry | kFlowNamed)) == kFlowNamed ? kCallMiddle : 0;
}

/// Returns kCallUndated if a call that began at `start` has no times, else 0.
[[nodiscard]] constexpr uint8_t undated(TimeNs start) { return start == kTimeMin ? kCallUndated : 0; }

/// Moves for CallTree::take(), with what the step that they follow says, but of kind `moves`.
struct InlinedRun : FlowStep {
  std::span<const InlinedMove> run;
  TimeNs last = kTimeMax;     ///< moves later than this are not taken
  size_t limit = ~size_t{0};  ///< nor any after so many call steps
  mutable size_t taken = 0;   ///< set by take(): how many were taken
};

/// Consecutive steps of one thread that begin and end calls, and leave the calls that are open around them as they were. "Outer": the
/// innermost of those.
struct CallGroup {
  /// A function of the group. Sums over its calls that are in no other call of it within the group.
  struct Function {
    FunctionId id = kNoFunction;
    uint64_t total_ns = 0, instructions = 0, cycles = 0;
  };
  uint32_t number = 0;  ///< in its unit
  int32_t pid = -1, tid = -1, cpu = -1;
  SpaceId space = kNoSpace;
  bool user = false;       ///< a step of it may go to an address of `space`
  uint32_t depth = 0;      ///< calls of it that are open at once
  TimeNs first{}, last{};  ///< of its steps
  uint64_t instructions = 0, cycles = 0;
  uint64_t outer_ns = 0, outer_instructions = 0, outer_cycles = 0;  ///< outer_ns: after `first`
  uint64_t first_step = 0, steps = 0;                               ///< its steps, among all steps of its unit
  size_t before = 0;                                                ///< it comes before this one of the steps that it is given with
  size_t first_function = 0, function_count = 0;                    ///< likewise of the functions
};

/// Steps, with groups in the place of some.
struct StepItems {
  std::vector<FlowStep> steps;
  std::vector<InlinedMove> moves;  ///< of the steps
  std::vector<CallGroup> groups;
  std::vector<CallGroup::Function> functions;
  void clear() {
    steps.clear();
    moves.clear();
    groups.clear();
    functions.clear();
  }
  [[nodiscard]] bool empty() const { return steps.empty() && groups.empty(); }
  [[nodiscard]] std::span<const CallGroup::Function> functions_of(const CallGroup& group) const {
    return std::span(functions).subspan(group.first_function, group.function_count);
  }
};

/// Fed with one stream's batches in order. Not thread-safe. The symbolizer and the table must outlive it; the
/// batches need not.
///
/// FlowDates dates the steps. A step waits for the next time in the trace, so give() is late; finish() dates the rest. An
/// instruction that halts the core (HLT, MWAIT) is followed by a pause up to the next instruction or interrupt. Where flow resumes or an
/// interrupt is taken, and no instruction is decoded before the flow is lost, the loss starts there.
class CallFlow {
 public:
  /// `cpu` or `tid` of the stream; -1 for the other. `inlined`: follows inlined functions, if not null; it must outlive the flow.
  CallFlow(const Symbolizer& symbolizer, const Timeline& timeline, FunctionTable& table, int32_t cpu, int32_t tid,
           const FlowClock& clock = {}, InlineChains* inlined = nullptr);

  /// Starts another segment of the trace: later calls of take() belong to it. `window`: see begins_window().
  void begin_segment(const AuxSegment& segment, bool window);
  void take(const Batch& batch, const BlockTable& blocks);
  /// Ends the stream. A flow that is lost at this point stays lost up to `end`, if that is given.
  void finish(TimeNs end = kTimeMin);
  /// Replaces `steps` by the steps whose time is known and that were not given before, and `moves` by theirs, in order.
  void give(std::vector<FlowStep>& steps, std::vector<InlinedMove>& moves);
  /// The same of a flow that does not follow inlined functions.
  void give(std::vector<FlowStep>& steps) {
    std::vector<InlinedMove> none;
    give(steps, none);
  }
  /// Makes steps of announced fibres (docs/ANNOUNCE.md) from here on.
  void follow_fibres() { follows_fibres_ = true; }
  /// Makes a step without an effect at each of the two timing packets around either end of `window`. The flow runs evenly between two of
  /// them, so that what it executes there can be divided.
  void divide_at(Interval window) {
    window_ = window;
    next_cut_ = window.first;
  }
  /// Sets FlowStep::part of the steps that the flow makes from here on.
  void set_part(FlowPart part) {
    part_ = part;
    dates_.mark();
  }
  /// Returns where the flow was at each call of set_part(), of those before a step that was given, and all after finish().
  [[nodiscard]] std::span<const FlowPosition> part_starts() const { return dates_.marks(); }
  /// Returns what the flow has executed in all. Call after finish().
  [[nodiscard]] FlowPosition end() const { return dates_.anchored(); }
  /// Returns false until the first packet with a time.
  [[nodiscard]] bool timed() const { return timed_; }

 private:
  static constexpr size_t kMaxHeld = 1U << 16;  ///< steps and moves that wait for a time
  /// What following calls needs of a block's code. 32 bytes.
  struct alignas(32) Node {
    Ip ip;
    uint32_t size_bytes = 0;
    FunctionId function = kNoFunction;  ///< at its first instruction; see jumps_inside() for the last one
    FunctionId entered = kNoFunction;   ///< the function of unnamed code that begins here; kNoFunction: not looked up so far
    uint32_t module = 0;                ///< FunctionAt::module
    int32_t landing = 0;                ///< FlowStep::landing of a call at its end
    Way way = Way::none;                ///< as in BranchCode, like the next two
    uint8_t flags = 0;                  ///< kFlowEntry, kFlowNamed
    bool bare_return : 1 = false, bare_jump : 1 = false, halts : 1 = false;
    bool thunk : 1 = false;     ///< of returns: a jump here is part of the return
    bool known : 1 = false;     ///< its code was read
    bool lands : 1 = false;     ///< it begins at a landing pad
    bool indirect : 1 = false;  ///< as in BranchCode
    bool saves : 1 = false;     ///< it is where setjmp, or the like, begins
    bool slot : 1 = false;      ///< it is in a slot of a kprobe
    bool part : 1 = false;      ///< FunctionAt::part
    bool bounded : 1 = false;   ///< the extent of its function is known, and all code that the function has is in it
    bool sought_call : 1 = false, after_call : 1 = false;  ///< whether it was looked for, and found: kFlowAfterCall
    [[nodiscard]] int32_t entry_landing() const { return lands ? kLandsHere : saves ? kEntersSetjmp : slot ? kInSlot : 0; }
    [[nodiscard]] Ip next() const { return ip + size_bytes; }
    [[nodiscard]] FunctionAt at() const { return {function, module, (flags & kFlowEntry) != 0, (flags & kFlowNamed) != 0, part}; }
  };
  /// Of a node, read only by refresh().
  struct Asked {
    Interval valid{kTimeMax, kTimeMin};  ///< FoundFunction::valid
    int32_t pid = -1;                    ///< that `at` was found for
  };
  /// A node's function, whether it begins there, and what may follow it, in 32 bits: the loop over all blocks reads nothing else of a node.
  class Key {
   public:
    enum Kind : uint32_t {
      inside = 0,    ///< the flow stays in the function and calls nothing
      jumps = 1,     ///< if its branch is taken (BlockFlag::taken, the same bit), it may leave the function, or call it
      halts = 2,     ///< the core halts
      calls = 5,     ///< if it is taken, it calls or returns
      unknown = 10,  ///< not looked up in this epoch (see epoch_time_)
    };
    Key() = default;
    explicit Key(const Node& node);
    [[nodiscard]] bool is_known() const { return (word_ & unknown) != unknown; }
    [[nodiscard]] bool is_jump() const { return (word_ & kKindMask) == jumps; }
    [[nodiscard]] bool is_entry() const { return (word_ & kEntry) != 0; }
    /// Returns whether may_end() is the answer, whatever comes after the block.
    [[nodiscard]] bool surely_ends() const { return is_known() && !is_jump(); }
    /// Returns whether this is a jump and `next`, the key of the block after it, is known to be of the same function, but not its first
    /// block.
    [[nodiscard]] bool jumps_inside(Key next) const { return is_jump() && ((word_ & ~kEntry) ^ next.word_) <= kKindMask; }
    /// Returns whether the flow may go on from `block` in a way that matters.
    [[nodiscard]] bool may_end(const Block& block) const { return (word_ & ((block.flags & 1U) | 2U)) != 0; }
    [[nodiscard]] bool same_function(Key other) const { return ((word_ ^ other.word_) & ~(kKindMask | kEntry)) == 0; }

   private:
    static constexpr uint32_t kEntry = 16, kFunctionBit = 5, kKindMask = kEntry - 1;
    uint32_t word_ = ~kKindMask | unknown;  ///< an unknown one is of another function than any jump
  };
  /// The inlined functions of a node: those of its first instruction, and Nodes::pieces of the others.
  struct InlinedNode {
    InlineId chain = kNotInlined;
    uint32_t begins = 0;
    uint32_t first = 0, count = 0;
  };
  struct Nodes {
    std::vector<Node> nodes;
    std::vector<InlinedNode> inlined;  ///< empty if inlined functions are not followed
    std::vector<InlinedPiece> pieces;
    std::vector<Asked> asked;
    std::vector<Key> keys;
    std::vector<NodeId> named, unnamed;  ///< those with a key; a name in unnamed code is right for one process
    uint32_t epoch = 0;                  ///< of the keys
    int32_t pid = -1;                    ///< of the keys of unnamed code
    void forget(std::vector<NodeId>& known);
  };
  /// A taken branch whose target is not known yet.
  struct Pending {
    Way way = Way::none;    ///< none: there is no such branch, or where it goes does not matter
    bool indirect = false;  ///< as in BranchCode
    bool bounded = false;   ///< code without a name is not of `from`: its extent is known, or it is this jump alone
    FunctionId from = kNoFunction;
    uint32_t module = 0;  ///< FoundFunction::module of `from`
    Ip return_to;
    int32_t landing = 0;  ///< FlowStep::landing
  };
  Node& node(NodeId id) {
    if (!nodes_->keys[id].is_known()) [[unlikely]]
      refresh(id);
    return nodes_->nodes[id];
  }
  void refresh(NodeId id);
  void find_landings(Node& node, SpaceId space);
  void check_keys();
  /// When functions are looked up.
  [[nodiscard]] TimeNs when() const { return std::clamp(std::max(dates_.now(), next_mark_), segment_time_.first, segment_time_.last); }
  void begin_epoch();
  void resolve_ahead(const Mark& mark);
  void look_ahead(const Mark& mark, bool switches);
  void take_blocks(std::span<const Block> blocks);
  void arrive(const Block& block);
  bool ends(const Block* at);
  const Block* pass(const Block* at, const Block* last);
  const Block* pass_inlined(const Block* at, const Block* last);
  void find_inlined(NodeId id);
  void pass_pieces(const Block& block);
  void move_inlined(Ip ip, FunctionId function, const InlinedPiece& to);
  void enter_inlined(const Block& block);
  void enter_inlined_at(Ip ip);
  void depart(const Block& block);
  static uint8_t flags_of(const FunctionAt& at) { return static_cast<uint8_t>((at.entry ? kFlowEntry : 0) | (at.named ? kFlowNamed : 0)); }
  /// Where a branch went.
  struct Target {
    Ip ip;
    FunctionId function = kNoFunction;
    uint32_t module = 0;
    int32_t landing = 0;  ///< Node::entry_landing()
    uint8_t flags = 0;
    InlineId inlined = kUnknownInlining;
    uint32_t begins = 0;
    bool after_call = false;  ///< kFlowAfterCall
    bool part = false;        ///< FunctionAt::part
  };
  [[nodiscard]] Target target_at(NodeId id) const;
  bool jumps_inside(Ip after, FunctionId to);
  void go_back();
  [[nodiscard]] bool follows_call(Ip ip) { return finder_.follows_call(space_, ip, cursor_.context().mode, when()); }
  void take_mark(const Mark& mark);
  void take_event(const Event& event);
  void take_gap(const Gap& gap);
  void take_pause(const FlowStep& step);
  void take_async_branch(const Event& event);
  void take_disabled(const Event& event);
  void take_ptwrite(const Event& event);
  void leave_traced(const Event& event);
  void begin(Ip to, bool exact = false, uint8_t flags = 0);
  void halt(Ip next);
  void end_window();
  void stop();
  void resolve(const FunctionAt& at, Ip to);
  void resolve(const Pending& pending, const Target& to, FunctionId& entered);
  void resolve_unseen(Ip to);
  void fill(FlowStep& step);
  void push(const FlowStep& step, bool resumes = false);
  void hold(bool resumes, bool silent);
  void take_packet_time(TimeNs time, uint64_t cycles);
  void date_until(TimeNs time, std::optional<uint64_t> cycles);
  void take_flow_time(TimeNs time, uint64_t cycles);
  void take_flow_time(const Event& event);
  /// The last time of a mark or event, if clocks are as good as they say.
  template <typename Told>
  [[nodiscard]] TimeNs latest(const Told& told) const {
    return told.time.last == kTimeMax
               ? kTimeMax
               : std::max(likeliest(told), TimeNs{told.time.last.value - std::min(told.time.last.value, dates_.slack_ns())});
  }
  /// By `last`, what was executed so far had retired, and the flow was at its last step.
  void bound(TimeNs last) {
    if (last != kTimeMax && flowing_ && dates_.bounds_code() && dates_.timed()) dates_.bound(last);
  }
  /// Whether a packet at this time shows that time has passed since what was executed so far had retired.
  [[nodiscard]] bool passes_time(TimeNs time) const { return done_by_ < time && flowing_ && dates_.bounds_code() && dates_.timed(); }
  void date_across_cut(TimeNs time, std::optional<uint64_t> cycles);
  void put_cut(uint64_t position);
  [[nodiscard]] size_t last_step(size_t count) const;
  void put_out(std::span<const FlowDates::Date> dates);
  void prove();
  [[nodiscard]] std::optional<FlowKind> first_unproved() const;
  void put_out_dated();
  size_t drop_unproved();
  [[nodiscard]] size_t held_count() const { return out_.size() - dated_; }
  [[nodiscard]] FlowStep& held(size_t index) { return out_[dated_ + index]; }
  [[nodiscard]] FoundFunction find(Ip ip) { return finder_.find(space_, ip, when()); }
  [[nodiscard]] FunctionId unnamed_entry(Ip to) { return finder_.unnamed_entry(space_, to, when()); }

  FunctionFinder finder_;
  std::optional<InlinedCode> inlined_code_;  ///< none if inlined functions are not followed
  std::vector<InlinedPiece> found_pieces_;
  InlineId chain_ = kUnknownInlining;  ///< of the last instruction, as the last step says
  const FunctionId kernel_;            ///< untraced code that a system call enters
  const int32_t cpu_, stream_tid_;
  const BlockTable* blocks_ = nullptr;
  std::unordered_map<const BlockTable*, Nodes> tables_;  ///< one for each decoder
  Nodes* nodes_ = nullptr;                               ///< that of blocks_
  Interval segment_time_;
  TimeNs blocks_done_by_ = kTimeMax;  ///< upper bound of the time of the next blocks; kTimeMax: unknown
  TimeNs done_by_ = kTimeMax;         ///< by then, what was executed so far had retired, and the flow was at its target
  TimeNs segment_end_ = kTimeMax;     ///< upper bound of the segment's times
  TimeNs next_mark_ = kTimeMin;       ///< of code that was reached before a mark, but not executed
  uint32_t epoch_ = 1;
  Interval epoch_time_;  ///< moments at which all answers of this epoch are right
  std::optional<Pending> pending_;
  int32_t pid_ = -1, tid_ = -1;
  SpaceId space_ = kNoSpace;
  Ip paused_at_, begun_at_;                 ///< where the last pause began; where the flow began last
  FunctionId last_function_ = kNoFunction;  ///< of the last block
  Ip entered_at_;                           ///< the last step entered unnamed code here; 0: it did not
  /// The last branch was a CALL in it that only fills the return stack: a RET there ends a retpoline.
  FunctionId return_stack_filled_by_ = kNoFunction;
  bool halted_ = false;  ///< the last instruction was HLT or one that waits as it does; the pause was given
  bool flowing_ = false, began_ = false, has_thread_ = false, timed_ = false;
  bool paused_ = false, was_paused_ = false;  ///< the flow is stopped by a pause; it was when it began last
  bool lost_ = false;                         ///< since a gap
  bool uncertain_ = false;                    ///< the last block is
  bool branch_uncertain_ = false;             ///< the open branch, or what it leads to
  bool follows_fibres_ = false;
  bool synced_ = false;  ///< a mark has just dated the next block: a flow that begins with it begins then
  FlowCursor cursor_;
  FlowDates dates_;
  Interval window_;             ///< see divide_at()
  TimeNs next_cut_ = kTimeMax;  ///< the next end of it
  uint64_t last_position_ = 0;
  FlowPart part_ = FlowPart::before;
  /// Copied where one is added: the compiler clears a temporary with "rep stos", which takes longer than the rest.
  const FlowStep new_step_;
  std::vector<FlowStep> out_;          ///< those with a time, then those that wait for one: each of them has a point of dates_
  size_t dated_ = 0;                   ///< the number of the former
  std::vector<InlinedMove> moves_;     ///< of the steps in out_, each with a point after that of its step
  size_t dated_moves_ = 0;             ///< how many have a time
  std::vector<size_t> held_unproved_;  ///< which of the latter, from 0, no instruction proves yet
  bool held_dropped_ = false;          ///< some of them are FlowKind::dropped
  /// False from a start or interrupt up to the first instruction after it. Steps that come then are given out with that instruction;
  /// those that are dated before stay in unproved_.
  bool proved_ = true;
  std::vector<FlowStep> unproved_;
  uint64_t dropped_cycles_ = 0;  ///< of steps that were dropped
};

}  // namespace ptd
