// How CallTree ends calls of which nothing more is known, and takes them up again.
#include <utility>

#include "analysis/frame_search.h"
#include "analysis/tree/call_tree_state.h"

namespace ptd {

const char* sentence(CallLoss loss) {
  switch (loss) {
    case CallLoss::none:
      return "nothing was lost";
    case CallLoss::gap:
      return "the flow was lost";
    case CallLoss::strange_return:
      return "a return did not match any open call";
    case CallLoss::strange_resume:
      return "tracing resumed at another place than where it stopped";
    case CallLoss::new_program:
      return "the process executed another program";
    case CallLoss::claimed:
      return "another thread announced the fibre, and the times do not tell whether it had stopped before";
    case CallLoss::window:
      return "another window of trace begins, and what ran in between is unknown";
  }
  return "";
}

void CallTree::State::give_up(Now& now, CallLoss why) {
  Stack& stack = now.stack;
  const uint32_t depth = stack.depth();
  stack.given_up.clear();
  stack.folded.clear();
  if (why == CallLoss::gap || why == CallLoss::strange_return) stack.given_up = stack.frames;
  while (!stack.frames.empty()) leave(now, kCallCut);
  if (why == CallLoss::gap) ++now.thread.gaps;
  stack.gapped = stack.gapped || why == CallLoss::gap;
  stack.begun = stack.begun || why == CallLoss::new_program;
  if (why == CallLoss::strange_return || why == CallLoss::strange_resume) ++now.thread.forgotten;
  CallStep step;
  step.kind = CallStepKind::lost;
  step.loss = why;
  step.gap = now.step.gap;
  step.thread = now.index;
  step.cpu = now.step.cpu;
  step.depth = depth;
  step.time = now.step.time;
  step.floor = now.step.floor;
  now.out.push_back(step);
}

// The calls that are open ended at a moment that was not seen, after the thread was last seen.
void CallTree::State::forget_calls(Now& now) {
  Stack& stack = now.stack;
  if (!stack.frames.empty()) {
    FlowStep last = now.step;
    last.time = stack.off_since;
    last.floor = stack.off_floor;
    Now then{last, now.index, stack, now.thread, now.out};
    give_up(then, CallLoss::window);
  }
  stack.given_up.clear();
  stack.resume = {};
  stack.resume_landing = 0;
  stack.kernel = stack.placed = false;
  if (stack.off != Off::lost) stack.off = Off::paused;
}

// Another window of trace begins. A cpu may have run any thread since the last one, unless the thread runs on another cpu now.
void CallTree::State::take_window(Now& now) {
  stop(now, Off::paused);
  if (now.step.cpu >= 0) ++windows;
  now.stack.windows = windows;
  forget_calls(now);
  if (fibres != nullptr) (void)lose_fibre(now, Off::paused);
}

// The return goes where a given-up call was awaited: its callers are open again, as they were entered.
bool CallTree::State::take_up(Now& now) {
  std::vector<Frame>& old = now.stack.given_up;
  const auto awaits = [&](const Frame& frame) { return frame.return_to == now.step.to && frame.return_to.value != 0; };
  const size_t found = now.stack.search.innermost(old, awaits);
  if (found == 0) return false;
  while (!now.stack.frames.empty()) leave(now, 0);
  const std::vector<Frame> frames = std::move(old);
  old.clear();
  for (size_t i = 0; i + 1 < found; ++i) {
    const auto untraced = static_cast<uint8_t>(frames[i].flags & kCallUntraced);
    Frame& again = enter(now, frames[i].kind, frames[i].function, frames[i].return_to, kCallNoStart | untraced, FrameKind::root);
    again.kernel = frames[i].kernel;
    again.role = frames[i].role;
    again.landing = frames[i].landing;
    if (frames[i].inlined != kNotInlined) enter_inlined(now, frames[i].inlined, 0, kCallNoStart);
  }
  if (now.stack.frames.empty()) root(now);
  return true;
}

}  // namespace ptd
