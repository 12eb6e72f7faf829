// Walker: consuming items, events, time and context.
#include <algorithm>
#include <utility>

#include "decoder/block_rules.h"
#include "decoder/pt/flow/walker.h"

namespace ptd::pt {

bool Walker::load_tnt(FlowState& state) {
  const Item& item = items_.at(state.next);
  if (item.kind != ItemKind::tnt) return false;
  state.tnt = item.ip;
  state.tnt_count = item.bits;
  state.tnt_item = state.next++;
  return state.tnt_count != 0;
}

bool Walker::take_bit(FlowState& state, bool& taken) {
  if (state.tnt_count == 0 && !load_tnt(state)) return false;
  --state.tnt_count;
  taken = ((state.tnt >> state.tnt_count) & 1) != 0;
  return true;
}

void Walker::took(Flow& flow, bool anchors) {
  FlowState& state = flow.state;
  ++state.position;
  state.unanchored = anchors ? 0 : state.unanchored + state.silent;
  state.end_silence();
  if (state.tnt_count == 0) {
    settle(flow);
  } else {
    state.has_stop = false;
    if (state.dated != state.next) refresh_now(state);
  }
}

void Walker::refresh_now(FlowState& state) {
  const Item& head = items_.at(state.tnt_count != 0 ? state.tnt_item : state.next);
  state.now.first = state.moment_first = std::max(head.lo, state.not_before);
  state.now.last = std::max(head.hi, state.now.first);
  if (options_.sync_points != nullptr) narrow_by_sync_points(state);
  state.dated = state.tnt_count != 0 ? state.next : FlowState::kNever;
  state.mark_due = true;
}

// Narrows the time interval by the spans between synchronisations, which limit the versions that this cpu may execute. A span that
// contradicts the clock is ignored.
void Walker::narrow_by_sync_points(FlowState& state) {
  const std::vector<SyncPoint>& points = *options_.sync_points;
  const uint64_t offset = segment_.stream_offset_bytes + items_.at(state.next).offset_bytes;
  while (state.spans_passed < points.size() && points[state.spans_passed].stream_offset_bytes < offset) ++state.spans_passed;
  if (state.spans_passed == 0) return;
  const Interval both = intersect(state.now, points[state.spans_passed - 1].time);
  if (!both.empty()) state.now = both;
}

// Counts executed instructions for the head item, unless they consumed the item.
void Walker::count_down(Flow& flow, uint64_t count) {
  FlowState& state = flow.state;
  if (state.counts_down && (state.countdown -= count) == 0) settle(flow);
}

// Outputs an event that counts instructions: it cannot come later than a branch that takes something from the trace.
void Walker::give_overdue(Flow& flow) {
  FlowState& state = flow.state;
  if (!state.counts_down) return;
  state.countdown = 0;
  settle(flow);
}

// Returns a gap that begins at `item`, at the current position of the flow.
Gap Walker::gap_at(const FlowState& state, const Item& item, GapReason reason) const {
  Gap gap;
  gap.reason = reason;
  gap.ip = state.enabled ? state.ip : Ip{};
  gap.space = space_of(state, state.ip);
  gap.stream_offset_bytes = segment_.stream_offset_bytes + item.offset_bytes;
  gap.time = time_of(item);
  return gap;
}

// Called without pending branch bits. Outputs events without a position and sets the ip at which the head item is to be taken.
void Walker::settle(Flow& flow) {
  FlowState& state = flow.state;
  for (;;) {
    const Item& head = items_.at(state.next);
    if (!state.lost && (head.kind == ItemKind::tnt || head.kind == ItemKind::tip)) {
      state.has_stop = false;
      break;
    }
    const Item item = head;
    if (!settle_one(flow, item)) break;
    ++state.next;
    ++state.position;
  }
  refresh_now(state);
}

// Returns true if the item was taken.
bool Walker::settle_one(Flow& flow, const Item& item) {
  FlowState& state = flow.state;
  state.has_stop = false;
  if (state.lost) return settle_lost(flow, item);
  switch (item.kind) {
    case ItemKind::now:
      give_item_event(flow, item, {});
      return true;
    case ItemKind::at_insn:
      if (state.enabled) return false;
      give_item_event(flow, item, Ip{item.ip});
      return true;
    case ItemKind::after_insns:
      if (state.enabled && !std::exchange(state.counts_down, true)) {
        const uint64_t passed = state.silent + state.unanchored;
        state.countdown = item.ip - std::min(item.ip, passed);
      }
      if (state.enabled && state.countdown != 0) return false;
      finish_block(flow, 0);
      state.counts_down = false;
      state.end_silence();
      state.unanchored = 0;
      give_item_event(flow, item, state.enabled ? state.ip : Ip{});
      return true;
    case ItemKind::tip_pge:
      if (state.enabled) return false;  // the walker reports that it cannot continue
      enable_at(flow, item, Ip{item.ip});
      return true;
    case ItemKind::overflow: {
      finish_block(flow, 0);
      const bool has_ip = (item.flags & kItemNoIp) == 0;
      give_event(flow, item, EventKind::overflow, has_ip ? kEventHasTo : uint8_t{0}, {}, Ip{item.ip});
      give_gap(flow, gap_at(state, item, GapReason::overflow));
      state.returns.clear();
      state.calls_unseen = false;  // the processor clears its stack too ([SDM] "RETC")
      state.enabled = has_ip;
      state.lost = !has_ip;
      state.in_gap = state.bits_open = state.doubtful = false;
      state.end_silence();
      state.unanchored = 0;
      state.ip = state.given_ip = Ip{item.ip};
      if (has_ip) {
        set_mode(flow, item.mode, item, state.ip);
        find_thread(flow, time_of(item), state.next + 1, From::loss);
      }
      return true;
    }
    case ItemKind::missing: {
      finish_block(flow, 0);
      Gap gap = gap_at(state, item, GapReason::aux_lost);
      gap.lost_bytes = item.value;
      give_gap(flow, gap);
      state.returns.clear();
      state.calls_unseen = true;
      state.enabled = state.doubtful = state.counts_down = false;
      state.lost = state.in_gap = state.bits_open = true;
      state.end_silence();
      state.unanchored = 0;
      return true;
    }
    case ItemKind::at_ip:
      if (!state.enabled) {  // the packet gives an ip, but the flow does not start
        give_bound_event(flow, item);
        return true;
      }
      [[fallthrough]];
    case ItemKind::async_branch:
    case ItemKind::async_disabled:
      state.has_stop = true;
      state.stop_ip = item.ip;
      return false;
    case ItemKind::sync:
      state.has_stop = (item.flags & kItemNoIp) == 0;
      state.stop_ip = item.ip;
      return false;
    case ItemKind::tnt:
    case ItemKind::tip:
    case ItemKind::tip_pgd:
    case ItemKind::bad:
    case ItemKind::end:
      return false;
  }
  return false;
}

// Takes the head item at the ip to which it is bound.
bool Walker::at_stop(Flow& flow) {
  FlowState& state = flow.state;
  const Item item = items_.at(state.next);
  state.doubtful = false;  // the trace confirms the current ip
  finish_block(flow, 0);
  give_uncounted_loop(flow, item);
  if (item.kind == ItemKind::sync) {
    state.enabled = false;
    state.has_stop = false;
    return true;
  }
  ++state.next;
  if (item.kind == ItemKind::at_ip) {
    // The FUP of a PTW gives the ip of the PTWRITE itself, which did retire ([SDM] "PTWRITE Packet"). Other events come before the
    // instruction.
    if (item.event == EventKind::ptwrite && !retire_ptwrite(flow)) return false;
    give_bound_event(flow, item);
    took(flow);
    return true;
  }
  const bool has_to = (item.flags & kItemNoIp) == 0;
  const Ip to{item.value};
  if (item.kind == ItemKind::async_disabled) {
    if (options_.config.errata.skd022 && retire_vm_entry(flow)) {
      Item entry = item;
      entry.ip = item.value;
      disable(flow, entry, EventKind::disabled, state.ip, {});
    } else {
      disable(flow, item, EventKind::async_disabled, state.ip, state.ip);
    }
    return true;
  }
  uint8_t flags = kEventHasFrom;
  if (has_to) flags |= kEventHasTo;
  if (has_to && options_.breakpoint_entry.value != 0 && to == options_.breakpoint_entry && !in_guest(state)) flags |= kEventBreakpoint;
  if (has_to && changes_machine(state)) {
    change_machine(flow, item, EventKind::async_disabled, Ip{item.ip}, to);
    set_mode(flow, item.mode, item, to);
    took(flow);
    return true;
  }
  give_event(flow, item, EventKind::async_branch, flags, Ip{item.ip}, to);
  const bool was_kernel = is_kernel_half(state.ip);
  state.ip = state.given_ip = to;
  state.enabled = has_to;
  set_mode(flow, item.mode, item, to);
  if (was_kernel) is_kernel_half(to) ? check_switches(flow, item) : enter_user(flow, item, item.before);
  took(flow);
  return true;
}

// Works around erratum SKD022: a VM entry that clears TraceEn writes a FUP before its TIP.PGD, but the entry itself did retire.
bool Walker::retire_vm_entry(Flow& flow) {
  if (!read_candidates(flow, space_of(flow.state, flow.state.ip)) || candidates_.size() != 1) return false;
  const Candidate entry = candidates_[0];
  if (entry.insn.detail != InsnDetail::vmlaunch && entry.insn.detail != InsnDetail::vmresume) return false;
  append(flow, entry, block_flags_of(entry.flags));
  finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
  return true;
}

bool Walker::retire_ptwrite(Flow& flow) {
  FlowState& state = flow.state;
  if (!read_candidates(flow, space_of(state, state.ip))) return false;
  const auto it = std::find_if(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return c.insn.cls == InsnClass::ptwrite; });
  if (it == candidates_.end()) {
    lose(flow, GapReason::image_mismatch);
    return false;
  }
  const Candidate write = *it;
  append(flow, write, block_flags_of(write.flags));
  finish_block(flow, 0);
  state.ip = next_sequential(write.insn, state.ip, state.mode);
  return true;
}

void Walker::enable_at(Flow& flow, const Item& item, Ip ip) {
  FlowState& state = flow.state;
  state.enabled = true;
  state.doubtful = false;
  state.ip = state.given_ip = ip;
  resumes_ = ip == state.disabled_at && ip.value != 0;
  find_thread(flow, time_of(item), state.next + 1, From::start);
  uint8_t flags = kEventHasTo;
  if (std::exchange(resumes_, false)) flags |= kEventResumed;
  give_event(flow, item, EventKind::enabled, flags, {}, ip);
  set_mode(flow, item.mode, item, ip);
}

// `from`: the instruction that left (disabled) or was not executed (async_disabled). `resume`: where tracing would resume if it had not
// been interrupted, 0 if unknown.
void Walker::disable(Flow& flow, const Item& item, EventKind kind, Ip from, Ip resume) {
  FlowState& state = flow.state;
  const bool asynchronous = kind == EventKind::async_disabled;
  const Ip to{asynchronous ? item.value : item.ip};
  Item told = item;
  told.aux = resume.value;
  const uint8_t has_to = (item.flags & kItemNoIp) == 0 ? kEventHasTo : uint8_t{0};
  give_event(flow, told, kind, static_cast<uint8_t>(kEventHasFrom | has_to), from, to);
  state.disabled_at = resume;
  state.enabled = false;
  took(flow);
}

void Walker::set_mode(Flow& flow, ExecMode mode, const Item& item, Ip ip) {
  FlowState& state = flow.state;
  if (mode == ExecMode::unknown) return;
  set_interrupt_flag(flow, item, ip);
  // If the PSB+ had no mode, this is the first one in the segment: a status for readers of consecutive segments.
  Item told = item;
  told.value = static_cast<uint64_t>(mode);
  uint8_t flags = kEventHasTo;
  if (mode == state.mode && flow.mode_given) return;
  if (!flow.mode_given) flags |= kEventStatus;
  flow.mode_given = true;
  finish_block(flow, 0);
  state.mode = mode;
  state.mark_due = true;
  give_event(flow, told, EventKind::exec_mode, flags, {}, ip);
}

// Outputs an event if the MODE.Exec that is bound to `item` changes RFLAGS.IF. Without event trace it is always 0, so a first value of 0 is
// no change.
void Walker::set_interrupt_flag(Flow& flow, const Item& item, Ip ip) {
  FlowState& state = flow.state;
  if ((item.flags & kItemFlagKnown) == 0) return;
  const bool on = (item.flags & kItemFlagOn) != 0;
  if (std::exchange(state.interrupts, on) == on) return;
  Item told = item;
  told.value = on ? 1 : 0;
  finish_block(flow, 0);
  give_event(flow, told, EventKind::interrupt_flag, static_cast<uint8_t>(kEventHasTo | (flow.mode_given ? 0 : kEventStatus)), {}, ip);
}

// Marks the blocks up to the branch at the flow's ip, because a packet shows that the flow may not have come this way.
void Walker::doubt_path(Flow& flow) {
  finish_block(flow, BlockFlag::taken | BlockFlag::ends_in_branch);
  Batch& out = *flow.out;
  size_t first = out.blocks.size() - std::min<size_t>(out.blocks.size(), kDoubtfulBlocks);
  if (!out.gaps.empty()) first = std::max<size_t>(first, out.gaps.back().before_block);
  for (size_t i = first; i < out.blocks.size(); ++i) out.blocks[i].flags |= static_cast<uint16_t>(BlockFlag::suspect);
}

Event Walker::event_of(const Item& item, EventKind kind, uint8_t flags, Ip from, Ip to) const {
  const bool has_payload = kind != EventKind::async_branch && kind != EventKind::async_disabled && kind != EventKind::enabled &&
                           kind != EventKind::disabled && kind != EventKind::overflow;
  Event event;
  event.kind = kind;
  event.flags = flags;
  if ((flags & kEventHasFrom) != 0) event.from = from;
  if ((flags & kEventHasTo) != 0) event.to = to;
  event.payload = has_payload ? item.value : 0;
  event.aux = item.aux;
  event.stream_offset_bytes = segment_.stream_offset_bytes + item.offset_bytes;
  event.time = time_of(item);
  event.about = item.own.about;
  event.cycles = item.own.cycles;
  return event;
}

void Walker::give_event(Flow& flow, const Item& item, EventKind kind, uint8_t flags, Ip from, Ip to) {
  if (!options_.config.has_flow) update_context(flow, item.before, item.hi);
  Event event = event_of(item, kind, flags, from, to);
  event.before_block = static_cast<uint32_t>(flow.out->blocks.size()) + (flow.block_instructions != 0 ? 1 : 0);
  if (kind == EventKind::paging) set_non_root(flow, (flags & kEventNonRoot) != 0, item);
  if (flow.block_instructions == 0 && (!flow.mark_valid || !flow.mark.time.overlaps(event.time))) {
    put_mark(flow, event.time);
    flow.mark_valid = false;  // the next block gets its own mark
  }
  flow.out->events.push_back(event);
}

// Outputs an event whose ip comes from a FUP.
void Walker::give_bound_event(Flow& flow, const Item& item) {
  if (item.event == EventKind::exec_mode) return set_mode(flow, item.mode, item, Ip{item.ip});
  give_item_event(flow, item, Ip{item.ip});
}

void Walker::give_item_event(Flow& flow, const Item& item, Ip from) {
  uint8_t flags = from.value != 0 ? kEventHasFrom : uint8_t{0};
  if ((item.flags & kItemNonRoot) != 0) flags |= kEventNonRoot;
  give_event(flow, item, item.event, flags, from, {});
}

void Walker::give_gap(Flow& flow, const Gap& gap) {
  finish_block(flow, 0);
  Gap given = gap;
  given.before_block = static_cast<uint32_t>(flow.out->blocks.size());
  flow.out->gaps.push_back(given);
}

// Called when a block begins, or before an event outside of blocks.
void Walker::put_mark(Flow& flow, Interval time) {
  const FlowState& state = flow.state;
  flow.put_mark(time, items_.at(state.tnt_count != 0 ? state.tnt_item : state.next).left, flow.out->blocks.size());
}

void Flow::put_mark(Interval time, const Moment& left, size_t before_block) {
  const Context& context = state.context;
  if (mark_valid && mark.time == time && mark.tid == context.tid && mark.pid == context.pid && mark.space == context.space &&
      mark.mode == state.mode && marked().serves(left)) {
    return;
  }
  mark.time = time;
  mark.pid = context.pid;
  mark.tid = context.tid;
  mark.space = context.space;
  mark.mode = state.mode;
  mark.time_known = time.first > kTimeMin && time.last < kTimeMax;
  mark.about = left.about;
  mark.cycles = left.cycles;
  mark_valid = true;
  out->marks.push_back(mark);
  out->marks.back().before_block = static_cast<uint32_t>(before_block);
}

bool Walker::done_flow(const FlowState& state) {
  if (state.enabled || state.tnt_count != 0) {
    if (!state.enabled) return false;
    // If the segment's end gives no ip, the flow stops where the last packet left it.
    const Item& item = items_.at(state.next);
    const bool ends = item.kind == ItemKind::end || (item.kind == ItemKind::sync && (item.flags & kItemNoIp) != 0);
    return state.tnt_count == 0 && ends;
  }
  const ItemKind kind = items_.at(state.next).kind;
  return kind == ItemKind::end || kind == ItemKind::sync || (state.lost && kind == ItemKind::bad);
}

// Returns whether a lost flow can resume at `item`, or stops there because nothing more is known.
bool Walker::ends_loss(Flow& flow, const Item& item) {
  SectionId missing = kNoSection;
  switch (item.kind) {
    case ItemKind::async_branch:
    case ItemKind::async_disabled:
    case ItemKind::tip_pgd:
    case ItemKind::tip_pge:
    case ItemKind::overflow:
    case ItemKind::sync:
    case ItemKind::end:
    case ItemKind::bad:
      return true;
    default:
      return resumes_at(flow, item, missing);
  }
}

// Skips an item while the flow is lost, and outputs what does not depend on the flow.
void Walker::pass_lost(Flow& flow, const Item& item) {
  FlowState& state = flow.state;
  // Deferred TIPs come right after the TNT that was filled in the meantime; any other packet forces both out ([SDM] "Deferred TIPs").
  if (item.kind == ItemKind::tnt || item.kind == ItemKind::missing) state.bits_open = true;
  if (item.kind == ItemKind::at_ip) state.bits_open = false;
  if (item.kind == ItemKind::at_ip) {
    give_bound_event(flow, item);
  } else if (item.kind == ItemKind::now || item.kind == ItemKind::at_insn || item.kind == ItemKind::after_insns) {
    give_item_event(flow, item, Ip{item.kind == ItemKind::at_insn ? item.ip : 0});
  } else if (item.mode != ExecMode::unknown) {
    set_mode(flow, item.mode, item, Ip{item.ip});
  }
}

// Processes `item` while the flow is lost. Returns true if it was taken or skipped, and false if the walker resumes or ends there.
bool Walker::settle_lost(Flow& flow, const Item& item) {
  FlowState& state = flow.state;
  SectionId missing = kNoSection;
  switch (item.kind) {
    case ItemKind::sync:
    case ItemKind::end:
    case ItemKind::bad:
      return false;
    case ItemKind::tip_pge:
    case ItemKind::overflow:
      state.lost = false;
      return settle_one(flow, item);
    case ItemKind::tip_pgd: {  // its source is unknown, but nothing was executed since
      state.lost = false;
      state.disabled_at = {};
      const bool has_to = (item.flags & kItemNoIp) == 0;
      if (state.in_gap) give_event(flow, item, EventKind::disabled, has_to ? kEventHasTo : uint8_t{0}, {}, Ip{item.ip});
      return true;
    }
    case ItemKind::async_branch:
    case ItemKind::async_disabled:
      break;
    default:
      if (!resumes_at(flow, item, missing)) {
        pass_lost(flow, item);
        return true;
      }
      break;
  }
  if (missing != kNoSection) missing_.push_back(missing);
  const bool at_tip = item.kind == ItemKind::tip;
  state.lost = false;
  state.doubtful = at_tip && state.bits_open && options_.config.tip_order != TipOrder::prompt;
  state.ip = state.given_ip = Ip{item.ip};
  state.enabled = true;
  state.has_stop = !at_tip;
  state.stop_ip = item.ip;
  if (at_tip) {
    set_mode(flow, item.mode, item, state.ip);
    find_thread(flow, {item.lo, item.hi}, state.next + 1, From::loss);
  } else {
    find_thread(flow, time_of(item), state.next, From::loss);
  }
  return at_tip;
}

// Resumes after a loss: outputs the gap and continues at the next item that gives the flow's position, or at the segment's end.
void Walker::recover(Flow& flow, Gap gap) {
  FlowState& state = flow.state;
  finish_block(flow, 0);
  // Missing code leaves the bits before it certain. After a contradiction a TNT may have been taken before a TIP that was due.
  state.bits_open = state.tnt_count != 0 || gap.reason != GapReason::no_image;
  state.enabled = state.doubtful = false;
  state.in_gap = true;
  state.given_ip = {};
  state.returns.clear();
  state.calls_unseen = true;
  state.tnt_count = 0;
  state.has_stop = state.counts_down = false;
  state.end_silence();
  state.unanchored = 0;
  state.lost = true;
  const uint64_t from = gap.stream_offset_bytes - segment_.stream_offset_bytes;
  const bool contradicted = gap.reason == GapReason::image_mismatch || gap.reason == GapReason::bad_insn;
  if (contradicted && state.whole_ip_at <= from) state.whole_ip_at = find_whole_ip(from);  // else it is the next one still
  uint64_t to = from;
  for (;;) {
    const Item item = items_.at(state.next);
    to = std::max(to, item.offset_bytes);
    if (ends_loss(flow, item)) break;
    pass_lost(flow, item);
    ++state.next;
    items_.release(state.next);
  }
  if (items_.at(state.next).kind == ItemKind::bad) to = segment_.bytes.size() - segment_.tail_bytes;  // the rest cannot be read
  gap.lost_bytes = to - from;
  give_gap(flow, gap);
  settle(flow);
}

void Walker::forget_chosen_times(FlowState& state, TimeNs not_before) {
  state.not_before = not_before;
  state.floors = Floors{};
  refresh_now(state);
}

bool Walker::is_placed_since(const FlowState& state, uint64_t next, bool stacks) {
  if ((stacks && merges_stacks()) || !state.enabled || state.tnt_count != 0) return false;
  for (; next < state.next; ++next) {
    const Item& item = items_.at(next);
    const bool gives_ip = item.kind == ItemKind::tip || item.kind == ItemKind::tip_pge || item.kind == ItemKind::async_branch;
    if (gives_ip && (item.flags & kItemNoIp) == 0) return true;
  }
  return false;
}

// A branch that retired before the first branch of a TNT may have its TIP after that TNT, which is sent first when both were deferred
// ([SDM] "Deferred TIPs"): all bits of the TNT then belong to later branches.
void Walker::load_bits_before_deferred_tip(FlowState& state) {
  if (state.tnt_count != 0 || options_.config.tip_order != TipOrder::may_be_deferred) return;
  if (items_.at(state.next).kind == ItemKind::tnt && items_.at(state.next + 1).kind == ItemKind::tip) load_tnt(state);
}

}  // namespace ptd::pt
