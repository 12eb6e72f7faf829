// Walker: the instruction loop and blocks. walker_fetch.cc reads the code, walker_ahead.cc looks at code that is not executed,
// walker_items.cc consumes items.
#include "decoder/pt/flow/walker.h"

#include <algorithm>
#include <optional>

#include "decoder/block_rules.h"

namespace ptd::pt {
namespace {

constexpr unsigned kCacheBits = 16;              // of the cache of code
constexpr uint64_t kMaxSurveySilent = 1U << 16;  // without a packet, in a survey

}  // namespace

Walker::Walker(const Timeline& timeline, const ContextTrack& contexts, const DecoderOptions& options)
    : timeline_(timeline), contexts_(&contexts), options_(options), view_(timeline), cache_(kCacheBits) {}

uint64_t Walker::max_silent() const { return surveying_ ? kMaxSurveySilent : silent_limit_; }

// Counts the instruction just appended. Returns false if too many were executed without a packet.
bool Walker::count_silent(Flow& flow) const {
  FlowState& state = flow.state;
  ++state.silent;
  if (flow.block_instructions == 1) ++state.silent_blocks;
  return state.silent <= max_silent() && state.silent_blocks <= SilentLoop::kMostBlocks;
}

bool Walker::in_filter(Ip ip) const {
  return std::any_of(options_.filter.begin(), options_.filter.end(),
                     [&](const IpRange& range) { return range.first <= ip && ip <= range.last; });
}

void Walker::begin(const AuxSegment& segment, Flow& flow) {
  counting_ = false;
  only_modest_fetches(false);
  limit_fetch_work(kNoWorkLimit);
  if (segment.cpu != follower_cpu_) {
    follower_ = ContextFollower(*contexts_, segment.cpu);
    follower_cpu_ = segment.cpu;
  }
  segment_ = segment;
  has_execs_ = find_execs();
  fit_work_ = 0;

  items_.begin(segment, options_.config, options_.slack_ns);
  silent_limit_ = options_.max_silent_instructions;
  flow.state = {};
  flow.clear_block();
  flow.block_flags = 0;
  flow.mark_valid = false;
  flow.penalty = 0;
  flow.pins.clear();
  missing_.clear();
  flow.mode_given = items_.start().mode != ExecMode::unknown;
  FlowState& state = flow.state;
  const SyncState& start = items_.start();
  state.mode = start.mode;
  state.not_before = segment.time.first;
  state.ip = start.ip;
  state.enabled = start.has_ip;
  state.interrupts = start.interrupts;
  if (options_.sync_points != nullptr) {  // sync points that earlier segments passed
    const auto& points = *options_.sync_points;
    const auto passed = std::upper_bound(points.begin(), points.end(), segment.stream_offset_bytes,
                                         [](uint64_t offset, const SyncPoint& point) { return offset < point.stream_offset_bytes; });
    state.spans_passed = static_cast<uint32_t>(passed - points.begin());
  }
  const Item first = items_.at(0);
  const Item status = [&] {
    Item item = first;
    item.offset_bytes = 0;
    return item;
  }();
  // The TSC packet of the PSB+ is exact.
  const bool at_moment = is_kernel_half(state.ip) || (segment.tsc.use && options_.slack_ns == 0 && segment.time.first != kTimeMin);
  if (start.has_ip) {
    find_thread(flow, {first.before, at_moment ? first.before : first.hi}, 0, From::before);
  } else {
    update_context(flow, first.before, first.hi);
  }
  refresh_now(state);
  if (start.has_cr3) {
    Item paging = status;
    paging.value = start.cr3;
    give_event(flow, paging, EventKind::paging, static_cast<uint8_t>(kEventStatus | (start.non_root ? kEventNonRoot : 0)), {}, {});
  }
  for (const Item& item : items_.start_items()) {
    Item told = status;
    told.value = item.value;
    give_event(flow, told, item.event, kEventStatus, {}, {});
  }
  if (start.mode != ExecMode::unknown) {
    Item mode = status;
    mode.value = static_cast<uint64_t>(start.mode);
    give_event(flow, mode, EventKind::exec_mode, kEventStatus, {}, {});
    mode.value = 1;
    if (start.interrupts) give_event(flow, mode, EventKind::interrupt_flag, kEventStatus, {}, {});
  }
  if (state.mode == ExecMode::unknown) state.mode = options_.config.initial_mode;
  if (start.has_ip) give_event(flow, status, EventKind::enabled, kEventStatus | kEventHasTo, {}, start.ip);
  settle(flow);
}

// Walks the flow. An event bound to an ip is taken before the instruction there is read ([DESIGN] poke rule: its bytes are not needed).
WalkStop Walker::run(Flow& flow, uint64_t until_position) {
  FlowState& state = flow.state;
  for (;;) {
    const ItemKind head = state.tnt_count != 0 ? ItemKind::tnt : items_.at(state.next).kind;
    if (head >= ItemKind::sync && done_flow(state)) {
      finish_block(flow, 0);
      return WalkStop::done;
    }
    if (state.position >= until_position) return WalkStop::position;
    if (flow.out->blocks.size() >= flow.most_blocks) return WalkStop::full;
    if (!state.enabled || head == ItemKind::bad) {
      // The invalid bytes may have held an event bound to an ip ahead of the flow, so it must stop here.
      lose(flow, GapReason::bad_packet);
      return WalkStop::lost;
    }
    if (state.has_stop && state.stop_ip == state.ip.value && state.tnt_count == 0) {
      if (!at_stop(flow)) return WalkStop::lost;
      continue;
    }
    const SpaceId space = space_of(state, state.ip);
    const Candidate* only = !surveying_ && !flow.pins.empty() ? pinned(flow, space) : nullptr;
    StraightCode* code = only == nullptr ? known_code(state, space) : nullptr;
    if (code == nullptr && only == nullptr) code = read_straight(state, space);
    if (code == nullptr || (surveying_ && sole_count(flow, *code) == 0)) {
      if (surveying_) {
        if (!read_survey(flow, space)) return WalkStop::lost;
        if (candidates_.size() > 1) return WalkStop::fork;
        if (!candidates_[0].in_time) only = &candidates_[0];
      }
      if (only != nullptr) {
        const Candidate taken = *only;
        if (!choose(flow, taken, 0)) return WalkStop::lost;
        continue;
      }
      WalkStop stop = WalkStop::lost;
      code = read_single(flow, space, stop);
      if (code == nullptr) return stop;
    }
    if (!take(flow, space, *code)) return WalkStop::lost;
  }
}

// Returns how many instructions of `code`, which is at the flow's ip, run before something else is due.
uint32_t Walker::count_due(const Flow& flow, SpaceId space, StraightCode& code) {
  const FlowState& state = flow.state;
  uint32_t count = surveying_ ? sole_count(flow, code) : code.count;
  const auto end_at = [&](uint64_t ip) {
    const uint64_t offset = ip - state.ip.value;
    if (offset != 0 && offset <= code.last_at) count = std::min(count, code.index_at(offset));
  };
  if (state.has_stop && state.tnt_count == 0) end_at(state.stop_ip);
  if (state.counts_down) count = static_cast<uint32_t>(std::min<uint64_t>(count, state.countdown));
  for (const Pin& pin : flow.pins) {
    if (!surveying_ && pin.space == space && pin.during.overlaps(state.now)) end_at(pin.ip.value);
  }
  return count;
}

// Counts the next instruction against the limits of a flow without packets. Returns true if it exceeds one.
bool Walker::meets_limit(Flow& flow, bool begins) {
  FlowState& state = flow.state;
  if (state.silent >= max_silent()) return true;
  return begins && (state.silent_blocks >= SilentLoop::kMostBlocks || state.loop.comes_back(state.ip, state.mode, state.silent + 1));
}

// Appends the instructions of `code`, up to the first before which something else is due, and executes them. Returns false if the flow is
// lost.
bool Walker::take(Flow& flow, SpaceId space, StraightCode& code) {
  FlowState& state = flow.state;
  const bool begins = open_block(flow, space, code.block_flags);
  uint32_t count = code.count;
  if (state.has_stop || state.counts_down || surveying_ || !flow.pins.empty()) count = count_due(flow, space, code);
  count = std::min<uint32_t>(count, kMaxBlockInstructions - flow.block_instructions);
  bool limited = false;
  if (state.silent + count > std::min(SilentLoop::kQuiet, max_silent())) {
    limited = meets_limit(flow, begins);
    count = limited ? 1 : static_cast<uint32_t>(std::min<uint64_t>(count, max_silent() - state.silent));
  }
  const bool whole = count == code.count;
  const Bytes bytes = whole ? code.bytes() : code.bytes().first(code.size_of(count));
  flow.add_bytes(bytes, true);
  if (begins && whole && code.is_ended()) {
    if (code.node == kNoNode) code.node = table_.intern(space, state.ip, state.mode, code.count, bytes);
    flow.block_node = code.node;
  }
  flow.block_instructions = static_cast<uint16_t>(flow.block_instructions + count);
  walked_ += count;
  state.silent += count;
  if (begins) ++state.silent_blocks;
  if (limited) {
    lose(flow, GapReason::limit);
    return false;
  }
  const bool counts = state.counts_down;
  const Step last = code.last();
  if (!whole || !code.is_ended()) {
    state.ip = whole ? last.next : Ip{state.ip.value + bytes.size()};
    if (counts) count_down(flow, count);
    return true;
  }
  state.ip.value += code.last_at;
  if (counts) state.countdown -= count - 1;
  if (execute(flow, last) == Go::lost) return false;
  if (counts) count_down(flow, 1);
  return true;
}

bool Walker::choose(Flow& flow, const Candidate& candidate, uint16_t block_flags) {
  FlowState& state = flow.state;
  if (candidate.always_faults()) {
    lose(flow, GapReason::image_mismatch);
    return false;
  }
  if (candidate.site != kNoSite) state.floors.raise(candidate.site, candidate.version);
  begin_with(state, candidate);
  const uint16_t flags = candidate.ambiguous ? static_cast<uint16_t>(BlockFlag::ambiguous) : block_flags;
  append(flow, candidate, static_cast<uint16_t>(block_flags_of(candidate.flags) | flags));
  if (!count_silent(flow) || !state.loop.forget_after_choice(state.silent)) {
    lose(flow, GapReason::limit);
    return false;
  }
  const bool counted = state.counts_down;
  if (execute(flow, step_of(candidate.insn, state.ip, state.mode)) == Go::lost) return false;
  if (counted) count_down(flow, 1);
  return true;
}

// Works around erratum BDM64: the target reported for a branch directly before a transaction's abort may be wrong. The ip of the abort is
// right: if the target does not lead there, the branch did. Call this after each branch that took something from the trace.
void Walker::correct_target(Flow& flow) {
  FlowState& state = flow.state;
  if (!options_.config.errata.bdm64 || !state.has_stop || state.stop_ip == state.ip.value || flow.block_instructions != 0) return;
  const Item& item = items_.at(state.next);
  if (item.kind == ItemKind::at_ip && item.event == EventKind::tsx_abort && !reaches(flow, Ip{item.ip})) state.ip = Ip{item.ip};
}

void Walker::lose(const Flow& flow, GapReason reason) {
  const FlowState& state = flow.state;
  loss_ = {};
  loss_.reason = reason;
  loss_.ip = state.ip;
  loss_.space = space_of(state, state.ip);
  loss_.at_given_ip = state.given_ip == state.ip;
  const Item& head = items_.at(state.tnt_count != 0 ? state.tnt_item : state.next);
  loss_.offset_bytes = head.offset_bytes;
  if (head.kind == ItemKind::bad) loss_.reason = GapReason::bad_packet;
  // All walks of a segment that reach the limit share one budget.
  if (reason == GapReason::limit && !surveying_) {
    const uint64_t left = silent_limit_ - std::min(silent_limit_, state.silent);
    silent_limit_ = std::max(left, std::min(SilentLoop::kLeast, options_.max_silent_instructions));
  }
}

// Makes sure that an instruction with these flags may be appended to the block under construction. Returns true if it begins a block.
bool Walker::open_block(Flow& flow, SpaceId space, uint16_t flags) {
  FlowState& state = flow.state;
  if (state.whole_ip_at != 0 && items_.at(state.next).offset_bytes > state.whole_ip_at) state.whole_ip_at = 0;
  if (state.doubtful || state.whole_ip_at != 0 || state.thread_open) flags |= static_cast<uint16_t>(BlockFlag::suspect);
  if (flow.block_instructions != 0) {
    if (flow.block_flags == flags && flow.block_instructions < kMaxBlockInstructions && flow.block_space == space) return false;
    finish_block(flow, 0);
  }
  flow.block_ip = state.ip;
  flow.block_space = space;
  flow.block_flags = flags;
  if (state.mark_due || !flow.mark_valid) {
    if (options_.time_switches || state.most_switches != state.switches) pass_dated_switches(flow);
    put_mark(flow, state.moment());
  }
  state.mark_due = false;
  return true;
}

void Flow::add_more(Bytes bytes, bool lasting) {
  block_node = kNoNode;
  if (lasting && block_plain.data() + block_plain.size() == bytes.data()) {
    block_plain = {block_plain.data(), block_plain.size() + bytes.size()};
    return;
  }
  block_bytes.insert(block_bytes.end(), block_plain.begin(), block_plain.end());
  block_bytes.insert(block_bytes.end(), bytes.begin(), bytes.end());
  block_plain = {};
}

void Walker::append(Flow& flow, const Candidate& candidate, uint16_t block_flags) {
  open_block(flow, space_of(flow.state, flow.state.ip), block_flags);
  flow.add_bytes(Bytes(candidate.bytes).first(candidate.insn.length_bytes), false);
  ++flow.block_instructions;
  ++walked_;
}

void Walker::finish_block(Flow& flow, uint16_t flags) {
  if (flow.block_instructions == 0) return;
  Block block;
  block.node = flow.block_node;
  if (block.node == kNoNode) {
    const Bytes bytes = flow.block_bytes.empty() ? flow.block_plain : Bytes(flow.block_bytes);
    block.node = table_.intern(flow.block_space, flow.block_ip, flow.state.mode, flow.block_instructions, bytes);
  }
  block.instructions = flow.block_instructions;
  block.flags = static_cast<uint16_t>(flow.block_flags | flags);
  flow.out->blocks.push_back(block);
  flow.clear_block();
}

Walker::Go Walker::execute(Flow& flow, const Step& step) {
  switch (step.cls) {
    case InsnClass::other:
    case InsnClass::mov_cr3:
    case InsnClass::ptwrite:
      return after_sequential(flow, step);
    case InsnClass::jump_direct:
    case InsnClass::call_direct:
      return direct_branch(flow, step);
    case InsnClass::jcc:
      return conditional(flow, step);
    case InsnClass::ret:
      return near_return(flow, step);
    case InsnClass::jump_indirect:
    case InsnClass::call_indirect:
    case InsnClass::far_call:
    case InsnClass::far_jump:
    case InsnClass::far_ret:
    case InsnClass::jmpabs:
      return indirect(flow, step);
    case InsnClass::bad:
      break;
  }
  lose(flow, GapReason::bad_insn);
  return Go::lost;
}

Walker::Go Walker::after_sequential(Flow& flow, const Step& step) {
  FlowState& state = flow.state;
  const Ip ip = state.ip;
  state.ip = step.next;
  const bool binds = step.cls != InsnClass::other || step.detail == InsnDetail::vmptrld;
  if (!binds || state.tnt_count != 0) return Go::on;
  if (ends_at_mov_cr3(flow, step, ip, true)) return Go::disabled;
  const Item item = items_.at(state.next);
  if (item.kind != ItemKind::at_insn) return Go::on;
  const bool fits = (item.event == EventKind::paging && step.cls == InsnClass::mov_cr3) ||
                    (item.event == EventKind::ptwrite && step.cls == InsnClass::ptwrite) ||
                    (item.event == EventKind::vmcs && step.detail == InsnDetail::vmptrld);
  if (!fits) return Go::on;
  finish_block(flow, 0);
  give_item_event(flow, item, ip);
  ++state.next;
  took(flow, false);
  return ends_at_mov_cr3(flow, step, ip, false) ? Go::disabled : Go::on;
}

// Takes the TIP.PGD of the MOV CR3 at `at`, which has just been executed. With a CR3 filter it has neither a PIP nor an ip. If the MOV is
// the last instruction of a filter region, it has both, and the ip is that of the next instruction ([SDM] "Packet Generation under
// Different Enable Conditions").
bool Walker::ends_at_mov_cr3(Flow& flow, const Step& step, Ip at, bool without_pip) {
  FlowState& state = flow.state;
  if (step.cls != InsnClass::mov_cr3 || state.tnt_count != 0) return false;
  const Item item = items_.at(state.next);
  const bool has_ip = (item.flags & kItemNoIp) == 0;
  if (item.kind != ItemKind::tip_pgd || (has_ip ? item.ip != step.next.value : !without_pip)) return false;
  finish_block(flow, 0);
  ++state.next;
  disable(flow, item, EventKind::disabled, at, state.ip);
  return true;
}

Walker::Go Walker::direct_branch(Flow& flow, const Step& step) {
  FlowState& state = flow.state;
  const Ip target = step.target;
  if (step.pushes) state.returns.push(step.next.value);
  if (state.tnt_count == 0) {
    const Item item = items_.at(state.next);
    if (item.kind == ItemKind::tip_pgd) {
      const bool told = (item.flags & kItemNoIp) == 0;
      // Erratum SKL014: a direct branch out of the filter region gives a TIP.PGD without an ip.
      const bool silent = !told && options_.config.errata.skl014 && !options_.filter.empty() && !in_filter(target);
      if ((told && item.ip == target.value) || silent) {
        finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
        ++state.next;
        disable(flow, item, EventKind::disabled, state.ip, {});
        return Go::disabled;
      }
    }
  }
  finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
  state.ip = target;
  if (target == options_.switch_entry && target.value != 0 && !in_guest(state)) pass_switch(flow);
  return Go::on;
}

Walker::Go Walker::conditional(Flow& flow, const Step& step) {
  FlowState& state = flow.state;
  const Ip target = step.target, fall = step.next;
  bool taken = false;
  give_overdue(flow);
  if (!take_bit(state, taken)) {
    const Item item = items_.at(state.next);
    if (item.kind == ItemKind::tip_pgd && (item.flags & kItemNoIp) == 0 && (item.ip == target.value || item.ip == fall.value)) {
      const uint16_t taken_flag = item.ip == target.value ? static_cast<uint16_t>(BlockFlag::taken) : uint16_t{0};
      finish_block(flow, static_cast<uint16_t>(static_cast<uint16_t>(BlockFlag::ends_in_branch) | taken_flag));
      ++state.next;
      disable(flow, item, EventKind::disabled, state.ip, {});
      return Go::disabled;
    }
    lose(flow, GapReason::image_mismatch);
    return Go::lost;
  }
  finish_block(flow, taken ? BlockFlag::taken | BlockFlag::ends_in_branch : static_cast<uint16_t>(BlockFlag::ends_in_branch));
  state.ip = taken ? target : fall;
  took(flow);
  correct_target(flow);
  return Go::on;
}

// Near RET: with return compression a pending branch bit means compressed, none means TIP ([SDM] "RETC", "Deferred TIPs").
Walker::Go Walker::near_return(Flow& flow, const Step& step) {
  FlowState& state = flow.state;
  const ReturnCompression compression = options_.config.return_compression;
  if (compression != ReturnCompression::off) {
    give_overdue(flow);
    if (state.tnt_count == 0) load_tnt(state);
    if (state.tnt_count != 0) {
      const bool bit = ((state.tnt >> (state.tnt_count - 1)) & 1) != 0;
      const bool has_target = state.returns.count() != 0;
      if (bit && has_target) {
        uint64_t target = 0;
        state.returns.pop(target);
        --state.tnt_count;
        finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
        state.ip = Ip{target};
        took(flow);
        correct_target(flow);
        return Go::on;
      }
      const bool open = bit && !has_target && state.calls_unseen;
      const bool deferral = options_.config.tip_order != TipOrder::prompt;  // the bit may belong to a branch after this one
      if (compression == ReturnCompression::on || (open && !deferral)) {
        lose(flow, open ? GapReason::unknown_return : GapReason::image_mismatch);
        return Go::lost;
      }
    }
  }
  uint64_t dropped = 0;
  state.returns.pop(dropped);
  return indirect(flow, step);
}

Walker::Go Walker::indirect(Flow& flow, const Step& step) {
  FlowState& state = flow.state;
  const bool from_guest = in_guest(state);
  // Output events without a position that are queued between the branch and its target.
  give_overdue(flow);
  for (;;) {
    const Item item = items_.at(state.next);
    if (item.kind != ItemKind::now && item.kind != ItemKind::at_insn) break;
    give_item_event(flow, item, Ip{item.ip});
    ++state.next;
    ++state.position;
  }
  load_bits_before_deferred_tip(state);
  const Item item = items_.at(state.next);
  const bool has_ip = (item.flags & kItemNoIp) == 0;
  if (item.kind == ItemKind::tip_pgd && state.tnt_count == 0) {
    finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
    ++state.next;
    const Ip resume = step.cls == InsnClass::far_call ? step.next : Ip{};
    disable(flow, item, EventKind::disabled, state.ip, resume);
    return Go::disabled;
  }
  if (item.kind != ItemKind::tip) {
    lose(flow, GapReason::image_mismatch);
    return Go::lost;
  }
  // Only a far transfer changes the mode: such a packet is damaged, and so may its TIP be.
  if (item.mode != ExecMode::unknown && item.mode != state.mode && state.mode != ExecMode::unknown && !is_far(step.cls)) {
    ++state.next;
    lose(flow, GapReason::bad_packet);
    return Go::lost;
  }
  if ((item.flags & kItemLongTip) != 0) doubt_path(flow);
  const bool is_call = step.cls == InsnClass::call_indirect, missed = is_call && has_ip && item.ip == step.next.value;
  if (is_call && !missed) state.returns.push(step.next.value);
  finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
  // A call to its own following instruction does not occur: this is the TIP of the callee's return, and the TIPs in between are missing.
  if (missed) give_gap(flow, gap_at(state, item, GapReason::aux_lost));
  ++state.next;
  const bool was_kernel = is_kernel_half(state.ip), changes = in_guest(state) != from_guest;
  if (changes && has_ip) change_machine(flow, item, EventKind::disabled, state.ip, Ip{item.ip});
  state.ip = state.given_ip = Ip{item.ip};
  if (!has_ip) {
    state.enabled = false;
    took(flow);
    return Go::disabled;
  }
  set_mode(flow, item.mode, item, state.ip);
  if (was_kernel && !changes && !is_kernel_half(state.ip)) enter_user(flow, item, item.lo);
  took(flow);
  correct_target(flow);
  return Go::on;
}

}  // namespace ptd::pt
