// Runner: packets and branches of the fast path.
#include "decoder/pt/runner/runner.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "decoder/pt/flow/plain_packets.h"

namespace ptd::pt {
namespace {

constexpr size_t kOutAtOnce = 1U << 16;                                                                 // maximum number of blocks per call
constexpr size_t kOutSlack = MemoTable::kMostBits * RunnerCode::kMaxRunBlocks + MemoTable::kCopySlack;  // by which one round may exceed the
                                                                                                        // limit
constexpr uint32_t kMaxExactSteps = 32;
constexpr uint64_t kBulkBytes = 48;

}  // namespace

Runner::Runner(Walker& walker)
    : walker_(walker),
      code_(walker.timeline_, walker.table_, walker.options_.switch_entry,
            walker.options_.config.return_compression != ReturnCompression::off),
      returns_compressed_(walker.options_.config.return_compression != ReturnCompression::off) {}

WalkStop Runner::run(Flow& flow, uint64_t until_position) {
  uint64_t exact_steps = 1;
  for (;;) {
    FlowState& state = flow.state;
    strayed_ = false;
    const bool full = flow.out->blocks.size() >= flow.most_blocks;
    if (!full && state.position < until_position)
      exact_steps = fast(flow, until_position) ? 1 : std::min<uint64_t>(2 * exact_steps, kMaxExactSteps);
    if (strayed_) return WalkStop::position;
    const uint64_t before = state.position;
    const WalkStop stop = walker_.run(flow, std::min(until_position, state.position + exact_steps));
    walked_ += state.position - before;
    if (stop != WalkStop::position || state.position >= until_position || walker_.work_is_spent()) return stop;
  }
}

void Runner::set_places() {
  const uint32_t kernel = RunnerCode::place_of(kernel_of_machine(machine_of(state_->context.space)), state_->mode);
  const uint32_t user = RunnerCode::place_of(state_->context.space, state_->mode);
  if (kernel != kernel_place_ || user != user_place_) calls_.forget();
  kernel_place_ = kernel;
  user_place_ = user;
}

RunId Runner::at(uint64_t ip) { return code_.at((ip >> 63) != 0 ? kernel_place_ : user_place_, ip); }

// Follows the flow as far as possible. Returns false if nothing was taken.
bool Runner::fast(Flow& flow, uint64_t until) {
  FlowState& state = flow.state;
  if (state.silent + SilentLoop::kLeast > walker_.max_silent() || walker_.may_switch_unseen(state)) return false;
  if (state.silent_blocks + MemoTable::kMaxBlocks > SilentLoop::kMostBlocks) return false;
  if (!state.enabled || state.lost || state.doubtful || state.whole_ip_at != 0 || state.has_stop || flow.block_instructions != 0 ||
      state.mode == ExecMode::unknown)
    return false;
  ItemReader& items = walker_.items_;
  const Item* head = items.peek(state.next);
  if (state.tnt_count == 0 && head != nullptr && head->kind != ItemKind::tnt && head->kind != ItemKind::tip) return false;
  if (code_.overgrown()) {
    code_.clear();
    calls_.forget_all();
  }
  flow_ = &flow;
  state_ = &state;
  data_ = walker_.segment_.bytes.data();
  segment_bytes_ = walker_.segment_.bytes.size();
  own_bytes_ = items.plain_end();
  until_ = until;
  direct_ = moved_ = false;
  first_position_ = state.position;
  mark_due_ = true;
  borrow_calls();
  set_places();
  at_ = at(state.ip.value);
  sync_limit_ = ~uint64_t{0};
  if (const auto* points = walker_.options_.sync_points; points != nullptr && state.spans_passed < points->size()) {
    const uint64_t next = (*points)[state.spans_passed].stream_offset_bytes, here = walker_.segment_.stream_offset_bytes;
    sync_limit_ = next > here ? next - here : 0;
  }
  span_ = {};
  if (const auto* points = walker_.options_.sync_points; points != nullptr && state.spans_passed != 0)
    span_ = (*points)[state.spans_passed - 1].time;
  Blocks& blocks = flow.out->blocks;
  const size_t size = blocks.size();
  const size_t limit = std::min<size_t>(flow.most_blocks, size + kOutAtOnce);
  blocks.resize(limit + kOutSlack);
  out_ = blocks.data() + size;
  out_end_ = blocks.data() + limit;

  tnt_.count = state.tnt_count;
  tnt_.bits = low_bits(state.tnt, state.tnt_count);
  tnt_.direct = false;
  tnt_.begun = true;
  tnt_.index = state.tnt_item;
  left_ = state.tnt_count != 0 ? items.at(state.tnt_item).left : (head != nullptr ? head->left : Moment{});
  if ((tnt_.count == 0 || take_bits()) && take_queue()) take_direct();
  leave();
  return moved_;
}

// Takes items that the ItemReader has already created. Returns true if all were taken and packets can be read directly.
bool Runner::take_queue() {
  ItemReader& items = walker_.items_;
  while (room() && state_->position < until_) {
    const Item* item = items.peek(state_->next);
    if (item == nullptr) {
      if (!items.plain(state_->next)) return false;
      cursor_ = items.cursor();
      return true;
    }
    if (behind_sync_point(item->offset_bytes)) return false;
    if (item->kind == ItemKind::tip && item->flags == 0 && item->mode == ExecMode::unknown) {
      const Item tip = *item;
      set_now(tip);
      if (!take_target(tip, false)) return false;
      ++state_->next;
    } else if (item->kind == ItemKind::tnt) {
      tnt_.bits = item->ip;
      tnt_.count = item->bits;
      tnt_.direct = tnt_.begun = false;
      tnt_.index = state_->next;
      set_now(*item);
      ++state_->next;
      if (!take_bits()) return false;
    } else {
      return false;
    }
  }
  return false;
}

// Returns whether spend() is worth its set-up cost at `offset`, with the next timing packet at `stop`: for more than one TNT, or for many
// bytes. Otherwise take_timed() is faster.
bool Runner::is_bulk(uint64_t offset, uint64_t stop) const { return stop - offset >= kBulkBytes || begins_bulk(offset, stop); }

// Returns whether there may be a reason to call spend() at `offset`, with the next timing packet after it.
bool Runner::begins_bulk(uint64_t offset, uint64_t stop) const {
  if (data_[offset] == std::byte{0x02}) return true;
  return offset + 1 < stop && is_short_tnt(static_cast<unsigned>(data_[offset + 1])) && is_short_tnt(static_cast<unsigned>(data_[offset]));
}

// Reads packets from cursor_ on.
void Runner::take_direct() {
  direct_ = true;
  stop_ = 0;
  settled_ = false;
  while (room() && state_->position < until_) {
    const uint64_t offset = cursor_.offset_bytes;
    if (offset >= stop_ && !pass_point()) {
      if (cursor_.offset_bytes >= own_bytes_) return;
      continue;
    }
    if (behind_sync_point(offset)) return;
    if (!mark_due_ && settled_ && cursor_.steady() && is_bulk(offset, stop_)) {
      spend();
      if (tnt_.count != 0 && !take_bits()) return;
    } else if (!take_timed()) {
      return;
    }
    if (cursor_.offset_bytes != offset || !room() || state_->position >= until_) continue;
    const auto byte = static_cast<unsigned>(data_[offset]);
    if (is_short_tnt(byte)) {
      const auto bits = static_cast<uint32_t>(std::bit_width(byte)) - 2;
      if (!read_tnt(low_bits(byte >> 1, bits), bits, 1, false)) return;
    } else if ((byte & kIpOpcodeMask) == kTipOpcode) {
      if (!read_tip()) return;
    } else if (byte == 0) {
      ++cursor_.offset_bytes;
    } else if (byte == 0x02 && own_bytes_ - offset >= kLongTntBytes) {
      const uint64_t payload = long_tnt(data_ + offset);
      if (payload == 0) return;
      const auto bits = static_cast<uint32_t>(std::bit_width(payload)) - 1;
      if (!read_tnt(low_bits(payload, bits), bits, kLongTntBytes, bits == kLongTntBits)) return;
    } else if (!take_untraced() || walker_.may_switch_unseen(*state_)) {
      return;
    }
  }
}

// Reads the packet with `opcode` at the cursor, before the next timing packet, and passes it. Returns false if there is none that gives an
// ip.
bool Runner::read_target(ItemCursor& cursor, Item& item, ItemKind kind, unsigned opcode) const {
  const uint64_t offset = cursor.offset_bytes, end = std::min({stop_, sync_limit_, own_bytes_});
  if (offset >= end || segment_bytes_ - offset < kWidestIp) return false;
  const auto byte = static_cast<unsigned>(data_[offset]);
  const uint64_t size = kIpSize[byte >> 5];
  if ((byte & kIpOpcodeMask) != opcode || size == 0 || end - offset <= size) return false;
  item.kind = kind;
  item.ip = cursor.last_ip = ip_of_tip(data_ + offset, cursor.last_ip);
  item.offset_bytes = offset;
  cursor.date(item);
  item.lo = cursor.emitted;
  item.hi = std::max(hi_, item.lo);
  cursor.prompt();
  cursor.leave();
  cursor.offset_bytes += size + 1;
  return true;
}

// Returns whether a direct branch inside the run may lead to `ip`.
bool Runner::jumps_to(const BlockRun& run, uint64_t ip) const {
  const Block* blocks = code_.blocks(run.blocks_first);
  return std::any_of(blocks + 1, blocks + run.blocks, [&](const Block& block) { return walker_.table_.info(block.node).ip.value == ip; });
}

// Takes the TIP.PGD of a near branch at the cursor and the TIP.PGE after it: the flow leaves the traced code and comes back. Returns false
// if the walker must take them.
bool Runner::take_untraced() {
  FlowState& state = *state_;
  ItemCursor cursor = cursor_;
  Item left, back;
  if (!read_target(cursor, left, ItemKind::tip_pgd, kTipPgdOpcode)) return false;
  while (cursor.offset_bytes < own_bytes_ && data_[cursor.offset_bytes] == std::byte{0}) ++cursor.offset_bytes;
  if (!read_target(cursor, back, ItemKind::tip_pge, kTipPgeOpcode) || state.position + 2 > until_) return false;
  if (!walker_.is_thread_clear(state, Ip{back.ip}, walker_.time_of(back), true)) return false;
  set_now(left);
  const RunId id = code_.version_at(at_, state.now);
  if (id == kNoRun || !state.now.overlaps(walker_.time_of(left))) return false;
  const BlockRun& run = code_.run(id);
  if (run.branch_bytes == 0 || exceeds_silence(run) || jumps_to(run, left.ip)) return false;
  const bool is_ret = run.end == RunEnd::ret, is_call = !is_ret && run.next[1] != kNoRun;
  emit(run, run.calls - (is_call ? 1U : 0U));  // a call out of the traced code is not on the processor's stack
  if (is_ret && calls_.open != 0) calls_.drop();
  const BlockInfo& last = walker_.table_.info(out_[-1].node);
  const Ip from{last.ip.value + last.size_bytes - run.branch_bytes};
  std::vector<Event>& events = flow_->out->events;
  const auto before_block = static_cast<uint32_t>(out_ - flow_->out->blocks.data());
  events.push_back(walker_.event_of(left, EventKind::disabled, kEventHasFrom | kEventHasTo, from, Ip{left.ip}));
  events.back().before_block = before_block;
  events.push_back(walker_.event_of(back, EventKind::enabled, kEventHasTo, {}, Ip{back.ip}));
  events.back().before_block = before_block;
  moved_ = true;
  state.position += 2;
  state.end_silence();
  state.disabled_at = {};
  state.ip = Ip{back.ip};
  const SpaceId space = state.context.space;
  walker_.find_thread(*flow_, walker_.time_of(back), state.next, Walker::From::start);
  if (state.context.space != space) {
    return_calls();
    borrow_calls();
    set_places();
  }
  mark_due_ = true;
  settled_ = false;
  cursor_ = cursor;
  at_ = at(back.ip);
  return true;
}

// Processes the timing packet at the cursor and returns false, also at the end of the segment. Without one it sets stop_ and returns true.
bool Runner::pass_point() {
  TimeAhead& ahead = walker_.items_.ahead();
  const TimePoint* point = ahead.next();
  if (point != nullptr && point->offset_bytes <= cursor_.offset_bytes) {
    const uint64_t end = point->end_bytes;
    ahead.pass(cursor_.offset_bytes, cursor_.now_first, cursor_.now);
    cursor_.offset_bytes = std::max(cursor_.offset_bytes, end);
    stop_ = 0;
    settled_ = false;
    return false;
  }
  stop_ = point != nullptr ? std::min(point->offset_bytes, own_bytes_) : own_bytes_;
  hi_ = ahead.next_last();
  return cursor_.offset_bytes < stop_;
}

// Reads a TNT at the cursor. Returns false if some of its bits could not be taken.
bool Runner::read_tnt(uint64_t payload, uint32_t bits, uint64_t size, bool full) {
  tnt_.before = cursor_;
  tnt_.bits = payload;
  tnt_.count = bits;
  tnt_.direct = true;
  tnt_.begun = false;
  Item& item = tnt_.item;
  item.kind = ItemKind::tnt;
  item.bits = static_cast<uint8_t>(bits);
  item.ip = payload;
  item.offset_bytes = cursor_.offset_bytes;
  cursor_.date(item);
  item.lo = cursor_.begin_group();
  item.hi = std::max(hi_, item.lo);
  if (full) cursor_.prompt();
  cursor_.leave_tnt(bits);
  cursor_.offset_bytes += size;
  set_now(item);
  settled_ = item.lo == cursor_.now_first;
  return take_bits();
}

// Reads a TIP at the cursor. Returns false if it could not be taken.
bool Runner::read_tip() {
  const uint64_t offset = cursor_.offset_bytes;
  const auto form = static_cast<unsigned>(data_[offset]) >> 5;
  const uint64_t size = kIpSize[form];
  if (size == 0 || own_bytes_ - offset <= size || segment_bytes_ - offset < 9) return false;
  const ItemCursor before = cursor_;
  uint64_t payload = 0;
  std::memcpy(&payload, data_ + offset + 1, 8);
  Packet packet;
  packet.ip_bytes = static_cast<IpBytes>(form);
  packet.value = payload & kIpMask[form];
  if (!decompress_ip(packet, cursor_.last_ip)) return false;
  if (is_long_tip(form, cursor_.last_ip, before.last_ip)) {
    cursor_ = before;
    return false;
  }
  Item item;
  item.kind = ItemKind::tip;
  item.ip = cursor_.last_ip;
  cursor_.date(item);
  item.lo = cursor_.take_tip();
  cursor_.leave();
  item.hi = std::max(hi_, item.lo);
  cursor_.offset_bytes += size + 1;
  const bool bits_pending = tnt_.count != 0;
  if (!bits_pending) {
    set_now(item);
    settled_ = item.lo == cursor_.now_first;
  }
  if (take_target(item, bits_pending)) return true;
  cursor_ = before;
  return false;
}

void Runner::set_now(const Item& item) {
  FlowState& state = *state_;
  left_ = item.left;
  const Fetch fetch = fetch_at(state.not_before, item.lo, item.hi);
  if (fetch == Fetch{state.now, state.moment_first} && flow_->marked().serves(left_)) return;
  state.now = fetch.now;
  state.moment_first = fetch.moment_first;
  mark_due_ = true;
}

// Outputs a mark before the first block at a new time or in a new context.
void Runner::give_mark() {
  mark_due_ = false;
  flow_->put_mark(state_->moment(), left_, static_cast<size_t>(out_ - flow_->out->blocks.data()));
}

void Runner::Calls::move_to_middle() {
  const uint64_t middle = kRuns / 2;
  std::array<RunId, ReturnStack::kDepth> kept{};
  for (uint64_t i = 0; i < open; ++i) kept[i] = at(height_ - i);
  base_ = height_ - middle;
  for (uint64_t i = 0; i < open; ++i) at(height_ - i) = kept[i];
}

// Makes calls_ the stack of the current flow: keeps the entries unchanged since return_calls(), and looks up the others when they are
// popped.
void Runner::borrow_calls() {
  const ReturnStack& stack = state_->returns;
  const uint64_t bottom = stack.height() - stack.count();
  const uint64_t known = stack.signature() == signature_ ? std::max(stack.low(), bottom) : bottom;
  calls_.set_height(stack.height());
  calls_.low = stack.height();
  calls_.open = stack.count();
  calls_.center();
  for (uint64_t h = known; h++ != stack.height();) calls_.at(h) = kNoRun;
}

void Runner::return_calls() {
  ReturnStack& stack = state_->returns;
  for (uint64_t h = std::max(calls_.low, calls_.height() - calls_.open); h++ != calls_.height();) {
    if (calls_.at(h) != kNoRun) stack.set(h, code_.run(calls_.at(h)).ip);
  }
  stack.sign(++signature_, calls_.height(), calls_.open);
}

void Runner::push_calls(const BlockRun& run, uint32_t count) {
  const RunId* calls = code_.calls(run);
  for (uint32_t i = 0; i < count; ++i) calls_.push(calls[i]);
  calls_.center();
}

// Returns the run at the return address at `height` in the FlowState's stack.
RunId Runner::return_run(uint64_t height) { return at(state_->returns.at(height)); }

// Pops the run at the return address; the stack must not be empty.
RunId Runner::pop_call() {
  const RunId known = calls_.at(calls_.height());
  const RunId run = known != kNoRun ? known : return_run(calls_.height());
  calls_.drop();
  calls_.center();
  return run;
}

// Outputs the run's blocks. Of the calls in it, the first `calls` are made.
void Runner::emit(const BlockRun& run, uint32_t calls) {
  if (mark_due_) give_mark();
  copy_blocks(out_, code_.blocks(run.blocks_first), run.blocks);
  out_ += run.blocks;
  push_calls(run, calls);
}

// Takes the bits of tnt_. Returns false if some are left.
bool Runner::take_bits() {
  while (tnt_.count != 0) {
    if (!room() || state_->position >= until_) return false;
    if (!take_memo() && !step()) return false;
  }
  return true;
}

// Takes the next bits through a memo. Returns false if it takes none.
bool Runner::take_memo() {
  const uint64_t window = tnt_.bits << (64 - tnt_.count);
  const auto fits = [&](const Memo& memo) {
    return memo.bits != 0 && memo.bits <= tnt_.count && state_->position + memo.bits <= until_ && code_.holds(memo.valid, state_->now);
  };
  MemoTable& memos = code_.memos();
  if (memos.width(at_) == 0) memos.visit(at_);
  if (!fits(memos.find(at_, window))) {
    if (memos.width(at_) == 0 || memos.width(at_) > tnt_.count || !memos.ask(at_, window)) return false;
    if (!code_.make_memo(at_, window, tnt_.count, state_->now) || !fits(memos.find(at_, window))) return false;
  }
  const Memo memo = memos.find(at_, window);
  if (memo.bits == memos.width(at_)) memos.visit(at_);
  if (memo.rise < 0 && calls_.open == 0) return false;
  if (mark_due_) give_mark();
  out_ += copy_memo(out_, memo);
  tnt_.count -= memo.bits;
  state_->position += memo.bits;
  tnt_.begun = moved_ = true;
  state_->end_silence();
  calls_.open = std::min(calls_.open, uint32_t{memo.depth_left});
  if (memo.rise < 0) {
    at_ = pop_call();
    return true;
  }
  at_ = memos.view().run_of(memo.next);
  std::array<RunId, MemoTable::kMaxCalls> calls;
  std::memcpy(calls.data(), memos.view().calls(memo), sizeof calls);
  for (int i = 0; i < memo.rise; ++i) calls_.push(calls[static_cast<size_t>(i)]);
  calls_.center();
  return true;
}

// Counts the instructions and blocks of a run that takes nothing. Returns false, without counting, if the flow goes round in a loop.
bool Runner::pass_silently(const BlockRun& run) {
  FlowState& state = *state_;
  SilentLoop loop = state.loop;
  uint64_t silent = state.silent;
  const Block* blocks = code_.blocks(run.blocks_first);
  for (uint32_t i = 0; i < run.blocks; ++i) {
    if (loop.comes_back(walker_.table_.info(blocks[i].node).ip, state.mode, silent + 1)) return false;
    silent += blocks[i].instructions;
  }
  state.loop = loop;
  state.silent = silent;
  state.silent_blocks += run.blocks;
  return true;
}

// Returns whether a flow without packets has a limit inside the run.
bool Runner::exceeds_silence(const BlockRun& run) const {
  return state_->silent + run.instructions > walker_.max_silent() || state_->silent_blocks + run.blocks > SilentLoop::kMostBlocks;
}

// Follows runs that take nothing, and returns the version of the run after them. kNoRun: the walker must continue.
RunId Runner::follow_links() {
  for (;;) {
    const RunId id = code_.version_at(at_, state_->now);
    if (id == kNoRun) return kNoRun;
    const BlockRun& run = code_.run(id);
    if (run.end == RunEnd::stuck || run.end == RunEnd::unread) return kNoRun;
    if (exceeds_silence(run)) return kNoRun;
    if (run.end != RunEnd::link) return id;
    if (!room() || !pass_silently(run)) return kNoRun;
    emit(run);
    at_ = run.next[0];
    moved_ = true;
  }
}

// Takes one bit, or a TIP that precedes it. Returns false if the walker must do so.
bool Runner::step() {
  const RunId id = follow_links();
  if (id == kNoRun) return false;
  const BlockRun& run = code_.run(id);
  const bool bit = ((tnt_.bits >> (tnt_.count - 1)) & 1) != 0;
  if (run.end == RunEnd::jcc) {
    emit(run);
    if (bit) out_[-1].flags |= static_cast<uint16_t>(BlockFlag::taken);
    at_ = run.next[bit ? 1 : 0];
  } else if (run.end == RunEnd::ret && returns_compressed_) {
    if (!bit || calls_.open + run.calls == 0) return false;
    emit(run);
    at_ = pop_call();
  } else {  // a TIP that was written after the TNT
    if (!tnt_.direct || !tnt_.begun || cursor_.offset_bytes >= stop_ || behind_sync_point(cursor_.offset_bytes)) return false;
    return (static_cast<unsigned>(data_[cursor_.offset_bytes]) & kIpOpcodeMask) == kTipOpcode && read_tip();
  }
  --tnt_.count;
  tnt_.begun = moved_ = true;
  ++state_->position;
  state_->end_silence();
  return true;
}

// Takes the target of a branch. Returns false if the flow is not at a branch that needs one.
bool Runner::take_target(const Item& item, bool bits_pending) {
  const RunId id = follow_links();
  if (id == kNoRun) return false;
  const bool enters_user = code_.run(id).ends_in_kernel && (item.ip >> 63) == 0;
  {
    const BlockRun& run = code_.run(id);  // valid until the next lookup
    const bool ret = run.end == RunEnd::ret && (!bits_pending || !returns_compressed_);
    if ((run.end != RunEnd::indirect && !ret) || item.ip == code_.after_call(run)) return false;
    if (enters_user && !walker_.enters_clearly(*state_, item)) return false;
    emit(run);
    if (ret && calls_.open != 0) calls_.drop();
  }
  moved_ = true;
  ++state_->position;
  state_->end_silence();
  if (enters_user) {
    state_->ip = Ip{item.ip};
    walker_.enter_user(*flow_, item, item.lo);
    return_calls();
    borrow_calls();
    set_places();
    mark_due_ = true;
  }
  state_->given_ip = Ip{item.ip};
  const uint32_t place = (item.ip >> 63) != 0 ? kernel_place_ : user_place_;
  at_ = code_.target_at(place, item.ip);
  return true;
}

// Stores the complete state in the flow, as the walker would have left it.
void Runner::leave() {
  FlowState& state = *state_;
  Blocks& blocks = flow_->out->blocks;
  blocks.resize(static_cast<size_t>(out_ - blocks.data()));
  const bool untouched = tnt_.count != 0 && !tnt_.begun;  // no bit of the pending TNT was taken
  if (tnt_.count != 0 && !untouched && !tnt_.direct) {
    state.tnt_item = tnt_.index;
  }
  if (direct_) {
    if (untouched) cursor_ = tnt_.before;
    const bool part = tnt_.count != 0 && !untouched;
    walker_.items_.skip_to(cursor_, state.next, part ? &tnt_.item : nullptr);
    if (part) state.tnt_item = state.next++;
  } else if (untouched) {
    state.next = tnt_.index;
  }
  state.tnt_count = untouched ? 0 : tnt_.count;
  state.tnt = tnt_.bits;
  state.ip = Ip{code_.run(at_).ip};
  if (direct_ && cursor_.last_ip == state.ip.value) state.given_ip = state.ip;
  return_calls();
  if (state.position != first_position_) state.unanchored = 0;
  if (!moved_ && !direct_) return;
  state.has_stop = false;
  if (state.tnt_count != 0) {
    walker_.refresh_now(state);
  } else {
    walker_.settle(*flow_);
    if (moved_) walker_.correct_target(*flow_);
  }
}

}  // namespace ptd::pt
