// Context switches that a flow does not show: lost, untraced, or nearer to each other than the clock's packets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"
#include "tests/unit/pt/timed_packets.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kIdleLoop = 0xffffffff81000000;    // JMP RAX
constexpr uint64_t kSwitchEntry = kIdleLoop + 0x10;   // likewise
constexpr uint64_t kSwitchCaller = kIdleLoop + 0x20;  // JMP kSwitchEntry
constexpr uint64_t kUserLoop = 0x400000;              // JMP RAX, of threads 1 and 2
constexpr uint64_t kOtherLoop = 0x500000;             // likewise, of another program alone

// The flow of each thread, as a string: its number for each block, with "b" if it runs another program and "?" if the block is suspect.
class UnseenSwitch : public testing::Test, protected TimedPackets {
 protected:
  UnseenSwitch() {
    TimelineBuilder builder;
    space_ = builder.add_space();
    other_ = builder.add_space();
    for (const auto& [space, ip] : {std::pair{kKernelSpace, kIdleLoop}, {space_, kUserLoop}, {other_, kUserLoop}, {other_, kOtherLoop}}) {
      std::vector<std::byte> code = jumps(0x30);
      code[0x20] = std::byte{0xeb};
      code[0x21] = std::byte{0xee};
      add_made_code(builder, space, ip, code);
    }
    timeline_ = builder.build();
    set_clock(options_.config);
    options_.switch_entry = Ip{kSwitchEntry};
    come(1, 10);
  }
  /// Thread 1 calls exec.
  void exec(uint64_t time_ns) {
    contexts_.add_thread(1, TimeNs{10}, {7, 1, space_});
    contexts_.add_thread(1, TimeNs{time_ns}, {7, 1, other_});
  }
  /// A record that thread `tid` comes to the cpu.
  void come(int32_t tid, uint64_t time_ns) { contexts_.add_switch(0, TimeNs{time_ns}, {7, tid, space_}); }
  void sync(uint64_t tsc, uint64_t ip) {
    writer_.psb();
    time(tsc);
    writer_.mode_exec(ExecMode::bits64);
    if (ip != 0) writer_.fup(ip);
    writer_.psbend();
  }
  void tips(uint64_t ip, unsigned count) {
    while (count-- != 0) writer_.tip(ip);
  }
  /// Code at `ip` runs, untraced before and after.
  void runs(uint64_t ip) {
    writer_.tip_pge(ip);
    tips(ip, 1);
    writer_.tip_pgd_suppressed();
  }
  std::string threads(bool exact) {
    contexts_.sort();
    options_.exact_only = exact;
    Decoder decoder(timeline_, contexts_, options_);
    AuxSegment trace = segment(per_cpu_);
    trace.time = time_;
    decoder.begin(trace);
    std::string threads, tid;
    Batch batch;
    for (bool more = true; more;) {
      more = decoder.next(batch);
      size_t mark = 0;
      for (size_t i = 0; i < batch.blocks.size(); ++i) {
        for (; mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark)
          tid = std::to_string(batch.marks[mark].tid) + (batch.marks[mark].space == other_ ? "b" : "");
        threads += tid + (has(batch.blocks[i].flags, BlockFlag::suspect) ? "?" : "");
      }
    }
    return threads;
  }
  void expect(const std::string& want) {
    for (const bool exact : {false, true}) EXPECT_EQ(threads(exact), want) << exact;
  }

  Timeline timeline_;
  ContextTrack contexts_;
  DecoderOptions options_;
  SpaceId space_, other_;
  Interval time_{TimeNs{1000}, TimeNs{5000}};
  bool per_cpu_ = true;
};

// Thread 3 of the other program, thread 1 from 100 us on, and thread 3 again from 200 us on. Thread 1 has no code at kOtherLoop.
class CodelessThread : public UnseenSwitch {
 protected:
  CodelessThread() {
    options_.switch_entry = {};
    contexts_ = {};
    time_ = {TimeNs{50'000}, TimeNs{250'000}};
    comes(3, 10);
    comes(1, 100'000);
    comes(3, 200'000);
  }
  void comes(int32_t tid, uint64_t time_ns) { contexts_.add_switch(0, TimeNs{time_ns}, {tid, tid, tid == 3 ? other_ : space_}); }
  /// Code at kOtherLoop runs from `tsc` on until `count` MTCs later.
  void run_other(uint64_t tsc, unsigned count) {
    bytes_.clear();
    sync(tsc, 0);
    mtcs(1);
    writer_.tip_pge(kOtherLoop);
    mtcs(count);
    tips(kOtherLoop, 1);
    writer_.tip_pgd_suppressed();
    mtcs(1);
  }
};

TEST_F(CodelessThread, OtherThreadsAreNear) {
  run_other(110'000, 1);
  expect("3b?3b?");
  run_other(190'000, 1);
  expect("3b?3b?");
  run_other(90'000, 1);
  expect("3b3b");
}

TEST_F(CodelessThread, OtherThreadsAreFar) {
  run_other(150'000, 1);
  expect("");
}

TEST_F(CodelessThread, RunsUntilOtherThreadsAreFar) {
  run_other(100'100, 2000);
  expect("");
}

// The switch is in the interval of the clock in which the code begins to run, which then still runs after it.
TEST_F(CodelessThread, RunsPastTheSwitch) {
  run_other(99'980, 0);
  expect("3b3b");
  run_other(99'980, 1);
  expect("3b?3b?");
  run_other(99'980, 2000);
  expect("");
}

TEST_F(CodelessThread, ItsProgramIsUnknown) {
  contexts_.add_thread(1, kTimeMin, {1, 1, kNoSpace});
  contexts_.add_thread(1, TimeNs{100'010}, {1, 1, space_});
  run_other(99'980, 0);
  expect("3b?3b?");
}

TEST_F(CodelessThread, IsUnknownOrIdle) {
  for (const bool idle : {false, true}) {
    contexts_ = {};
    comes(3, 10);
    contexts_.add_switch(0, TimeNs{100'000}, idle ? Context{0, 0, kNoSpace} : Context{-1, 1, kNoSpace});
    run_other(99'980, 0);
    expect(idle ? "3b3b" : "3b?3b?");
    run_other(99'980, 1);
    expect(idle ? "3b?3b?" : "");
  }
}

// The flow executes the switch function once: it is of thread 1.
TEST_F(CodelessThread, ItsSwitchesAreCounted) {
  options_.switch_entry = Ip{kSwitchEntry};
  sync(99'980, kIdleLoop);
  mtcs(1);
  tips(kSwitchCaller, 1);
  tips(kOtherLoop, 2);
  mtcs(2);
  writer_.tip_pgd_suppressed();
  expect("3b3b13b?3b?");
}

TEST_F(UnseenSwitch, TheTraceOfATaskStartsBeforeTheRecordOfItsSwitch) {
  contexts_.add_leave(0, TimeNs{1100});
  come(2, 1220);
  sync(1000, kIdleLoop);
  tips(kIdleLoop, 2);
  writer_.tip_pgd_suppressed();
  time(1200);
  writer_.tip_pge(kIdleLoop);
  tips(kIdleLoop, 2);
  writer_.tip_pgd_suppressed();
  expect("111222");
}

TEST_F(UnseenSwitch, ATaskThatWasAlreadyThereComesBack) {
  contexts_.add_leave(0, TimeNs{1100});
  come(1, 1220);
  contexts_.add_leave(0, TimeNs{1300});
  come(2, 1420);
  sync(1000, kIdleLoop);
  for (const uint64_t tsc : {1200U, 1400U}) {
    tips(kIdleLoop, 1);
    writer_.tip_pgd_suppressed();
    time(tsc);
    writer_.tip_pge(kIdleLoop);
  }
  tips(kIdleLoop, 1);
  expect("11112");
}

TEST_F(UnseenSwitch, OverflowOfTheKernelThatLosesTheSwitch) {
  come(2, 1020);
  come(2, 1025);
  sync(1000, kIdleLoop);
  tips(kIdleLoop, 2);
  writer_.ovf();
  writer_.fup(kIdleLoop);
  for (unsigned i = 0; i < 4; ++i) {
    tips(kIdleLoop, 1);
    mtcs(1);
  }
  expect("112222");
}

TEST_F(UnseenSwitch, OverflowOfTheKernelBeforeTheSwitch) {
  come(2, 1020);
  come(2, 1025);
  sync(1000, kIdleLoop);
  mtcs(1);
  writer_.ovf();
  writer_.fup(kSwitchCaller);
  tips(kIdleLoop, 1);
  mtcs(1);
  tips(kIdleLoop, 1);
  expect("122");
}

TEST_F(UnseenSwitch, OverflowOfTheKernelAfterWhichNothingTells) {
  come(2, 1020);
  come(2, 1025);
  sync(1000, kIdleLoop);
  tips(kIdleLoop, 2);
  writer_.ovf();
  writer_.fup(kIdleLoop);
  tips(kIdleLoop, 2);
  writer_.tip_pgd_suppressed();
  time(1100);
  writer_.tip_pge(kIdleLoop);
  tips(kIdleLoop, 1);
  expect("111?1?1?2");
}

TEST_F(UnseenSwitch, OverflowOfUserCodeThatLosesTheSwitch) {
  come(2, 1020);
  come(2, 1025);
  sync(1000, kUserLoop);
  tips(kUserLoop, 2);
  writer_.ovf();
  writer_.fup(kUserLoop);
  tips(kUserLoop, 2);
  mtcs(2);
  tips(kUserLoop, 1);
  expect("11222");
}

// The TSC at the end shows whether the overflow lost 256 MTCs (4096 ns) or none.
TEST_F(UnseenSwitch, OverflowOfUserCodeBeforeTheSwitch) {
  for (const bool window : {false, true}) {
    SCOPED_TRACE(window);
    bytes_.clear();
    contexts_ = {};
    come(1, 10);
    come(2, 1500);
    come(2, 1505);
    sync(1000, kUserLoop);
    mtcs(1);
    tips(kUserLoop, 2);
    writer_.ovf();
    writer_.fup(kUserLoop);
    mtcs(2);
    tips(kUserLoop, 1);
    writer_.tip_pgd_suppressed();
    mtcs(40);
    writer_.tip_pge(kUserLoop);
    tips(kUserLoop, 1);
    writer_.tip_pgd_suppressed();
    time(window ? 1696 + 4096 : 1696);
    expect(window ? "111?1?22" : "111122");
  }
}

// User code of which no packet tells whether it ran before exec or after it.
TEST_F(UnseenSwitch, ExecBetweenTwoTimingPackets) {
  options_.switch_entry = {};
  exec(1500);
  sync(1000, kUserLoop);
  mtcs(1);
  tips(kUserLoop, 1);
  writer_.tip_pgd_suppressed();
  runs(kUserLoop);   // of either
  runs(kOtherLoop);  // only of the new one
  runs(kUserLoop);
  time(2000);
  runs(kUserLoop);
  for (const bool per_cpu : {false, true}) {
    per_cpu_ = per_cpu;
    expect("111b?1b?1b1b1b1b1b1b");
  }
}

// No record names the program before exec: it may have the same code.
TEST_F(UnseenSwitch, ExecOfAnUnknownProgram) {
  options_.switch_entry = {};
  contexts_.add_thread(1, kTimeMin, {7, 1, kNoSpace});
  contexts_.add_thread(1, TimeNs{1500}, {7, 1, other_});
  sync(1000, 0);
  mtcs(1);
  runs(kUserLoop);
  time(2000);
  runs(kUserLoop);
  per_cpu_ = false;
  expect("1b?1b?1b1b");
}

// A program between two calls of exec: thread 1 may run code that otherwise only thread 2 has.
TEST_F(UnseenSwitch, TwoExecsAndASwitchBetweenTwoTimingPackets) {
  options_.switch_entry = {};
  exec(1500);
  contexts_.add_thread(1, TimeNs{1600}, {7, 1, space_});
  contexts_.add_switch(0, TimeNs{1700}, {7, 2, other_});
  sync(1000, 0);
  mtcs(1);
  runs(kOtherLoop);
  time(2000);
  runs(kOtherLoop);
  expect("2b?2b?2b2b");
}

TEST_F(UnseenSwitch, TheRecordIsRightIfTheFlowDoesNotShowTheSwitch) {
  come(2, 1020);
  come(2, 1025);
  sync(1000, kIdleLoop);
  tips(kIdleLoop, 1);
  mtcs(4);
  writer_.fup(kIdleLoop);  // an interrupt
  writer_.tip(kIdleLoop);
  tips(kIdleLoop, 1);
  expect("12");
}

TEST_F(UnseenSwitch, UserCodeAndSwitchesBetweenTwoTimingPackets) {
  options_.switch_entry = {};
  for (const uint64_t time_ns : {1020U, 1040U, 1060U}) {
    for (const uint64_t later : {0U, 3U}) come(time_ns == 1040U ? 1 : 2, time_ns + later);
  }
  const auto runs = [&] {
    writer_.tip_pge(kUserLoop);
    tips(kUserLoop, 1);
    writer_.tip_pgd_suppressed();
  };
  sync(1000, 0);
  for (unsigned i = 0; i < 4; ++i) runs();
  time(1100);
  runs();
  expect("2?2?2?2?2?2?2?2?22");
  bytes_.clear();
  sync(1000, 0);
  runs();
  for (unsigned i = 0; i < 4; ++i) {
    mtcs(i == 0 ? 2 : 1);  // 1032, 1048, 1064, 1080
    runs();
  }
  expect("111?1?2?2?2222");
  bytes_.clear();
  sync(1000, 0);
  mtcs(2);
  writer_.tip_pge(kUserLoop);
  tips(kUserLoop, 1);
  mtcs(1);  // at 1048 it still runs: it came after the switch at 1040
  tips(kUserLoop, 1);
  writer_.tip_pgd_suppressed();
  mtcs(4);
  expect("111");
}

}  // namespace
}  // namespace ptd::pt
