// The output for a segment does not depend on segments decoded before, or on the code of another space. Hand-written traces.
#include <gtest/gtest.h>

#include <cstring>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/flow_cursor.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

constexpr uint32_t kNopWord = 0xd503201f, kBackOne = 0x17ffffff;  // b .-4
constexpr uint8_t kE = 0xf7, kN = 0xf6;
constexpr uint8_t kEl1 = 0x31, kA32El1 = 0x21, kA32El2 = 0x22;  // of an address with context: level and width

// Packets by the patterns of [ETMv4] "Descriptions of packets".
struct Trace {
  std::vector<uint8_t> bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04};  // A-Sync, Trace Info, Trace On
  Trace& put(std::initializer_list<uint8_t> more) {
    bytes.insert(bytes.end(), more);
    return *this;
  }
  Trace& place(uint64_t address) {
    put({static_cast<uint8_t>((address >> 2) & 0x7f), static_cast<uint8_t>((address >> 9) & 0x7f)});
    for (int i = 2; i < 8; ++i) bytes.push_back(static_cast<uint8_t>(address >> (8 * i)));
    return *this;
  }
  Trace& address(uint64_t at) { return put({0x9d}).place(at); }
  Trace& address(uint64_t at, uint8_t context) { return put({0x85}).place(at).put({context}); }
  Trace& source(uint64_t at) { return put({0xb8}).place(at); }
  Trace& exception(uint64_t from) { return put({0x06, 0x5c}).address(from); }
};

template <typename Word>
void add_code(TimelineBuilder& builder, SpaceId space, uint64_t ip, const std::vector<Word>& words, Interval live = {}) {
  Section section;
  section.ip = Ip{ip};
  section.space = space;
  section.size_bytes = words.size() * sizeof(Word);
  std::vector<std::byte> code(section.size_bytes);
  std::memcpy(code.data(), words.data(), code.size());
  section.code = own_bytes(code);
  section.live = live;
  builder.add_section(std::move(section));
}

struct Flow {
  std::vector<std::tuple<uint32_t, uint64_t, uint16_t>> blocks;  // space, place, instructions
  std::vector<uint16_t> flags;
  std::vector<std::pair<GapReason, uint64_t>> gaps;
  std::vector<int32_t> threads;  // of exceptions
  bool operator==(const Flow&) const = default;
};

Flow decode(arm::Decoder& decoder, const Trace& trace, Interval time = {TimeNs{0}, TimeNs{100000}}, int32_t cpu = -1,
            Interval written = {}) {
  AuxSegment segment;
  segment.written = written;
  segment.bytes = std::as_bytes(std::span(trace.bytes));
  segment.time = time;
  segment.cpu = cpu;
  decoder.begin(segment);
  Flow flow;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch);
    for (const Block& block : batch.blocks) {
      const BlockInfo& info = decoder.blocks().info(block.node);
      flow.blocks.emplace_back(info.space.value, info.ip.value, info.instructions);
      flow.flags.push_back(block.flags);
    }
    for (const Gap& gap : batch.gaps) flow.gaps.emplace_back(gap.reason, gap.ip.value);
    FlowCursor cursor;
    cursor.begin(batch);
    for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
      if (item == FlowItem::event && cursor.event().kind == EventKind::async_branch) flow.threads.push_back(cursor.context().tid);
    }
  }
  return flow;
}

const ContextTrack kNoContexts;

// Decodes with the fast path and with the exact walk.
Flow decode(const Timeline& timeline, arm::DecoderOptions options, const Trace& trace, Interval time = {TimeNs{0}, TimeNs{100000}},
            const ContextTrack& contexts = kNoContexts, int32_t cpu = -1, Interval written = {}) {
  arm::Decoder fast(timeline, contexts, options);
  options.follow.exact_only = true;
  arm::Decoder exact(timeline, contexts, options);
  Flow flow = decode(fast, trace, time, cpu, written);
  EXPECT_TRUE(flow == decode(exact, trace, time, cpu, written));
  return flow;
}

arm::DecoderOptions etmv4(SpaceId space) {
  arm::DecoderOptions options;
  options.config.protocol = arm::Protocol::etmv4;
  options.follow.default_space = space;
  return options;
}

}  // namespace

// A return by the return stack continues in the current space; what was cached for it says nothing about the space of the call.
TEST(ArmHistory, ACallOfOneSpaceLeadsToNoCodeOfAnother) {
  TimelineBuilder builder;
  const SpaceId first = builder.add_space(), second = builder.add_space();
  // BLEQ 1010; NOP; B 1000; NOP; BX LR
  add_code<uint32_t>(builder, first, 0x1000, {0x0b000002, 0xe1a00000, 0xeafffffd, 0xe1a00000, 0xe12fff1e});
  add_code<uint32_t>(builder, second, 0x1000, {0xe1a00000, 0xe1a00000, 0xe1a00000, 0xe1a00000, 0xeafffff9, 0xe1a00000});
  add_code<uint32_t>(builder, second, 0x2000, {0xe12fff1e});
  const Timeline timeline = builder.build();
  arm::DecoderOptions options = etmv4(first);
  options.config.configr = 1U << 12;  // return stack
  options.follow.worlds.fill(first);
  options.follow.worlds[static_cast<size_t>(arm::World::el2_non_secure)] = second;
  Trace trace;
  trace.address(0x1000, kA32El1).put({kE}).exception(0x1010).address(0x2000, kA32El2).put({kE, kE}).exception(0x1000);
  trace.address(0x1000, kA32El1).put({kN, kE});
  const Flow flow = decode(timeline, options, trace);
  ASSERT_GE(flow.blocks.size(), 2U);
  const std::tuple<uint32_t, uint64_t, uint16_t> call{first.value, 0x1000, 1}, behind{first.value, 0x1004, 2};
  EXPECT_EQ(flow.blocks[flow.blocks.size() - 2], call);
  EXPECT_EQ(flow.blocks.back(), behind);
}

// MOVZ w0, #i; B . with another i every 100 ns. Over a long time the code has too many versions, which is no proof that it has none in a
// part of that time.
TEST(ArmHistory, TooManyVersionsOfOneTimeAreNoHoleInAnother) {
  constexpr uint32_t kMovz = 0x52800000, kBranchHere = 0x14000000;
  constexpr uint32_t kVersions = 300;
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  for (uint32_t i = 0; i < kVersions; ++i) {
    add_code<uint32_t>(builder, space, 0x1000, {kMovz | i << 5, kBranchHere}, {TimeNs{uint64_t{100} * i}, TimeNs{uint64_t{100} * i + 99}});
  }
  const Timeline timeline = builder.build();
  Trace trace;
  trace.address(0x1000, kEl1).put({kE});
  for (const bool exact : {false, true}) {
    arm::DecoderOptions options = etmv4(space);
    options.follow.worlds.fill(space);
    options.follow.exact_only = exact;
    arm::Decoder decoder(timeline, kNoContexts, options);
    using Gaps = std::vector<std::pair<GapReason, uint64_t>>;
    EXPECT_TRUE(decode(decoder, trace, {TimeNs{10}, TimeNs{20}}).gaps.empty());
    EXPECT_EQ(decode(decoder, trace).gaps, (Gaps{{GapReason::limit, 0x1000}}));
    const Flow later = decode(decoder, trace, {TimeNs{15010}, TimeNs{15020}});
    EXPECT_TRUE(later.gaps.empty());
    ASSERT_EQ(later.blocks.size(), 1U);
    EXPECT_EQ(later.blocks[0], std::tuple(space.value, uint64_t{0x1000}, uint16_t{2}));
    EXPECT_FALSE(has(later.flags[0], BlockFlag::ambiguous));
    const Flow some = decode(decoder, trace, {TimeNs{0}, TimeNs{1999}});  // 20 versions
    EXPECT_TRUE(some.gaps.empty());
    ASSERT_EQ(some.blocks.size(), 1U);
    EXPECT_TRUE(has(some.flags[0], BlockFlag::ambiguous));
  }
}

// NOP, B . before exec, B . after it. The thread's context id is the same, and no other thread ran meanwhile.
TEST(ArmHistory, AThreadThatCalledExecHasItsNewCode) {
  constexpr uint64_t kVector = 0xffff000000001000;
  constexpr uint32_t kBranchHere = 0x14000000, kEret = 0xd69f03e0;
  TimelineBuilder builder;
  const SpaceId before = builder.add_space(), after = builder.add_space();
  add_code<uint32_t>(builder, before, 0x1000, {kNopWord, kBranchHere});
  add_code<uint32_t>(builder, after, 0x1000, {kBranchHere});
  add_code<uint32_t>(builder, kKernelSpace, kVector, {kEret});
  const Timeline timeline = builder.build();
  ContextTrack contexts;
  contexts.add_thread(7, TimeNs{0}, {.pid = 7, .tid = 7, .space = before});
  contexts.add_thread(7, TimeNs{4000}, {.pid = 7, .tid = 7, .space = after});
  contexts.sort();
  arm::DecoderOptions options = etmv4(before);
  options.follow.names = arm::ContextNames::context_id;
  options.follow.time.time_mult = 1;
  Trace trace;
  trace.put({0x85}).place(0x1000).put({0xb0, 7, 0, 0, 0, kE}).exception(0x1004);   // EL0, id 7
  trace.put({0x85}).place(kVector).put({0xb1, 7, 0, 0, 0, 0x02, 0x88, 0x27, kE});  // EL1; timestamp 5000
  trace.put({0x85}).place(0x1000).put({0xb0, 7, 0, 0, 0, kE});
  arm::Decoder decoder(timeline, contexts, options);
  const Flow flow = decode(decoder, trace);
  ASSERT_EQ(flow.blocks.size(), 3U);
  EXPECT_EQ(flow.blocks[0], (std::tuple<uint32_t, uint64_t, uint16_t>{before.value, 0x1000, 2}));
  EXPECT_EQ(flow.blocks[2], (std::tuple<uint32_t, uint64_t, uint16_t>{after.value, 0x1000, 1}));
}

/// A trace of user code: thread 7 calls exec at 4000, and makes thread 8 at 3000.
class ArmThreads : public testing::Test {
 protected:
  static constexpr uint64_t kCode = 0x1000, kOther = 0x2000, kBoth = 0x3000, kNext = 0x4000;
  ArmThreads() {
    constexpr uint32_t kBranchHere = 0x14000000;
    TimelineBuilder builder;
    before_ = builder.add_space();
    after_ = builder.add_space();
    child_ = builder.add_space();
    add_code<uint32_t>(builder, before_, kCode, {kNopWord, kBranchHere});
    add_code<uint32_t>(builder, before_, kOther, {kNopWord, kNopWord, kBranchHere});
    add_code<uint32_t>(builder, after_, kOther, {kBranchHere}, {TimeNs{4000}, kTimeMax});
    add_code<uint32_t>(builder, child_, kOther, {kNopWord, kBranchHere}, {TimeNs{3000}, kTimeMax});
    constexpr uint32_t kBranchToNext = 0x14000400;
    add_code<uint32_t>(builder, before_, kBoth, {kBranchToNext});
    add_code<uint32_t>(builder, after_, kBoth, {kBranchToNext}, {TimeNs{4000}, kTimeMax});
    add_code<uint32_t>(builder, after_, kNext, {kBranchHere}, {TimeNs{4000}, kTimeMax});
    timeline_ = builder.build();
    contexts_.add_thread(7, TimeNs{0}, {.pid = 7, .tid = 7, .space = before_});
    contexts_.add_thread(7, TimeNs{4000}, {.pid = 7, .tid = 7, .space = after_});
    contexts_.add_thread(8, TimeNs{3000}, {.pid = 8, .tid = 8, .space = child_});
    contexts_.sort();
    // Thread 7 runs, and calls the kernel. At 1000.
    trace_.put({0x85}).place(kCode).put({0xb0, 7, 0, 0, 0, kE, 0x02, 0xe8, 0x07}).put({0x06, 0x05}).address(kCode + 4).put({0x04});
  }
  [[nodiscard]] Flow run(arm::ContextNames names = arm::ContextNames::context_id, bool use_time = true, int32_t cpu = -1) const {
    arm::DecoderOptions options = etmv4(before_);
    options.follow.names = names;
    options.follow.time.time_mult = 1;
    options.follow.use_time = use_time;
    return decode(timeline_, options, trace_, use_time ? Interval{TimeNs{0}, TimeNs{100000}} : Interval{}, contexts_, cpu, written_);
  }
  /// Replaces the trace: thread 7 is at `at`.
  void start_at(uint64_t at) { trace_ = Trace().put({0x85}).place(at).put({0xb0, 7, 0, 0, 0}); }
  /// Runs without timestamps in this time.
  Flow run_undated(Interval written, arm::ContextNames names = arm::ContextNames::context_id) {
    written_ = written;
    return run(names, false, 1);
  }
  /// Thread 7 runs on cpu 1, then thread 8.
  void add_switches() {
    contexts_.add_switch(1, TimeNs{0}, {.pid = 7, .tid = 7, .space = before_});
    contexts_.add_switch(1, TimeNs{3500}, {.pid = 8, .tid = 8, .space = child_});
    contexts_.sort();
  }
  static std::vector<bool> suspects(const Flow& flow) {
    std::vector<bool> which;
    for (const uint16_t flags : flow.flags) which.push_back(has(flags, BlockFlag::suspect));
    return which;
  }
  using Blocks = decltype(Flow::blocks);
  Interval written_;
  static constexpr size_t kIdAt = 26;  // of the context in the trace
  static constexpr std::initializer_list<uint8_t> kAt5000 = {0x02, 0x88, 0x27};

  SpaceId before_, after_, child_;
  Timeline timeline_;
  ContextTrack contexts_;
  Trace trace_;
};

// No packet names a context after exec, and the next timestamp comes later.
TEST_F(ArmThreads, ExecBetweenTwoTimestamps) {
  trace_.address(kOther).put({kE}).put(kAt5000).put({kE});
  const Flow flow = run();
  EXPECT_EQ(flow.blocks, (Blocks{{before_.value, kCode, 2}, {after_.value, kOther, 1}, {after_.value, kOther, 1}}));
  EXPECT_EQ(suspects(flow), std::vector<bool>(3, false));
  EXPECT_TRUE(flow.gaps.empty());
}

// The system call returns to its place: exec comes later.
TEST_F(ArmThreads, AnotherSystemCallBeforeExec) {
  trace_.address(kCode + 4).put({kE}).put({0x06, 0x05}).address(kCode + 4).put({0x04}).address(kOther).put({kE}).put(kAt5000);
  EXPECT_EQ(run().blocks, (Blocks{{before_.value, kCode, 2}, {before_.value, kCode + 4, 1}, {after_.value, kOther, 1}}));
}

// The exception packet before it is lost, so nothing tells whether exec has returned: the flow is marked up to the timestamp.
TEST_F(ArmThreads, WhereExecMayHaveReturnedTheFlowIsMarked) {
  trace_ = {};
  trace_.put({0x85}).place(kOther).put({0xb0, 7, 0, 0, 0, kE}).put(kAt5000).address(kOther).put({kE});
  const Flow flow = run();
  EXPECT_EQ(flow.blocks, (Blocks{{before_.value, kOther, 3}, {after_.value, kOther, 1}}));
  EXPECT_EQ(suspects(flow), (std::vector<bool>{true, false}));
}

// Only the first program of thread 7 maps the code, and the other thread has one program.
TEST_F(ArmThreads, WithoutTimes) {
  trace_.address(kCode + 4).put({kE}).put({0x06, 0x05}).address(kCode + 4).put({0x04});
  trace_.put({0x81, 0xb0, 8, 0, 0, 0}).address(kOther).put({kE}).put({0x06, 0x05}).address(kOther + 4).put({0x04});
  const Flow flow = run(arm::ContextNames::context_id, false);
  EXPECT_EQ(flow.blocks, (Blocks{{before_.value, kCode, 2}, {before_.value, kCode + 4, 1}, {child_.value, kOther, 2}}));
  EXPECT_EQ(suspects(flow), std::vector<bool>(3, false));
  EXPECT_TRUE(flow.gaps.empty());
}

// Both programs map the code, and the AUX records tell which one it is, unless exec is between them.
TEST_F(ArmThreads, WithoutTimesBetweenAuxRecords) {
  start_at(kOther);
  trace_.put({kE});
  const Flow early = run_undated({TimeNs{1}, TimeNs{3000}}), late = run_undated({TimeNs{4500}, TimeNs{5000}}),
             both = run_undated({TimeNs{1}, TimeNs{5000}});
  EXPECT_EQ(early.blocks, (Blocks{{before_.value, kOther, 3}}));
  EXPECT_EQ(late.blocks, (Blocks{{after_.value, kOther, 1}}));
  EXPECT_EQ(both.blocks, (Blocks{{before_.value, kOther, 3}}));
  EXPECT_EQ(suspects(early), std::vector<bool>{false});
  EXPECT_EQ(suspects(late), std::vector<bool>{false});
  EXPECT_EQ(suspects(both), std::vector<bool>{true});
  EXPECT_EQ(run_undated({}).blocks, both.blocks);
  EXPECT_EQ(run_undated({}).flags, both.flags);
}

// The first record of the thread is of exec: no record names the program before it.
TEST_F(ArmThreads, BeforeTheFirstExec) {
  contexts_ = {};
  contexts_.add_thread(7, kTimeMin, {.pid = 7, .tid = 7});
  contexts_.add_thread(7, TimeNs{4000}, {.pid = 7, .tid = 7, .space = after_});
  contexts_.sort();
  start_at(kOther);
  trace_.put({kE});
  const Flow undated = run_undated({TimeNs{1}, TimeNs{5000}}), after = run_undated({TimeNs{4000}, TimeNs{5000}});
  EXPECT_EQ(suspects(undated), std::vector<bool>{true});
  EXPECT_EQ(suspects(after), std::vector<bool>{false});
}

// exec returns to another place than other system calls, but so does a signal.
TEST_F(ArmThreads, WithoutTimesAfterExec) {
  trace_.address(kOther).put({kE});
  const Flow flow = run_undated({TimeNs{1}, TimeNs{5000}});
  EXPECT_EQ(flow.blocks, (Blocks{{before_.value, kCode, 2}, {after_.value, kOther, 1}}));
  EXPECT_EQ(suspects(flow), (std::vector<bool>{false, true}));
}

// Code that only the other program has is no missing code.
TEST_F(ArmThreads, WithoutTimesTheOtherProgramIsTriedAfterAContradiction) {
  start_at(kBoth);
  trace_.put({kE, kE}).address(kBoth).put({kE, kE}).address(kNext).put({kE});
  const Flow flow = run_undated({TimeNs{1}, TimeNs{5000}});
  EXPECT_EQ(flow.gaps, (decltype(flow.gaps){{GapReason::image_mismatch, kNext}}));
  EXPECT_EQ(flow.blocks, (Blocks{{before_.value, kBoth, 1}, {after_.value, kBoth, 1}, {after_.value, kNext, 1}, {after_.value, kNext, 1}}));
  EXPECT_EQ(suspects(flow), (std::vector<bool>{true, true, true, true}));
}

// The cpu's records name the threads.
TEST_F(ArmThreads, WithoutTimesAndIds) {
  add_switches();
  start_at(kOther);
  trace_.put({kE});
  constexpr auto kNone = arm::ContextNames::none;
  const Flow early = run_undated({TimeNs{1}, TimeNs{3000}}, kNone), late = run_undated({TimeNs{3600}, TimeNs{5000}}, kNone);
  const Flow both = run_undated({TimeNs{1}, TimeNs{3600}}, kNone);
  EXPECT_EQ(early.blocks, (Blocks{{before_.value, kOther, 3}}));
  EXPECT_EQ(late.blocks, (Blocks{{child_.value, kOther, 2}}));
  EXPECT_EQ(both.blocks, (Blocks{{before_.value, kOther, 3}}));
  EXPECT_EQ(suspects(early), std::vector<bool>{false});
  EXPECT_EQ(suspects(late), std::vector<bool>{false});
  EXPECT_EQ(suspects(both), std::vector<bool>{true});
}

// The records name one thread, at a later time.
TEST_F(ArmThreads, TheOnlyThreadOfACpuWithoutTimesAndIds) {
  contexts_.add_switch(1, TimeNs{3500}, {.pid = 8, .tid = 8, .space = child_});
  contexts_.add_switch(1, TimeNs{3600}, {.pid = 0, .tid = 0});
  contexts_.sort();
  trace_ = {};
  trace_.put({0x85}).place(kOther).put({0x30, kE});
  const Flow flow = run(arm::ContextNames::none, false, 1);
  EXPECT_EQ(flow.blocks, (Blocks{{child_.value, kOther, 2}}));
  EXPECT_EQ(suspects(flow), std::vector<bool>(1, false));
}

// Threads of one program wait at one place: after the switch the flow goes on where the other thread left it.
TEST_F(ArmThreads, ASwitchToAThreadAtTheSamePlaceWithoutIds) {
  add_switches();
  start_at(kOther);
  trace_.put({kE, 0x02, 0xe8, 0x07}).put({0x06, 0x05}).address(kOther).put({0x04}).address(kOther).put({kE}).put(kAt5000);
  const Flow flow = run(arm::ContextNames::none, true, 1);
  EXPECT_EQ(suspects(flow), (std::vector<bool>{false, true}));
}

// Thread 7 is at kCode + 4, and the flow goes on there after an interrupt and a record of a switch. Blocks before and after it:
class ArmSwitches : public ArmThreads {
 protected:
  [[nodiscard]] Flow run_to(Context to, bool is_long, bool is_left = false) {
    contexts_ = {};
    contexts_.add_switch(1, TimeNs{0}, thread_7());
    contexts_.add_switch(1, TimeNs{3500}, to);
    if (to.tid == 0) contexts_.add_switch(1, TimeNs{49000}, thread_7());
    contexts_.sort();
    trace_ = Trace().put({0x85}).place(kCode).put({0xb0, 0, 0, 0, 0, kE, 0x02, 0xe8, 0x07});
    interrupt().address(kCode + 4).put({kE});
    if (is_left) interrupt();
    is_long ? trace_.put({0x02, 0xd0, 0x86, 0x03}) : trace_.put(kAt5000);  // at 50000
    arm::DecoderOptions options = etmv4(kNoSpace);
    options.follow.time.time_mult = 1;
    return decode(timeline_, options, trace_, {TimeNs{0}, TimeNs{100000}}, contexts_, 1);
  }
  Trace& interrupt() { return trace_.put({0x06, 0x1d}).address(kCode + 4).put({0x04}); }
  [[nodiscard]] Context thread_7() const { return {.pid = 7, .tid = 7, .space = before_}; }
  [[nodiscard]] Blocks all_of_7() const { return {{before_.value, kCode, 2}, {before_.value, kCode + 4, 1}}; }
};

// No record names the new thread's program, or its code at this place.
TEST_F(ArmSwitches, ToAThreadWithoutKnownCode) {
  for (const SpaceId space : {kNoSpace, child_}) {
    const Context to{.pid = 8, .tid = 8, .space = space};
    const Flow soon = run_to(to, false), late = run_to(to, true);
    EXPECT_EQ(soon.blocks, all_of_7());
    EXPECT_EQ(suspects(soon), (std::vector<bool>{false, true}));  // an error of the clock may explain it
    EXPECT_EQ(late.blocks, (Blocks{{before_.value, kCode, 2}}));
    EXPECT_EQ(late.gaps, (decltype(late.gaps){{GapReason::no_image, kCode + 4}}));
    EXPECT_EQ(late.threads, (std::vector<int32_t>{7}));
  }
}

// The switch may come after the code, which only thread 7 has.
TEST_F(ArmSwitches, AfterUserCodeIsLeft) {
  const Flow known = run_to({.pid = 8, .tid = 8, .space = child_}, true, true), unknown = run_to({.pid = 8, .tid = 8}, true, true);
  EXPECT_EQ(known.blocks, all_of_7());
  EXPECT_EQ(unknown.blocks, all_of_7());
  EXPECT_EQ(suspects(known), (std::vector<bool>{false, false}));
  EXPECT_EQ(suspects(unknown), (std::vector<bool>{false, true}));
}

TEST_F(ArmSwitches, ToAThreadWithTheSameCode) {
  const Flow late = run_to({.pid = 8, .tid = 8, .space = before_}, true);
  EXPECT_EQ(late.blocks, all_of_7());
  EXPECT_EQ(suspects(late), (std::vector<bool>{false, false}));
}

// The cpu was idle, which has no user code.
TEST_F(ArmSwitches, ToTheIdleTaskAndBack) {
  const Flow flow = run_to({.pid = 0, .tid = 0}, true);
  EXPECT_EQ(flow.blocks, all_of_7());
  EXPECT_EQ(suspects(flow), (std::vector<bool>{false, false}));
  EXPECT_TRUE(flow.gaps.empty());
}

// AUX records of tasks: the flow up to one is of its thread, but may begin with that of the record before.
TEST_F(ArmThreads, AuxRecordsTellTheThreadWithoutIds) {
  add_switches();
  const auto at = [this](std::initializer_list<uint8_t> time, arm::ContextNames names) {
    start_at(kOther);
    trace_.put(time).put({kE}).put(kAt5000).put({0x04}).address(kOther).put({kE});
    return run(names, true, 1);
  };
  constexpr auto kNone = arm::ContextNames::none, kAux = arm::ContextNames::aux_records;
  static constexpr std::initializer_list<uint8_t> kAt3600 = {0x02, 0x90, 0x1c};
  EXPECT_EQ(suspects(at(kAt3600, kNone)), (std::vector<bool>{false, false}));
  const Flow second = at(kAt3600, kAux);
  EXPECT_EQ(second.blocks, (Blocks{{child_.value, kOther, 2}, {child_.value, kOther, 2}}));
  EXPECT_EQ(suspects(second), (std::vector<bool>{true, true}));
  contexts_.add_switch(1, TimeNs{3500}, {.pid = 8, .tid = 8, .space = child_});  // of ITRACE_START
  contexts_.sort();
  EXPECT_EQ(suspects(at(kAt3600, kAux)), (std::vector<bool>{false, false}));
}

// The cpu's records tell the thread, at a time between two timestamps.
TEST_F(ArmThreads, ASwitchBetweenTwoTimestampsWithoutIds) {
  add_switches();
  trace_.address(kCode + 4)
      .put({kE})
      .put({0x06, 0x05})
      .address(kCode + 4)
      .put({0x04})
      .address(kOther)
      .put({kE})
      .put(kAt5000)
      .put({0x04})
      .address(kOther)
      .put({kE});
  for (const auto names : {arm::ContextNames::none, arm::ContextNames::context_id}) {
    if (names == arm::ContextNames::context_id) trace_.bytes[kIdAt] = 0;  // the kernel writes no ids
    const Flow flow = run(names, true, 1);
    EXPECT_EQ(flow.blocks,
              (Blocks{{before_.value, kCode, 2}, {before_.value, kCode + 4, 1}, {before_.value, kOther, 3}, {child_.value, kOther, 2}}));
    EXPECT_EQ(suspects(flow), (std::vector<bool>{false, false, true, false}));
    EXPECT_TRUE(flow.gaps.empty());
  }
}

TEST_F(ArmThreads, ANewThreadBeforeTheFirstTimestampAfterFork) {
  trace_.put({0x81, 0xb0, 8, 0, 0, 0}).address(kOther).put({kE}).put({0x06, 0x1d}).address(kOther + 4).put({0x04}).put(kAt5000);
  const Flow flow = run();
  EXPECT_EQ(flow.blocks, (Blocks{{before_.value, kCode, 2}, {child_.value, kOther, 2}}));
  EXPECT_EQ(suspects(flow), std::vector<bool>(2, false));
  EXPECT_TRUE(flow.gaps.empty());
  EXPECT_EQ(flow.threads, (std::vector<int32_t>{7, 8}));
}

TEST_F(ArmThreads, AnExceptionBeforeTheFirstBlockOfAThread) {
  trace_.put(kAt5000).put({0x81, 0xb0, 8, 0, 0, 0}).address(kOther).put({0x06, 0x1d}).address(kOther).put({0x04});
  EXPECT_EQ(run().threads, (std::vector<int32_t>{7, 8}));
}

// B.W at 1ffe, whose second half is mapped later.
TEST(ArmHistory, CodeThatWasNotThereIsLookedForAgain) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  add_code<uint16_t>(builder, space, 0x1ffe, {0xf000});
  add_code<uint16_t>(builder, space, 0x2000, {0xb800, 0x4770, 0x4770, 0x4770}, {TimeNs{5000}, kTimeMax});
  const Timeline timeline = builder.build();
  Trace trace;
  trace.put({0x86, 0x7f, 0x1f, 0, 0, 0, 0, 0, 0, 0x21, kE});
  arm::Decoder decoder(timeline, kNoContexts, etmv4(space));
  EXPECT_EQ(decode(decoder, trace, {TimeNs{100}, TimeNs{200}}).gaps.size(), 1U);
  const Flow later = decode(decoder, trace, {TimeNs{6000}, TimeNs{7000}});
  EXPECT_EQ(later.gaps.size(), 0U);
  EXPECT_EQ(later.blocks.size(), 1U);
}

// BL 1010; NOP; B 1100; ...; 1010: RET. The source address is in the code that the return leads to.
TEST(ArmHistory, ASourceAddressBehindAReturn) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  std::vector<uint32_t> code(0x60, kNopWord);
  code[0] = 0x94000004;
  code[2] = 0x1400003e;
  code[4] = 0xd65f03c0;
  code[0x41] = 0xb4000040;
  add_code(builder, space, 0x1000, code);
  const Timeline timeline = builder.build();
  arm::DecoderOptions options = etmv4(space);
  options.config.protocol = arm::Protocol::ete;
  options.config.devarch = 0x47735a13;
  options.config.configr = 1U << 12;
  Trace trace;
  trace.address(0x1000, kEl1).put({kE, kE}).source(0x1008).put({kN});
  const Flow flow = decode(timeline, options, trace);
  const std::vector<std::tuple<uint32_t, uint64_t, uint16_t>> expected = {
      {space.value, 0x1000, 1}, {space.value, 0x1010, 1}, {space.value, 0x1004, 2}, {space.value, 0x1100, 2}};
  EXPECT_EQ(flow.blocks, expected);
  EXPECT_TRUE(flow.gaps.empty());
}

// Addresses do not add to the speculative elements: many of them between two atoms lose nothing.
TEST(ArmHistory, ManyAddressesInTheQueue) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  add_code<uint32_t>(builder, space, 0x1000, {kNopWord, 0xd61f0020, kNopWord});
  const Timeline timeline = builder.build();
  arm::DecoderOptions options = etmv4(space);
  options.config.idr8 = 4;
  Trace trace;
  trace.address(0x1000, kEl1);
  for (int i = 0; i < 150; ++i) {
    for (int k = 0; k < 2500; ++k) trace.address(0x1000);
    trace.put({kE});
  }
  const Flow flow = decode(timeline, options, trace);
  EXPECT_EQ(flow.blocks.size(), 146U);
  ASSERT_EQ(flow.gaps.size(), 1U);  // the last four atoms are not committed
  EXPECT_EQ(flow.gaps[0].first, GapReason::uncommitted);
}

TEST(ArmHistory, CodeThatIsUnmappedIsNotThereAnyMore) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  add_code<uint32_t>(builder, space, 0x1000, {kNopWord, kBackOne, kNopWord});
  builder.remove(space, Ip{0x1000}, 12, TimeNs{1000});
  const Timeline timeline = builder.build();
  Trace trace;
  trace.address(0x1000, kEl1).put({kE, kE});
  arm::Decoder decoder(timeline, kNoContexts, etmv4(space));
  EXPECT_EQ(decode(decoder, trace, {TimeNs{100}, TimeNs{200}}).blocks.size(), 2U);
  const Flow later = decode(decoder, trace, {TimeNs{2000}, TimeNs{3000}});
  EXPECT_TRUE(later.blocks.empty());
  ASSERT_EQ(later.gaps.size(), 1U);
  EXPECT_EQ(later.gaps[0].first, GapReason::no_image);
}

TEST(ArmHistory, BlocksAmongLostRecordsAreSuspect) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  add_code<uint32_t>(builder, kKernelSpace, 0xffff000000001000, {kNopWord, kBackOne, kNopWord});
  builder.add_lost_window({TimeNs{1000}, TimeNs{50000}});
  const Timeline timeline = builder.build();
  Trace trace;
  trace.address(0xffff000000001000, kEl1).put({kE});
  arm::Decoder decoder(timeline, kNoContexts, etmv4(space));
  const Flow before = decode(decoder, trace, {TimeNs{100}, TimeNs{200}});
  const Flow inside = decode(decoder, trace, {TimeNs{2000}, TimeNs{3000}});
  ASSERT_EQ(before.flags.size(), 1U);
  ASSERT_EQ(inside.flags.size(), 1U);
  EXPECT_FALSE(has(before.flags[0], BlockFlag::suspect));
  EXPECT_TRUE(has(inside.flags[0], BlockFlag::suspect));
}

// The same addresses without code again and again, in turn with those of another hole, cost as much as once.
TEST(ArmHistory, PlacesWithoutCodeAreNotKept) {
  TimelineBuilder builder;
  const SpaceId space = builder.add_space();
  add_code<uint32_t>(builder, space, 0x10000000, {kNopWord, kNopWord}, {TimeNs{5}, kTimeMax});
  const Timeline timeline = builder.build();
  Trace trace;
  trace.address(0x1000, kEl1).put({kE});
  for (uint64_t i = 0; i < 20000; ++i) trace.address((i & 1) != 0 ? 0x20000000 + 4 * i : 0x1000 + 4 * i).put({kE});
  EXPECT_EQ(decode(timeline, etmv4(space), trace).gaps.size(), 20001U);
}

}  // namespace ptd::test
