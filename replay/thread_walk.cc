// ThreadWalk: see thread_walk.h.
#include "replay/thread_walk.h"

#include <algorithm>

#include "image/placed_name.h"
#include "ptdecode/arm_insn.h"
#include "ptdecode/guest.h"
#include "ptdecode/insn.h"

namespace ptd::replay {

bool FunctionLookup::Function::is_same(const Function& other) const {
  if (!is_known || !other.is_known) return false;
  if (name.empty() || other.name.empty()) return start == other.start;
  if (name != other.name || module != other.module) return false;
  // The place of a part may be its own address.
  return place == other.place || ((is_part || other.is_part) && place.starts_with("0x"));
}

const FunctionLookup::Function& FunctionLookup::at(SpaceId space, Ip ip, TimeNs when) {
  constexpr size_t kMostKnown = 1U << 18;
  space = space_at(space, ip);
  if (known_.size() >= kMostKnown) known_.clear();
  const auto [known, is_new] = known_.try_emplace(ip.value);
  Known& entry = known->second;
  if (!is_new && entry.space == space && entry.valid.contains(when)) return entry.function;
  entry = {space, {when, when}, {}};
  if (const auto symbol = symbolizer_->find(space, ip, when, &entry.valid)) {
    const std::string_view name = whole_function(symbol->name);
    const bool is_part = name.size() != symbol->name.size();
    entry.function = {name, symbol->module, symbol->place, symbol->start, true, is_part, !is_part && symbol->offset_bytes == 0};
  } else if (const auto frame = symbolizer_->frame_at(space, ip, when)) {
    entry.valid = {when, when};
    entry.function = {{}, {}, {}, Ip{frame->start}, true, !frame->is_function, frame->start == ip.value};
  }
  if (!is_kernel_half(ip)) {
    Function& function = entry.function;
    function.is_setjmp = function.is_entry && is_setjmp_name(function.name.substr(0, function.name.find('@')));
    function.is_landing = symbolizer_->is_landing(space, ip, when);
    function.landing = symbolizer_->landing_of(space, ip, when).value_or(Ip{});
  }
  return entry.function;
}

void CallStack::open(const OpenCall& call) {
  if (calls_.size() < kMostCalls) calls_.push_back(call);
}

bool CallStack::close(Ip to) {
  const auto found = std::find_if(calls_.rbegin(), calls_.rend(), [to](const OpenCall& call) { return call.back == to; });
  if (found == calls_.rend()) return false;
  calls_.erase(std::prev(found.base()), calls_.end());
  return true;
}

void CallStack::drop_ended() {
  saved_.drop_ended([this](size_t depth, uint64_t at) { return depth <= calls_.size() && number(depth) == at; });
}

void CallStack::save_place() {
  if (calls_.empty()) return;
  drop_ended();
  saved_.save(calls_.size() - 1, number(calls_.size() - 1), calls_.back().back);
}

bool CallStack::jump_back(Ip place) {
  drop_ended();
  SavedPlaces::Found found;
  if (!saved_.take(
          place, calls_.size(), [](size_t) { return true; }, found))
    return false;
  calls_.resize(found.depth);
  return true;
}

// What the last instruction of a block does if it is a branch.
ThreadWalk::Effect ThreadWalk::effect_of(const BlockInfo& info) {
  const auto [known, is_new] = effects_.try_emplace(&info, Effect::none);
  if (!is_new) return known->second;
  const Bytes last = Bytes{info.first_byte, info.size_bytes}.subspan(std::min(cursor_.insn_offsets(info).back(), info.size_bytes));
  if (is_arm(info.mode)) {
    const ArmInsn insn = classify_arm(last, info.mode);
    const bool traps = insn.detail == ArmDetail::svc || insn.detail == ArmDetail::hvc || insn.detail == ArmDetail::smc;
    // A32 and T32 return with any indirect branch, A64 with RET.
    const bool is_jump = info.mode == ExecMode::a64 && insn.detail == ArmDetail::none;
    if (insn.link || traps)
      known->second = Effect::call;
    else if (insn.cls == ArmClass::indirect)
      known->second = is_jump ? Effect::jumps : Effect::returns;
  } else {
    const InsnClass cls = classify(last, info.mode).cls;
    if (cls == InsnClass::call_direct || cls == InsnClass::call_indirect || cls == InsnClass::far_call)
      known->second = Effect::call;
    else if (cls == InsnClass::ret || cls == InsnClass::far_ret)
      known->second = Effect::returns;
    else if (cls == InsnClass::jump_indirect)
      known->second = Effect::jumps;
  }
  return known->second;
}

// Applies the branch before the instruction at `to`.
void ThreadWalk::reach(const Target& to) {
  if (!branch_) return;
  const Branch branch = *std::exchange(branch_, std::nullopt);
  if (branch.effect == Effect::none || (branch.effect != Effect::call && land(to))) return;
  if (branch.effect == Effect::call && to.ip != branch.end) {
    stack_.open({branch.from, branch.end, to.ip, passed_, to.time, false});
  } else if (branch.effect == Effect::jumps) {
    unwind(branch.from, to);
  } else if (branch.effect == Effect::returns && !stack_.close(to.ip)) {
    // A retpoline overwrites the return address of its own call: the call is a jump.
    constexpr uint64_t kRetpoline = 4;  // instructions
    const bool is_jump = stack_.depth() != 0 && !stack_.calls().back().is_interrupt && passed_ - stack_.calls().back().at <= kRetpoline;
    below_ = below_ || stack_.depth() == 0;
    if (is_jump)
      stack_.drop();
    else
      unwind(branch.from, to);
  }
  if (branch.effect != Effect::returns && !is_kernel_half(to.ip) && functions_->at(to.space, to.ip, to.time).is_setjmp) stack_.save_place();
}

// Ends the calls that an exception leaves, if it goes on here.
bool ThreadWalk::land(const Target& to) {
  if (stack_.depth() == 0 || is_kernel_half(to.ip) || !functions_->at(to.space, to.ip, to.time).is_landing) return false;
  return stack_.unwind([&](Ip call) { return functions_->at(to.space, call, to.time).landing == to.ip; });
}

// Ends the calls that a jump into the middle of another function leaves.
void ThreadWalk::unwind(Ip from, const Target& to) {
  if (stack_.depth() == 0) return;
  const FunctionLookup::Function there = functions_->at(to.space, to.ip, to.time);
  if (!there.is_known || there.is_entry || there.is_same(functions_->at(to.space, from, to.time))) return;
  if (stack_.jump_back(to.ip)) return;
  (void)stack_.unwind([&](Ip call) { return there.is_same(functions_->at(to.space, call, to.time)); });
}

void ThreadWalk::pass_event() {
  const Event& event = cursor_.event();
  if ((event.flags & kEventStatus) != 0) return;
  const TimeNs time = cursor_.item().time;
  const SpaceId space = cursor_.item().space;
  switch (event.kind) {
    case EventKind::async_branch:
      reach({event.from, time, space});
      stack_.open({event.from, event.from, event.to, passed_, time, true});
      break;
    case EventKind::disabled:  // a system call, or a call of code that is not traced
      away_ = event.aux != 0 ? std::optional(Ip{event.aux}) : branch_ ? std::optional(branch_->end) : std::nullopt;
      branch_.reset();
      break;
    case EventKind::async_disabled:
      reach({event.from, time, space});
      away_ = event.from;
      break;
    case EventKind::enabled: {
      branch_.reset();
      const std::optional<Ip> expected = std::exchange(away_, std::nullopt);
      if (expected == event.to || (event.flags & kEventResumed) != 0 || stack_.close(event.to)) break;
      if (expected) stack_.open({*expected, *expected, event.to, passed_, time, true});  // a signal
      break;
    }
    default:
      break;
  }
}

ThreadWalk::Item ThreadWalk::enter(uint64_t& budget) {
  if (entered_) return Item::piece;
  for (; budget != 0; --budget) {
    if (!cursor_.enter_next()) return Item::end;
    if (cursor_.item().is_window) {
      if (edge_.pass(cursor_.stream())) return Item::window;
      cursor_.leave_forward();
      continue;
    }
    const bool own = cursor_.thread() == thread_;
    if (own && edge_.reach(cursor_.stream())) return Item::window;
    if (own && cursor_.item().kind == FlowItem::blocks) {
      const ReplayPlace next = place();
      reach({next.ip, next.time, next.space});
      entered_ = true;
      return Item::piece;
    }
    if (own && cursor_.item().kind == FlowItem::gap) return Item::gap;
    if (cursor_.item().kind == FlowItem::blocks) {
      const uint32_t count = cursor_.item().count;
      budget -= std::min<uint64_t>(budget - 1, count == 0 ? 0 : count - 1);
      cursor_.set_forward(count, 0);
      continue;
    }
    if (own) pass_event();
    cursor_.leave_forward();
  }
  return Item::budget;
}

Ip ThreadWalk::ip(uint32_t index) {
  const BlockInfo& info = cursor_.info(cursor_.block_index());
  return info.ip + cursor_.insn_offsets(info)[cursor_.insn_index() + index];
}

void ThreadWalk::pass(uint32_t count) {
  const uint32_t block = cursor_.block_index(), insn = cursor_.insn_index() + count;
  const BlockInfo& info = cursor_.info(block);
  passed_ += count;
  entered_ = false;
  if (insn == info.instructions && has(cursor_.block(block).flags, BlockFlag::ends_in_branch)) {
    const std::span<const uint32_t> offsets = cursor_.insn_offsets(info);
    branch_ = Branch{effect_of(info), info.ip + offsets.back(), info.ip + info.size_bytes};
  }
  cursor_.set_forward(block, insn);
}

void ThreadWalk::leave_gap() {
  stack_.clear();
  branch_.reset();
  away_.reset();
  if (cursor_.item().kind == FlowItem::gap) cursor_.leave_forward();
}

}  // namespace ptd::replay
