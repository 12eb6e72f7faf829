// Runner: the inner loop for packets between two timing packets, which share one time interval.
//
// The cost is dominated by the dependency chain from one memo to the next (table, bits -> entry -> next table) and by mispredicted
// branches. So the only branch of a round that depends on the trace is the one that leaves the loop: a fixed number of stores copies the
// blocks, kMaxCalls calls are always pushed, and a mask selects a return. Packets are read into a window of 64 bits, for about ten rounds
// at once.
#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/pt/flow/plain_packets.h"
#include "decoder/pt/runner/runner.h"

namespace ptd::pt {

/// State of the loop.
struct Runner::Spending {
  uint64_t window = 0;  ///< bits read but not taken, the oldest on top; 0 below them
  uint32_t count = 0;   ///< number of these bits
  uint32_t least = 0;   ///< if fewer bits are left, read more
  RunId at = kNoRun;    ///< current run; kNoRun: the run at the return address of the call popped last
  Block* out = nullptr;
  ValidId valid = 0;    ///< an interval that is valid now
  uint64_t offset = 0;  ///< of the next packet
  uint64_t read = 0;    ///< bits read since `start`
  // The position from which only packets of this loop were read, so that they can be read again.
  uint64_t start_offset = 0, start_position = 0;
  bool start_late = false;  ///< the cursor's `late`
  uint32_t drawn = 0;       ///< a pseudo-random number

  [[nodiscard]] uint64_t position() const { return start_position + read - count; }
};

// Fills the window with bits from the TNTs at s.offset.
inline void Runner::read_bits(Spending& s, uint64_t stop) {
  s.least = 0;
  while (s.offset < stop) {
    const auto byte = static_cast<unsigned>(data_[s.offset]);
    uint64_t payload = byte >> 1;
    uint64_t size = 1;
    if (!is_short_tnt(byte)) {
      if (byte == 0) {
        ++s.offset;
        continue;
      }
      payload = byte == 0x02 && own_bytes_ - s.offset >= kLongTntBytes ? long_tnt(data_ + s.offset) : 0;
      if (payload == 0) return;
      size = kLongTntBytes;
    }
    const auto bits = static_cast<uint32_t>(std::bit_width(payload)) - 1;
    if (s.count + bits > 64) {
      s.least = MemoTable::kMostBits;
      return;
    }
    s.window |= low_bits(payload, bits) << (64 - s.count - bits);
    s.count += bits;
    s.read += bits;
    s.offset += size;
    cursor_.late = bits != kLongTntBits;
  }
}

// The inner loop: takes bits while memos match, the output has capacity, and enough bits were read.
inline void Runner::spend_memos(Spending& s) {
  const MemoTable::View memos = code_.memos().view();
  uint64_t window = s.window;
  uint32_t count = s.count;
  TableRef table = memos.tables[s.at];
  Block* out = s.out;
  auto [top, lowest, open] = calls_.top();
  // One random round counts as a visit to its run.
  s.drawn = s.drawn * 5 + 1;
  const uint32_t drawn = s.drawn & 63;
  TableRef visited = table;
  const Memo* last = nullptr;
  const Memo* memo = nullptr;
  do {
    memo = &memos.find(table, window);
    const int rise = memo->rise;
    const uint32_t bits = memo->bits;
    if (bits - 1U >= count || static_cast<int>(open) + rise < 0) break;
    if (memo->valid != 0 && memo->valid != s.valid) {
      if (!code_.holds(memo->valid, state_->now)) break;
      s.valid = memo->valid;
    }
    const TableRef returned = memos.tables[*top];
    visited = count > drawn ? table : visited;
    last = memo;
    table = memo->next | (rise < 0 ? returned : TableRef{0});
    window <<= bits;
    count -= bits;
    open = std::min(open, uint32_t{memo->depth_left}) + static_cast<uint32_t>(rise);
    std::memcpy(top + 1, memos.calls(*memo), MemoTable::kMaxCalls * sizeof(RunId));
    top += rise;
    lowest = std::min(lowest, top);
    copy_blocks(out, memos.blocks(*memo), memo->blocks);
    out += memo->blocks;
  } while (count >= s.least && out < out_end_);
  s.window = window;
  s.count = count;
  s.at = memos.run_of(table);
  s.out = out;
  calls_.set_top({top, lowest, open});
  if (last == nullptr) return;
  if (table != memos.tables[s.at]) code_.memos().renew(*last, s.at);
  code_.memos().visit(memos.run_of(visited));
}

// Handles a round without a memo. Returns false if nothing could be done.
bool Runner::spend_slowly(Spending& s, uint64_t stop) {
  if (s.at == kNoRun) s.at = return_run(calls_.height() + 1);
  return s.count != 0 ? spend_singly(s) : s.offset < stop && spend_tip(s);
}

// Takes a TIP at s.offset. Returns false and changes nothing if it cannot.
inline bool Runner::spend_tip(Spending& s) {
  const auto byte = static_cast<unsigned>(data_[s.offset]);
  const uint64_t size = kIpSize[byte >> 5];
  if ((byte & kIpOpcodeMask) != kTipOpcode || size == 0 || own_bytes_ - s.offset < 1 + sizeof(uint64_t)) return false;
  const BlockRun* run = &code_.run(s.at);
  if (run->end == RunEnd::unread || (run->valid != s.valid && !code_.holds(run->valid, state_->now))) {
    const RunId id = code_.version_at(s.at, state_->now);
    if (id == kNoRun) return false;
    run = &code_.run(id);
  }
  if (run->end != RunEnd::indirect && run->end != RunEnd::ret) return false;
  const uint64_t ip = ip_of_tip(data_ + s.offset, cursor_.last_ip);
  if (ip == code_.after_call(*run)) return false;  // the TIP of the call itself is missing
  if (is_long_tip(byte >> 5, ip, cursor_.last_ip)) return false;
  if (run->ends_in_kernel && ip >> 63 == 0) return false;  // entering user code from the kernel: the context may change
  std::memcpy(static_cast<void*>(s.out), run->head.data(), sizeof run->head);
  if (run->blocks > BlockRun::kHead) copy_blocks(s.out, code_.blocks(run->blocks_first), run->blocks);
  s.out += run->blocks;
  if (run->calls != 0) push_calls(*run, run->calls);
  if (run->end == RunEnd::ret && calls_.open != 0) calls_.drop();
  s.at = code_.target_at((ip >> 63) != 0 ? kernel_place_ : user_place_, ip);
  cursor_.last_ip = ip;
  s.offset += size + 1;
  s.start_position = s.position() + 1;
  s.start_offset = s.offset;
  s.start_late = cursor_.late;
  s.read = 0;
  return true;
}

// Creates a requested memo, or else takes bits one by one, as many as the memo would. Returns false if nothing could be done.
bool Runner::spend_singly(Spending& s) {
  MemoTable& memos = code_.memos();
  if (memos.width(s.at) == 0) memos.visit(s.at);
  const uint32_t width = memos.width(s.at);
  const Memo& known = memos.find(s.at, s.window);
  const bool due = known.bits == 0 ? memos.ask(s.at, s.window) : !code_.holds(known.valid, state_->now);
  if (due && code_.make_memo(s.at, s.window, s.count, state_->now)) {
    const Memo& made = memos.find(s.at, s.window);
    if (made.bits <= s.count && (made.rise >= 0 || calls_.open != 0)) return true;
  }
  const uint32_t most = std::clamp(width, 1U, s.count);
  for (uint32_t taken = 0; taken < most; ++taken) {
    const RunId id = code_.version_at(s.at, state_->now);
    if (id == kNoRun) return taken != 0;
    const BlockRun& run = code_.run(id);
    const bool bit = s.window >> 63 != 0;
    const bool ret = run.end == RunEnd::ret && returns_compressed_ && bit && calls_.open + run.calls != 0;
    if (run.end != RunEnd::jcc && !ret) return taken != 0;
    copy_blocks(s.out, code_.blocks(run.blocks_first), run.blocks);
    s.out += run.blocks;
    push_calls(run, run.calls);
    if (ret) {
      s.at = pop_call();
    } else {
      s.out[-1].flags = static_cast<uint16_t>(s.out[-1].flags | (bit ? static_cast<unsigned>(BlockFlag::taken) : 0U));
      s.at = run.next[bit ? 1 : 0];
    }
    s.window <<= 1;
    --s.count;
  }
  return true;
}

// Takes TNTs through memos, and TIPs, while the time is steady. Stops before the first packet that it cannot take, or inside a TNT, whose
// rest is then in tnt_.
void Runner::spend() {
  FlowState& state = *state_;
  const uint64_t stop = std::min(stop_, sync_limit_);
  Spending s;
  s.at = at_;
  s.out = out_;
  s.offset = s.start_offset = cursor_.offset_bytes;
  s.start_position = state.position;
  s.start_late = cursor_.late;
  for (;;) {
    read_bits(s, stop);
    if (s.position() + 64 > until_ || s.out >= out_end_) break;
    if (s.count != 0) {
      const uint32_t before = s.count;
      spend_memos(s);
      if (s.count < s.least && s.count != before) continue;
    }
    if (s.count == 0 && s.at != kNoRun && s.offset < stop && s.out < out_end_ && spend_tip(s)) continue;
    if (s.out < out_end_ && !spend_slowly(s, stop)) break;
  }
  at_ = s.at != kNoRun ? s.at : return_run(calls_.height() + 1);
  out_ = s.out;
  if (s.position() != state.position) {
    moved_ = true;
    state.end_silence();
  }
  state.position = s.position();
  left_ = cursor_.now;
  hand_back(s);
}

// Moves the cursor back before the TNTs of which no bit was taken. The rest of a partly taken TNT becomes tnt_, as read_tnt() would have
// left it.
void Runner::hand_back(const Spending& s) {
  tnt_.count = 0;
  cursor_.offset_bytes = s.offset;
  if (s.count == 0) return;
  uint64_t offset = s.start_offset;
  cursor_.late = s.start_late;
  for (uint64_t taken = s.read - s.count; taken != 0;) {
    const auto byte = static_cast<unsigned>(data_[offset]);
    if (byte == 0) {
      ++offset;
      continue;
    }
    const bool is_short = is_short_tnt(byte);
    const uint64_t payload = is_short ? byte >> 1 : long_tnt(data_ + offset);
    const auto bits = static_cast<uint32_t>(std::bit_width(payload)) - 1;
    cursor_.late = bits != kLongTntBits;
    if (taken < bits) {
      tnt_.count = bits - static_cast<uint32_t>(taken);
      tnt_.bits = low_bits(payload, tnt_.count);
      tnt_.direct = tnt_.begun = true;
      Item& item = tnt_.item;
      item.kind = ItemKind::tnt;
      item.bits = static_cast<uint8_t>(bits);
      item.ip = low_bits(payload, bits);
      item.offset_bytes = offset;
      item.left = item.own = cursor_.now;
      item.before = item.lo = cursor_.now_first;
      item.hi = std::max(hi_, item.lo);
      taken = bits;
    }
    taken -= bits;
    offset += is_short ? 1 : kLongTntBytes;
  }
  cursor_.offset_bytes = offset;
}

}  // namespace ptd::pt
