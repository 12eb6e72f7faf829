// Follower: executes committed elements against the code of the timeline and outputs blocks into a batch.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "decoder/arm/choices.h"
#include "decoder/arm/context_check.h"
#include "decoder/arm/elements.h"
#include "decoder/arm/options.h"
#include "decoder/arm/vector_push.h"
#include "decoder/arm/waypoint_runs.h"
#include "decoder/possible_contexts.h"
#include "ptdecode/arm/config.h"
#include "ptdecode/aux_segment.h"
#include "ptdecode/context_track.h"

namespace ptd::arm {

class PacketReader;

/// The trace unit's return stack ([ETMv4] "Use of the return stack"): the newest entries, each with its instruction set.
class ReturnStack {
 public:
  static constexpr uint32_t kDepth = 16;
  struct Entry {
    Ip ip;
    ExecMode mode = ExecMode::unknown;
    uint32_t call = 0;  ///< the run that ends in the call
  };
  /// Returns the entry that pop() would return.
  [[nodiscard]] bool peek(Entry& entry) const {
    entry = entries_[top_];
    return count_ != 0;
  }
  void push(Entry entry) {
    top_ = (top_ + 1) % kDepth;
    entries_[top_] = entry;
    if (count_ < kDepth) ++count_;
  }
  bool pop(Entry& entry) {
    if (count_ == 0) return false;
    entry = entries_[top_];
    top_ = (top_ + kDepth - 1) % kDepth;
    --count_;
    return true;
  }
  void clear() { count_ = 0; }
  /// Returns whether both lead to the same places.
  [[nodiscard]] bool equals(const ReturnStack& other) const;

 private:
  std::array<Entry, kDepth> entries_{};
  uint32_t top_ = 0, count_ = 0;
};

/// The batch that receives output, and the number of blocks, gaps or events at which it is full.
struct BatchTarget {
  Batch& batch;
  size_t most;
  [[nodiscard]] bool is_full() const { return batch.blocks.size() >= most || batch.gaps.size() >= most || batch.events.size() >= most; }
};

/// One flow. Elements must be passed in order; each is executed at once. Output goes to the batch set by into().
class Follower {
 public:
  Follower(RunCache& runs, const ContextTrack& contexts, const TraceConfig& config, const FollowOptions& options, ForkScript& script);

  /// `wrong`: parts of the segment. `times`: its timestamps; may be null. Both must outlive its decoding.
  void begin(const AuxSegment& segment, std::span<const WrongContext> wrong, TimestampIndex* times);
  void into(BatchTarget target);
  /// Outputs everything up to this point and ends the flow. `uncommitted`: P0 elements after it that were not committed.
  void end(uint64_t uncommitted = 0);

  /// Consumes atoms, addresses and packets that do not affect the path from `reader`, until another kind of packet or a full batch,
  /// but none at or after `end_offset` or after one with a fork. Returns false if another kind of packet is next.
  bool plain_packets(PacketReader& reader, uint64_t end_offset);
  /// Executes `count` atoms, the oldest in bit 0.
  void atoms(uint64_t atoms, uint32_t count, uint64_t offset);
  /// Consumes previously examined packets from `place` on, and advances `place`, until at most `left` atoms are consumed.
  void packets_ahead(Bytes trace, PlaceAhead& place, uint64_t& left);
  /// Consumes the oldest plain elements of `queue`, until at most `left` atoms are consumed or another kind of element is the oldest.
  void queued(ElementQueue& queue, uint64_t& left);
  /// Returns whether some code of the timeline has several versions.
  [[nodiscard]] bool code_changes() const { return runs_->changes(); }
  /// Returns whether atoms cannot be followed until the next address or context.
  [[nodiscard]] bool is_lost() const { return gap_given_ && !known() && !pop_pending_; }
  /// Executes the atom in bit 0.
  void atom(uint64_t atoms, uint64_t offset);
  void address(Ip ip, uint8_t isa, uint64_t offset);
  void context(const PacketContext& context, uint64_t offset);
  void trace_on(uint64_t offset);
  /// Processes a synchronisation point: clears the return stack.
  void trace_info();
  /// `target`: the preferred return address is also the target of the last branch.
  void exception(const Element& element, Ip preferred_return, uint8_t isa, bool target);
  void reset(const Element& element);
  // ETMv3 and PTM
  /// Returns whether the position of the flow is known, or can be taken from the return stack.
  [[nodiscard]] bool placed() const { return !need_context_ && (!need_address_ || pop_pending_); }
  /// Returns whether the next packet must tell the target of an indirect branch.
  [[nodiscard]] bool awaits_target() const { return need_address_ && !need_context_ && !pop_pending_ && from_branch_ && !gap_given_; }
  /// Processes an exception before the current instruction.
  void exception_here(uint32_t number, uint64_t offset);
  /// The next instruction was traced but cancelled: it is not what leads to the next address.
  void cancelled() { walked_ = false; }
  /// Reports that a packet does not fit what was executed before it. The flow continues at the next address.
  void lose_place(GapReason reason, uint64_t offset) { contradict(known() ? ip_ : Ip{}, offset, reason); }
  /// Executes up to and including the instruction at `last`, which is reached without a branch.
  void waypoint(Ip last, uint64_t offset);
  void q(const Element& element, Ip next, uint8_t isa);
  void source_address(const Element& element);
  /// `flags`, `cycles`: of the packet.
  void timestamp(uint64_t value, uint8_t flags, uint32_t cycles, uint64_t offset);
  void cycles(uint8_t flags, uint32_t cycles);
  void simple_event(EventKind kind, const Element& element);
  /// Loses the flow and its state, and outputs a gap with the reason.
  void lose(GapReason reason, uint64_t offset, uint64_t lost_bytes);
  void overflow(uint64_t offset);
  /// Declares that the trace unit stopped and dropped speculative elements.
  void discard(uint64_t offset);

  // Where several flows are possible (Flows)
  /// Starts an element.
  void begin_element() { contradicted_ = anchored_ = false; }
  /// Returns whether the element contradicted the code. Missing code, lost packets, and a return from a call in lost flow do not.
  [[nodiscard]] bool contradicted() const { return contradicted_; }
  /// Returns whether what follows does not depend on what was executed before: the place is lost, or it follows from the packets alone, and
  /// so do the places to return to.
  [[nodiscard]] bool anchored() const { return anchored_; }
  /// Returns whether both, which executed the same elements, execute any further elements in the same way.
  [[nodiscard]] bool continues_like(const Follower& other) const;
  [[nodiscard]] VersionBounds& bounds() { return choices_.bounds(); }
  [[nodiscard]] const VersionBounds& bounds() const { return choices_.bounds(); }
  /// Forgets where runs of code are, which is for speed only.
  void forget_runs() { run_ = left_ = call_ = 0; }

 private:
  bool known() const { return !need_address_ && !need_context_; }
  template <bool kChanges, typename Source>
  friend class PlainFlow;
  template <typename Source>
  void follow(Source& source);
  [[nodiscard]] bool leads_to(uint32_t from, bool taken, Ip ip, ExecMode mode) const;
  void take_return();
  void find_run();
  void leave(uint32_t index, bool executed);
  void give_block(const WaypointRun& run, uint16_t flags);
  void give_gap(GapReason reason, Ip ip, SectionId section, uint64_t offset);
  [[nodiscard]] Gap gap_of(GapReason reason, Ip ip, SectionId section, uint64_t offset, size_t before_block) const {
    Gap gap;
    gap.reason = reason;
    gap.before_block = static_cast<uint32_t>(before_block);
    gap.stream_offset_bytes = segment_.stream_offset_bytes + offset;
    gap.ip = ip;
    gap.space = runs_->home(space_, ip);
    gap.section = section;
    gap.time = time_;
    return gap;
  }
  [[nodiscard]] Event event_of(EventKind kind, uint8_t flags, Ip from, uint64_t payload, uint64_t offset) const;
  void hold_exception(uint8_t flags, Ip from, uint64_t number, uint64_t offset);
  void give_event(EventKind kind, uint8_t flags, Ip from, Ip to, uint64_t payload, uint64_t aux, uint64_t offset);
  void contradict(Ip ip, uint64_t offset, GapReason reason = GapReason::image_mismatch);
  void forget_calls();
  /// Declares that the flow goes on at an address and in a context that the trace has yet to give.
  void forget_place();
  /// Returns the reason for the loss where a taken indirect branch has no target in the trace.
  [[nodiscard]] GapReason no_target() const {
    const bool unknown = calls_unseen_ && config_.has_return_stack();
    return unknown ? GapReason::unknown_return : GapReason::image_mismatch;
  }
  void doubt(GapReason reason, Ip ip, uint64_t offset);
  void tell_start(Ip ip, uint64_t offset);
  void flush_exception(bool has_to, Ip to);
  void put_mark(size_t before_block);
  void set_place(Ip ip, uint8_t isa);
  void update_context();
  void take_dated();
  [[nodiscard]] std::optional<int32_t> named_thread() const;
  void take_possible();
  void enter_undated();
  [[nodiscard]] PossibleContexts& possible() { return possible_[listed_]; }
  [[nodiscard]] Context context_of(int32_t tid);
  [[nodiscard]] Context context_of_cpu();
  [[nodiscard]] TimeNs time_after(uint64_t offset) const;
  [[nodiscard]] TimeNs user_until(uint64_t offset) const;
  enum class Runs : uint8_t { no, unknown, yes };
  [[nodiscard]] Runs runs_here(TimeNs time, TimeNs last) const;
  bool pass_switches(uint64_t offset);
  void set_proven(TimeNs time);
  /// Returns whether the code may be of another program. The kernel's is the same for all.
  [[nodiscard]] bool is_unsure() const { return (unsure_ || is_one_of_two_) && context_.level == 0; }
  void enter_user(uint64_t offset);
  void mark_thread();
  bool enter_wrong(uint64_t offset);
  void stop_at(const WaypointRun& run, uint64_t offset);
  bool walk_to(Ip stop, uint64_t offset);
  bool come_to(Ip back, uint64_t offset);
  [[nodiscard]] bool is_after_svc(Ip place) const;
  [[nodiscard]] bool is_call_of_user(uint64_t exception_type) const;
  /// Returns whether code that is walked without atoms may contain P0 instructions in the middle of a block.
  [[nodiscard]] bool passes_p0() const { return doubtful_ && !runs_->changes(); }
  void leave_source(Ip source, uint8_t isa);
  [[nodiscard]] ExecMode mode_of(uint8_t isa) const { return is64_ ? ExecMode::a64 : isa != 0 ? ExecMode::t32 : ExecMode::a32; }
  [[nodiscard]] Interval when() const { return choices_.narrowed({earliest_, latest_}); }

  RunCache* runs_;
  const ContextTrack* contexts_;
  TraceConfig config_;
  FollowOptions options_;
  Choices choices_;
  Batch* out_ = nullptr;
  size_t most_ = 0;  ///< BatchTarget::most of out_
  AuxSegment segment_;

  // Position
  Ip ip_;
  ExecMode mode_ = ExecMode::unknown;
  uint8_t isa_ = 0;
  bool is64_ = false;
  bool need_address_ = true, need_context_ = true;
  bool doubtful_ = false;  ///< the packets did not fit the code since the last address
  bool walked_ = false;    ///< blocks were output since the last address, so an address that differs from ip_ is a contradiction
  bool flowing_ = false;
  bool starting_ = false;  ///< tracing starts; its address has not come yet
  bool gap_given_ = false;
  bool lost_before_ = false;  ///< bytes are missing before the segment, and their gap is not output yet
  Ip branch_ip_;              ///< address of the last taken branch
  bool from_branch_ = false;
  uint32_t run_ = 0;    ///< the run at ip_, if known
  bool fresh_ = false;  ///< run_ was found for the current atom
  uint32_t left_ = 0;   ///< the run that led here
  bool left_taken_ = false;
  uint32_t call_ = 0;  ///< the run whose call returned to the current position
  ReturnStack returns_;
  bool calls_unseen_ = false;  ///< calls may have run in lost flow: the trace unit's return stack has entries that returns_ lacks
  bool pop_pending_ = false;   ///< a taken indirect branch: without an address its target is on the return stack
  bool push_allowed_ = true;   ///< false between a synchronisation point and the address after it

  // Context and time
  PacketContext context_;
  Context software_;
  SpaceId space_ = kNoSpace;
  TimeNs earliest_, latest_ = kTimeMax;
  bool time_known_ = false;
  bool by_time_ = false;                          ///< the current thread depends on the time
  bool time_tells_context_ = false;               ///< so does it, or its space
  TimeNs next_change_ = kTimeMax;                 ///< when the thread's space changes next
  bool is_new_ = false;                           ///< it has no space before that
  bool is_of_cpu_ = false;                        ///< or when the cpu runs another thread
  bool undated_ = false;                          ///< no timestamp dates the flow so far
  std::map<int32_t, PossibleContexts> possible_;  ///< then: by thread; -1: of the cpu
  int32_t listed_ = -1;                           ///< the thread of possible()
  bool refuted_ = false;                          ///< the code contradicted the packets: another context of possible_ may fit
  TimeNs proven_;                                 ///< what was executed proves that this time has come
  TimestampIndex* times_ = nullptr;
  bool entry_ = false;          ///< user code may begin at the next instruction
  bool unsure_ = false;         ///< up to the next timestamp: the space may be wrong
  bool is_one_of_two_ = false;  ///< the cpu's thread may be the one of the AUX record before
  struct UserExit {
    int32_t tid = -1;
    Ip to;  ///< where the thread continues, unless it calls exec or handles a signal
    bool by_call = false;
  };
  UserExit exit_;                        ///< the last exception of user code
  std::span<const WrongContext> wrong_;  ///< the part at the current packet, or the next, and those after it
  bool is_wrong_ = false;                ///< the current packet is in it
  Interval time_;
  uint64_t cycles_ = 0;
  bool mark_due_ = true, is_marked_ = false;  ///< is_marked_: the segment has a mark
  Context marked_;                            ///< of the last mark
  ExecMode marked_mode_ = ExecMode::unknown;

  // An exception that is held until its handler's address
  bool has_exception_ = false, exception_dated_ = false;
  Event exception_;
  std::vector<Event> held_contexts_;              ///< contexts of the handler, which precede its address; output after the exception
  bool contradicted_ = false, anchored_ = false;  ///< by the current element
  uint64_t offset_ = 0;                           ///< the packet whose instructions are being walked
};

}  // namespace ptd::arm
