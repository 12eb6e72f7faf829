// CallFlow: which blocks it passes over does not change the steps, for recordings in data/.
#include "analysis/call_flow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "analysis/flow_clock.h"
#include "recording/parallel.h"

namespace ptd {
namespace {

/// The batch in parts of one block each, so that no block has another one after it that could be passed over.
std::vector<Batch> split(const Batch& whole) {
  std::vector<Batch> parts(whole.blocks.size() + 1);
  const auto add = [&](const auto& items, auto Batch::*list) {
    for (auto item : items) {
      Batch& part = parts[std::min<size_t>(item.before_block, parts.size() - 1)];
      item.before_block = 0;
      (part.*list).push_back(item);
    }
  };
  for (size_t i = 0; i < whole.blocks.size(); ++i) parts[i].blocks.push_back(whole.blocks[i]);
  add(whole.marks, &Batch::marks);
  add(whole.events, &Batch::events);
  add(whole.gaps, &Batch::gaps);
  return parts;
}

struct Followed {
  std::vector<FlowStep> steps;
  FunctionTable functions;
  uint64_t blocks = 0;
};

void follow(const Recording& recording, uint32_t stream, bool by_block, unsigned threads, Followed& followed) {
  const StreamInfo& info = recording.streams()[stream];
  const ThreadSchedule schedule(recording.contexts());
  CallFlow flow(recording.symbolizer(), recording.timeline(), followed.functions, info.cpu, info.tid,
                flow_clock(recording, stream, schedule));
  uint64_t segment = ~uint64_t{0};
  const auto decode = start_decode(recording, {stream, 0, Recording::kStreamEnd, threads});
  ASSERT_TRUE(decode.ok());
  for (DecodedBatch next; (*decode)->next(next);) {
    const AuxSegment& of = *next.segment;
    if (std::exchange(segment, of.stream_offset_bytes) != of.stream_offset_bytes) flow.begin_segment(of, false);
    if (by_block) {
      for (const Batch& part : split(*next.batch)) flow.take(part, next.decoder->blocks());
    } else {
      flow.take(*next.batch, next.decoder->blocks());
    }
    followed.blocks += next.batch->blocks.size();
  }
  flow.finish(info.time.last);
  flow.give(followed.steps);
}

std::string text(const FlowStep& step, const FunctionTable& functions) {
  const auto name = [&](FunctionId id) { return id == kNoFunction ? "-" : functions.info(id).name + " of " + functions.info(id).module; };
  std::string line = std::to_string(static_cast<int>(step.kind)) + "/" + std::to_string(step.flags);
  line += "/" + name(step.function) + "/" + name(step.from);
  const auto thread = {step.pid, step.tid, step.cpu};
  for (const int32_t number : thread) line += " " + std::to_string(number);
  const auto numbers = {
      uint64_t{step.space.value}, uint64_t{step.instructions}, step.cycles, step.to.value, step.return_to.value, step.time.value,
      step.floor.value,           uint64_t(step.gap)};
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

class Passed : public ::testing::TestWithParam<std::tuple<std::string, bool>> {};

TEST_P(Passed, GivesTheSameSteps) {
  OpenOptions options;
  options.path = PTD_SOURCE_DIR "/data/" + std::get<0>(GetParam());
  options.use_time = std::get<1>(GetParam());
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  uint64_t blocks = 0;
  for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
    Followed by_block;
    follow(**opened, stream, true, 1, by_block);
    blocks += by_block.blocks;
    for (const unsigned threads : {1U, 3U}) {
      Followed whole;
      follow(**opened, stream, false, threads, whole);
      ASSERT_EQ(whole.blocks, by_block.blocks);
      ASSERT_EQ(whole.steps.size(), by_block.steps.size()) << "stream " << stream;
      SameFunctions functions(whole.functions, by_block.functions);
      for (size_t i = 0; i < by_block.steps.size(); ++i) {
        if (same(whole.steps[i], by_block.steps[i], functions)) continue;
        ASSERT_EQ(text(whole.steps[i], whole.functions), text(by_block.steps[i], by_block.functions)) << stream << " step " << i;
      }
    }
  }
  EXPECT_GT(blocks, 0U);
}

INSTANTIATE_TEST_SUITE_P(Data, Passed,
                         ::testing::Combine(::testing::Values("user/plain.bundle", "user/jit.bundle", "user/patch.bundle",
                                                              "user/pair.bundle", "arm/plain.bundle", "arm/threads.bundle",
                                                              "arm/changes.bundle", "demo"),
                                            ::testing::Bool()));

}  // namespace
}  // namespace ptd
