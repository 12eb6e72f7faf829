// CallFlow, CallTree: fibres that a program announces. See fibre_stacks.h.
#include <algorithm>
#include <utility>

#include "analysis/tree/call_tree_state.h"
#include "analysis/tree/fibre_stacks.h"
#include "ptdecode/likeliest_time.h"

namespace ptd {
namespace {

// What a stack sees of a step that another one has taken.
FlowStep moment_of(const FlowStep& step) {
  FlowStep moment = step;
  moment.instructions = 0;
  moment.cycles = 0;
  moment.inlined = kUnknownInlining;
  return moment;
}

}  // namespace

// The program may announce which fibre runs. A packet that no instruction of the flow has written proves nothing about the flow.
void CallFlow::take_ptwrite(const Event& event) {
  const bool has_from = (event.flags & kEventHasFrom) != 0;
  if (!follows_fibres_ || !is_fibre(event.payload) || event.aux != sizeof(event.payload) || !flowing_ || !has_from ||
      is_kernel_half(event.from))
    return;
  if (pending_) resolve(find(event.from), event.from);
  if (is_dated(event)) take_packet_time(likeliest(event), event.cycles);
  FlowStep step;
  step.kind = FlowKind::fibre;
  step.to = Ip{fibre_of(event.payload)};
  step.return_to = Ip{is_dated(event) ? event.time.last.value : kTimeMax.value};
  push(step);
}

// Finds the stack that takes the steps of a thread.
void CallTree::State::find_thread(const FlowStep& step) {
  const auto [place, is_new] = index_of.emplace(key_of(step.tid, step.cpu), static_cast<uint32_t>(threads.size()));
  if (is_new) add_stack(step, 0);
  last_tid = step.tid;
  last_cpu = step.cpu;
  last_thread = place->second;
  if (fibres == nullptr) [[likely]]
    return;
  last_thread = fibres->running(last_thread);
  have_room();
}

// Adds a stack; references to stacks and threads stay valid if have_room() was called before.
uint32_t CallTree::State::add_stack(const FlowStep& step, uint64_t fibre) {
  threads.push_back({step.pid, step.tid, key_of(step.tid, step.cpu).second, step.time, step.time});
  threads.back().fibre = fibre;
  stacks.emplace_back().windows = windows;
  return static_cast<uint32_t>(stacks.size() - 1);
}

// The stacks of unknown fibres are made while a step is taken: each thread may need one.
void CallTree::State::have_room() {
  const size_t needed = stacks.size() + fibres->threads.size() + 1;
  if (stacks.capacity() < needed) stacks.reserve(2 * needed);
  if (threads.capacity() < needed) threads.reserve(2 * needed);
}

uint32_t CallTree::State::own_stack(const FlowStep& step) const {
  const auto found = index_of.find(key_of(step.tid, step.cpu));
  return found == index_of.end() ? FibreStacks::kNone : found->second;
}

// The stack stops, and something else runs on its thread.
void CallTree::State::suspend(Now& now, uint32_t own) {
  if (now.stack.off != Off::running) go_on(now);
  FibreStacks::Thread& thread = fibres->threads[own];
  if (now.index == thread.unknown) abandon(now);
  stop(now, Off::switched);
  FibreStacks::Process& process = fibres->processes[now.thread.pid];
  if (std::exchange(thread.lost, false)) {  // fibres that stopped meanwhile may have gone on here
    process.lost -= std::min<size_t>(process.lost, 1);
    ++process.loss.count;
  }
  FibreStacks::Stack& stack = fibres->stack(now.index);
  stack.thread = FibreStacks::kNone;
  stack.last_thread = own;
  stack.stopped = now.step.kind == FlowKind::fibre ? TimeNs{now.step.return_to.value} : kTimeMax;
  stack.losses = now.index == own ? thread.loss.count : process.loss.count;
  if (fibres->count > FibreStacks::kMostWithCounts) now.stack.drop_counts();
}

// Any fibre may run on the thread from now on.
void CallTree::State::set_lost(uint32_t own, GapReason reason) {
  FibreStacks::Thread& thread = fibres->threads[own];
  FibreStacks::Process& process = fibres->processes[threads[own].pid];
  process.lost += std::exchange(thread.lost, true) ? 0 : 1;
  for (FibreStacks::Loss* loss : {&thread.loss, &process.loss}) {
    ++loss->count;
    loss->reason = reason;
  }
}

// What the thread has run so far are calls of its own stack, unless announcements are missing.
void CallTree::State::first_announcement(Now& now, uint32_t own) {
  fibres->threads[own].runs = own;
  const auto [place, is_new] = fibres->processes.try_emplace(now.step.pid);
  FibreStacks::Process& process = place->second;
  const auto begins = [](const Stack& stack) {
    return stack.begun || (!stack.frames.empty() && (stack.frames.front().flags & kCallNoStart) == 0);
  };
  if (is_new) {
    const auto main = index_of.find({now.step.pid, -1});  // the process's first thread
    process.begun = begins(now.stack) || (main != index_of.end() && begins(stacks[main->second]));
  }
  if (now.stack.gapped) ++process.loss.count;
  if (now.stack.gapped || !process.begun) abandon(now);
}

// Ends the calls of a fibre that is not known: another one may have them.
void CallTree::State::abandon(Now& now) {
  now.stack.folded.clear();
  while (!now.stack.frames.empty()) leave(now, kCallCut);
  now.stack.given_up.clear();
}

// The stack runs on the thread from now on.
void CallTree::State::resume(const FlowStep& step, uint32_t own, uint32_t index, std::vector<CallStep>& out) {
  FibreStacks::Thread& thread = fibres->threads[own];
  thread.runs = index;
  last_tid = INT32_MIN;
  stacks[index].restore_counts();
  FibreStacks::Stack& fibre = fibres->stack(index);
  fibre.thread = own;
  FlowStep moment = moment_of(step);
  Now now{moment, index, stacks[index], threads[index], out};
  spend(now);
  const FibreStacks::Process& process = fibres->processes[now.thread.pid];
  const FibreStacks::Loss& loss = index == own ? thread.loss : process.loss;
  const bool stale = fibre.losses != loss.count || (index != own && process.lost != 0);
  const bool lost = index != thread.unknown && stale && now.stack.met;
  if (lost && now.stack.off == Off::switched) now.stack.off = Off::lost;
  const bool is_ordered = index == own || index == thread.unknown || fibre.last_thread == own || fibre.stopped <= step.floor;
  go_on(now);
  if (now.stack.frames.empty() || (!lost && is_ordered)) return;
  moment.gap = loss.reason;
  give_up(now, lost ? CallLoss::gap : CallLoss::claimed);
}

// Returns the stack of what runs on a thread when that is not known.
uint32_t CallTree::State::unknown_stack(const FlowStep& step, uint32_t own) {
  FibreStacks::Thread& thread = fibres->threads[own];
  if (thread.unknown == FibreStacks::kNone) {
    FlowStep first = step;
    first.pid = threads[own].pid;
    first.tid = threads[own].tid;
    thread.unknown = add_stack(first, kUnknownFibre);
  }
  return thread.unknown;
}

// Another thread has announced a fibre that runs on this one, which will announce another one: the times do not order the two. How much of
// the fibre's calls is right is not known.
void CallTree::State::claim(const FlowStep& step, uint32_t index, std::vector<CallStep>& out) {
  const uint32_t own = fibres->stack(index).thread;
  if (own == FibreStacks::kNone || fibres->running(own) != index) return;
  const uint32_t unknown = unknown_stack(step, own);
  const FlowStep moment = moment_of(step);
  Now now{moment, index, stacks[index], threads[index], out};
  spend(now);
  const Off off = now.stack.off;
  if (off != Off::running) go_on(now);
  give_up(now, CallLoss::claimed);
  suspend(now, own);
  resume(moment, own, unknown, out);
  Now other{moment, unknown, stacks[unknown], threads[unknown], out};
  if (off != Off::running) stop(other, off == Off::lost ? Off::lost : Off::switched);
}

// The thread announces what it runs from here on. Adds stacks: `now` is not valid any more.
void CallTree::State::take_fibre(const Now& now) {
  const FlowStep& step = now.step;
  std::vector<CallStep>& out = now.out;
  const uint32_t own = own_stack(step);
  if (step.cpu >= 0 && (step.tid <= 0 || step.pid < 0)) return;  // all threads of a raw capture are of one process
  if (fibres == nullptr) fibres = std::make_unique<FibreStacks>();
  if (fibres->threads.find(own) == fibres->threads.end()) {
    Now before{step, own, stacks[own], threads[own], out};
    first_announcement(before, own);
  }
  have_room();
  const uint64_t number = step.to.value;
  uint32_t to = own;
  if (number != 0) {
    auto& known = fibres->processes[step.pid].stacks;
    if (const auto found = known.find(number); found != known.end()) {
      to = found->second;
    } else if (fibres->count < FibreStacks::kMostFibres) {
      to = add_stack(step, number);
      known.emplace(number, to);
      ++fibres->count;
      have_room();
    } else {
      to = unknown_stack(step, own);
    }
  }
  const uint32_t from = fibres->running(own);
  const FlowStep moment = moment_of(step);
  Now before{moment, from, stacks[from], threads[from], out};
  if (before.stack.off != Off::running) go_on(before);
  if (to == from && to != fibres->threads[own].unknown) return;
  if (to != own) claim(step, to, out);
  suspend(before, own);
  resume(step, own, to, out);
}

// `now` has given up its calls: its flow stops (`off`), and where it goes on is unknown, or it has gone on at an unexpected place. Returns
// whether another stack, of an unknown fibre, runs now.
bool CallTree::State::lose_fibre(Now& now, std::optional<Off> off) {
  const uint32_t own = own_stack(now.step);
  const auto thread = fibres->threads.find(own);
  if (thread == fibres->threads.end()) return false;
  const bool moves = now.index != thread->second.unknown;
  if (moves) suspend(now, own);
  set_lost(own, now.step.gap);
  if (!moves) return false;
  const uint32_t unknown = unknown_stack(now.step, own);
  resume(now.step, own, unknown, now.out);
  const FlowStep step = moment_of(now.step);
  Now other{step, unknown, stacks[unknown], threads[unknown], now.out};
  off ? stop(other, *off) : root(other);
  return true;
}

// The process executes another program: it has no fibres any more. Returns whether another stack runs now, the thread's own, which has
// taken the step.
bool CallTree::State::end_fibres(Now& now) {
  const uint32_t own = own_stack(now.step);
  const bool moves = now.index != own;
  if (moves) {
    suspend(now, own);
    resume(now.step, own, own, now.out);
  }
  fibres->processes.erase(now.step.pid);
  fibres->threads.erase(own);
  last_tid = INT32_MIN;
  if (!moves) return false;
  const FlowStep step = moment_of(now.step);
  Now mine{step, own, stacks[own], threads[own], now.out};
  take_other(mine);
  return true;
}

}  // namespace ptd
