// Runner: counting in place. What is counted needs no order and no moment, so many packets are read at once, whatever timing packets stand
// between them, and nothing is given out but what joins the flow before and behind.
//
// It takes only code that is certain at any moment that the packets at hand can have (Tally::wide). At the end the clock is brought to
// where the flow stands: what decides that is at most three TNTs old (ItemCursor), so not all packets are read again.
#include "decoder/pt/runner/runner_tally.h"

#include <algorithm>
#include <cstring>

#include "decoder/pt/flow/plain_packets.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kFirstPackets = 32;         // of the first tape
constexpr uint32_t kEnoughPackets = 24;        // fewer were not worth it
constexpr uint64_t kMostWait = 512;            // bytes before it is tried again
constexpr uint64_t kMostPositions = 1U << 15;  // of one tape
constexpr uint32_t kMemosOfWindow = Tape::kWindow / MemoTable::kMostBits;
constexpr ptrdiff_t kMostMoves = 384;    // of the call stack between two calls of center()
constexpr uint32_t kWindowsOfVisit = 4;  // one memo in so many windows counts as a visit
constexpr uint32_t kGroupsOfClock = 3;   // TNTs that decide the cursor's state
constexpr uint32_t kMostLinks = 4096;    // runs that take nothing, on one tape
static_assert(kMostPositions > Tape::kMostPackets * kLongTntBits);

}  // namespace

void Runner::count(Tally& t, uint64_t key) {
  ++code_.counter(key);
  t.last = key;
  if (journals_) *t.journal++ = key;
}

uint64_t Runner::undo(Tally& t) {
  --code_.counter(t.last);
  if (journals_) --t.journal;
  return t.last;
}

// Memos, as long as they serve, of the bits before `end`. As spend_memos(); in place of blocks a counter.
template <bool kJournals>
void Runner::tally_memos(Tally& t, uint32_t end) {
  MemoTable::View memos = code_.memos().view();
  TableRef table = memos.tables[t.at];
  uint32_t left = end - t.bit;
  RunId* const bottom = &calls_.at(calls_.height());
  RunId* top = bottom;
  uint32_t open = calls_.open;
  const Memo* last = nullptr;
  bool going = true;
  const uint32_t before = left;
  do {
    uint64_t window = t.tape.window(end - left);
    for (uint32_t i = 0; i < kMemosOfWindow; ++i) {
      const Memo& memo = memos.find(table, window);
      const uint32_t bits = memo.bits;
      const int rise = memo.rise;
      if (bits - 1U >= left || static_cast<int>(open) + rise < 0 ||
          (memo.valid != 0 && memo.valid != t.valid && !is_certain(t, memo.valid))) {
        going = false;
        break;
      }
      window <<= bits;
      left -= bits;
      table = memo.next | (memos.tables[*top] & static_cast<TableRef>(rise >> 31));
      const void* calls = memos.calls<true>(memo);
      KeyCounts::Slot* counter = memos.counter(memo, table);
      if (static_cast<TableRef>(counter->key) != table) [[unlikely]] {
        code_.make_counter(memo, table);
        memos = code_.memos().view();
        calls = memos.calls<true>(memo);
        counter = memos.counter(memo, table);
      }
      ++counter->count;
      if constexpr (kJournals) *t.journal++ = counter->key;
      t.last = counter->key;
      last = &memo;
      open = std::min(open, uint32_t{memo.room}) + static_cast<uint32_t>(rise);
      std::memcpy(top + 1, calls, MemoTable::kMaxCalls * sizeof(RunId));
      top += rise;
    }
    if (going && t.windows++ % kWindowsOfVisit == 0) {
      code_.memos().visit(memos.run_of(table));
      memos = code_.memos().view();
      last = nullptr;
    }
  } while (going && top - bottom < kMostMoves && bottom - top < kMostMoves);
  if (left == before) return;
  t.silent = 0;
  t.bit = end - left;
  t.at = memos.run_of(table);
  calls_.set_height(calls_.height() + static_cast<uint64_t>(top - bottom));
  calls_.open = open;
  calls_.low = std::min(calls_.low, calls_.height() - open);
  calls_.center();
  if (t.at == kNoRun) {  // a return to a call that was not looked up yet
    const uint64_t wrong = undo(t);
    t.at = return_run(calls_.height() + 1);
    count(t, (wrong >> 32 << 32) | code_.memos().table(t.at));
  } else if (last != nullptr && table != memos.tables[t.at]) {
    code_.memos().renew(*last, t.at);
  }
}

bool Runner::is_certain(Tally& t, ValidId valid) const {
  if (!code_.holds(valid, t.wide)) return false;
  t.valid = valid;
  return true;
}

// The version of the run at hand, behind runs that take nothing. kNoRun: others must go on.
RunId Runner::tally_links(Tally& t) {
  for (;;) {
    const RunId id = code_.certain_version_at(t.at, t.wide);
    if (id == kNoRun) return kNoRun;
    const BlockRun& run = code_.run(id);
    if (t.silent + run.instructions > most_silent(run)) return kNoRun;
    if (run.end != RunEnd::link) return id;
    if (t.links == 0) return kNoRun;
    --t.links;
    t.silent += run.instructions;
    t.at = run.next[0];
    push_calls(run);
    count(t, RunnerCode::key_of_run(id, false, code_.memos().table(t.at)));
  }
}

// The TIP that is next. False: it was not taken.
bool Runner::tally_target(Tally& t) {
  const RunId id = tally_links(t);
  if (id == kNoRun) return false;
  const BlockRun& run = code_.run(id);
  const Tape::Target& target = t.tape.target(t.target);
  if (run.end != RunEnd::indirect && run.end != RunEnd::ret) return false;
  if (target.ip == run.after_call()) return false;               // the call's own TIP is missing
  if (run.ends_in_kernel && target.ip >> 63 == 0) return false;  // from the kernel to user code: the context may be another
  push_calls(run);
  if (run.end == RunEnd::ret && calls_.open != 0) calls_.drop();
  t.at = target.run;
  count(t, RunnerCode::key_of_run(id, false, code_.memos().table(t.at)));
  t.silent = 0;
  ++t.target;
  return true;
}

// What no memo serves, of the bits before `end`: makes the memo that is asked for again, else takes as many bits as it would one by one.
// False: nothing could be done.
bool Runner::tally_singly(Tally& t, uint32_t end) {
  MemoTable& memos = code_.memos();
  const uint32_t count_bits = end - t.bit;
  if (count_bits == 0) return false;
  uint64_t window = t.tape.window(t.bit);
  if (memos.width(t.at) == 0) memos.visit(t.at);
  const uint32_t width = memos.width(t.at);
  const Memo& known = memos.find(t.at, window);
  const bool due = known.bits == 0 ? memos.ask(t.at, window) : !code_.holds(known.valid, t.wide);
  if (due && code_.make_certain_memo(t.at, window, std::min(count_bits, Tape::kWindow), t.wide)) {
    const Memo& made = memos.find(t.at, window);
    if (made.bits <= count_bits && (made.rise >= 0 || calls_.open != 0)) return true;
  }
  const uint32_t most = std::clamp(width, 1U, count_bits);
  for (uint32_t taken = 0; taken < most; ++taken) {
    const RunId id = tally_links(t);
    if (id == kNoRun) return taken != 0;
    const BlockRun& run = code_.run(id);
    const bool bit = window >> 63 != 0;
    const bool ret = run.end == RunEnd::ret && returns_compressed_ && bit && calls_.open + run.calls != 0;
    if (run.end != RunEnd::jcc && !ret) return taken != 0;
    const bool taken_jcc = bit && !ret;
    const RunId next = run.next[bit ? 1 : 0];
    push_calls(run);
    t.at = ret ? pop_call() : next;
    count(t, RunnerCode::key_of_run(id, taken_jcc, code_.memos().table(t.at)));
    t.silent = 0;
    window <<= 1;
    ++t.bit;
  }
  return true;
}

// Places that are taken; what comes next is the packet with this number, or part of it.
uint32_t Runner::taken_places(const Tally& t) const {
  const Tape& tape = t.tape;
  uint32_t place = t.target < tape.targets() ? t.tape.target(t.target).place : tape.places();
  while (place != 0 && !is_tip(t, place - 1) && tape.end_bit(place - 1) > t.bit) --place;
  return place;
}

bool Runner::is_tip(const Tally& t, uint32_t place) const {
  return (static_cast<unsigned>(data_[t.tape.start() + t.tape.place(place).offset]) & 1) != 0;
}

// Where to read again from, to have the cursor's state before `place`.
void Runner::set_clock_start(Tally& t, uint32_t place) const {
  bool left = false;  // a packet that left by itself: see ItemCursor
  for (uint32_t groups = 0; place != 0;) {
    const bool tip = is_tip(t, --place);
    const uint32_t bits = t.tape.end_bit(place) - t.tape.place(place).bit;
    left = left || tip || ItemCursor::is_full(bits);
    if (!tip) ++groups;
    if (!tip && left && groups >= kGroupsOfClock) {
      t.clock_start = t.tape.start() + t.tape.place(place).offset;
      return;
    }
  }
}

// The cursor goes to `offset`, and the clock with it.
void Runner::bring_clock_to(const Tally& t, uint64_t offset) {
  TimeAhead& ahead = walker_.items_.ahead();
  const uint64_t last_ip = cursor_.last_ip;
  ItemCursor c = cursor_;
  if (c.offset_bytes < t.clock_start) {
    c.offset_bytes = t.clock_start;
    ahead.pass(c.offset_bytes, c.now_first, c.now);
  }
  while (c.offset_bytes < offset) {
    const TimePoint* point = ahead.next();
    if (point != nullptr && point->offset_bytes <= c.offset_bytes) {
      c.offset_bytes = std::max(c.offset_bytes, point->end_bytes);
      c.now = point->moment;
      if (point->bounds) c.now_first = point->first;
      ahead.pass_one();
      continue;
    }
    const auto byte = static_cast<unsigned>(data_[c.offset_bytes]);
    if (is_short_tnt(byte)) {
      c.begin_group();
      c.leave_tnt(static_cast<uint32_t>(std::bit_width(byte >> 1)) - 1);
      ++c.offset_bytes;
    } else if (byte == 0x02) {
      c.begin_group();
      const uint32_t bits = static_cast<uint32_t>(std::bit_width(long_tnt(data_ + c.offset_bytes))) - 1;
      if (bits == kLongTntBits) c.prompt();
      c.leave_tnt(bits);
      c.offset_bytes += kLongTntBytes;
    } else if ((byte & kIpOpcodeMask) == kTipOpcode) {
      c.take_tip();
      c.leave();
      c.offset_bytes += 1U + kIpSize[byte >> 5];
    } else {
      ++c.offset_bytes;
    }
  }
  cursor_ = c;
  cursor_.last_ip = last_ip;
}

// The flow stands where the tally ended: the last that was counted is given out, so that it joins what follows; what is left of a TNT that
// was begun becomes tnt_.
void Runner::end_tally(Tally& t) {
  --code_.counter(t.last);
  if (journals_) journal_.set_end(t.journal - 1);
  blocks_at_end_.clear();
  code_.append_blocks(t.last, blocks_at_end_);
  out_ = std::copy(blocks_at_end_.begin(), blocks_at_end_.end(), out_);
  at_ = t.at;
  FlowState& state = *state_;
  state.silent = t.silent;
  state.position += t.position;
  moved_ = true;
  const Tape& tape = t.tape;
  const uint32_t place = taken_places(t);
  set_clock_start(t, place);
  bring_clock_to(t, place < tape.places() ? tape.start() + tape.place(place).offset : tape.end());
  cursor_.last_ip = t.target != 0 ? t.tape.target(t.target - 1).ip : t.last_ip;
  left_ = cursor_.left;
  stop_ = 0;
  settled_ = false;
  mark_due_ = true;
  tnt_.count = 0;
  if (place == tape.places() || is_tip(t, place) || tape.place(place).bit >= t.bit) return;
  const uint64_t offset = cursor_.offset_bytes;
  const auto byte = static_cast<unsigned>(data_[offset]);
  const uint64_t payload = is_short_tnt(byte) ? byte >> 1 : long_tnt(data_ + offset);
  const auto bits = static_cast<uint32_t>(std::bit_width(payload)) - 1;
  tnt_.count = tape.end_bit(place) - t.bit;
  tnt_.bits = low_bits(payload, tnt_.count);
  tnt_.direct = tnt_.begun = true;
  while (cursor_.offset_bytes >= stop_ && !pass_point()) {
  }
  Item& item = tnt_.item;
  item.kind = ItemKind::tnt;
  item.bits = static_cast<uint8_t>(bits);
  item.ip = low_bits(payload, bits);
  item.offset_bytes = offset;
  cursor_.date(item);
  item.lo = cursor_.begin_group();
  item.hi = std::max(hi_, item.lo);
  if (bits == kLongTntBits) cursor_.prompt();
  cursor_.leave_tnt(bits);
  cursor_.offset_bytes += is_short_tnt(byte) ? 1 : kLongTntBytes;
  set_now(item);
}

// All that the tape holds, as far as it goes. True: it went to its end, or so near to it that more should be read.
bool Runner::tally_tape(Tally& t, bool is_last) {
  Tape& tape = t.tape;
  for (uint32_t i = 0; i < tape.targets(); ++i) {
    Tape::Target& target = tape.target(i);
    target.run = code_.target_at((target.ip >> 63) != 0 ? kernel_place_ : user_place_, target.ip);
  }
  for (;;) {
    const bool has_target = t.target < tape.targets();
    const uint32_t end = has_target ? tape.target(t.target).bit : tape.bits();
    if (t.bit < end) {
      if (journals_) {
        tally_memos<true>(t, end);
      } else {
        tally_memos<false>(t, end);
      }
    }
    if (t.bit == end) {
      if (!has_target) return true;
      if (!tally_target(t)) return false;
      continue;
    }
    if (!has_target && !is_last && end - t.bit < MemoTable::kMostBits) return true;
    if (!tally_singly(t, end)) return false;
  }
}

// Counts the packets from the cursor on, as far as that goes.
void Runner::tally() {
  Tally& t = *tally_;
  const uint64_t start = cursor_.offset_bytes;
  TapeSource source;
  source.data = data_;
  source.own_bytes = own_bytes_;
  source.segment_bytes = segment_bytes_;
  source.stop = std::min(own_bytes_, sync_limit_);
  source.reads_cyc = !walker_.options_.config.errata.skd007;
  t.wide.first = std::max(std::min({cursor_.now_first, cursor_.group_lo, cursor_.emitted, cursor_.group_before}), state_->not_before);
  t.wide.last = std::max(walker_.segment_.time.last, t.wide.first);
  t.valid = 0;
  t.at = at_;
  t.silent = state_->silent;
  t.position = 0;
  t.last = 0;
  t.last_ip = cursor_.last_ip;
  t.clock_start = start;
  const RunId first = code_.certain_version_at(at_, t.wide);
  if (first != kNoRun) *out_++ = {code_.run(first).head[0].node, 0, static_cast<uint16_t>(BlockFlag::passing)};
  uint64_t offset = start;
  uint32_t packets = kFirstPackets, skipped = 0, taken = 0;
  while (first != kNoRun) {
    t.tape.read(source, offset, t.last_ip, packets);
    walker_.items_.ahead().know(offset, t.tape.end(), t.tape.timings());
    t.bit = skipped;
    t.target = 0;
    const bool is_last = t.tape.places() < packets || until_ - state_->position < t.position + 2 * kMostPositions;
    t.links = kMostLinks;
    t.journal = journals_ ? journal_.room_for(t.tape.bits() + t.tape.targets() + kMostLinks) : nullptr;
    const bool on = tally_tape(t, is_last);
    if (journals_) journal_.set_end(t.journal);
    t.position += t.bit - skipped + t.target;
    const uint32_t place = taken_places(t);
    taken += place;
    if (!on || is_last || place == 0 || code_.overgrown()) break;
    set_clock_start(t, place);
    skipped = place < t.tape.places() ? t.bit - t.tape.place(place).bit : 0;
    offset = place < t.tape.places() ? t.tape.start() + t.tape.place(place).offset : t.tape.end();
    if (t.target != 0) t.last_ip = t.tape.target(t.target - 1).ip;
    packets = std::min(2 * packets, Tape::kMostPackets);
  }
  wait_ = taken >= kEnoughPackets ? 0 : std::min(2 * wait_ + 8, kMostWait);
  if (t.last != 0) {
    end_tally(t);
  } else if (first != kNoRun) {
    --out_;
  }
  tally_from_ = cursor_.offset_bytes + (taken >= kEnoughPackets ? 1 : wait_);
}

}  // namespace ptd::pt
