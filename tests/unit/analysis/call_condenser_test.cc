// CallCondenser: the steps of a condensed flow equal those of the whole flow, for recordings in data/.
#include "analysis/call_condenser.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "analysis/call_flow.h"
#include "analysis/flow_clock.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

struct Told {
  std::vector<FlowStep> steps;
  FunctionTable functions;
  uint64_t blocks = 0;
};

void follow(const Recording& recording, uint32_t stream, bool condensed, unsigned threads, Told& told) {
  const StreamInfo& info = recording.streams()[stream];
  const ThreadSchedule schedule(recording.contexts());
  CallFlow flow(recording.symbolizer(), recording.timeline(), told.functions, info.cpu, info.tid, flow_clock(recording, stream, schedule));
  FunctionTable compared;
  MakeBatchFilter condense;
  if (condensed)
    condense = [&](const BlockTable& blocks) { return std::make_unique<CallCondenser>(recording, blocks, compared, info.tid); };
  uint64_t segment = ~uint64_t{0};
  const auto decode = decode_filtered(recording, {stream, 0, Recording::kStreamEnd, threads}, condense);
  ASSERT_TRUE(decode.ok());
  for (DecodedBatch next; (*decode)->next(next);) {
    const AuxSegment& of = *next.segment;
    if (std::exchange(segment, of.stream_offset_bytes) != of.stream_offset_bytes) flow.begin_segment(of.time);
    flow.take(*next.batch, next.decoder->blocks());
    told.blocks += next.batch->blocks.size();
  }
  flow.finish(info.time.last);
  flow.give(told.steps);
}

std::string text(const FlowStep& step, const FunctionTable& functions) {
  const auto name = [&](FunctionId id) { return id == kNoFunction ? "-" : functions.info(id).name + " of " + functions.info(id).module; };
  std::string line = std::to_string(static_cast<int>(step.kind)) + "/" + std::to_string(step.flags);
  line += "/" + name(step.function) + "/" + name(step.from);
  const auto thread = {step.pid, step.tid, step.cpu};
  for (const int32_t number : thread) line += " " + std::to_string(number);
  const auto numbers = {uint64_t{step.space.value}, uint64_t{step.instructions}, step.cycles,      step.to.value, step.return_to.value,
                        step.time.value,            step.floor.value,            uint64_t(step.gap)};
  for (const uint64_t number : numbers) line += " " + std::to_string(number);
  return line;
}

/// Compares functions of two tables by name; each pair of names is compared once.
class SameFunctions {
 public:
  SameFunctions(const FunctionTable& one, const FunctionTable& other) : one_(one), other_(other) {}
  bool operator()(FunctionId a, FunctionId b) {
    if (a == kNoFunction || b == kNoFunction) return a == b;
    if (a >= known_.size()) known_.resize(one_.size(), kNoFunction);
    if (known_[a] == kNoFunction && one_.info(a).name == other_.info(b).name && one_.info(a).module == other_.info(b).module) known_[a] = b;
    return known_[a] == b;
  }

 private:
  const FunctionTable &one_, &other_;
  std::vector<FunctionId> known_;
};

bool same(const FlowStep& a, const FlowStep& b, SameFunctions& functions) {
  const auto rest = [](const FlowStep& step) {
    return std::tuple(step.kind, step.flags, step.pid, step.tid, step.cpu, step.space.value, step.instructions, step.cycles, step.to.value,
                      step.return_to.value, step.time.value, step.floor.value, step.gap);
  };
  return rest(a) == rest(b) && functions(a.function, b.function) && functions(a.from, b.from);
}

class Condensed : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(Condensed, GivesTheSameSteps) {
  OpenOptions options;
  options.path = PTD_SOURCE_DIR "/data/" + std::get<0>(GetParam());
  options.use_time = std::get<1>(GetParam());
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  uint64_t whole_blocks = 0, condensed_blocks = 0;
  for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
    Told whole;
    follow(**opened, stream, false, 1, whole);
    whole_blocks += whole.blocks;
    for (const unsigned threads : {1U, 3U}) {
      if (threads == 1 && !options.use_time) continue;  // one way is enough where each fetch compares many versions
      Told condensed;
      follow(**opened, stream, true, threads, condensed);
      condensed_blocks += condensed.blocks;
      ASSERT_EQ(condensed.steps.size(), whole.steps.size()) << "stream " << stream;
      SameFunctions functions(condensed.functions, whole.functions);
      for (size_t i = 0; i < whole.steps.size(); ++i) {
        if (same(condensed.steps[i], whole.steps[i], functions)) continue;
        ASSERT_EQ(text(condensed.steps[i], condensed.functions), text(whole.steps[i], whole.functions)) << stream << " step " << i;
      }
    }
  }
  EXPECT_GT(whole_blocks, 0U);
  // Without times nothing can be assumed to be valid throughout a segment.
  EXPECT_TRUE(!options.use_time || condensed_blocks / 2 < whole_blocks) << condensed_blocks << " of twice " << whole_blocks;
}

INSTANTIATE_TEST_SUITE_P(Data, Condensed,
                         ::testing::Combine(::testing::Values("user/plain.bundle", "user/jit.bundle", "user/patch.bundle",
                                                              "user/pair.bundle", "arm/plain.bundle", "arm/threads.bundle",
                                                              "arm/changes.bundle", "demo"),
                                            ::testing::Bool()));

}  // namespace
}  // namespace ptd
