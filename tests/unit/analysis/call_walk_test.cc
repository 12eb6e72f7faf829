// CallCursor: the same steps on any number of threads, and what options leave out or call.
#include "ptdecode/call_walk.h"

#include <gtest/gtest.h>
#ifdef __GLIBC__
#include <malloc.h>
#if __GLIBC_PREREQ(2, 33)
#define PTD_HAS_MALLINFO2
#endif
#endif

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "analysis/walk/recorded_steps.h"
#include "ptdecode/likeliest_time.h"
#include "ptdecode/stream_cursor.h"

namespace ptd {
namespace {

constexpr const char* kRecordings[] = {"demo", "user/pair.bundle", "user/jit.bundle", "arm/threads.bundle"};

std::unique_ptr<Recording> open(const char* path) {
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR "/data/") + path;
  auto opened = Recording::open(options);
  return opened ? std::move(*opened) : nullptr;
}

std::string text(const CallStep& step, const FunctionTable& functions, const CallTree& tree) {
  const CallThread& thread = tree.threads()[step.thread];
  std::string line =
      step.function == kNoFunction ? "-" : functions.info(step.function).name + " of " + functions.info(step.function).module;
  const auto kinds = {static_cast<int>(step.kind),
                      static_cast<int>(step.frame),
                      static_cast<int>(step.loss),
                      static_cast<int>(step.gap),
                      int{step.flags},
                      thread.pid,
                      thread.tid,
                      step.cpu};
  for (const int kind : kinds) line += " " + std::to_string(kind);
  const auto numbers = {uint64_t{step.depth},   step.time.value,  step.floor.value, step.start.value, step.start_floor.value,
                        step.off_cpu_ns,        step.untraced_ns, step.lost_ns,     step.self_ns,     step.instructions,
                        step.self_instructions, step.cycles,      step.self_cycles};
  for (const uint64_t number : numbers) line += " " + std::to_string(number);
  return line;
}

/// The steps of a walk as text, without those of kind enter if `leave_out_enters`.
std::vector<std::string> walk(const Recording& recording, const CallWalkOptions& options, bool leave_out_enters = false) {
  FunctionTable functions;
  std::vector<std::string> lines;
  EXPECT_TRUE(walk_calls(recording, options, functions, [&](std::span<const CallStep> steps, const CallTree& tree) {
                for (const CallStep& step : steps) {
                  if (!leave_out_enters || step.kind != CallStepKind::enter) lines.push_back(text(step, functions, tree));
                }
                return true;
              }).ok());
  return lines;
}

TEST(CallWalk, TheNumberOfThreadsChangesNothing) {
  for (const char* path : kRecordings) {
    const auto recording = open(path);
    ASSERT_NE(recording, nullptr) << path;
    CallWalkOptions options;
    options.threads = 1;
    const std::vector<std::string> want = walk(*recording, options);
    EXPECT_GT(want.size(), 50U) << path;
    for (const unsigned threads : {2U, 3U, 8U}) {
      options.threads = threads;
      EXPECT_TRUE(walk(*recording, options) == want) << path << ", " << threads << " threads";
    }
  }
}

/// When packets with a time come, and how many instructions the flow executed before each.
std::vector<std::pair<TimeNs, uint64_t>> dated_positions(const Recording& recording, uint32_t stream) {
  std::vector<std::pair<TimeNs, uint64_t>> positions;
  StreamCursor cursor(recording, stream);
  uint64_t position = 0;
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item == FlowItem::blocks) {
      for (const Block& block : cursor.blocks()) position += block.instructions;
    } else if (item == FlowItem::mark && is_dated(cursor.mark()) &&
               (positions.empty() || positions.back().first < likeliest(cursor.mark()))) {
      positions.emplace_back(likeliest(cursor.mark()), position);
    }
  }
  return positions;
}

// A window that begins and ends in the middle of calls, and perhaps of one loop, counts the instructions between these two moments.
TEST(CallWalk, InstructionsOfAWindowAreThoseBetweenItsEnds) {
  for (const char* path : {"demo", "user/plain.bundle"}) {
    const auto recording = open(path);
    ASSERT_NE(recording, nullptr) << path;
    const auto positions = dated_positions(*recording, 0);
    ASSERT_GT(positions.size(), 20U) << path;
    CallWalkOptions options;
    options.streams = {0};
    for (size_t first = 1; first + 2 < positions.size(); first += positions.size() / 20) {
      for (const size_t last : {first + 1, first + (positions.size() - first) / 2}) {
        options.time = {positions[first].first, positions[last].first};
        FunctionTable functions;
        uint64_t instructions = 0;
        const auto count = [&](std::span<const CallStep> steps, const CallTree&) {
          for (const CallStep& step : steps) instructions += step.self_instructions;
          return true;
        };
        ASSERT_TRUE(walk_calls(*recording, options, functions, count).ok());
        EXPECT_EQ(instructions, positions[last].second - positions[first].second) << path << ", " << first << " to " << last;
      }
    }
  }
}

// A walk holds the steps of all streams that overlap in time, but not their decoders if they are short.
TEST(CallWalk, ManyShortStreamsTakeLittleMemory) {
#ifdef PTD_HAS_MALLINFO2
  constexpr size_t kStreams = 400, kMostBytes = 60000;  // of memory for each
  const auto recording = open("user/pair.bundle");
  ASSERT_NE(recording, nullptr);
  CallWalkOptions options;
  options.threads = 1;
  options.streams = {0};
  const size_t steps_of_one = walk(*recording, options).size();
  EXPECT_GT(steps_of_one, 20U);
  options.streams.assign(kStreams, 0);
  FunctionTable functions;
  size_t most = 0, steps_of_all = 0;
  const auto used = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const size_t before = used();
  const auto measure = [&](std::span<const CallStep> steps, const CallTree&) {
    steps_of_all += steps.size();
    most = std::max(most, used() - before);
    return true;
  };
  ASSERT_TRUE(walk_calls(*recording, options, functions, measure).ok());
  EXPECT_GT(steps_of_all, kStreams);
  EXPECT_LT(most, kStreams * kMostBytes);
#endif
}

TEST(CallWalk, WithoutAnnouncedFibresTheStepsAreTheSame) {
  for (const char* path : kRecordings) {
    const auto recording = open(path);
    ASSERT_NE(recording, nullptr) << path;
    CallWalkOptions options;
    const std::vector<std::string> want = walk(*recording, options);
    options.fibres = true;
    EXPECT_TRUE(walk(*recording, options) == want) << path;
  }
}

TEST(CallWalk, StepsOfUnitsHaveNoFibres) {
  const auto recording = open(kRecordings[0]);
  ASSERT_NE(recording, nullptr);
  CallWalkOptions options;
  options.fibres = true;
  options.steps = std::make_shared<StepFiles>();
  FunctionTable functions;
  const Status status = walk_calls(*recording, options, functions, [](std::span<const CallStep>, const CallTree&) { return true; });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::contradictory_options);
}

TEST(CallWalk, WithoutEntersTheOtherStepsAreTheSame) {
  for (const char* path : kRecordings) {
    const auto recording = open(path);
    ASSERT_NE(recording, nullptr) << path;
    CallWalkOptions options;
    const std::vector<std::string> want = walk(*recording, options, true);
    options.enters = false;
    EXPECT_TRUE(walk(*recording, options) == want) << path;
  }
}

/// The totals of all functions as text.
std::vector<std::string> text(const FunctionProfile& profile) {
  std::vector<std::string> lines;
  for (FunctionTotals totals : profile.functions()) {
    std::string line;
    const auto numbers = {totals.calls,
                          totals.no_start,
                          totals.no_end,
                          totals.estimated,
                          totals.undated,
                          totals.self_ns,
                          totals.total_ns,
                          totals.off_cpu_ns,
                          totals.untraced_ns,
                          totals.lost_ns,
                          totals.self_instructions,
                          totals.instructions,
                          totals.self_cycles,
                          totals.cycles,
                          totals.durations.count(),
                          totals.durations.max()};
    for (const uint64_t number : numbers) line += std::to_string(number) + " ";
    totals.durations.each([&](uint64_t value, uint64_t count) { line += std::to_string(value) + ":" + std::to_string(count) + " "; });
    if (totals.all_calls() != 0) lines.push_back(line);
  }
  return lines;
}

TEST(CallWalk, TotalsAreThoseOfTheStepsThatTheyReplace) {
  for (const char* path : kRecordings) {
    const auto recording = open(path);
    ASSERT_NE(recording, nullptr) << path;
    Interval all{kTimeMax, kTimeMin};
    for (const StreamInfo& stream : recording->streams()) all = hull(all, stream.time);
    const uint64_t third = (all.last.value - all.first.value) / 3;
    for (const Interval time : {Interval{}, Interval{TimeNs{all.first.value + third}, TimeNs{all.last.value - third}}}) {
      for (const bool inlined : {false, true}) {
        CallWalkOptions options;
        options.time = time;
        options.inlined = inlined;
        FunctionTable functions, same_functions;
        FunctionProfile want, have;
        size_t leaves = 0;
        EXPECT_TRUE(walk_calls(*recording, options, functions, [&](std::span<const CallStep> steps, const CallTree&) {
                      return want.add(steps), true;
                    }).ok());
        options.totals = &have;
        EXPECT_TRUE(walk_calls(*recording, options, same_functions, [&](std::span<const CallStep> steps, const CallTree&) {
                      for (const CallStep& step : steps) leaves += step.kind == CallStepKind::leave ? 1 : 0;
                      return true;
                    }).ok());
        EXPECT_EQ(leaves, 0U) << path;
        EXPECT_GE(text(want).size(), 2U) << path;
        EXPECT_EQ(text(have), text(want)) << path;
      }
    }
  }
}

size_t threads_of_this_process() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

TEST(CallWalk, OneThreadIsTheCallersAndCallbacksAreItsInAnyCase) {
  for (const char* path : kRecordings) {
    const auto recording = open(path);
    ASSERT_NE(recording, nullptr) << path;
    const size_t before = threads_of_this_process();
    for (const unsigned threads : {1U, 3U}) {
      CallWalkOptions options;
      options.threads = threads;
      const std::thread::id caller = std::this_thread::get_id();
      size_t most = 0, calls = 0, elsewhere = 0;
      const auto note = [&] {
        elsewhere += std::this_thread::get_id() == caller ? 0 : 1;
        if (++calls % 64 == 1) most = std::max(most, threads_of_this_process());
      };
      options.stopped = [&] { return note(), false; };
      options.progress = [&](uint64_t) { note(); };
      options.on_gap = [&](const Gap&, const Mark&) { note(); };
      EXPECT_FALSE(walk(*recording, options).empty());
      EXPECT_GT(calls, 0U);
      EXPECT_EQ(elsewhere, 0U) << path;
      if (threads == 1) {
        EXPECT_EQ(most, before) << path;
      }
    }
  }
}

}  // namespace
}  // namespace ptd
