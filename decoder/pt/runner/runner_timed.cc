// Runner: processes packets one by one, each with its own time bounds. If timing packets are dense, as in traces of kernels, this is the
// hot loop: there are few bits between two timing packets, and the time of one packet is rarely valid for the next.
//
// A packet is taken only if its run is known and valid at that time; otherwise nothing of it is taken, and Runner::take_direct() processes
// it. Only in the middle of a TNT is the rest handed over in tnt_. All state that the loop changes is in registers: its parts are inlined,
// and `Timed` is passed by address to nothing else.
#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/pt/flow/plain_packets.h"
#include "decoder/pt/runner/runner.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kBitsForMemos = 3;  // fewer bits are taken one by one
constexpr uint8_t kMetForMemos = 16;   // runs with fewer visits have no memos, so looking one up would only miss the cache

}  // namespace

/// State that the loop keeps in registers.
struct Runner::Timed {
  ItemCursor cursor;
  Block* out = nullptr;
  RunId at = kNoRun;
  ValidId valid = 0;  ///< an interval that is valid now; 0 always is
  Interval now;
  TimeNs not_before, hi;
  uint64_t position = 0, stop = 0;
  bool mark_due = false;
  bool settled = false;
};

// Sets the time bounds for the next instructions, given their lower bound.
[[gnu::always_inline]] inline void Runner::set_moment(Timed& t, TimeNs lo) const {
  Interval now{std::max(lo, t.not_before), std::max(t.hi, lo)};
  now.last = std::max(now.last, now.first);
  const Interval both = intersect(now, span_);
  if (!both.empty()) now = both;
  t.settled = lo == t.cursor.now_first;
  const bool other = now != t.now;
  t.now = now;
  t.valid = other ? 0 : t.valid;
  t.mark_due |= other || t.cursor.left.cycles != flow_->mark.cycles;
}

[[gnu::always_inline]] inline bool Runner::is_valid(Timed& t, ValidId valid) const {
  if (valid == t.valid || valid == 0) return true;
  if (!code_.holds(valid, t.now)) return false;
  t.valid = valid;
  return true;
}

[[gnu::always_inline]] inline void Runner::mark(Timed& t) {
  if (!t.mark_due) return;
  t.mark_due = false;
  state_->now = t.now;
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

// Processes a timing packet at the cursor. Returns false at the end of the segment.
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
  t.stop = point != nullptr ? std::min(point->offset_bytes, own_bytes_) : own_bytes_;
  t.hi = ahead.next_last();
  return here || t.cursor.offset_bytes < t.stop;
}

// Returns true if the run ends in a conditional branch or a compressed return that can take `bit`.
[[gnu::always_inline]] inline bool Runner::takes_bit(Timed& t, const BlockRun& run, bool bit) const {
  if (run.end != RunEnd::jcc && !(run.end == RunEnd::ret && returns_compressed_ && bit && calls_.open + run.calls != 0)) return false;
  return is_valid(t, run.valid);
}

// Takes bits through a memo. Returns their number, 0 if none.
[[gnu::always_inline]] inline uint32_t Runner::take_timed_memo(Timed& t, uint64_t window, uint32_t count) {
  const Memo* memo = &code_.memos().find(t.at, window);
  if (memo->bits == 0) {
    if (!make_timed_memo(t.at, window, count, t.now)) return 0;
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
  memos.visit(from);
  return bits;
}

// Requests a memo that does not exist. Returns true if it was created.
[[gnu::noinline]] bool Runner::make_timed_memo(RunId at, uint64_t window, uint32_t count, Interval now) {
  MemoTable& memos = code_.memos();
  if (memos.width(at) == 0) memos.visit(at);
  const uint32_t width = memos.width(at);
  return width != 0 && width <= count && memos.ask(at, window) && code_.make_memo(at, window, count, now);
}

// Takes the TNT at the cursor. Returns false if nothing, or only a part of it, was taken.
[[gnu::always_inline]] inline bool Runner::take_timed_tnt(Timed& t, uint64_t payload, uint32_t bits, uint64_t size) {
  const TimeNs lo = t.cursor.emitted;
  set_moment(t, lo);
  if (!takes_bit(t, code_.run(t.at), ((payload >> (bits - 1)) & 1) != 0)) return false;
  const uint64_t offset = t.cursor.offset_bytes;
  const TimeNs before = t.cursor.now_first;
  t.cursor.begin_group();
  if (bits == kLongTntBits) t.cursor.prompt();
  t.cursor.offset_bytes += size;
  uint64_t window = payload << (64 - bits);
  uint32_t count = bits;
  do {
    BlockRun& run = code_.run(t.at);
    if (count >= kBitsForMemos && run.met++ >= kMetForMemos) {
      run.met = kMetForMemos;
      if (const uint32_t taken = take_timed_memo(t, window, count); taken != 0) {
        window <<= taken;
        count -= taken;
        continue;
      }
    }
    const bool bit = window >> 63 != 0;
    if (!takes_bit(t, run, bit)) break;
    emit(t, run);
    if (run.end == RunEnd::jcc) {
      t.out[-1].flags = static_cast<uint16_t>(t.out[-1].flags | (bit ? static_cast<unsigned>(BlockFlag::taken) : 0U));
      t.at = run.next[bit ? 1 : 0];
    } else {
      t.at = pop_call();
    }
    window <<= 1;
    --count;
  } while (count != 0 && t.out < out_end_);
  t.position += bits - count;
  const Moment left = t.cursor.left;
  t.cursor.leave_tnt(bits);
  if (count == 0) return true;
  tnt_.count = count;
  tnt_.bits = low_bits(payload, count);
  tnt_.direct = tnt_.begun = true;
  Item& item = tnt_.item;
  item.kind = ItemKind::tnt;
  item.bits = static_cast<uint8_t>(bits);
  item.ip = payload;
  item.offset_bytes = offset;
  item.left = left;
  item.own = t.cursor.now;
  item.before = before;
  item.lo = lo;
  item.hi = std::max(t.hi, lo);
  return false;
}

// Takes the TIP at the cursor. Returns false if it could not be taken.
[[gnu::always_inline]] inline bool Runner::take_timed_tip(Timed& t, unsigned byte) {
  const uint64_t offset = t.cursor.offset_bytes;
  const uint64_t size = kIpSize[byte >> 5];
  if (size == 0 || own_bytes_ - offset <= size || segment_bytes_ - offset < 1 + sizeof(uint64_t)) return false;
  set_moment(t, t.cursor.late ? t.cursor.group_lo : t.cursor.emitted);
  const BlockRun& run = code_.run(t.at);
  if ((run.end != RunEnd::indirect && run.end != RunEnd::ret) || !is_valid(t, run.valid)) return false;
  const uint64_t ip = ip_of_tip(data_ + offset, t.cursor.last_ip);
  if (ip == run.after_call()) return false;               // the TIP of the call itself is missing
  if (run.ends_in_kernel && ip >> 63 == 0) return false;  // entering user code from the kernel: the context may change
  emit(t, run);
  if (run.end == RunEnd::ret && calls_.open != 0) calls_.drop();
  t.at = code_.target_at((ip >> 63) != 0 ? kernel_place_ : user_place_, ip);
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
  t.now = state_->now;
  t.not_before = state_->not_before;
  t.hi = hi_;
  t.stop = stop_;
  t.position = state_->position;
  t.mark_due = mark_due_;
  t.settled = settled_;
}

[[gnu::always_inline]] inline void Runner::store(const Timed& t) {
  cursor_ = t.cursor;
  out_ = t.out;
  at_ = t.at;
  state_->now = t.now;
  if (state_->position != t.position) {
    moved_ = true;
    state_->silent = 0;
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
    if (offset >= sync_limit_) break;
    if (!t.mark_due && t.settled && t.cursor.steady() && is_bulk(offset, t.stop)) break;
    const auto byte = static_cast<unsigned>(data_[offset]);
    bool taken = false;
    if (is_short_tnt(byte) || byte == 0x02) {
      uint64_t payload = byte >> 1, size = 1;
      if (byte == 0x02) {
        payload = own_bytes_ - offset >= kLongTntBytes ? long_tnt(data_ + offset) : 0;
        if (payload == 0) break;
        size = kLongTntBytes;
      }
      const auto bits = static_cast<uint32_t>(std::bit_width(payload)) - 1;
      taken = take_timed_tnt(t, low_bits(payload, bits), bits, size);
    } else if ((byte & kIpOpcodeMask) == kTipOpcode) {
      taken = take_timed_tip(t, byte);
    } else if (byte == 0) {
      ++t.cursor.offset_bytes;
      continue;
    }
    if (taken) continue;
    if (tnt_.count == 0) break;
    store(t);
    if (!take_bits()) return false;
    load(t);
  }
  store(t);
  return true;
}

}  // namespace ptd::pt
