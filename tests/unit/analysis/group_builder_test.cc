// GroupBuilder: a tree that takes groups has the state, and its calls the rows, of a tree that takes every step.
#include "analysis/walk/group_builder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "ptdecode/function_profile.h"

namespace ptd {
namespace {

using Row = std::tuple<FunctionId, uint32_t, int, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t>;

Row row_of(const CallStep& step, uint32_t depth) {
  return {step.function,         depth, static_cast<int>(step.frame), step.start.value, step.time.value, step.self_ns, step.instructions,
          step.self_instructions};
}

// Steps of one thread that mostly match, as a program makes them, and sometimes do not.
std::vector<FlowStep> made_steps(unsigned seed, size_t count) {
  std::mt19937 chance(seed);
  struct Call {
    Ip return_to, pad;  // pad: where an exception goes on; 0: nowhere
    FunctionId caller = 0;
  };
  std::vector<Call> open;
  std::vector<Call> saved;  // calls of setjmp
  FunctionId current = 0;
  std::vector<FlowStep> steps;
  uint64_t time = 1000;
  for (size_t i = 0; i < count; ++i) {
    FlowStep step;
    step.pid = step.tid = 7;
    step.cpu = 0;
    step.space = SpaceId{3};
    step.time = step.floor = TimeNs{time += chance() % 5};
    step.instructions = static_cast<uint32_t>(chance() % 20);
    step.flags = kFlowNamed | kFlowEntry;
    step.function = static_cast<FunctionId>(chance() % 6);
    step.to = Ip{0x1000 + step.function * 0x100ULL};
    const auto dice = static_cast<unsigned>(chance() % 100);
    if (i == 0) {
      step.kind = FlowKind::begin;
    } else if (dice < 45 && open.size() < 40) {
      step.kind = dice < 3 ? FlowKind::interrupt : FlowKind::call;
      step.return_to = Ip{0x9000 + chance() % 50};
      const Ip pad{chance() % 3 == 0 ? 0 : 0x9800 + chance() % 4};
      if (pad.value != 0) step.landing = static_cast<int32_t>(pad - step.return_to + 1);
      open.push_back({step.return_to, pad, current});
      current = step.function;
      if (dice == 44) {
        step.landing = kEntersSetjmp;
        saved.push_back(open.back());
      }
    } else if (dice == 83 && !open.empty()) {  // an exception
      const Call& left = open[chance() % open.size()];
      step.kind = chance() % 2 == 0 ? FlowKind::ret : FlowKind::jump;
      step.flags = kFlowNamed;
      step.to = left.pad;
      step.function = current = left.caller;
      if (left.pad.value != 0) step.landing = kLandsHere;
      open.resize(static_cast<size_t>(&left - open.data()));
    } else if (dice == 84 && !saved.empty()) {  // longjmp
      const Call& left = saved[chance() % saved.size()];
      step.kind = FlowKind::jump;
      step.flags = kFlowNamed;
      step.to = left.return_to;
      step.function = current = left.caller;
    } else if (dice < 90 && !open.empty()) {
      const bool far = dice > 86;
      step.kind = far ? FlowKind::far_return : FlowKind::ret;
      step.to = open.back().return_to;
      step.flags = kFlowNamed;
      if (dice == 80) step.to = Ip{0xbad0};
      current = open.back().caller;
      open.pop_back();
      if (dice == 81 && !open.empty()) {  // out of two calls
        step.to = open.back().return_to;
        current = open.back().caller;
        open.pop_back();
      }
      step.function = current;
    } else if (dice < 97) {
      step.kind = FlowKind::jump;
      if (dice > 94) step.flags = kFlowNamed;
      if (dice == 90) step.flags = 0;
    } else if (dice == 97) {
      step.kind = FlowKind::pause;
    } else if (dice == 98) {
      step.kind = FlowKind::begin;
    } else {
      step.kind = chance() % 2 == 0 ? FlowKind::gap : FlowKind::switch_out;
    }
    steps.push_back(step);
  }
  return steps;
}

// Counts the calls of one group again, from its steps.
FunctionProfile recount(const std::vector<FlowStep>& steps, const CallGroup& group) {
  GroupBuilder builder;
  builder.expect_group();
  for (uint64_t i = 0; i < group.steps; ++i) builder.take(steps[group.first_step + i]);
  builder.flush();
  EXPECT_EQ(builder.items.groups.size(), 1U);
  EXPECT_TRUE(builder.items.steps.empty());
  return builder.totals();
}

void expect_equal(const FunctionTotals& a, const FunctionTotals& b, const std::string& where) {
  EXPECT_EQ(std::tie(a.calls, a.self_ns, a.total_ns, a.instructions, a.self_instructions),
            std::tie(b.calls, b.self_ns, b.total_ns, b.instructions, b.self_instructions))
      << where;
  for (const double share : {0.5, 0.99, 1.0}) EXPECT_EQ(a.durations.quantile(share), b.durations.quantile(share)) << where;
  EXPECT_EQ(a.durations.max(), b.durations.max()) << where;
}

void check(unsigned seed) {
  const std::vector<FlowStep> steps = made_steps(seed, 3000);
  std::vector<CallStep> out;
  CallTree whole(nullptr);
  for (const FlowStep& step : steps) whole.take(step, out);
  whole.finish(out);
  FunctionProfile want;
  want.add(out);
  std::vector<Row> want_rows, rows;
  for (const CallStep& step : out) {
    if (step.kind == CallStepKind::leave) want_rows.push_back(row_of(step, step.depth));
  }

  GroupBuilder builder;
  for (const FlowStep& step : steps) builder.take(step);
  builder.flush();
  out.clear();
  CallTree tree(nullptr);
  FunctionProfile got = builder.totals(), removed;
  size_t taken = 0, refused = 0, group = 0;
  const auto take_groups = [&](size_t before) {
    for (; group < builder.items.groups.size() && builder.items.groups[group].before == before; ++group) {
      const CallGroup& each = builder.items.groups[group];
      if (!tree.accepts(each)) {
        for (uint64_t i = 0; i < each.steps; ++i) tree.take(steps[each.first_step + i], out);
        removed.add(recount(steps, each));
        ++refused;
        continue;
      }
      const uint32_t depth = tree.take(each);
      ++taken;
      for (const CallGroup::Function& function : builder.items.functions_of(each)) {
        if (!tree.is_open(function.id)) continue;
        removed.of(function.id).total_ns += function.total_ns;
        removed.of(function.id).instructions += function.instructions;
      }
      for (const FinishedCall& call : builder.calls) {
        if (call.group == each.number) rows.push_back(row_of(call.step, call.step.depth + depth));
      }
    }
  };
  for (size_t i = 0; i < builder.items.steps.size(); ++i) {
    take_groups(i);
    tree.take(builder.items.steps[i], out);
  }
  take_groups(builder.items.steps.size());
  tree.finish(out);
  for (const CallStep& step : out) {
    if (step.kind == CallStepKind::leave) rows.push_back(row_of(step, step.depth));
  }
  std::sort(rows.begin(), rows.end());
  std::sort(want_rows.begin(), want_rows.end());
  EXPECT_EQ(rows, want_rows) << "seed " << seed;
  EXPECT_GT(taken, 20U);
  EXPECT_LT(refused, taken);
  EXPECT_LT(builder.items.steps.size(), steps.size());

  got.add(out);
  ASSERT_TRUE(got.subtract(removed)) << "seed " << seed;
  for (FunctionId id = 0; id < 6; ++id)
    expect_equal(got.of(id), want.of(id), "seed " + std::to_string(seed) + ", function " + std::to_string(id));
  const CallThread &one = tree.threads().front(), &other = whole.threads().front();
  EXPECT_EQ(std::tie(one.instructions, one.running_ns, one.last, one.gaps, one.forgotten, one.guessed),
            std::tie(other.instructions, other.running_ns, other.last, other.gaps, other.forgotten, other.guessed));
}

TEST(GroupBuilder, GroupsGiveTheCallsOfTheirSteps) {
  for (unsigned seed = 0; seed < 60; ++seed) check(seed);
}

// A merge that follows a group step by step subtracts what its unit counted.
TEST(GroupBuilder, StepsOfAGroupGiveItsCallsAgain) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const std::vector<FlowStep> steps = made_steps(seed, 3000);
    GroupBuilder builder;
    for (const FlowStep& step : steps) builder.take(step);
    builder.flush();
    FunctionProfile want = builder.totals(), got;
    for (const CallGroup& group : builder.items.groups) got.add(recount(steps, group));
    for (FunctionId id = 0; id < 6; ++id)
      expect_equal(got.of(id), want.of(id), "seed " + std::to_string(seed) + ", function " + std::to_string(id));
  }
}

// An exception goes on in a function that a step outside of the group entered: b and c end, and are counted once.
TEST(GroupBuilder, AnExceptionOutOfAllCallsOfAGroupEndsThem) {
  std::vector<FlowStep> steps;
  const auto add = [&](FlowKind kind, FunctionId function, uint8_t flags) {
    FlowStep& step = steps.emplace_back();
    step.tid = step.pid = 1;
    step.kind = kind;
    step.function = function;
    step.flags = flags;
    step.return_to = Ip{0x100 * steps.size()};
    step.time = step.floor = TimeNs{10 * steps.size()};
  };
  add(FlowKind::begin, 0, kFlowNamed);
  for (const FunctionId function : {1U, 2U, 3U}) add(FlowKind::call, function, kFlowNamed | kFlowEntry);
  steps[2].landing = 0x41;
  add(FlowKind::jump, 1, kFlowNamed);
  steps.back().to = steps[2].return_to + 0x40;
  steps.back().landing = kLandsHere;
  GroupBuilder builder;
  for (const FlowStep& step : steps) builder.take(step);
  builder.flush();
  ASSERT_EQ(builder.items.groups.size(), 1U);
  EXPECT_EQ(builder.totals().functions()[2].calls, 1U);
  const FunctionProfile again = recount(steps, builder.items.groups.front());
  ASSERT_GT(again.functions().size(), 3U);
  EXPECT_EQ(again.functions()[2].calls, 1U);
  EXPECT_EQ(again.functions()[3].total_ns, 10U);
}

TEST(GroupBuilder, BalancedCallsAreOneGroup) {
  GroupBuilder builder;
  FlowStep step;
  step.tid = step.pid = 1;
  step.time = step.floor = TimeNs{100};
  step.kind = FlowKind::begin;
  builder.take(step);
  for (int i = 0; i < 3; ++i) {
    step.kind = FlowKind::call;
    step.function = 1;
    step.return_to = Ip{0x20};
    step.instructions = 5;
    step.time = step.floor = TimeNs{step.time.value + 10};
    builder.take(step);
    step.kind = FlowKind::ret;
    step.to = Ip{0x20};
    step.instructions = 7;
    step.time = step.floor = TimeNs{step.time.value + 3};
    builder.take(step);
  }
  builder.flush();
  ASSERT_EQ(builder.items.groups.size(), 1U);
  EXPECT_EQ(builder.items.steps.size(), 1U);
  const CallGroup& group = builder.items.groups.front();
  EXPECT_EQ(group.steps, 6U);
  EXPECT_EQ(group.instructions, 36U);
  EXPECT_EQ(group.outer_instructions, 15U);
  EXPECT_EQ(group.outer_ns, 20U);  // between the calls
  EXPECT_EQ(group.first.value, 110U);
  EXPECT_EQ(group.last.value, 139U);
  EXPECT_EQ(builder.calls.size(), 3U);
  EXPECT_EQ(builder.totals().functions()[1].self_ns, 9U);
}

TEST(DurationCounts, RemovedValuesLeaveWhatWasThere) {
  std::mt19937 chance(5);
  DurationCounts all, some, want;
  for (int i = 0; i < 5000; ++i) {
    const uint64_t ns = chance() % 100000;
    all.add(ns);
    (i % 3 == 0 ? some : want).add(ns);
  }
  all.add(200000);
  want.add(200000);
  ASSERT_TRUE(all.subtract(some));
  EXPECT_EQ(all.count(), want.count());
  for (const double share : {0.01, 0.5, 0.99, 1.0}) EXPECT_EQ(all.quantile(share), want.quantile(share));
  DurationCounts few, fewer;
  for (const uint64_t ns : {5U, 9U, 9U}) few.add(ns);
  fewer.add(9);
  ASSERT_TRUE(few.subtract(fewer));
  EXPECT_EQ(few.max(), 9U);
  ASSERT_TRUE(few.subtract(fewer));
  EXPECT_EQ(few.max(), 5U);
  EXPECT_EQ(few.quantile(1.0), 5U);
}

}  // namespace
}  // namespace ptd
