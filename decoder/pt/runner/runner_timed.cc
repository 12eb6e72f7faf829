// Runner: processes packets one by one, each with its own time bounds. If timing packets are dense, as in traces of kernels, this is the
// hot loop: there are few bits between two timing packets, and the time of one packet is rarely valid for the next.
//
// Code that is new or has changed is read where the loop meets it. A packet that needs the walker is not taken at all, and
// Runner::take_direct() processes it; only in the middle of a TNT is the rest handed over in tnt_. The functions of the loop are inlined,
// and `Timed` is passed by address to nothing else.
#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/pt/flow/plain_packets.h"
#include "decoder/pt/runner/runner.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kBitsForMemos = 6;  // fewer bits are taken one by one
constexpr uint8_t kMetForMemos = 16;   // runs with fewer visits have no memos, so looking one up would only miss the cache

}  // namespace

/// State of the loop.
struct Runner::Timed {
  ItemCursor cursor;
  Block* out = nullptr;
  RunId at = kNoRun;
  ValidId valid = 0;  ///< an interval that is valid now; 0 always is
  TimeNs first, not_before, last;  ///< the time is `first` to `last`. They are apart so that no load spans two stores that are not done.
  TimeNs hi;
  TimeNs lo;  ///< if `dated`: the time is that of a packet with this lower bound
  uint64_t position = 0;
  uint64_t stop = 0;    ///< offset of the next timing packet, the next sync point or the end
  uint64_t cycles = 0;  ///< of the last mark
  bool dated = false;
  bool mark_due = false;
  bool marked = false;  ///< the last mark has the flow's context
  bool settled = false;

  [[nodiscard]] Interval now() const { return {first, last}; }
};

// Sets the time bounds for the next instructions, given their lower bound.
[[gnu::always_inline]] inline void Runner::set_moment(Timed& t, TimeNs lo) const {
  t.settled = lo == t.cursor.now_first;
  t.mark_due |= t.cursor.left.cycles != t.cycles;
  if (t.dated && lo == t.lo) return;
  t.dated = true;
  t.lo = lo;
  const uint64_t first = std::max(lo.value, t.not_before.value), last = std::max({t.hi.value, lo.value, first});
  const uint64_t inner_first = std::max(first, span_.first.value), inner_last = std::min(last, span_.last.value);
  const bool inside = inner_first <= inner_last;
  const TimeNs now_first{inside ? inner_first : first}, now_last{inside ? inner_last : last};
  if (now_first == t.first && now_last == t.last) return;
  t.first = now_first;
  t.last = now_last;
  t.valid = 0;
  t.mark_due = true;
}

[[gnu::always_inline]] inline bool Runner::is_valid(Timed& t, ValidId valid) const {
  if (valid == t.valid || valid == 0) return true;
  if (!code_.holds(valid, t.now())) return false;
  t.valid = valid;
  return true;
}

[[gnu::always_inline]] inline void Runner::mark(Timed& t) {
  if (!t.mark_due) return;
  t.mark_due = false;
  t.cycles = t.cursor.left.cycles;
  if (t.marked) return flow_->put_time(t.now(), t.cursor.left, static_cast<size_t>(t.out - flow_->out->blocks.data()));
  t.marked = true;
  state_->now = t.now();
  left_ = t.cursor.left;
  out_ = t.out;
  give_mark();
}

[[gnu::always_inline]] inline void Runner::emit(Timed& t, const BlockRun& run) {
  mark(t);
  std::memcpy(static_cast<void*>(t.out), run.head.data(), sizeof run.head);
  if (run.blocks > BlockRun::kHead) copy_blocks(t.out, code_.blocks(run.blocks_first), run.blocks);
  t.out += run.blocks;
  if (run.calls == 0) return;
  const RunId* calls = code_.calls(run);
  for (uint32_t i = 0; i < run.calls; ++i) calls_.push(calls[i]);
  calls_.center();
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
    t.settled = false;
    point = ahead.next();
  }
  t.stop = std::min(point != nullptr ? std::min(point->offset_bytes, own_bytes_) : own_bytes_, sync_limit_);
  t.hi = ahead.next_last();
  t.dated = false;
  return here || t.cursor.offset_bytes < t.stop;
}

// Returns the run at the flow's position, as its code is now; null if the walker must continue.
[[gnu::always_inline]] inline BlockRun* Runner::run_now(Timed& t) {
  BlockRun* run = &code_.run(t.at);
  if (run->end > RunEnd::stuck && is_valid(t, run->valid)) return run;
  const RunId id = code_.version_at(t.at, t.now());
  run = &code_.run(id);
  if (id == kNoRun || run->end <= RunEnd::stuck) return nullptr;
  t.at = id;
  return run;
}

// Takes bits through a memo. Returns their number, 0 if none.
[[gnu::always_inline]] inline uint32_t Runner::take_timed_memo(Timed& t, uint64_t window, uint32_t count) {
  const Memo* memo = &code_.memos().find(t.at, window);
  if (memo->bits == 0) {
    if (!make_timed_memo(t.at, window, count, t.now())) return 0;
    memo = &code_.memos().find(t.at, window);
  }
  const uint32_t bits = memo->bits;
  const int rise = memo->rise;
  if (bits - 1U >= count || static_cast<int>(calls_.open) + rise < 0 || !is_valid(t, memo->valid)) return 0;
  mark(t);
  MemoTable& memos = code_.memos();
  t.out += copy_memo(t.out, *memo);
  calls_.open = std::min(calls_.open, uint32_t{memo->depth_left});
  const RunId from = t.at;
  if (rise < 0) {
    t.at = pop_call();
  } else {
    RunId calls[MemoTable::kMaxCalls];
    std::memcpy(calls, memos.view().calls(*memo), sizeof calls);
    t.at = memos.view().run_of(memo->next);
    for (int i = 0; i < rise; ++i) calls_.push(calls[i]);
    calls_.center();
  }
  if (count >= MemoTable::kMostBits || memos.width(from) < kBitsForMemos) memos.visit(from);
  return bits;
}

// Requests a memo that does not exist. Returns true if it was created.
[[gnu::noinline]] bool Runner::make_timed_memo(RunId at, uint64_t window, uint32_t count, Interval now) {
  MemoTable& memos = code_.memos();
  if (memos.width(at) == 0) memos.visit(at);
  const uint32_t width = memos.width(at);
  return width != 0 && width <= count && memos.ask(at, window) && code_.make_memo(at, window, count, now);
}

// Takes the bit on top of `window` at `run`. Returns false if the run does not end in a branch that can take it.
[[gnu::always_inline]] inline bool Runner::take_timed_bit(Timed& t, const BlockRun& run, uint64_t window) {
  const uint64_t bit = window >> 63;
  if (run.end == RunEnd::jcc) {
    emit(t, run);
    const Block& last = run.blocks <= BlockRun::kHead ? run.head[run.blocks - 1U] : t.out[-1];
    t.out[-1].flags = static_cast<uint16_t>(last.flags | (bit != 0 ? static_cast<unsigned>(BlockFlag::taken) : 0U));
    t.at = run.next[bit];
    return true;
  }
  if (run.end != RunEnd::ret || !returns_compressed_ || bit == 0 || calls_.open + run.calls == 0) return false;
  emit(t, run);
  t.at = pop_call();
  return true;
}

// Takes the TNT at the cursor. Returns false if nothing, or only a part of it, was taken.
[[gnu::always_inline]] inline bool Runner::take_timed_tnt(Timed& t, uint64_t payload, uint32_t bits, uint64_t size) {
  const TimeNs lo = t.cursor.emitted;
  set_moment(t, lo);
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
    }
    if (!take_timed_bit(t, *run, window)) break;
    window <<= 1;
    --count;
  } while (count != 0 && t.out < out_end_);
  if (count == bits) return false;
  t.position += bits - count;
  if (count != 0) keep_rest(t, payload, bits, count);
  t.cursor.begin_group();
  if (bits == kLongTntBits) t.cursor.prompt();
  t.cursor.leave_tnt(bits);
  t.cursor.offset_bytes += size;
  return count == 0;
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
  if (size == 0 || offset + kWidestIp > std::min(own_bytes_, segment_bytes_)) return false;
  set_moment(t, t.cursor.late ? t.cursor.group_lo : t.cursor.emitted);
  const BlockRun* run = run_now(t);
  if (run == nullptr || (run->end != RunEnd::indirect && run->end != RunEnd::ret)) return false;
  const uint64_t ip = ip_of_tip(data_ + offset, t.cursor.last_ip);
  if (ip == code_.after_call(*run)) return false;          // the TIP of the call itself is missing
  if (run->ends_in_kernel && ip >> 63 == 0) return false;  // entering user code from the kernel: the context may change
  emit(t, *run);
  const uint32_t place = (ip >> 63) != 0 ? kernel_place_ : user_place_;
  if (run->end == RunEnd::ret) {
    const RunId caller = calls_.at(calls_.height());
    if (calls_.open != 0) calls_.drop();
    t.at = code_.is_at(caller, place, ip) ? caller : code_.target_at(place, ip);
  } else {
    t.at = code_.target_of(t.at, place, ip);
  }
  t.cursor.take_tip();
  t.cursor.leave();
  t.cursor.last_ip = ip;
  t.cursor.offset_bytes += size + 1;
  ++t.position;
  return true;
}

[[gnu::always_inline]] inline void Runner::load(Timed& t) const {
  t.cursor = cursor_;
  t.out = out_;
  t.at = at_;
  t.valid = 0;
  t.first = state_->now.first;
  t.last = state_->now.last;
  t.not_before = state_->not_before;
  t.hi = hi_;
  t.stop = std::min(stop_, sync_limit_);
  t.position = state_->position;
  t.cycles = flow_->mark.cycles;
  t.dated = t.marked = false;
  t.mark_due = mark_due_;
  t.settled = settled_;
}

[[gnu::always_inline]] inline void Runner::store(const Timed& t) {
  cursor_ = t.cursor;
  out_ = t.out;
  at_ = t.at;
  state_->now = t.now();
  if (state_->position != t.position) {
    moved_ = true;
    state_->end_silence();
  }
  state_->position = t.position;
  stop_ = t.stop;
  hi_ = t.hi;
  mark_due_ = t.mark_due;
  settled_ = t.settled;
  left_ = t.cursor.left;
}

// Takes packets from the cursor on, up to one that spend() or other functions process. Returns false if bits of a TNT are left in tnt_ and
// cannot be taken.
bool Runner::take_timed() {
  Timed t;
  load(t);
  tnt_.count = 0;
  while (t.out < out_end_ && t.position + 64 <= until_) {
    const uint64_t offset = t.cursor.offset_bytes;
    if (offset >= t.stop) {
      if (!pass_point(t)) break;
      continue;
    }
    const auto byte = static_cast<unsigned>(data_[offset]);
    if ((byte & 1) == 0) {
      if (byte == 0) {
        ++t.cursor.offset_bytes;
        continue;
      }
      if (t.settled && !t.mark_due && is_bulk(offset, t.stop) && t.cursor.steady()) break;
      uint64_t payload = byte >> 1, size = 1;
      if (byte == 0x02) {
        payload = own_bytes_ - offset >= kLongTntBytes ? long_tnt(data_ + offset) : 0;
        if (payload == 0) break;
        size = kLongTntBytes;
      }
      if (take_timed_tnt(t, payload, static_cast<uint32_t>(std::bit_width(payload)) - 1, size)) continue;
    } else if ((byte & kIpOpcodeMask) == kTipOpcode) {
      if (take_timed_tip(t, byte)) continue;
    }
    if (tnt_.count == 0) break;
    store(t);
    if (!take_bits()) return false;
    load(t);
  }
  store(t);
  return true;
}

}  // namespace ptd::pt
