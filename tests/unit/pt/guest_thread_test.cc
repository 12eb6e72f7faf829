// Threads of guests whose context switches, or those of the host, are nearer to each other than the clock's packets.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ptdecode/guest.h"
#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"
#include "tests/unit/pt/timed_packets.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kLoopOfUsers = 0x400000, kLoopOfKernel = 0xffffffff81000000;  // JMP RAX

// Processes 100 and 200 of the host run a guest each; thread 1 of each guest has code.
class GuestThread : public testing::Test, protected TimedPackets {
 protected:
  GuestThread() {
    for (const uint32_t machine : {1U, 2U}) {
      spaces_[machine] = builder_.add_space(machine);
      add_made_code(builder_, spaces_[machine], kLoopOfUsers, jumps(2));
      add_made_code(builder_, kernel_of_machine(machine), kLoopOfKernel, jumps(2));
      add_guest(contexts_, {machine, host_of(machine), -1});
      add_guest_cpu(contexts_, host_of(machine), {machine, host_of(machine), 0});
      come(machine, 1, 10);
    }
    run_guest(1, 10);
    options_.image_is_of_root = true;
    set_clock(options_.config);
  }
  static int32_t host_of(uint32_t machine) { return static_cast<int32_t>(machine) * 100; }
  void come(uint32_t machine, int32_t tid, uint64_t time_ns) {
    const int32_t thread = thread_of_machine(machine, tid);
    add_guest_switch(contexts_, {machine, host_of(machine), 0}, TimeNs{time_ns}, {thread, thread, spaces_[machine]});
  }
  void run_guest(uint32_t machine, uint64_t time_ns) {
    contexts_.add_switch(0, TimeNs{time_ns}, {host_of(machine), host_of(machine), kNoSpace});
  }
  void sync(uint64_t tsc) {
    writer_.psb();
    time(tsc);
    writer_.pip(0x5000, true);
    writer_.mode_exec(ExecMode::bits64);
    writer_.psbend();
  }
  void run_user() {
    writer_.tip_pge(kLoopOfUsers);
    writer_.tip(kLoopOfUsers);
    writer_.tip_pgd_suppressed();
  }
  // Returns machine and thread of each block, with "?" if it is suspect.
  std::string threads(const Timeline& timeline, bool exact) {
    options_.exact_only = exact;
    Decoder decoder(timeline, contexts_, options_);
    decoder.begin(segment(true));
    std::string threads;
    Batch batch;
    int32_t tid = 0;
    for (bool more = true; more;) {
      more = decoder.next(batch);
      size_t mark = 0;
      for (size_t i = 0; i < batch.blocks.size(); ++i) {
        for (; mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark) tid = batch.marks[mark].tid;
        threads += std::to_string(machine_of_thread(tid)) + "." + std::to_string(own_number(tid)) +
                   (has(batch.blocks[i].flags, BlockFlag::suspect) ? "? " : " ");
      }
    }
    return threads;
  }
  // `counted`: where the host's switches can be counted.
  void expect(const std::string& want, const std::string& counted) {
    const Timeline timeline = builder_.build();
    contexts_.sort();
    for (const uint64_t switch_entry : {uint64_t{0}, kLoopOfKernel + 0x100}) {
      options_.switch_entry = Ip{switch_entry};
      for (const bool exact : {false, true}) EXPECT_EQ(threads(timeline, exact), switch_entry != 0 ? counted : want) << exact;
    }
  }

  void expect(const std::string& want) { expect(want, want); }

  TimelineBuilder builder_;
  ContextTrack contexts_;
  DecoderOptions options_;
  SpaceId spaces_[3];
};

TEST_F(GuestThread, SwitchesThatTheClockDoesNotTellApart) {
  come(1, 2, 1100);
  come(1, 1, 1200);
  sync(1000);
  run_user();
  run_user();
  time(1300);
  run_user();
  expect("1.1? 1.1? 1.1? 1.1? 1.1 1.1 ");
}

// Thread 3 has no code there.
TEST_F(GuestThread, OnlyThreadsWithCodeCount) {
  const int32_t other = thread_of_machine(1, 3);
  add_guest_switch(contexts_, {1, host_of(1), 0}, TimeNs{1100}, {other, other, builder_.add_space(1)});
  sync(1000);
  run_user();
  time(1300);
  expect("1.1 1.1 ");
}

TEST_F(GuestThread, TheClockTellsWhileUserCodeRuns) {
  come(1, 2, 1040);
  sync(1000);
  mtcs(2);
  writer_.tip_pge(kLoopOfUsers);
  mtcs(1);  // at 1048
  writer_.tip(kLoopOfUsers);
  writer_.tip_pgd_suppressed();
  time(1300);
  expect("1.2 1.2 ");
}

TEST_F(GuestThread, TheKernelReturnsToOneOfSeveral) {
  come(1, 2, 1100);
  sync(1000);
  writer_.tip_pge(kLoopOfKernel);
  writer_.tip(kLoopOfUsers);
  writer_.tip(kLoopOfUsers);
  writer_.tip(kLoopOfKernel);
  time(1200);
  writer_.tip(kLoopOfUsers);
  writer_.tip(kLoopOfUsers);
  writer_.tip_pgd_suppressed();
  expect("1.2 1.2? 1.2? 1.2? 1.2 1.2 ");
}

TEST_F(GuestThread, AThreadCallsExec) {
  const int32_t thread = thread_of_machine(1, 1);
  const SpaceId program = builder_.add_space(1);
  contexts_.add_thread(thread, TimeNs{10}, {thread, thread, spaces_[1]});
  contexts_.add_thread(thread, TimeNs{1100}, {thread, thread, program});
  add_made_code(builder_, program, kLoopOfUsers, jumps(2));
  sync(1000);
  run_user();
  time(1200);
  run_user();
  expect("1.1? 1.1? 1.1 1.1 ");
}

TEST_F(GuestThread, AnUnknownProgramCallsExec) {
  const int32_t thread = thread_of_machine(1, 1);
  contexts_.add_thread(thread, kTimeMin, {thread, thread, kNoSpace});
  contexts_.add_thread(thread, TimeNs{1100}, {thread, thread, spaces_[1]});
  sync(1000);
  run_user();
  time(1200);
  run_user();
  expect("1.1? 1.1? 1.1 1.1 ");
}

TEST_F(GuestThread, TheHostSwitchesBetweenTwoGuests) {
  run_guest(2, 1100);
  sync(1000);
  run_user();
  time(1200);
  run_user();
  expect("2.1? 2.1? 2.1 2.1 ", "1.1? 1.1? 2.1 2.1 ");
}

}  // namespace
}  // namespace ptd::pt
