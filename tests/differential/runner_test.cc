// The fast path against the exact walker: every block, mark, event and gap must be the same, on the corpus and on generated traces.
#include <gtest/gtest.h>

#include <cstdlib>

#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/timeline_builder.h"
#include "tests/bench/pokes.h"
#include "tests/bench/synthetic.h"
#include "tests/differential/trace_generator.h"
#include "tests/support/batch_compare.h"
#include "tests/support/corpus.h"
#include "tests/support/flow.h"
#include "tests/support/segments.h"

namespace ptd {
namespace {

/// How often a short trace is decoded by the same decoder, because the fast path creates memos and tables only for frequent code.
constexpr int kRounds = 6;

// Runs both decoders over all segments of `trace` repeatedly. Returns "" if they agree, and sets the number of blocks.
std::string compare(Bytes trace, const test::Machine& machine, pt::DecoderOptions options, size_t capacity, int rounds, uint64_t& blocks) {
  options.exact_only = false;
  pt::Decoder fast(machine.timeline, machine.contexts, options);
  options.exact_only = true;
  pt::Decoder exact(machine.timeline, machine.contexts, options);
  for (int round = 0; round < rounds; ++round) {
    for (const AuxSegment& segment : test::cut_segments(trace)) {
      const std::string difference = test::compare_decoders(fast, exact, segment, capacity);
      if (!difference.empty()) return difference;
    }
  }
  blocks += exact.stats().blocks;
  return {};
}

pt::DecoderOptions runner_options(const pt::Config& config) {
  pt::DecoderOptions options;
  options.config = config;
  options.config.errata = pt::errata_of(config.cpu);
  return options;
}

/// Writes a PSB with a time, at which 64-bit code continues at `ip`.
void begin_timed(pt::PacketWriter& writer, uint64_t ip) {
  writer.psb();
  writer.tsc(1000);
  writer.tma(0, 0);
  writer.mode_exec(ExecMode::bits64);
  writer.fup(ip);
  writer.psbend();
}

class RunnerOnCorpus : public testing::TestWithParam<std::string> {};

TEST_P(RunnerOnCorpus, EqualsWalker) {
  PTD_NEED_CORPUS();
  std::string why;
  const auto c = test::load_case(GetParam(), why);
  ASSERT_TRUE(c) << why;
  const auto machine = test::make_machine(c->memory);
  for (const auto compression : {pt::ReturnCompression::unknown, pt::ReturnCompression::on, pt::ReturnCompression::off}) {
    for (const size_t capacity : {size_t{7}, size_t{4096}}) {
      pt::Config config;
      config.cpu = c->cpu;
      config.return_compression = compression;
      uint64_t blocks = 0;
      EXPECT_EQ(compare(c->trace, machine, runner_options(config), capacity, 1, blocks), "");
    }
  }
}

std::string runner_case_name(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  for (char& ch : out) {
    if (ch == '-') ch = '_';
  }
  return out;
}
INSTANTIATE_TEST_SUITE_P(Corpus, RunnerOnCorpus, testing::ValuesIn(test::flow_cases()), runner_case_name);

TEST(GeneratedTraces, RunnerEqualsWalker) {
  uint64_t first = 0, count = 400;
  if (const char* env = std::getenv("PTDECODE_SEEDS")) {
    char* end = nullptr;
    first = std::strtoull(env, &end, 0);
    if (*end == ',') count = std::strtoull(end + 1, nullptr, 0);
  }
  uint64_t failures = 0, blocks = 0;
  for (uint64_t seed = first; seed < first + count && failures < 5; ++seed) {
    const auto options = test::options_of_seed(seed);
    const auto trace = test::generate(options);
    const auto machine = test::make_machine(trace.memory);
    const std::string difference = compare(trace.trace, machine, runner_options(trace.config), seed % 2 == 0 ? 4096 : 64, kRounds, blocks);
    EXPECT_EQ(difference, "") << describe(options);
    if (!difference.empty()) ++failures;
  }
  EXPECT_GT(blocks, 100 * count);
}

// Many blocks per branch, long TNTs, each with its own time, and small batches: the blocks of one TNT far exceed a batch.
TEST(RunnerBounds, OneTntFillsManyBatches) {
  constexpr int kJumps = 22;
  std::vector<std::byte> code;
  for (int i = 0; i < kJumps; ++i) code.insert(code.end(), {std::byte{0xeb}, std::byte{0}});  // jmp to the next
  constexpr int kBack = 256 - 2 * kJumps - 2;                                                 // a byte, to the first
  code.insert(code.end(), {std::byte{0x74}, std::byte{kBack}, std::byte{0xeb}, std::byte{kBack - 2}});
  test::SparseMemory memory;
  memory.add(0x1000, code);
  std::vector<std::byte> trace;
  pt::PacketWriter writer(trace);
  begin_timed(writer, 0x1000);
  uint64_t random = 1;
  for (int i = 1; i < 60; ++i) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    writer.mtc(static_cast<uint8_t>(i));
    writer.tnt(random >> 17, i % 3 == 0 ? 6 : 47);
  }
  pt::Config config;
  config.tsc_ctc_ratio_n = config.tsc_ctc_ratio_d = 1;
  config.has_mtc = true;
  for (const size_t capacity : {size_t{7}, size_t{256}}) {
    uint64_t blocks = 0;
    EXPECT_EQ(compare(trace, test::make_machine(memory), runner_options(config), capacity, 2, blocks), "");
    EXPECT_GT(blocks, 50'000U);
  }
}

// Code that is continually poked while it runs: immediates in its instructions alternate, so that each run has many versions, and at many
// times the clock leaves two of them possible.
TEST(RunnerBounds, CodePokedWhileItRuns) {
  constexpr uint64_t kInstructions = 1'000'000;
  for (const bench::Character& character : bench::characters()) {
    const bench::Synthetic made = bench::make_synthetic(character, kInstructions, 7);
    const pt::DecoderOptions options = runner_options(made.config);
    const auto segments = test::cut_segments(made.trace);
    const Interval time = bench::time_of(segments, test::make_machine(made.memory), options);
    const test::Machine machine = bench::make_poked_machine(made.memory, bench::PokePlace::hot, kInstructions / 40, time);
    uint64_t blocks = 0;
    EXPECT_EQ(compare(made.trace, machine, options, 4096, 1, blocks), "") << character.name;
    EXPECT_GT(blocks, kInstructions / 20);
  }
}

// A flow that is contradicted by a loop that consumes no packets: where this is detected must depend neither on the decoder nor on the ends
// of batches.
TEST(RunnerBounds, SilentLoopEndsAtOnePlace) {
  for (const int jumps : {1, 3, 30, 70, 200, 900}) {
    std::vector<std::byte> code{std::byte{0x74}, std::byte{0x02}, std::byte{0xeb}, std::byte{0xfc}};  // jz ring; jmp .-2
    for (int i = 0; i < jumps - 1; ++i) code.insert(code.end(), {std::byte{0x90}, std::byte{0xeb}, std::byte{0}});
    const auto back = static_cast<uint32_t>(-3 * jumps - 3);
    code.insert(code.end(), {std::byte{0x90}, std::byte{0xe9}});
    for (int i = 0; i < 4; ++i) code.push_back(static_cast<std::byte>(back >> (8 * i)));
    test::SparseMemory memory;
    memory.add(0x1000, code);
    const auto machine = test::make_machine(memory);
    std::vector<std::byte> trace;
    pt::PacketWriter writer(trace);
    writer.psb();
    writer.mode_exec(ExecMode::bits64);
    writer.fup(0x1000);
    writer.psbend();
    for (int i = 0; i < 50; ++i) writer.tnt(0, 6);
    writer.tnt(0b000100, 6);
    writer.tnt(0, 6);
    pt::DecoderOptions options = runner_options({});
    pt::Decoder fast(machine.timeline, machine.contexts, options);
    options.exact_only = true;
    pt::Decoder exact(machine.timeline, machine.contexts, options);
    for (const auto& [one, other] : {std::pair<size_t, size_t>{4096, 4096}, {4096, 7}, {7, 4096}, {64, 129}}) {
      for (int round = 0; round < 2; ++round) {
        for (const AuxSegment& segment : test::cut_segments(trace)) {
          EXPECT_EQ(test::compare_decoders(fast, exact, segment, one, other), "")
              << jumps << " jumps, batches of " << one << " and " << other;
        }
      }
    }
    EXPECT_GT(exact.stats().blocks, 8 * (300 + static_cast<uint64_t>(jumps)));
  }
}

constexpr uint64_t kAt = 0x1000;

/// A process with code at kAt, whose byte at kAt + 1 changes from `before` to `after` at `time_ns`.
test::Machine machine_with_change(const std::vector<std::byte>& code, std::byte before, std::byte after, uint64_t time_ns) {
  test::Machine machine;
  TimelineBuilder builder;
  Section section;
  section.space = builder.add_space();
  section.ip = Ip{kAt};
  section.size_bytes = code.size();
  auto owner = std::make_shared<std::vector<std::byte>>(code);
  section.code = {owner, Bytes(*owner)};
  machine.contexts.add_switch(0, kTimeMin, {1, 1, section.space});
  machine.contexts.sort();
  Edit edit;
  edit.space = section.space;
  edit.ip = Ip{kAt + 1};
  edit.old_bytes = {before};
  edit.new_bytes = {after};
  edit.time = {TimeNs{time_ns}, TimeNs{time_ns}};
  builder.add_section(std::move(section));
  builder.add_edit(std::move(edit));
  machine.timeline = builder.build();
  return machine;
}

/// `ticks`: of the TSC in one of the crystal clock.
pt::DecoderOptions options_with_mtc(uint32_t ticks) {
  pt::Config config;
  config.tsc_ctc_ratio_n = ticks;
  config.tsc_ctc_ratio_d = 1;
  config.has_mtc = true;
  return runner_options(config);
}

// A record was lost without a LOST record: the path that the packets finally contradict began `turns` branches before. The walker may find
// the other path only if the fast path has not output the wrong one.
std::string compare_stray(int turns, size_t capacity, uint64_t& healed) {
  const std::vector<std::byte> code = {std::byte{0x74}, std::byte{0x06},  // jz 1008, or 1006
                                       std::byte{0x90}, std::byte{0x90}, std::byte{0x90},
                                       std::byte{0x90}, std::byte{0x74}, std::byte{0xfe},  // 1006: jz 1006
                                       std::byte{0x74}, std::byte{0xfe},                   // 1008: jz 1008
                                       std::byte{0xff}, std::byte{0xe0}};                  // jmp *rax
  // The trace executes the new bytes, before the time of the change.
  const test::Machine machine = machine_with_change(code, std::byte{0x06}, std::byte{0x04}, 1'000'000);

  std::vector<std::byte> trace;
  pt::PacketWriter writer(trace);
  begin_timed(writer, kAt);
  for (int i = 0; i < turns; ++i) writer.tnt(1, 1);
  writer.tnt(0b01110, 5);  // leaves the first loop, executes the second one, and leaves it
  writer.mtc(1);
  pt::DecoderOptions options = options_with_mtc(1);
  pt::Decoder fast(machine.timeline, machine.contexts, options);
  options.exact_only = true;
  pt::Decoder exact(machine.timeline, machine.contexts, options);
  std::string difference;
  for (const AuxSegment& segment : test::cut_segments(trace)) difference += test::compare_decoders(fast, exact, segment, capacity);
  healed = exact.stats().healed_by_packets;
  return difference;
}

TEST(RunnerBounds, NoOtherWayFromBeforeWhatWasGiven) {
  for (const size_t capacity : {size_t{16}, size_t{4096}}) {
    uint64_t healed = 0;
    EXPECT_EQ(compare_stray(100, capacity, healed), "");
    EXPECT_EQ(healed, 1U);
    EXPECT_EQ(compare_stray(900, capacity, healed), "");
    EXPECT_EQ(healed, 0U);
  }
}

// The clock goes past the time at which the next segment is said to begin, and then past a change of the code that runs. The fast path
// takes the segment's end as the latest time of what it follows.
TEST(RunnerBounds, ClockGoesPastTheEndOfTheSegment) {
  const std::vector<std::byte> code = {std::byte{0xb8}, std::byte{1},   std::byte{0}, std::byte{0}, std::byte{0},  // mov eax, 1
                                       std::byte{0x74}, std::byte{0xf9}};                                          // jz 1000
  for (uint64_t change = 3'500; change < 20'000; change += 1'500) {
    const test::Machine machine = machine_with_change(code, std::byte{1}, std::byte{2}, change);
    std::vector<std::byte> trace;
    pt::PacketWriter writer(trace);
    begin_timed(writer, kAt);
    for (int i = 1; i < 20; ++i) {
      writer.tnt(0b111, 3);
      writer.tnt(0b1, 1);
      writer.mtc(static_cast<uint8_t>(i));
    }
    pt::DecoderOptions options = options_with_mtc(1000);
    pt::Decoder fast(machine.timeline, machine.contexts, options);
    options.exact_only = true;
    pt::Decoder exact(machine.timeline, machine.contexts, options);
    for (int round = 0; round < kRounds; ++round) {
      for (const uint64_t end : {2'000, 5'500, 9'000, 30'000}) {
        for (AuxSegment segment : test::cut_segments(trace)) {
          segment.time.last = TimeNs{end};
          EXPECT_EQ(test::compare_decoders(fast, exact, segment, 4096), "") << "changes at " << change << ", ends at " << end;
        }
      }
    }
    EXPECT_GT(exact.stats().blocks, 4U * kRounds * 70);
  }
}

}  // namespace
}  // namespace ptd
