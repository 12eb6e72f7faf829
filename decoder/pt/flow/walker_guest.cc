// Walker: virtual machines. [SDM] "VMX-Specific Packets": PIP.NR tells whether a guest runs. A VM entry is PIP, TIP; a VM exit is FUP, PIP,
// TIP.
#include <algorithm>
#include <iterator>
#include <utility>

#include "decoder/pt/flow/walker.h"
#include "image/guest_tracks.h"
#include "ptdecode/guest.h"

namespace ptd::pt {
namespace {

constexpr uint32_t kMostGuestThreads = 64;  // switches of the host, or of one guest cpu, whose threads are compared

}  // namespace

// Adds the threads of the guest that `host` runs, the latest first, if they have code at `ip`. Of its kernel, all have the same code.
void Walker::add_guest_threads(Ip ip, const Context& host, Interval time, GuestThreads& all) const {
  static const std::vector<ContextTrack::Switch> kNone;
  const bool kernel = is_kernel_half(ip);
  const auto add = [&](const Context& thread, TimeNs when) {
    const bool has_code = timeline_.section_at(space_at(thread.space, ip), ip, when) != kNoSection;
    if (all.found && has_code) {
      all.differ = all.differ || (kernel ? machine_of(thread.space) != machine_of(all.likely.space) : thread != all.likely);
    } else if (has_code || all.likely.space == kNoSpace) {
      all.likely = thread;
      all.found = has_code;
    }
    all.unknown = all.unknown || (thread.space == kNoSpace && !kernel);
    all.differ = all.differ || (all.found && all.unknown);
  };
  const Guest guest = guest_run_by(*contexts_, host);
  const std::vector<ContextTrack::Switch>& switches = kernel || guest.vcpu < 0 ? kNone : guest_switches(*contexts_, guest);
  auto end = std::upper_bound(switches.begin(), switches.end(), time.last,
                              [](TimeNs t, const ContextTrack::Switch& each) { return t < each.time; });
  TimeNs last = time.last;
  for (uint32_t left = kMostGuestThreads;; --left) {
    const TimeNs comes = end == switches.begin() ? kTimeMin : std::prev(end)->time;
    const Context thread = context_in_guest(*contexts_, host, segment_.cpu, last);
    each_program(thread, {std::max(comes, time.first), last}, add);
    all.differ = all.differ || left == 0;
    if (all.differ || comes <= time.first) return;
    last = TimeNs{comes.value - 1};
    --end;
  }
}

// Returns the threads of guests that may run the code at `ip` within `time`. `counted`: the flow has passed no switch of the host unseen.
Walker::GuestThreads Walker::guest_threads(const FlowState& state, Ip ip, Interval time, bool counted) const {
  GuestThreads all;
  if (segment_.cpu < 0) {
    add_guest_threads(ip, contexts_->at_thread(segment_.tid, time.last), time, all);
    return all;
  }
  const bool counts = options_.switch_entry.value != 0 && options_.config.has_flow;
  Context host = contexts_->at_cpu(segment_.cpu, time.last);
  all.passed.least = counts ? state.switches : follower_.passed_at(time.first);
  if (counts) {
    host = follower_.at(all.passed.least, time.first, time.last);
  } else if (const Context early = contexts_->at_cpu(segment_.cpu, time.first); host.space == kNoSpace && early.space != kNoSpace) {
    host = early;
  }
  all.passed.most = all.passed.least;
  add_guest_threads(ip, host, time, all);
  if (counts && counted && state.most_switches == state.switches) return all;
  // No guest runs between the two records of a switch, as no user code does.
  const Switches possible = switches_at(state.switches, Ip{}, time, false);
  for (uint32_t n = possible.most, left = kMostGuestThreads; n + 1 != possible.least && !all.differ; --n, --left) {
    const Context other = follower_.after_switch(n, time.last);
    if (left == 0) all.differ = true;
    if (other.tid != host.tid || other.pid != host.pid) add_guest_threads(ip, other, time, all);
    if (n == 0) break;
  }
  if (counts && all.differ) all.passed.most = std::max(all.passed.least, possible.most);
  return all;
}

// Updates the current thread of a flow in a guest, whose next item is `next`. If several are possible, the flow is suspect until it is
// updated again.
void Walker::find_guest_thread(Flow& flow, Interval time, uint64_t next, bool counted) {
  FlowState& state = flow.state;
  GuestThreads all = guest_threads(state, state.ip, time, counted);
  if (all.differ && !is_kernel_half(state.ip) && options_.config.has_flow && !looks_ahead_) {
    const TimeNs until = user_until(next, [&](TimeNs now) { return now >= time.last; });
    if (until > time.first) all = guest_threads(state, state.ip, {std::min(until, time.last), time.last}, counted);
  }
  state.switches = all.passed.least;
  state.most_switches = all.passed.most;
  state.thread_open = all.differ;
  state.program_open = false;
  set_context(flow, all.likely);
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
  state.ip = state.given_ip = to;
  update_context(flow, item.before, item.hi);
  give_event(flow, item, EventKind::enabled, kEventHasTo, {}, to);
}

}  // namespace ptd::pt
