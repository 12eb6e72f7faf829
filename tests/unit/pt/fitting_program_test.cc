// User code between two timing packets, of one of several programs at the same address: the packets that follow contradict some of them.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"
#include "tests/unit/pt/made_code.h"
#include "tests/unit/pt/timed_packets.h"

namespace ptd::pt {
namespace {

constexpr uint64_t kFittingLoop = 0x400000;

// Programs a: JMP RAX; b: JNZ kFittingLoop, JMP RAX; c: the same with two JNZ; d: JMP to missing code. Threads 1 to 4 run one each.
class FittingProgram : public testing::Test, protected TimedPackets {
 protected:
  FittingProgram() {
    TimelineBuilder builder;
    for (const auto& code :
         {std::vector<uint8_t>{0xff, 0xe0}, {0x75, 0xfe, 0xff, 0xe0}, {0x75, 0xfe, 0x75, 0xfc, 0xff, 0xe0}, {0xeb, 0x7e}}) {
      std::vector<std::byte> bytes;
      for (const uint8_t byte : code) bytes.push_back(std::byte{byte});
      spaces_.push_back(builder.add_space());
      add_made_code(builder, spaces_.back(), kFittingLoop, bytes);
    }
    timeline_ = builder.build();
    set_clock(options_.config);
    come(1, 10);
    begin();
  }
  void begin() {
    writer_.psb();
    time(1000);
    writer_.mode_exec(ExecMode::bits64);
    writer_.psbend();
  }
  void come(int32_t tid, uint64_t time_ns) { contexts_.add_switch(0, TimeNs{time_ns}, {tid, tid, spaces_[static_cast<size_t>(tid) - 1]}); }
  /// Packets of a program for `rounds` of its loop.
  void run(char program, unsigned rounds) {
    for (; rounds != 0; --rounds) {
      if (program != 'a') writer_.tnt(0, program == 'b' ? 1 : 2);
      writer_.tip(kFittingLoop);
    }
  }
  void leave(char program) {
    if (program == 'b') writer_.tnt(0, 1);
    writer_.tip_pgd_suppressed();
  }
  [[nodiscard]] char name_of(SpaceId space) const { return static_cast<char>('a' + (std::ranges::find(spaces_, space) - spaces_.begin())); }
  /// Returns the programs of the blocks, with "?" if they are suspect and "|" for a gap.
  std::string programs(bool exact) {
    contexts_.sort();
    options_.exact_only = exact;
    Decoder decoder(timeline_, contexts_, options_);
    decoder.begin(segment(per_cpu_));
    std::string programs;
    char program = '-';
    Batch batch;
    for (bool more = true; more;) {
      more = decoder.next(batch);
      size_t mark = 0, gap = 0;
      for (size_t i = 0; i <= batch.blocks.size(); ++i) {
        for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) programs += '|';
        if (i == batch.blocks.size()) break;
        for (; mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark) program = name_of(batch.marks[mark].space);
        programs += program;
        if (has(batch.blocks[i].flags, BlockFlag::suspect)) programs += '?';
      }
    }
    return programs;
  }
  void expect(const std::string& want) {
    for (const bool exact : {false, true}) EXPECT_EQ(programs(exact), want) << exact;
  }

  Timeline timeline_;
  ContextTrack contexts_;
  DecoderOptions options_;
  std::vector<SpaceId> spaces_;
  bool per_cpu_ = true;
};

TEST_F(FittingProgram, OfAThreadThatComesOrGoes) {
  come(2, 1020);
  for (const char program : {'a', 'b'}) {
    writer_.tip_pge(kFittingLoop);
    run(program, 1);
    leave(program);
  }
  time(1100);
  writer_.tip_pge(kFittingLoop);
  leave('b');
  expect("a?a?b?b?b?b?bb");
}

TEST_F(FittingProgram, AfterAnOverflow) {
  come(2, 1020);
  writer_.tip_pge(kFittingLoop);
  writer_.ovf();
  writer_.fup(kFittingLoop);
  run('b', 1);
  leave('b');
  expect("|b?b?b?b?");
}

TEST_F(FittingProgram, OfAThreadThatCallsExec) {
  contexts_.add_thread(1, TimeNs{10}, {1, 1, spaces_[0]});
  contexts_.add_thread(1, TimeNs{1020}, {1, 1, spaces_[1]});
  for (const char program : {'a', 'b'}) {
    writer_.tip_pge(kFittingLoop);
    run(program, 1);
    leave(program);
  }
  for (const bool per_cpu : {false, true}) {
    per_cpu_ = per_cpu;
    expect("a?a?b?b?b?b?");
  }
}

// Another program must fit well past the packets that contradict the likeliest one.
TEST_F(FittingProgram, NoneFitsForLong) {
  come(2, 1020);
  come(3, 1030);
  writer_.tip_pge(kFittingLoop);
  run('b', 10);
  run('a', 1);
  expect("c?c?|");
}

TEST_F(FittingProgram, FitsForLong) {
  come(2, 1020);
  come(3, 1030);
  writer_.tip_pge(kFittingLoop);
  run('b', 40);
  run('a', 1);
  std::string want;
  for (unsigned i = 0; i < 81; ++i) want += "b?";
  expect(want + "|");
}

// Missing code contradicts nothing.
TEST_F(FittingProgram, CodeOfTheLikeliestIsMissing) {
  come(4, 1020);
  writer_.tip_pge(kFittingLoop);
  run('a', 1);
  leave('a');
  expect("d?|");
  bytes_.clear();
  begin();
  writer_.tip_pge(kFittingLoop);
  run('a', 64);
  std::string want;
  for (unsigned i = 0; i < 64; ++i) want += "a?";
  expect(want);
}

}  // namespace
}  // namespace ptd::pt
