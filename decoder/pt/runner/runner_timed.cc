// Runner: processes packets one by one, each with its own time bounds. If timing packets are dense, as in traces of kernels, this is the
// hot loop: there are few bits between two timing packets, and the time of one packet is rarely valid for the next.
//
// Code that is new or has changed is read where the loop meets it. A packet that needs the walker is not taken at all, and
// Runner::take_direct() processes it; only in the middle of a TNT is the rest handed over in tnt_. The functions of the loop are inlined,
// and `Timed` is passed by address to nothing else.
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "decoder/pt/flow/plain_packets.h"
#include "decoder/pt/runner/runner.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kBitsForMemos = 6;  // fewer bits are taken one by one
constexpr uint8_t kMetForMemos = 16;   // runs with fewer visits have no memos, so looking one up would only miss the cache

/// Makes an element of a vector where it will be: a copy would wait for its fields to be written.
template <typename Make>
struct InPlace {
  Make make;
  operator decltype(std::declval<Make>()())() const { return make(); }
};
template <typename Make>
InPlace(Make) -> InPlace<Make>;

}  // namespace

/// State of the loop: what it reads and writes is here, since each copied block could otherwise have changed a member.
struct Runner::Timed {
  ItemCursor cursor;
  Block* out = nullptr;
  Block* out_end = nullptr;
  BlockRun* runs = nullptr;  ///< RunnerCode::run(0)
  RunId at = kNoRun;
  Calls::Top calls;
  /// FlowState::now is `first` to `last`. They are apart so that no load spans two stores that are not done.
  TimeNs first, not_before, last;
  TimeNs moment_first;  ///< FlowState::moment_first
  TimeNs hi;            ///< upper bound of the time, unless `open`
  TimeNs lo;            ///< if `dated`: the time is that of a packet with this lower bound
  uint64_t position = 0, until = 0;
  uint64_t stop = 0;     ///< offset of the next timing packet (unless `open`), the next sync point or the end
  uint64_t ip_stop = 0;  ///< offset up to which nine bytes can be read
  Moment told;           ///< of the last mark
  bool dated = false;
  bool mark_due = false;
  bool open = false;  ///< the next timing packet is not read yet: the time is `lo` to at most `end`, see Runner::open()
  TimeNs end;
  bool marked = false;     ///< the last mark is from this loop: it has the flow's context and the time `first` to `last`
  uint32_t unbounded = 0;  ///< marks at the end of the output that have no upper bound yet
  TimeNs marked_lo;        ///< lower bound of the last one of these

  [[nodiscard]] Interval now() const { return {first, last}; }
  [[nodiscard]] Interval moment() const { return {moment_first, last}; }
  /// Sets the time, which is not `open`.
  void set(const Fetch& fetch) {
    first = fetch.now.first;
    last = fetch.now.last;
    moment_first = fetch.moment_first;
  }
  /// Returns an interval that contains the time.
  [[nodiscard]] Interval widest() const {
    const TimeNs least = std::max(lo, not_before);
    return {least, std::max(end, least)};
  }
  /// Returns whether the last packet and the next have the same bounds of time, if the cursor is steady.
  [[nodiscard]] bool settled() const { return dated && lo == cursor.now_first; }
};

// Sets the time bounds for the next instructions, given their lower bound.
[[gnu::always_inline]] inline void Runner::set_moment(Timed& t, TimeNs lo) {
  if (t.dated && lo == t.lo) return;
  t.dated = true;
  t.lo = lo;
  if (t.open) {
    t.mark_due = true;
    if (!code_.is_in_epoch(t.widest())) close(t);
    return;
  }
  const Fetch fetch = fetch_at(t.not_before, lo, t.hi);
  if (fetch == Fetch{t.now(), t.moment_first}) return;
  t.set(fetch);
  t.mark_due = true;
  code_.set_time(fetch.now);
}

// Stops to read the next timing packet ahead, so that it is read where the flow meets it. Until then marks have no upper bound, and the
// code must be valid up to the segment's end. The first mark of the loop must have been given.
[[gnu::always_inline]] inline void Runner::open(Timed& t) {
  t.open = true;
  t.dated = false;
  t.stop = std::min({own_bytes_, sync_limit_, walker_.items_.ahead().skip_limit()});
}

// Reads the next timing packet ahead: the exact time is needed.
[[gnu::always_inline]] inline void Runner::close(Timed& t) {
  const Ahead ahead = look_ahead(t.cursor.offset_bytes, t.unbounded, t.not_before);
  t.open = false;
  t.stop = ahead.stop;
  t.hi = ahead.hi;
  t.unbounded = 0;
  t.told = marked_.moment;
  if (t.dated) {
    t.set(fetch_at(t.not_before, t.lo, t.hi));
    code_.set_time(t.now());
  }
  t.mark_due = t.moment() != marked_.time || !marked_.moment.serves(t.cursor.left);
}

// Returns the upper bound of the time at `offset`, and the offset of the next timing packet. Gives this bound to the last `unbounded`
// marks.
[[gnu::noinline]] Runner::Ahead Runner::look_ahead(uint64_t offset, uint32_t unbounded, TimeNs not_before) {
  TimeAhead& ahead = walker_.items_.ahead();
  ahead.skip_to(offset);
  const TimePoint* point = ahead.next();
  const uint64_t stop = std::min(point != nullptr ? std::min(point->offset_bytes, own_bytes_) : own_bytes_, sync_limit_);
  const TimeNs hi = ahead.next_last();
  finish_marks(unbounded, hi, not_before);
  return {stop, hi};
}

// Gives the last `count` marks, which have no upper bound, theirs. Removes those that repeat the mark before them.
[[gnu::noinline]] void Runner::finish_marks(uint32_t count, TimeNs hi, TimeNs not_before) {
  std::vector<Mark>& marks = flow_->out->marks;
  Mark* const end = marks.data() + marks.size();
  Mark* kept = end - count;
  for (Mark* mark = kept; mark != end; ++mark) {
    const Fetch fetch = fetch_at(not_before, mark->time.first, hi);
    const Interval time{fetch.moment_first, fetch.now.last};
    const Moment told{mark->about, mark->cycles};
    if (time == marked_.time && marked_.moment.serves(told)) continue;
    if (kept != mark) *kept = *mark;
    kept->time = time;
    kept->time_known = time.first > kTimeMin && time.last < kTimeMax;
    ++kept;
    marked_ = {time, told};
    added_mark_ = true;
  }
  if (kept != end) marks.erase(marks.end() - (end - kept), marks.end());
  // The clock contradicts the segment's end. If code that changes was taken as valid up to there, the segment is decoded again.
  if (hi > walker_.items_.ahead().end() && !code_.is_in_epoch({hi, hi})) strayed_ = true;
}

// Same for the last mark, given its time.
[[gnu::always_inline]] inline void Runner::finish_mark(Interval time) {
  std::vector<Mark>& marks = flow_->out->marks;
  Mark& mark = marks.back();
  const Moment told{mark.about, mark.cycles};
  if (time == marked_.time && marked_.moment.serves(told)) return marks.pop_back();
  mark.time.first = marked_.time.first = time.first;
  mark.time.last = marked_.time.last = time.last;
  mark.time_known = time.first > kTimeMin && time.last < kTimeMax;
  marked_.moment = told;
  added_mark_ = true;
}

// Records that the last packet of the flow was written when it was generated. The next one gets a mark if time has passed,
// or the cycles have changed.
[[gnu::always_inline]] inline void Runner::leave_packet(Timed& t) {
  t.cursor.leave();
  t.mark_due |= !t.told.serves(t.cursor.now);
}

[[gnu::always_inline]] inline void Runner::mark(Timed& t) {
  if (!t.mark_due) return;
  t.mark_due = false;
  t.told = t.cursor.left;
  if (!t.marked) return first_mark(t);
  const Interval time = t.open ? Interval{t.lo, t.lo} : t.moment();
  if (t.open) {
    ++t.unbounded;
    t.marked_lo = t.lo;
  } else {
    marked_ = {time, t.told};
    added_mark_ = true;
  }
  add_mark(static_cast<uint32_t>(t.out - flow_->out->blocks.data()), time.first, time.last, t.told.about, t.told.cycles);
}

// Appends a mark of the flow's context. Its arguments are in registers: a load of an Interval would wait for the stores of its halves.
[[gnu::noinline]] void Runner::add_mark(uint32_t before_block, TimeNs first, TimeNs last, TimeNs about, uint64_t cycles) {
  const Mark& context = flow_->mark;
  flow_->out->marks.emplace_back(InPlace{[&] {
    return Mark{.before_block = before_block,
                .time = {first, last},
                .pid = context.pid,
                .tid = context.tid,
                .space = context.space,
                .mode = context.mode,
                .time_known = first > kTimeMin && last < kTimeMax,
                .about = about,
                .cycles = cycles};
  }});
}

// Outputs the first mark of the loop, unless it is the same as the last one.
[[gnu::always_inline]] inline void Runner::first_mark(Timed& t) {
  t.marked = true;
  state_->now = t.now();
  state_->moment_first = t.moment_first;
  left_ = t.cursor.left;
  out_ = t.out;
  give_mark();
  marked_ = {flow_->mark.time, flow_->marked()};
}

// Outputs the run's blocks. Returns the last one as it is in the code: loading it from the output would wait for the store.
[[gnu::always_inline]] inline const Block& Runner::emit(Timed& t, const BlockRun& run) {
  mark(t);
  std::memcpy(static_cast<void*>(t.out), run.head.data(), sizeof run.head);
  const Block* blocks = run.head.data();
  if (run.blocks > BlockRun::kHead) {
    blocks = code_.blocks(run.blocks_first);
    copy_blocks(t.out, blocks, run.blocks);
  }
  t.out += run.blocks;
  const Block& last = blocks[run.blocks - 1];
  if (run.calls == 0) return last;
  const RunId* calls = code_.calls(run);
  t.calls.push(calls[0]);
  for (uint32_t i = 1; i < run.calls; ++i) t.calls.push(calls[i]);
  return last;
}

// Processes a timing packet at the cursor. Returns false at the end of the segment or at a sync point.
[[gnu::always_inline]] inline bool Runner::pass_point(Timed& t) {
  TimeAhead& ahead = walker_.items_.ahead();
  const TimePoint* point = ahead.next();
  const bool here = point != nullptr && point->offset_bytes <= t.cursor.offset_bytes;
  if (here) {
    t.cursor.offset_bytes = std::max(t.cursor.offset_bytes, point->end_bytes);
    t.cursor.now = point->moment;
    if (point->bounds) t.cursor.now_first = point->first;
    ahead.pass_one();
    if (t.marked && ahead.may_read_at()) {
      open(t);
      return true;
    }
    point = ahead.next();
  }
  t.stop = std::min(point != nullptr ? std::min(point->offset_bytes, own_bytes_) : own_bytes_, sync_limit_);
  t.hi = ahead.next_last();
  t.dated = false;
  return here || t.cursor.offset_bytes < t.stop;
}

// Processes a timing packet at the cursor while the next one is not read ahead. Returns false if it must be.
[[gnu::always_inline]] inline bool Runner::pass_here(Timed& t) {
  const TimePoint* point = walker_.items_.ahead().read_at(t.cursor.offset_bytes);
  if (point == nullptr) return false;
  if (point->bounds) {
    if (t.dated) t.set(fetch_at(t.not_before, t.lo, point->last));
    if (t.unbounded == 1 && t.dated && t.marked_lo == t.lo && point->last <= t.end) {
      finish_mark(t.moment());
    } else if (t.unbounded != 0 || point->last > t.end) {
      finish_marks(t.unbounded, point->last, t.not_before);
    }
    if (t.unbounded != 0) t.told = marked_.moment;
    t.unbounded = 0;
    t.cursor.now_first = point->first;
  }
  t.cursor.now = point->moment;
  t.cursor.offset_bytes = point->end_bytes;
  t.stop = std::min({own_bytes_, sync_limit_, walker_.items_.ahead().skip_limit()});
  t.dated = false;
  return !strayed_;
}

// Returns the run at the flow's position, as its code is now; null if the walker must continue.
[[gnu::always_inline]] inline BlockRun* Runner::run_now(Timed& t) {
  BlockRun* run = &t.runs[t.at];
  if (code_.is_valid(*run)) return run;
  RunId id = t.open ? code_.check_lasting(t.at, t.widest()) : kNoRun;
  if (t.open && id == kNoRun) close(t);
  if (!t.open) id = code_.check_valid(t.at, t.now());
  t.runs = &code_.run(0);
  if (id == kNoRun) return nullptr;
  t.at = id;
  return &t.runs[id];
}

// Goes to the return address on top of the stack.
[[gnu::always_inline]] inline void Runner::pop_call(Timed& t) {
  t.at = t.calls.pop();
  if (t.at != kNoRun) return;
  t.at = return_run(calls_.height_of(t.calls) + 1);
  t.runs = &code_.run(0);
}

// Takes bits through a memo. Returns their number, 0 if none.
[[gnu::always_inline]] inline uint32_t Runner::take_timed_memo(Timed& t, uint64_t window, uint32_t count) {
  const Memo* memo = &code_.memos().find(t.at, window);
  if (memo->bits == 0) {
    if (!is_memo_due(t.at, window, count)) return 0;
    if (t.open) close(t);
    const bool made = code_.make_memo(t.at, window, count, t.now());
    t.runs = &code_.run(0);
    if (!made) return 0;
    memo = &code_.memos().find(t.at, window);
  }
  const uint32_t bits = memo->bits;
  const int rise = memo->rise;
  if (bits - 1U >= count || static_cast<int>(t.calls.open) + rise < 0) return 0;
  if (memo->valid != 0 && !code_.holds(memo->valid, t.open ? t.widest() : t.now())) return 0;
  mark(t);
  MemoTable& memos = code_.memos();
  t.out += copy_memo(t.out, *memo);
  t.calls.open = std::min(t.calls.open, uint32_t{memo->depth_left});
  const RunId from = t.at;
  if (rise < 0) {
    pop_call(t);
  } else {
    RunId calls[MemoTable::kMaxCalls];
    std::memcpy(calls, memos.view().calls(*memo), sizeof calls);
    t.at = memos.view().run_of(memo->next);
    for (int i = 0; i < rise; ++i) t.calls.push(calls[i]);
  }
  if (count >= MemoTable::kMostBits || memos.width(from) < kBitsForMemos) memos.visit(from);
  return bits;
}

// Requests a memo that does not exist. Returns true if it is to be created.
[[gnu::noinline]] bool Runner::is_memo_due(RunId at, uint64_t window, uint32_t count) {
  MemoTable& memos = code_.memos();
  if (memos.width(at) == 0) memos.visit(at);
  const uint32_t width = memos.width(at);
  return width != 0 && width <= count && memos.ask(at, window);
}

// Takes the bit on top of `window` at `run`. Returns false if the run does not end in a branch that can take it.
[[gnu::always_inline]] inline bool Runner::take_timed_bit(Timed& t, const BlockRun& run, uint64_t window) {
  const uint64_t bit = window >> 63;
  if (run.end == RunEnd::jcc) {
    Block last = emit(t, run);
    static_assert(static_cast<uint16_t>(BlockFlag::taken) == 1);
    last.flags = static_cast<uint16_t>(last.flags | bit);
    t.out[-1] = last;
    t.at = run.next[bit];
    __builtin_prefetch(&t.runs[t.at]);  // it is read after a branch that is often mispredicted
    return true;
  }
  if (run.end != RunEnd::ret || !returns_compressed_ || bit == 0 || t.calls.open + run.calls == 0) return false;
  emit(t, run);
  pop_call(t);
  __builtin_prefetch(&t.runs[t.at]);
  return true;
}

// Takes the TNT at the cursor. Returns false if nothing, or only a part of it, was taken.
[[gnu::always_inline]] inline bool Runner::take_timed_tnt(Timed& t, uint64_t payload, uint32_t bits, uint64_t size) {
  set_moment(t, t.cursor.emitted);
  uint64_t window = payload << (64 - bits);
  uint32_t count = bits;
  do {
    BlockRun* run = run_now(t);
    if (run == nullptr) break;
    if (count >= kBitsForMemos && run->met++ >= kMetForMemos) {
      run->met = kMetForMemos;
      if (const uint32_t taken = take_timed_memo(t, window, count); taken != 0) {
        window <<= taken;
        count -= taken;
        continue;
      }
      run = &t.runs[t.at];
    }
    if (!take_timed_bit(t, *run, window)) break;
    window <<= 1;
    --count;
  } while (count != 0 && t.out < t.out_end);
  t.position += bits - count;
  if (count != 0) {
    if (count == bits) return false;
    if (t.open) close(t);
    keep_rest(t, payload, bits, count);
  }
  t.cursor.begin_group();
  if (bits == kLongTntBits) t.cursor.prompt();
  t.cursor.offset_bytes += size;
  if (count != 0) {  // the rest has the same time
    t.cursor.leave_tnt(bits);
    return false;
  }
  if (ItemCursor::is_full(bits)) leave_packet(t);
  return true;
}

// Stores the last `count` bits of the TNT at the cursor in tnt_.
[[gnu::always_inline]] inline void Runner::keep_rest(const Timed& t, uint64_t payload, uint32_t bits, uint32_t count) {
  tnt_.count = count;
  tnt_.bits = low_bits(payload, count);
  tnt_.direct = tnt_.begun = true;
  Item& item = tnt_.item;
  item.kind = ItemKind::tnt;
  item.bits = static_cast<uint8_t>(bits);
  item.ip = low_bits(payload, bits);
  item.offset_bytes = t.cursor.offset_bytes;
  t.cursor.date(item);
  item.lo = t.cursor.emitted;
  item.hi = std::max(t.hi, item.lo);
}

// Takes the TIP at the cursor. Returns false if it could not be taken.
[[gnu::always_inline]] inline bool Runner::take_timed_tip(Timed& t, unsigned byte) {
  const uint64_t offset = t.cursor.offset_bytes;
  const uint64_t size = kIpSize[byte >> 5];
  if (size == 0 || offset >= t.ip_stop) return false;
  set_moment(t, t.cursor.late ? t.cursor.group_lo : t.cursor.emitted);
  const BlockRun* run = run_now(t);
  if (run == nullptr || (run->end != RunEnd::indirect && run->end != RunEnd::ret)) return false;
  const uint64_t ip = ip_of_tip(data_ + offset, t.cursor.last_ip);
  if (is_long_tip(byte >> 5, ip, t.cursor.last_ip)) return false;
  const bool to_kernel = (ip >> 63) != 0;
  if (!to_kernel && run->ends_in_kernel) return false;  // the context may change
  const uint32_t place = to_kernel ? kernel_place_ : user_place_;
  const RunId guess = run->end == RunEnd::ret ? *t.calls.at : run->next[0];
  const bool guessed = t.runs[guess].ip == ip && t.runs[guess].place == place;
  if (!guessed && ip == code_.after_call(*run)) return false;  // the TIP of the call itself is missing
  emit(t, *run);
  if (run->end == RunEnd::ret && t.calls.open != 0) t.calls.pop();
  if (guessed) {
    t.at = guess;
  } else {
    const RunId from = t.at;
    t.at = code_.target_at(place, ip);
    t.runs = &code_.run(0);
    if (t.runs[from].end == RunEnd::indirect) t.runs[from].next[0] = t.at;
  }
  __builtin_prefetch(&t.runs[t.at]);
  t.cursor.take_tip();
  leave_packet(t);
  t.cursor.last_ip = ip;
  t.cursor.offset_bytes += size + 1;
  ++t.position;
  return true;
}

[[gnu::always_inline]] inline void Runner::load(Timed& t) {
  t.cursor = cursor_;
  t.out = out_;
  t.out_end = out_end_;
  t.runs = &code_.run(0);
  t.at = at_;
  t.calls = calls_.top();
  t.first = state_->now.first;
  t.last = state_->now.last;
  t.moment_first = state_->moment_first;
  t.not_before = state_->not_before;
  t.hi = hi_;
  t.lo = cursor_.now_first;
  t.stop = std::min(stop_, sync_limit_);
  t.ip_stop = std::max(std::min(own_bytes_, segment_bytes_), kWidestIp - 1) - (kWidestIp - 1);
  t.position = state_->position;
  t.until = until_;
  t.told = flow_->marked();
  t.dated = settled_;
  t.mark_due = mark_due_ || !t.told.serves(cursor_.left);
  t.marked = t.open = added_mark_ = false;
  t.unbounded = 0;
  t.end = walker_.items_.ahead().end();
  code_.set_time(t.now());
}

[[gnu::always_inline]] inline void Runner::store(const Timed& t) {
  cursor_ = t.cursor;
  out_ = t.out;
  at_ = t.at;
  calls_.set_top(t.calls);
  state_->now = t.now();
  state_->moment_first = t.moment_first;
  if (state_->position != t.position) {
    moved_ = true;
    state_->end_silence();
  }
  state_->position = t.position;
  stop_ = t.stop;
  hi_ = t.hi;
  mark_due_ = t.mark_due;
  settled_ = t.settled();
  left_ = t.cursor.left;
  if (added_mark_) flow_->mark = flow_->out->marks.back();
}

// Takes packets from the cursor on, up to one that spend() or other functions process. Returns false if bits of a TNT are left in tnt_ and
// cannot be taken.
bool Runner::take_timed() {
  Timed t;
  load(t);
  tnt_.count = 0;
  while (t.out < t.out_end && t.position + 64 <= t.until) {
    const uint64_t offset = t.cursor.offset_bytes;
    if (offset >= t.stop) {
      if (t.open) {
        close(t);
      } else if (!pass_point(t)) {
        break;
      }
      continue;
    }
    if (!calls_.is_central(t.calls)) {
      calls_.set_top(t.calls);
      t.calls = calls_.top();
    }
    const auto byte = static_cast<unsigned>(data_[offset]);
    if ((byte & 1) == 0) {
      if (byte == 0) {
        ++t.cursor.offset_bytes;
        continue;
      }
      if (t.settled() && !t.mark_due && (t.open ? begins_bulk(offset, t.stop) : is_bulk(offset, t.stop)) && t.cursor.steady()) {
        if (!t.open) break;
        close(t);
        continue;
      }
      uint64_t payload = byte >> 1, size = 1;
      if (byte == 0x02) {
        payload = own_bytes_ - offset >= kLongTntBytes ? long_tnt(data_ + offset) : 0;
        if (payload == 0) break;
        size = kLongTntBytes;
      }
      if (take_timed_tnt(t, payload, static_cast<uint32_t>(std::bit_width(payload)) - 1, size)) continue;
    } else if ((byte & kIpOpcodeMask) == kTipOpcode) {
      if (take_timed_tip(t, byte)) continue;
    } else if (t.open) {
      if (pass_here(t)) continue;
      if (strayed_) break;
      close(t);
      continue;
    }
    if (tnt_.count == 0) break;
    if (t.open) close(t);
    store(t);
    if (!take_bits()) return false;
    load(t);
  }
  if (t.open) close(t);
  store(t);
  return !strayed_;
}

}  // namespace ptd::pt
