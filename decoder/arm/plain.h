// PlainFlow: the fast path. Atoms lead from run to run through links, addresses to known runs; the functions of the follower handle
// everything else.
#pragma once

#include <algorithm>
#include <bit>

#include "decoder/arm/follower.h"

namespace ptd::arm {

/// The kind of the next input from a source.
enum class PlainKind : uint8_t { atoms, address, aside, end };

/// Follows a sequence of plain packets or elements, with the same results as the follower's atom() and address(), but faster. Meanwhile the
/// state of the flow is here; load() and store() copy it from and to the follower.
/// A Source provides next(), which moves to the next input: atoms() and count(), address(), or the packet aside(). offset(left) returns the
/// offset of the packet that contains the atom with which `left` atoms remain. kMayStop: a full batch ends the source. blocks_ahead()
/// estimates how many blocks will follow.
template <bool kChanges, typename Source>
class PlainFlow {
 public:
  PlainFlow(Follower& follower, Source& source) : follower_(follower), source_(source) {}

  /// Runs until the source ends or the batch is full.
  void run() {
    load();
    while (has_room()) {
      const PlainKind kind = source_.next(lost_);
      if (kind == PlainKind::address) {
        take_address(Ip{source_.address()}, source_.isa());
      } else if (kind == PlainKind::atoms) {
        take_atoms(source_.atoms(), source_.count());
      } else if (kind == PlainKind::aside) {
        take_aside(source_.aside());
      } else {
        break;
      }
    }
    store();
  }

 private:
  static constexpr size_t kMostAtoms = 64;  // per call of next()
  static constexpr uint64_t kDoubt = std::bit_cast<uint64_t>(Block{0, 0, static_cast<uint16_t>(BlockFlag::suspect)});

  [[nodiscard]] bool has_room() const { return out_ < stop_; }

  /// Loads the state of the flow from the follower.
  void load() {
    const Follower& f = follower_;
    run_ = f.run_;
    left_ = f.left_;
    ip_ = f.ip_;
    mode_ = f.mode_;
    taken_ = f.from_branch_;
    need_ = f.need_address_;
    pop_ = f.pop_pending_;
    gap_given_ = f.gap_given_;
    lost_ = f.is_lost();
    walked_ = f.walked_;
    fresh_ = false;
    odd_ = f.need_context_ || f.has_exception_ || f.starting_ || f.entry_ || (f.isa_ != 0 && mode_ != ExecMode::t32);
    doubt_ = f.doubtful_ || f.is_unsure() ? kDoubt : 0;
    has_stack_ = f.config_.has_return_stack();
    stack_ = has_stack_ && f.push_allowed_;
    steps_ = &f.runs_->step(0);
    now_ = f.when();
    Blocks& blocks = f.out_->blocks;
    const size_t before = blocks.size(), most = f.most_;
    const bool full = Source::kMayStop && (before >= most || f.out_->gaps.size() >= most);
    const size_t size = before + kMostAtoms + (full ? 0 : std::min(source_.blocks_ahead(), most - std::min(most, before)));
    if (size > blocks.capacity()) blocks.reserve(std::max(size, 2 * blocks.capacity()));
    blocks.resize(size);
    begin_ = blocks.data();
    out_ = since_ = begin_ + before;
    stop_ = full ? begin_ : begin_ + (size - kMostAtoms) + 1;
  }

  /// Stores the state in the follower.
  void store() {
    Follower& f = follower_;
    f.out_->blocks.resize(static_cast<size_t>(out_ - begin_));
    f.run_ = run_;
    f.left_ = left_;
    f.ip_ = run_ != 0 ? steps_[run_].ip : ip_;
    f.mode_ = mode_;
    f.from_branch_ = f.left_taken_ = taken_;
    f.need_address_ = need_;
    f.pop_pending_ = pop_;
    f.gap_given_ = gap_given_;
    f.walked_ = walked_;
    f.fresh_ = fresh_;
    if (out_ == since_) return;
    f.flowing_ = true;
    if (taken_) f.branch_ip_ = f.runs_->run(left_).last_ip;
  }

  /// Lets the follower process the atom.
  void take_slowly(uint64_t atoms, unsigned left) {
    store();
    follower_.atom(atoms, source_.offset(left));
    load();
  }

  void take_atoms(uint64_t atoms, unsigned count) {
    while (count != 0 && !lost_) {
      if (!odd_ && (run_ != 0 || find(count))) {
        const Way way = follow(atoms, count);
        if (way <= Way::indirect_call || way == Way::none) continue;
        if (way == Way::no_code && !kChanges) return give_no_code(steps_[run_].blocks[0].node, source_.offset(count));
      }
      if (lost_) return;
      if (kChanges || odd_ || !contradicts(atoms, count)) take_slowly(atoms, count);
      atoms >>= 1;
      --count;
    }
  }

  /// Returns true if the code contradicts the next atom, which is then consumed.
  bool contradicts(uint64_t atoms, unsigned left) {
    Follower& f = follower_;
    if (run_ == 0) {
      if (!need_ || pop_ || gap_given_ || !taken_) return false;
      // The code has an indirect branch, but the trace gives no target.
      contradict(branch_ip(), source_.offset(left), follower_.no_target());
      gap_given_ = lost_ = true;
      return true;
    }
    const WaypointRun& run = f.runs_->run(run_);
    if ((atoms & 1) != 0 || run.stop != RunStop::waypoint || run.has_bad) return false;
    // The trace reports an unconditional branch as not taken: the flow follows the trace, and its blocks are marked up to the next address.
    Block* const before = out_;
    left_ = run_;
    run_ = 0;
    *out_++ = std::bit_cast<Block>(std::bit_cast<uint64_t>(steps_[left_].blocks[0]) | doubt_);
    followed(before, false);
    give_gap(GapReason::image_mismatch, run.last_ip, section_at(run.last_ip), source_.offset(left));
    doubt_ = kDoubt;
    f.doubtful_ = true;
    return true;
  }

  /// The packets contradict the code at `ip`; the position of the flow is lost.
  void contradict(Ip ip, uint64_t offset, GapReason reason = GapReason::image_mismatch) {
    give_gap(reason, ip, section_at(ip), offset);
    follower_.forget_calls();
    need_ = true;
    pop_ = walked_ = false;
  }

  [[nodiscard]] SectionId section_at(Ip ip) const { return follower_.runs_->section_at(follower_.space_, ip, now_); }
  /// Returns the address of the branch that was taken last.
  [[nodiscard]] Ip branch_ip() const { return left_ != 0 ? follower_.runs_->run(left_).last_ip : follower_.branch_ip_; }

  /// Consumes atoms that agree with the code, along known runs. Returns what the last consumed atom did, or the atom that stopped it would
  /// do.
  Way follow(uint64_t& atoms, unsigned& count) {
    Way way = steps_[run_].way[atoms & 1];
    if (way >= Way::no_code) return way;
    const Step* const steps = steps_;
    Block* const before = out_;
    Block* out = before;
    const Interval now = now_;
    const uint64_t doubt = doubt_;
    uint64_t bits = atoms;
    unsigned left = count;
    uint32_t run = run_, last = left_;
    while (left != 0) {
      const Step& step = steps[run];
      const size_t executed = bits & 1;
      way = step.way[executed];
      if (way >= Way::no_code) break;
      if (kChanges && !step.certain.contains(now)) {
        way = Way::other;
        break;
      }
      *out++ = std::bit_cast<Block>(std::bit_cast<uint64_t>(step.blocks[executed]) | doubt);
      bits >>= 1;
      --left;
      last = run;
      run = step.next[executed];
      if (way == Way::on) continue;
      if (stack_ && way != Way::indirect) follower_.returns_.push({step.end, step.mode, last});
      if (way == Way::call) continue;
      run = 0;
      need_ = true;
      pop_ = has_stack_;
      break;
    }
    if (out == before) return way;
    const bool executed = ((atoms >> (count - left - 1)) & 1) != 0;
    atoms = bits;
    count = left;
    run_ = run;
    left_ = last;
    out_ = out;
    followed(before, executed);
    return way;
  }

  /// Updates the state after the flow executed left_ and moved on to run_.
  void followed(const Block* before, bool executed) {
    Follower& f = follower_;
    const Step& left = steps_[left_];
    taken_ = executed && left.branch;
    walked_ = true;
    fresh_ = false;
    if (run_ == 0) ip_ = taken_ && !need_ ? f.runs_->run(left_).target : left.end;
    if (!f.mark_due_ && mode_ == f.marked_mode_) return;
    f.mode_ = mode_;
    f.put_mark(static_cast<size_t>(before - begin_));
  }

  /// Finds the run at the current position. Returns false if there is no code or the follower must handle it. `left`: remaining atoms.
  bool find(unsigned left) {
    Follower& f = follower_;
    if (need_) return find_return();
    if (!f.is64_) ip_.value &= 0xffffffffU;
    SectionId section = kNoSection;
    if (!kChanges && f.runs_->is_known_hole(f.space_, ip_, now_, section)) {
      give_no_code(section, source_.offset(left));
      return false;
    }
    run_ = f.runs_->find(f.space_, ip_, mode_, now_, f.choices_);
    steps_ = &f.runs_->step(0);
    f.call_ = 0;
    if (left_ != 0 && (!kChanges || f.leads_to(left_, taken_, ip_, mode_))) f.runs_->link(left_, taken_, run_);
    fresh_ = kChanges && !steps_[run_].certain.contains(now_);
    return !fresh_;
  }

  /// Continues at the address from the return stack, if the run there is known.
  bool find_return() {
    Follower& f = follower_;
    ReturnStack::Entry entry;
    if (!pop_ || !f.returns_.peek(entry) || entry.call == 0 || entry.mode != mode_ || (mode_ == ExecMode::a64) != f.is64_) return false;
    const uint32_t run = steps_[entry.call].next[0];
    if (run == 0 || !is_at(run, entry.ip)) return false;
    (void)f.returns_.pop(entry);
    run_ = run;
    need_ = pop_ = false;
    return true;
  }

  [[nodiscard]] bool is_at(uint32_t run, Ip ip) const {
    const Step& step = steps_[run];
    return step.ip == ip && step.mode == mode_ && step.space == follower_.runs_->home(follower_.space_, ip);
  }

  void take_address(Ip ip, uint8_t isa) {
    Follower& f = follower_;
    const ExecMode mode = f.mode_of(isa);
    const bool has_place = walked_ && !need_;
    const bool contradicts = has_place && (mode != mode_ || ip != place());
    if (odd_ || (kChanges && contradicts)) {
      store();
      f.address(ip, isa, source_.offset(0));
      return load();
    }
    // Reached only if the trace has an indirect branch where the code has none.
    if (contradicts) contradict(taken_ ? branch_ip() : place(), source_.offset(0));
    if (!has_place || contradicts) {
      if (!walked_ || !taken_) left_ = 0;
      mode_ = mode;
      ip_ = ip;
      // The last target of this branch.
      run_ = left_ == 0 ? 0 : steps_[left_].next[1];
      if (run_ != 0 && (!is_at(run_, ip) || (kChanges && !steps_[run_].certain.contains(now_)))) run_ = 0;
    }
    need_ = pop_ = gap_given_ = lost_ = walked_ = fresh_ = false;
    doubt_ = f.is_unsure() ? kDoubt : 0;
    stack_ = has_stack_;
    f.push_allowed_ = true;
    f.doubtful_ = false;
    f.call_ = 0;
    f.isa_ = isa;
    odd_ = f.entry_ || (isa != 0 && mode_ != ExecMode::t32);
  }

  /// Processes a packet with time, cycles or a marker.
  template <typename Aside>
  void take_aside(const Aside& packet) {
    Follower& f = follower_;
    if (packet.kind == PacketKind::timestamp && !kChanges && !f.time_tells_context_ && !f.unsure_) {
      f.timestamp(packet.value, packet.flags, packet.cycles, source_.offset(0));
      now_ = f.when();
    } else if (packet.kind == PacketKind::timestamp) {
      store();
      f.timestamp(packet.value, packet.flags, packet.cycles, source_.offset(0));
      load();
    } else if (packet.kind == PacketKind::ts_marker) {
      const bool placed = !need_ && !f.need_context_;
      Event event = f.event_of(EventKind::sync_marker, placed ? kEventHasFrom : uint8_t{0}, place(), packet.value, source_.offset(0));
      event.before_block = static_cast<uint32_t>(out_ - begin_);
      push(f.out_->events, event);
      if (Source::kMayStop && f.out_->events.size() >= f.most_) stop_ = begin_;
    } else {
      f.cycles(packet.flags, packet.cycles);
    }
  }

  /// Returns the current position of the flow.
  [[nodiscard]] Ip place() const { return run_ != 0 ? steps_[run_].ip : ip_; }

  /// Outputs a gap because there is no code at the current position.
  void give_no_code(SectionId section, uint64_t offset) {
    ip_ = place();
    give_gap(GapReason::no_image, ip_, section, offset);
    follower_.forget_calls();
    taken_ = walked_ = false;
    need_ = gap_given_ = lost_ = true;
  }

  void give_gap(GapReason reason, Ip ip, SectionId section, uint64_t offset) {
    Follower& f = follower_;
    const Gap gap = f.gap_of(reason, ip, section, offset, static_cast<size_t>(out_ - begin_));
    push(f.out_->gaps, gap);
    f.flowing_ = false;
    f.call_ = run_ = left_ = 0;
    since_ = out_;
    if (Source::kMayStop && f.out_->gaps.size() >= f.most_) stop_ = begin_;
  }

  Follower& follower_;
  Source& source_;
  const Step* steps_ = nullptr;
  Interval now_;
  Block *begin_ = nullptr, *out_ = nullptr;
  Block* stop_ = nullptr;   ///< blocks may be written before this point; begin_: the batch is full
  Block* since_ = nullptr;  ///< blocks from here on are new, and the flow was not lost after it
  uint32_t run_ = 0, left_ = 0;
  Ip ip_;  ///< position if run_ is 0
  ExecMode mode_ = ExecMode::unknown;
  bool taken_ = false;  ///< whether the branch of left_ was taken
  bool need_ = false, pop_ = false, gap_given_ = false, lost_ = false, walked_ = false, fresh_ = false;
  bool has_stack_ = false, stack_ = false;  ///< the trace unit has a return stack; calls are pushed
  bool odd_ = false;                        ///< the follower must process the next atom or address
  uint64_t doubt_ = 0;                      ///< additional flags of output blocks, as bits of a Block
};

}  // namespace ptd::arm
