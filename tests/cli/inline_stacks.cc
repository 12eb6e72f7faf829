// Prints the stacks of calls and inlined functions of a recording's only stream, one line for each stretch: instructions, then the frames
// from the outermost on: "*" for a call, the name for an inlined function.
#include <cinttypes>
#include <cstdio>
#include <string>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/flow_clock.h"
#include "analysis/thread_schedule.h"
#include "ptdecode/call_tree.h"
#include "recording/parallel.h"

int main(int argc, char** argv) {
  using namespace ptd;
  if (argc != 2) return 2;
  OpenOptions options;
  options.path = argv[1];
  const auto opened = Recording::open(options);
  if (!opened || (*opened)->streams().size() != 1) return 1;
  const Recording& recording = **opened;
  FunctionTable functions;
  InlineChains chains;
  const ThreadSchedule schedule(recording.contexts());
  const StreamInfo& info = recording.streams()[0];
  CallFlow flow(recording.symbolizer(), recording.timeline(), functions, info.cpu, info.tid, flow_clock(recording, 0, schedule), &chains);
  CallTree tree(&schedule);
  tree.follow_inlined(chains);
  auto decode = start_decode(recording, {0, 0, Recording::kStreamEnd, 1});
  if (!decode) return 1;
  std::vector<std::string> stack;
  std::vector<FlowStep> steps;
  std::vector<InlinedMove> moves;
  std::vector<CallStep> calls;
  const auto print = [&](uint32_t instructions) {
    if (instructions == 0) return;
    std::printf("%" PRIu32, instructions);
    for (const std::string& frame : stack) std::printf("\t%s", frame.c_str());
    std::printf("\n");
  };
  const auto follow = [&] {
    for (const CallStep& call : calls) {
      if (call.kind == CallStepKind::enter) stack.push_back(call.frame == FrameKind::inlined ? functions.info(call.function).name : "*");
      if (call.kind == CallStepKind::leave) stack.pop_back();
      if (call.kind == CallStepKind::enter && call.depth + 1 != stack.size()) return false;
    }
    calls.clear();
    return true;
  };
  const auto take_steps = [&] {
    flow.give(steps, moves);
    const InlinedMove* move = moves.data();
    for (const FlowStep& step : steps) {
      print(step.instructions);
      tree.take(step, calls);
      if (!follow()) return false;
      for (const InlinedMove* const end = move + step.moves; move != end; ++move) {
        print(move->instructions);
        InlinedRun run{step, {}};
        run.kind = FlowKind::moves;
        run.run = {move, 1};
        tree.take(run, calls);
        if (run.taken != 1 || !follow()) return false;
      }
    }
    return true;
  };
  uint64_t segment = ~uint64_t{0};
  for (DecodedBatch next; (*decode)->next(next);) {
    if (segment != next.segment->stream_offset_bytes) flow.begin_segment(*next.segment, false);
    segment = next.segment->stream_offset_bytes;
    flow.take(*next.batch, next.decoder->blocks());
    if (!take_steps()) return 3;
  }
  flow.finish();
  return take_steps() ? 0 : 3;
}
