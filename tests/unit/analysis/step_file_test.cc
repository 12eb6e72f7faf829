// Step files: what is written is read again, and hostile files need little memory.
#include "analysis/walk/step_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "analysis/walk/group_builder.h"
#include "analysis/walk/recorded_steps.h"
#include "image/base/fnv.h"
#include "perfio/zstd_stream.h"

namespace ptd {
namespace {

constexpr StepFileHead kHead{5, 7};

class StepFile : public testing::Test {
 protected:
  void TearDown() override {
    (void)std::remove(path_.c_str());
    (void)std::remove(all_steps_path(path_).c_str());
  }
  void write(const StepItems& items, const FlowPosition& tail = {}) const {
    FunctionTable functions;
    auto file = StepFileWriter::create(path_, kHead, true);
    ASSERT_TRUE(file.ok());
    for (const FlowStep& step : items.steps) (*file)->add(step, functions);
    (*file)->add(items, functions);
    ASSERT_TRUE((*file)->finish(tail, true, {}, functions).ok());
  }
  // Reads all items; the last result.
  Result<bool> read(StepItems& items) const {
    auto file = StepFileReader::open(path_);
    if (!file) return file.error();
    FunctionTable functions;
    FunctionProfile totals;
    for (;;) {
      const Result<bool> more = (*file)->next(items, functions, totals);
      if (!more || !more.value()) return more;
    }
  }
  const std::string path_ =
      testing::TempDir() + "step_file_test." + testing::UnitTest::GetInstance()->current_test_info()->name() + std::to_string(getpid());
};

StepItems equal_steps(size_t count) {
  StepItems items;
  FlowStep step;
  step.pid = step.tid = 1;
  for (size_t i = 0; i < count; ++i) {
    step.time = step.floor = TimeNs{10 * i};
    items.steps.push_back(step);
  }
  return items;
}

// They compress better than a reader allows: the file has bytes that make up for it.
TEST_F(StepFile, EqualStepsAreReadAgain) {
  const StepItems written = equal_steps(200000);
  write(written);
  StepItems items;
  const Result<bool> more = read(items);
  ASSERT_TRUE(more.ok()) << more.error().message;
  ASSERT_EQ(items.steps.size(), written.steps.size());
  EXPECT_EQ(items.steps.back().time, written.steps.back().time);
  auto all = AllStepsReader::open(path_, kHead);
  ASSERT_TRUE(all.ok());
  std::vector<FlowStep> steps;
  ASSERT_TRUE((*all)->read(150000, 10, steps, {}).ok());
  EXPECT_EQ(steps.front().time, written.steps[150000].time);
}

TEST_F(StepFile, WhatFollowsTheLastStepsOfUnitsGoesToTheNextStep) {
  StepItems items = equal_steps(1);
  items.steps.front().instructions = 10;
  items.steps.front().cycles = 30;
  write(items, {4, 7});
  const std::vector<StepFiles::File> files = {{0, path_}, {1, path_}};
  for (const bool all : {false, true}) {
    RecordedSteps steps(files, all);
    FunctionTable functions;
    FunctionProfile totals;
    StepItems found;
    for (;;) {
      const Result<bool> more = steps.next(found, functions, totals);
      ASSERT_TRUE(more.ok());
      if (!more.value()) break;
      EXPECT_EQ(found.steps.front().instructions, steps.unit() == 0 ? 10U : 14U);
      EXPECT_EQ(found.steps.front().cycles, steps.unit() == 0 ? 30U : 37U);
      found.clear();
    }
    EXPECT_EQ(steps.unit(), 1U);
  }
}

// A block with all steps goes on with steps of functions that the block with the groups does not name.
TEST_F(StepFile, StepsAreReadBeforeTheNamesOfLaterOnesInTheirBlock) {
  FunctionTable written;
  const FunctionId early = written.intern("early", "a.so"), late = written.intern("late", "a.so");
  StepItems first = equal_steps(200000), second = equal_steps(100);
  for (FlowStep& step : first.steps) {
    step.function = early;
    step.to.value = step.time.value * step.time.value;  // numbers of some bytes
  }
  for (FlowStep& step : second.steps) step.function = late;
  auto file = StepFileWriter::create(path_, kHead, true);
  ASSERT_TRUE(file.ok());
  for (const StepItems* items : {&first, &second}) {
    for (const FlowStep& step : items->steps) (*file)->add(step, written);
    (*file)->add(*items, written);
  }
  ASSERT_TRUE((*file)->finish({}, true, {}, written).ok());
  auto reader = StepFileReader::open(path_);
  ASSERT_TRUE(reader.ok());
  FunctionTable functions;
  FunctionProfile totals;
  StepItems items;
  ASSERT_TRUE((*reader)->next(items, functions, totals).ok());
  ASSERT_EQ((*reader)->functions().size(), 1U);
  auto all = AllStepsReader::open(path_, kHead);
  ASSERT_TRUE(all.ok());
  std::vector<FlowStep> steps;
  ASSERT_TRUE((*all)->read(199900, 50, steps, (*reader)->functions()).ok());
  ASSERT_TRUE((*all)->read(199950, 50, steps, (*reader)->functions()).ok());
  ASSERT_EQ(steps.size(), 100U);
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(steps[i].to, first.steps[199900 + i].to);
  EXPECT_EQ(functions.info(steps.back().function).name, "early");
  EXPECT_FALSE((*all)->read(200000, 1, steps, (*reader)->functions()).ok());
  ASSERT_TRUE((*reader)->next(items, functions, totals).ok());
  ASSERT_TRUE((*AllStepsReader::open(path_, kHead))->read(200099, 1, steps, (*reader)->functions()).ok());
  EXPECT_EQ(functions.info(steps.back().function).name, "late");
}

// A block of a few hundred bytes, with a checksum, for a million steps.
TEST_F(StepFile, BlockThatExpandsAboveTheLimitIsAnError) {
  write(equal_steps(0));
  ByteWriter content;
  content.number(0);  // functions
  content.number(1000000);
  const std::vector<std::byte> zeros(16000000);
  content.raw(zeros);
  const std::vector<std::byte> stored = perfio::zstd_compress(content.bytes(), 1);
  ASSERT_GT(content.bytes().size(), perfio::zstd_expansion_limit(stored.size()));
  std::string header;
  const auto put = [&header](uint64_t value, unsigned size) {
    for (unsigned i = 0; i < size; ++i) header += static_cast<char>(value >> (8 * i));
  };
  put(static_cast<uint64_t>(StepBlock::steps), 8);
  put(stored.size(), 4);
  put(content.bytes().size(), 4);
  put(0, 8);
  put(fnv1a(stored), 8);
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  constexpr size_t kHeaderBytes = 12, kBlockHeaderBytes = 32;
  const size_t head = static_cast<unsigned char>(text[kHeaderBytes + 8]);  // stored bytes of the first block
  file.seekp(static_cast<std::streamoff>(kHeaderBytes + kBlockHeaderBytes + head));
  file << header;
  file.write(reinterpret_cast<const char*>(stored.data()), static_cast<std::streamsize>(stored.size()));
  file.close();
  StepItems items;
  const Result<bool> more = read(items);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find("expands above the limit"), std::string::npos) << more.error().message;
  EXPECT_TRUE(items.empty());
}

// A merge that follows a group step by step reads so many steps at once.
TEST_F(StepFile, GroupHasAtMostTheStepsOfAGroup) {
  for (const uint64_t more : {0, 1}) {
    StepItems items = equal_steps(1);
    CallGroup& group = items.groups.emplace_back();
    group.before = 1;
    group.first_step = 1;
    group.steps = GroupBuilder::kMostSteps + more;
    write(items);
    StepItems found;
    EXPECT_EQ(read(found).ok(), more == 0);
    EXPECT_EQ(found.groups.size(), 1 - more);
  }
}

}  // namespace
}  // namespace ptd
