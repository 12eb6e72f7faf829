// Segments that begin between the two records of a context switch: the code that the flow reaches tells whether it passed the switch
// function.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kSchedule = 0xffffffff81000000;  // calls the next two
constexpr uint64_t kSwitchTo = kSchedule + 0x20;    // calls kHelper
constexpr uint64_t kFinish = kSchedule + 0x30;      // likewise
constexpr uint64_t kHelper = kSchedule + 0x40;      // RET
constexpr uint64_t kCaller = kSchedule + 0x50;      // calls kSchedule, twice

// Thread 1 is switched out at 100, 2 comes in at 200; then 3 at 300 and 400.
struct SwitchMachine {
  SwitchMachine() {
    const auto code = std::make_shared<std::vector<std::byte>>(0x60, std::byte{0xc3});
    const auto call = [&](uint64_t from, uint64_t to) {
      const auto distance = static_cast<int32_t>(to - from - 5);
      (*code)[from - kSchedule] = std::byte{0xe8};
      std::memcpy(code->data() + (from - kSchedule) + 1, &distance, sizeof distance);
    };
    call(kSchedule, kSwitchTo);
    call(kSchedule + 5, kFinish);
    call(kSwitchTo, kHelper);
    call(kFinish, kHelper);
    call(kCaller, kSchedule);
    call(kCaller + 5, kSchedule);
    Section section;
    section.ip = Ip{kSchedule};
    section.size_bytes = code->size();
    section.code = {code, Bytes(*code)};
    section.path = "kernel";
    TimelineBuilder builder;
    builder.add_section(std::move(section));
    timeline = builder.build();
    contexts.add_switch(0, TimeNs{10}, {1, 1, kNoSpace});
    for (const uint64_t time : {100U, 200U}) contexts.add_switch(0, TimeNs{time}, {2, 2, kNoSpace});
    for (const uint64_t time : {300U, 400U}) contexts.add_switch(0, TimeNs{time}, {3, 3, kNoSpace});
    contexts.sort();
  }
  Timeline timeline;
  ContextTrack contexts;
};

// Returns the threads, in order, of a segment from 110 to `end_ns` that begins at `start` and has returns to `targets`.
std::vector<int32_t> threads_of(uint64_t start, const std::vector<uint64_t>& targets, uint64_t end_ns, bool exact) {
  const SwitchMachine machine;
  DecoderOptions options;
  options.exact_only = exact;
  options.config.return_compression = ReturnCompression::off;
  options.switch_entry = Ip{kSwitchTo};
  options.after_switch = {{Ip{kSwitchTo}, Ip{kSwitchTo + 0xf}}, {Ip{kFinish}, Ip{kFinish + 0xf}}};
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.psb();
  writer.mode_exec(ExecMode::bits64);
  writer.fup(start);
  writer.psbend();
  for (const uint64_t target : targets) writer.tip(target);
  AuxSegment segment;
  segment.bytes = bytes;
  segment.time = {TimeNs{110}, TimeNs{end_ns}};
  segment.cpu = 0;
  Decoder decoder(machine.timeline, machine.contexts, options);
  decoder.begin(segment);
  std::vector<int32_t> threads;
  Batch batch;
  for (bool more = true; more;) {
    more = decoder.next(batch);
    for (const Mark& mark : batch.marks) {
      if (threads.empty() || threads.back() != mark.tid) threads.push_back(mark.tid);
    }
  }
  return threads;
}

void expect_threads(uint64_t start, const std::vector<uint64_t>& targets, uint64_t end_ns, const std::vector<int32_t>& want) {
  for (const bool exact : {false, true}) EXPECT_EQ(threads_of(start, targets, end_ns, exact), want) << exact;
}

TEST(SwitchWindow, BeginsInTheSwitchFunctionOrInWhatItCalls) {
  expect_threads(kSwitchTo + 5, {kSchedule + 5}, 190, {2});
  expect_threads(kHelper, {kSwitchTo + 5}, 190, {2});
}

TEST(SwitchWindow, BeginsAfterTheSwitchFunction) {
  expect_threads(kHelper, {kFinish + 5}, 190, {2});
  expect_threads(kSchedule + 5, {kFinish + 5}, 190, {2});
}

TEST(SwitchWindow, BeginsBeforeTheSwitchFunction) {
  expect_threads(kSchedule, {kSwitchTo + 5, kSchedule + 5}, 190, {1, 2});
  expect_threads(kHelper, {kCaller, kSwitchTo + 5}, 190, {1, 2});
}

TEST(SwitchWindow, TheNextSwitchComesBeforeTimeShowsThisOne) {
  expect_threads(kHelper, {kFinish + 5, kSchedule + 10, kCaller + 5, kSwitchTo + 5}, 500, {2, 3});
}

}  // namespace
}  // namespace ptd::pt
