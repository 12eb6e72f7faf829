// CounterEvent: names, levels and periods of events beside a trace; the attrs that they become; what the kernel refuses, in words.
#include "capture/live/events/counter_event.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "perfio/format/event_attr.h"
#include "tests/unit/image/source_support.h"

namespace ptd::live {
namespace {

using image_test::TempDir;

class CounterEvents : public ::testing::Test {
 protected:
  CounterEvents() {
    std::filesystem::create_directories(dir_.path() + "/events/sched/sched_switch");
    std::ofstream(dir_.path() + "/events/sched/sched_switch/id") << "314\n";
  }
  Result<CounterEvent> parse(const std::string& text) const {
    return parse_counter_event("--pause-on", text, dir_.path() + "/sys", dir_.path());
  }
  TempDir dir_;
};

// Numbers: linux/perf_event.h, enum perf_hw_id and enum perf_sw_ids.
TEST_F(CounterEvents, NamesLevelsAndPeriods) {
  struct Case {
    const char* text;
    uint32_t type;
    uint64_t config, period;
    bool user, kernel;
  };
  for (const Case& c : {Case{"cycles", 0, 0, 1'000'000, true, true}, Case{"branch-misses:u", 0, 5, 10'000, true, false},
                        Case{"branch-misses:u@77", 0, 5, 77, true, false}, Case{"cpu-clock:k", 1, 0, 1'000'000, false, true},
                        Case{"page-faults@3", 1, 2, 3, true, true}, Case{"sched:sched_switch", 2, 314, 1, true, true},
                        Case{"sched:sched_switch:u@5", 2, 314, 5, true, false}}) {
    const Result<CounterEvent> event = parse(c.text);
    ASSERT_TRUE(event.ok()) << c.text << event.error().message;
    EXPECT_EQ(event->spec.type, c.type) << c.text;
    EXPECT_EQ(event->spec.config, c.config) << c.text;
    EXPECT_EQ(event->spec.period, c.period) << c.text;
    EXPECT_EQ(event->spec.exclude_user, !c.user) << c.text;
    EXPECT_EQ(event->spec.exclude_kernel, !c.kernel) << c.text;
  }
}

TEST_F(CounterEvents, WhatIsNoEventIsRefused) {
  for (const char* text : {"", "nothing", "sched:sched_switch:x", "cycles:", "cycles:w", "cycles@0", "cycles@-1", "cycles@x", "../sched:x",
                           "sched:../../id", ":x", "nopmu/a/u"}) {
    const Result<CounterEvent> event = parse(text);
    ASSERT_FALSE(event.ok()) << text;
    EXPECT_FALSE(event.error().message.empty()) << text;
  }
}

// Offsets: linux/perf_event.h, struct perf_event_attr: sample_period 16, sample_type 24, aux_sample_size 112, aux_action 116 (start_paused,
// pause and resume are bits 0, 1 and 2).
TEST_F(CounterEvents, TheAttrHasSizeAndAction) {
  const auto word_at = [](const perfio::EventAttr& attr, size_t offset) {
    uint32_t word = 0;
    std::memcpy(&word, attr.raw.data() + offset, sizeof word);
    return word;
  };
  Result<CounterEvent> event = parse("cpu-clock:u@5000");
  ASSERT_TRUE(event.ok());
  event->spec.aux_sample_bytes = 4096;
  const perfio::EventAttr samples = perfio::file_attr(event->spec, event->name);
  EXPECT_EQ(word_at(samples, 16), 5000U);
  EXPECT_EQ(word_at(samples, 24) >> 20 & 1, 1U);
  EXPECT_EQ(word_at(samples, 112), 4096U);
  EXPECT_EQ(word_at(samples, 116), 0U);
  EXPECT_TRUE(samples.holds_trace());
  event->spec.aux_sample_bytes = 0;
  for (const auto& [action, bits] :
       {std::pair(perfio::kAuxStartPaused, 1U), std::pair(perfio::kAuxPause, 2U), std::pair(perfio::kAuxResume, 4U)}) {
    event->spec.aux_action = action;
    const perfio::EventAttr attr = perfio::file_attr(event->spec, event->name);
    EXPECT_EQ(word_at(attr, 24) >> 20 & 1, 0U);
    EXPECT_EQ(word_at(attr, 116), bits);
  }
}

TEST_F(CounterEvents, ARefusalNamesTheKernelThatIsNeeded) {
  CounterEvent event;
  event.name = "cycles:u";
  event.spec.aux_sample_bytes = 4096;
  EXPECT_EQ(why_refused(event, "intel_pt//u", EINVAL, "5.4.0-42"), "AUX samples need Linux 5.5, and this is 5.4.0-42");
  EXPECT_NE(why_refused(event, "intel_pt//u", EINVAL, "5.10.0").find("refuses cycles:u in a group with intel_pt//u"), std::string::npos);
  EXPECT_NE(why_refused(event, "intel_pt//u", ENOENT, "6.1.0").find("does not count it"), std::string::npos);
  EXPECT_NE(why_refused(event, "intel_pt//u", EACCES, "6.1.0").find("CAP_PERFMON"), std::string::npos);
  event.spec.aux_sample_bytes = 0;
  event.spec.aux_action = perfio::kAuxPause;
  EXPECT_EQ(why_refused(event, "intel_pt//u", EINVAL, "6.12.3"),
            "pausing and resuming a trace (aux-action) need Linux 6.13, and this is 6.12.3");
  event.spec.aux_action = perfio::kAuxStartPaused;
  EXPECT_NE(why_refused(event, "intel_bts//u", EOPNOTSUPP, "6.13.0").find("intel_bts//u cannot start paused"), std::string::npos);
}

// A clock leads no trace: every kernel refuses such a group, also one that knows both.
TEST_F(CounterEvents, TheRunningKernelRefusesAGroupWithoutATrace) {
  perfio::EventSpec leader;
  leader.type = 1;
  leader.config = 0;
  leader.exclude_kernel = leader.exclude_hv = leader.disabled = true;
  int number = 0;
  const Result<perfio::LiveEvent> clock = perfio::LiveEvent::open(leader, {0, -1}, &number);
  if (!clock.ok()) GTEST_SKIP() << clock.error().message;
  for (const bool samples : {true, false}) {
    perfio::EventSpec spec = leader;
    spec.disabled = false;
    spec.aux_sample_bytes = samples ? 4096 : 0;
    spec.aux_action = samples ? 0 : perfio::kAuxPause;
    const Result<perfio::LiveEvent> event = perfio::LiveEvent::open(spec, {0, -1, clock->fd()}, &number);
    EXPECT_FALSE(event.ok());
    EXPECT_TRUE(number == EINVAL || number == EOPNOTSUPP || number == E2BIG) << number;
  }
  perfio::EventSpec plain = leader;
  plain.disabled = false;
  EXPECT_TRUE(perfio::LiveEvent::open(plain, {0, -1, clock->fd()}, &number).ok()) << number;
  perfio::EventSpec paused = leader;
  paused.aux_action = perfio::kAuxStartPaused;
  EXPECT_FALSE(perfio::LiveEvent::open(paused, {0, -1}, &number).ok());
}

}  // namespace
}  // namespace ptd::live
