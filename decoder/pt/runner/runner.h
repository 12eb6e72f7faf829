// Runner: the fast path. Plain TNT, TIP, time, and TIP.PGD with TIP.PGE over code that is certain; anything else goes to the exact walker
// with the same FlowState.
#pragma once

#include <algorithm>
#include <array>

#include "decoder/pt/flow/plain_packets.h"
#include "decoder/pt/flow/walker.h"
#include "decoder/pt/runner/runner_code.h"

namespace ptd::pt {

/// Same results as Walker::run: the same blocks, marks, events, gaps and positions. (Batches may end elsewhere.)
///
/// It follows one flow at a time, between two steps of the walker. While no event is pending and the bytes are certain, it reads the
/// packets itself: the blocks up to the next branch that needs the trace form one BlockRun, which is copied as it is, and several branch
/// bits at once are looked up as a Memo. It stops before anything else (events, code with several versions at that time, contradictions),
/// between two packets or inside a TNT, with the state of the flow complete.
class Runner {
 public:
  explicit Runner(Walker& walker);

  /// Same as Walker::run.
  WalkStop run(Flow& flow, uint64_t until_position);

  /// Returns whether the output since the last call of run() may be wrong, because the clock contradicts the segment's end. The segment
  /// must then be walked exactly.
  [[nodiscard]] bool strayed() const { return strayed_; }

  /// Returns the number of steps that were left to the walker.
  [[nodiscard]] uint64_t walked() const { return walked_; }

 private:
  struct Pending {      ///< the TNT whose bits are being taken
    Item item;          ///< the item that the walker would use
    ItemCursor before;  ///< cursor before it
    uint64_t bits = 0;  ///< bits not taken yet, the oldest in bit (count - 1)
    uint32_t count = 0;
    uint64_t index = 0;   ///< index of the item, if not `direct`
    bool direct = false;  ///< read here, not by the ItemReader
    bool begun = false;   ///< a bit was taken
  };

  /// The runs at the return addresses of FlowState::returns. During fast() this is the call stack; FlowState's own stack is unchanged and
  /// valid up to height `low`.
  class Calls {
   public:
    static constexpr uint32_t kMostAtOnce = 1024;  ///< pushes, or pops, between two calls of center()
    uint64_t low = 0;                              ///< minimum height since borrow_calls()
    uint32_t open = 0;                             ///< number of entries

    /// The top of the stack, as a loop holds it.
    struct Top {
      RunId* at = nullptr;
      RunId* lowest = nullptr;  ///< the lowest position of `at`
      uint32_t open = 0;
      void push(RunId run) {
        *++at = run;
        open += open < ReturnStack::kDepth ? 1 : 0;
      }
      RunId pop() {
        const RunId run = *at--;
        lowest = std::min(lowest, at);
        --open;
        return run;
      }
    };
    [[nodiscard]] Top top() {
      RunId* at = &this->at(height_);
      return {at, at, open};
    }
    void set_top(const Top& top) {
      const RunId* was = &at(height_);
      low = std::min(low, height_ - static_cast<uint64_t>(was - top.lowest));
      height_ += static_cast<uint64_t>(top.at - was);
      open = top.open;
      center();
    }
    [[nodiscard]] uint64_t height_of(const Top& top) const { return base_ + static_cast<uint64_t>(top.at - runs_.data()); }
    /// Returns whether kMostAtOnce entries can be pushed or popped at `top`.
    [[nodiscard]] bool is_central(const Top& top) const {
      return static_cast<uint64_t>(top.at - runs_.data()) - kLowest <= kRuns - kLowest - kMostAtOnce;
    }

    /// Returns the entry at height `h`; kNoRun: not looked up yet. Valid for kMostAtOnce above and below the height at the last center().
    [[nodiscard]] RunId& at(uint64_t h) { return runs_[h - base_]; }
    [[nodiscard]] uint64_t height() const { return height_; }
    void push(RunId run) {
      runs_[++height_ - base_] = run;
      if (open < ReturnStack::kDepth) ++open;
    }
    void drop() {
      low = std::min(low, --height_);
      --open;
    }
    void set_height(uint64_t height) { height_ = height; }
    void center() {
      if (height_ - base_ - kLowest > kRuns - kLowest - kMostAtOnce) move_to_middle();
    }
    /// Makes the runs at all return addresses unknown, and forgets all runs.
    void forget() {
      for (uint64_t i = 0; i < open; ++i) at(height_ - i) = kNoRun;
    }
    void forget_all() { runs_.fill(kNoRun); }

   private:
    static constexpr uint64_t kLowest = kMostAtOnce + ReturnStack::kDepth, kRuns = 4 * kLowest;
    void move_to_middle();
    std::array<RunId, kRuns> runs_{};
    uint64_t base_ = 0, height_ = 0;
  };

  bool fast(Flow& flow, uint64_t until);
  bool take_queue();
  void take_direct();
  bool pass_point();
  [[nodiscard]] bool begins_bulk(uint64_t offset, uint64_t stop) const;
  [[nodiscard]] bool is_bulk(uint64_t offset, uint64_t stop) const;
  struct Timed;
  bool take_timed();
  void load(Timed& t);
  void store(const Timed& t);
  /// FlowState::now and moment_first.
  struct Fetch {
    Interval now;
    TimeNs moment_first;
    friend bool operator==(const Fetch&, const Fetch&) = default;
  };
  /// Returns the time bounds of instructions with this lower bound, before a timing packet with this upper bound.
  [[nodiscard, gnu::always_inline]] Fetch fetch_at(TimeNs not_before, TimeNs lo, TimeNs hi) const {
    const uint64_t first = std::max(lo.value, not_before.value), last = std::max({hi.value, lo.value, first});
    const uint64_t inner_first = std::max(first, span_.first.value), inner_last = std::min(last, span_.last.value);
    const bool inside = inner_first <= inner_last;
    return {{TimeNs{inside ? inner_first : first}, TimeNs{inside ? inner_last : last}}, TimeNs{first}};
  }
  void set_moment(Timed& t, TimeNs lo);
  void open(Timed& t);
  void close(Timed& t);
  struct Ahead {
    uint64_t stop;
    TimeNs hi;
  };
  Ahead look_ahead(uint64_t offset, uint32_t unbounded, TimeNs not_before);
  void finish_mark(Interval time);
  void finish_marks(uint32_t count, TimeNs hi, TimeNs not_before);
  void leave_packet(Timed& t);
  void mark(Timed& t);
  void add_mark(uint32_t before_block, TimeNs first, TimeNs last, TimeNs about, uint64_t cycles);
  void first_mark(Timed& t);
  void pop_call(Timed& t);
  const Block& emit(Timed& t, const BlockRun& run);
  bool pass_point(Timed& t);
  bool pass_here(Timed& t);
  BlockRun* run_now(Timed& t);
  bool take_timed_bit(Timed& t, const BlockRun& run, uint64_t window);
  void keep_rest(const Timed& t, uint64_t payload, uint32_t bits, uint32_t count);
  uint32_t take_timed_memo(Timed& t, uint64_t window, uint32_t count);
  bool is_memo_due(RunId at, uint64_t window, uint32_t count);
  bool take_timed_tnt(Timed& t, uint64_t payload, uint32_t bits, uint64_t size);
  bool take_timed_tip(Timed& t, unsigned byte);
  bool read_tnt(uint64_t payload, uint32_t bits, uint64_t size, bool full);
  bool read_tip();
  [[nodiscard]] bool read_target(ItemCursor& cursor, Item& item, ItemKind kind, unsigned opcode) const;
  bool take_untraced();
  struct Spending;
  void spend();
  void read_bits(Spending& s, uint64_t stop);
  void spend_memos(Spending& s);
  bool spend_slowly(Spending& s, uint64_t stop);
  bool spend_tip(Spending& s);
  bool spend_singly(Spending& s);
  void hand_back(const Spending& s);
  /// Copies a memo's blocks and returns their number.
  uint32_t copy_memo(Block* to, const Memo& memo) {
    copy_blocks(to, code_.memos().view().blocks(memo), memo.blocks);
    return memo.blocks;
  }
  bool take_bits();
  bool take_memo();
  bool step();
  bool take_target(const Item& item, bool bits_pending);
  [[nodiscard]] bool exceeds_silence(const BlockRun& run) const;
  [[nodiscard]] bool jumps_to(const BlockRun& run, uint64_t ip) const;
  bool pass_silently(const BlockRun& run);
  RunId follow_links();
  void set_now(const Item& item);
  void give_mark();
  void emit(const BlockRun& run) { emit(run, run.calls); }
  void emit(const BlockRun& run, uint32_t calls);
  void borrow_calls();
  void return_calls();
  void push_calls(const BlockRun& run, uint32_t count);
  RunId pop_call();
  RunId return_run(uint64_t height);
  RunId at(uint64_t ip);
  void set_places();
  void leave();
  [[nodiscard]] bool behind_sync_point(uint64_t offset) const { return offset >= sync_limit_; }
  [[nodiscard]] bool room() const { return out_ < out_end_; }

  Walker& walker_;
  RunnerCode code_;
  bool returns_compressed_;
  Calls calls_;
  uint64_t signature_ = 0;  ///< signature of the ReturnStack that calls_ belongs to
  uint64_t walked_ = 0;

  // State of the current call of fast().
  Flow* flow_ = nullptr;
  FlowState* state_ = nullptr;
  const std::byte* data_ = nullptr;
  uint64_t own_bytes_ = 0, segment_bytes_ = 0, sync_limit_ = 0, until_ = 0;
  Interval span_;      ///< time bounds from the last sync point passed
  uint64_t stop_ = 0;  ///< offset of the next timing packet or own_bytes_
  TimeNs hi_;          ///< upper time bound up to stop_
  ItemCursor cursor_;
  bool direct_ = false;          ///< cursor_ is ahead of the ItemReader
  bool moved_ = false;           ///< something was taken
  uint64_t first_position_ = 0;  ///< position of the flow at the start
  bool settled_ = false;         ///< the last item and the next have the same bounds of time, if cursor_ is steady
  bool mark_due_ = false;
  bool strayed_ = false;
  /// The last mark with an upper bound, and whether one was given. Only of take_timed().
  struct {
    Interval time;
    Moment moment;
  } marked_;
  bool added_mark_ = false;
  Moment left_;                                 ///< `left` of the head item
  uint32_t kernel_place_ = 0, user_place_ = 0;  ///< the places of the runs in calls_
  RunId at_ = kNoRun;
  Pending tnt_;
  Block* out_ = nullptr;
  Block* out_end_ = nullptr;
};

}  // namespace ptd::pt
