// Walker: virtual machines. [SDM] "VMX-Specific Packets": PIP.NR tells whether a guest runs. A VM entry is PIP, TIP; a VM exit is FUP, PIP, TIP.
#include <utility>

#include "decoder/pt/flow/walker.h"
#include "ptdecode/guest.h"

namespace ptd::pt {

// Returns the thread of the guest that `host` runs. As for the host, the later one of the interval, unless it has no user code at the flow's ip.
Context Walker::guest_context(const FlowState& state, const Context& host, TimeNs first, TimeNs last) const {
  const Context late = context_in_guest(*contexts_, host, segment_.cpu, last);
  if (first == last || is_kernel_half(state.ip) || timeline_.section_at(late.space, state.ip, last) != kNoSection) return late;
  const Context early = context_in_guest(*contexts_, host, segment_.cpu, first);
  return timeline_.section_at(early.space, state.ip, last) != kNoSection ? early : late;
}

// Sets whether a guest runs from the next instruction on. Inside a branch, its target follows and change_machine() is called for it.
void Walker::set_non_root(Flow& flow, bool non_root, const Item& item) {
  FlowState& state = flow.state;
  if (std::exchange(state.non_root, non_root) == non_root || !options_.image_is_of_root || flow.block_instructions != 0) return;
  update_context(flow, item.before, item.hi);
}

// Returns whether the asynchronous branch that was just taken ends in another machine: its PIP is held back until after it.
bool Walker::changes_machine(const FlowState& state) {
  constexpr uint64_t kMostHeld = 64;  // as ItemReader holds back
  if (!options_.image_is_of_root) return false;
  for (uint64_t next = state.next; next < state.next + kMostHeld; ++next) {
    const Item& item = items_.at(next);
    if (item.kind != ItemKind::now) return false;
    if (item.event == EventKind::paging) return ((item.flags & kItemNonRoot) != 0) != state.non_root;
  }
  return false;
}

// A VM entry or exit. No branch leads from the code of one machine to that of another: the flow of one ends, and that of the other begins.
void Walker::change_machine(Flow& flow, const Item& item, EventKind leaves, Ip from, Ip to) {
  FlowState& state = flow.state;
  give_event(flow, item, leaves, kEventHasFrom, from, {});
  if (leaves == EventKind::async_disabled) state.non_root = !state.non_root;
  state.ip = to;
  update_context(flow, item.before, item.hi);
  give_event(flow, item, EventKind::enabled, kEventHasTo, {}, to);
}

}  // namespace ptd::pt
