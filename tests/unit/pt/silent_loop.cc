// Code that loops without consuming a packet: the flow ends there soon. Ordinary long code is not affected.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "ptdecode/pt/decoder.h"
#include "ptdecode/timeline_builder.h"

namespace ptd {
namespace {

constexpr uint64_t kCode = 0x401000;

std::vector<std::byte> bytes_of(std::initializer_list<int> numbers) {
  std::vector<std::byte> out;
  for (const int number : numbers) out.push_back(static_cast<std::byte>(number));
  return out;
}
void append(std::vector<std::byte>& to, const std::vector<std::byte>& more) { to.insert(to.end(), more.begin(), more.end()); }

/// Returns PSB, MODE.Exec (64 bits), FUP kCode, PSBEND, and `rest`.
std::vector<std::byte> trace_of(std::initializer_list<int> rest) {
  std::vector<std::byte> out;
  for (int i = 0; i < 8; ++i) append(out, bytes_of({0x02, 0x82}));
  append(out, bytes_of({0x99, 0x01, 0x7d, 0x00, 0x10, 0x40, 0x00, 0x00, 0x00, 0x02, 0x23}));
  append(out, bytes_of(rest));
  return out;
}

struct Outcome {
  uint64_t instructions = 0;
  std::vector<GapReason> gaps;
  std::vector<EventKind> events;
};

Outcome decode(const std::vector<std::byte>& code, const std::vector<std::byte>& trace, const pt::DecoderOptions& given = {},
               const std::vector<Edit>& edits = {}) {
  TimelineBuilder builder;
  const SpaceId user = builder.add_space();
  Section section;
  section.space = user;
  section.ip = Ip{kCode};
  section.size_bytes = code.size();
  auto owner = std::make_shared<std::vector<std::byte>>(code);
  section.code = {owner, Bytes(*owner)};
  builder.add_section(std::move(section));
  for (Edit edit : edits) {
    edit.space = user;
    builder.add_edit(std::move(edit));
  }
  const Timeline timeline = builder.build();
  ContextTrack contexts;
  pt::DecoderOptions options = given;
  options.default_space = user;
  pt::Decoder decoder(timeline, contexts, options);
  AuxSegment segment;
  segment.bytes = trace;
  segment.break_after = true;
  decoder.begin(segment);
  Outcome out;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch);
    for (const Block& block : batch.blocks) out.instructions += block.instructions;
    for (const Gap& gap : batch.gaps) out.gaps.push_back(gap.reason);
    for (const Event& event : batch.events) {
      if ((event.flags & kEventStatus) == 0) out.events.push_back(event.kind);
    }
  }
  return out;
}

TEST(SilentLoop, JumpsAndCallsThatGoRoundEndInAGap) {
  std::vector<std::byte> ring(3000, std::byte{0x90});
  append(ring, bytes_of({0xe9, 0x43, 0xf4, 0xff, 0xff}));  // jmp kCode
  const std::vector<std::byte> codes[] = {
      bytes_of({0xeb, 0xfe}),                                            // jmp .
      bytes_of({0xe8, 0xfb, 0xff, 0xff, 0xff}),                          // call .
      bytes_of({0x90, 0xe9, 0x00, 0x00, 0x00, 0x00, 0x90, 0xeb, 0xf8}),  // a loop that begins after its entry
      ring,
  };
  for (const auto& code : codes) {
    const Outcome got = decode(code, trace_of({0x06}));  // a branch that never comes
    EXPECT_EQ(got.gaps, std::vector<GapReason>{GapReason::limit}) << code.size();
    EXPECT_LT(got.instructions, 20000U) << code.size();
  }
}

TEST(SilentLoop, AnInterruptEndsASpin) {
  // jmp . at kCode; FUP kCode, TIP kCode + 2: the interrupt's handler is a conditional jump, which takes the TNT.
  const Outcome got = decode(bytes_of({0xeb, 0xfe, 0x74, 0x00, 0x90, 0xc3}),
                             trace_of({0x7d, 0x00, 0x10, 0x40, 0x00, 0x00, 0x00, 0x6d, 0x02, 0x10, 0x40, 0x00, 0x00, 0x00, 0x06}));
  EXPECT_EQ(got.events, (std::vector<EventKind>{EventKind::skipped, EventKind::async_branch}));
  EXPECT_TRUE(got.gaps.empty());
}

// FUP kCode + 2, then the packet that leaves the loop. No packet counts the iterations ([SDM] "Change of Flow Instruction Tracing": direct
// unconditional branches generate none), so an event reports that more may have been executed.
TEST(SilentLoop, AnEventInALoopWithoutPacketsReportsThatItsRoundsAreNotCounted) {
  const std::vector<std::byte> loops[] = {
      bytes_of({0x66, 0x90, 0xeb, 0xfc}),                                      // nop; jmp kCode
      bytes_of({0x66, 0x90, 0xe8, 0xf9, 0xff, 0xff, 0xff}),                    // nop; call kCode
      bytes_of({0xeb, 0x02, 0xeb, 0xfe, 0xeb, 0xfc}),                          // jmp +4; +2: jmp +2; +4: jmp +2
      bytes_of({0x66, 0x90, 0xe8, 0x01, 0x00, 0x00, 0x00, 0xf4, 0xeb, 0xf6}),  // nop; call +8; hlt; +8: jmp kCode
  };
  struct End {
    std::vector<std::byte> packets;
    std::vector<EventKind> events;
  };
  const std::vector<std::byte> fup = bytes_of({0x7d, 0x02, 0x10, 0x40, 0x00, 0x00, 0x00});
  const End ends[] = {
      {bytes_of({0x01}), {EventKind::skipped, EventKind::async_disabled}},                                 // TIP.PGD
      {bytes_of({0x6d, 0x02, 0x10, 0x40, 0, 0, 0, 0x01}), {EventKind::skipped, EventKind::async_branch}},  // TIP kCode + 2
  };
  for (const auto& loop : loops) {
    for (const End& end : ends) {
      std::vector<std::byte> trace = trace_of({});
      append(trace, fup);
      append(trace, end.packets);
      Outcome got = decode(loop, trace);
      got.events.resize(std::min<size_t>(got.events.size(), 2));
      EXPECT_EQ(got.events, end.events) << loop.size();
    }
    // The PSB of the next segment gives the ip: the flow may have passed it before.
    std::vector<std::byte> trace = trace_of({});
    trace.insert(trace.end(), trace.begin(), trace.end());
    trace[trace.size() - 8] = std::byte{0x02};  // the address of the second FUP
    Outcome got = decode(loop, trace);
    EXPECT_EQ(got.events, std::vector<EventKind>{EventKind::skipped}) << loop.size();
  }
}

TEST(SilentLoop, AnEventInCodeThatPacketsCountReportsNothing) {
  const std::vector<std::byte> codes[] = {
      bytes_of({0x66, 0x90, 0x66, 0x90, 0x74, 0xfa, 0xc3}),              // a conditional branch back
      bytes_of({0x66, 0x90, 0x66, 0x90, 0xff, 0xe0}),                    // an indirect branch
      bytes_of({0x66, 0x90, 0x66, 0x90, 0xeb, 0xfe}),                    // a loop after the event that does not contain its ip
      bytes_of({0xf4, 0x90, 0xeb, 0xfc}),                                // hlt; nop; jmp kCode: one iteration per interrupt
      bytes_of({0x66, 0x90, 0x0f, 0x22, 0xd8, 0xeb, 0xf9}),              // mov cr3 generates a PIP
      bytes_of({0x66, 0x90, 0xf3, 0x48, 0x0f, 0xae, 0xe0, 0xeb, 0xf7}),  // ptwrite
      bytes_of({0x66, 0x90, 0x66, 0x90, 0x90, 0x90}),                    // to the end of the code
  };
  for (const auto& code : codes) {
    const int from = code[0] == std::byte{0xf4} ? 1 : 2;
    const Outcome got = decode(code, trace_of({0x7d, from, 0x10, 0x40, 0, 0, 0, 0x01}));
    EXPECT_EQ(got.events, std::vector<EventKind>{EventKind::async_disabled}) << code.size();
  }
}

// nop; jmp +8; +8: nop or zeros; jmp kCode + 2. While generated code is being written, a jump to a part that is not there yet leads through
// zeros.
TEST(SilentLoop, MemoryWithoutCodeIsNoPartOfALoop) {
  const std::vector<std::byte> fup = bytes_of({0x7d, 0x02, 0x10, 0x40, 0, 0, 0, 0x01});
  for (const int written : {0, 1}) {
    std::vector<std::byte> code = bytes_of({0x66, 0x90, 0xeb, 0x04, 0xf4, 0xf4, 0xf4, 0xf4});  // nop; jmp +8
    append(code, written != 0 ? bytes_of({0x66, 0x90}) : bytes_of({0x00, 0x00}));
    append(code, bytes_of({0xeb, 0xf6}));  // jmp kCode + 2
    std::vector<std::byte> trace = trace_of({});
    append(trace, fup);
    const Outcome got = decode(code, trace);
    const std::vector<EventKind> in_loop = {EventKind::skipped, EventKind::async_disabled}, no_loop = {EventKind::async_disabled};
    EXPECT_EQ(got.events, written != 0 ? in_loop : no_loop);
  }
}

// nop; kCode + 2: jmp +8, later jmp *%rax; +8: ret, at another time jmp kCode + 2. It is a loop only if both direct jumps were there at one
// time.
TEST(SilentLoop, VersionsOfDifferentTimesAreNoLoop) {
  const std::vector<std::byte> code = bytes_of({0x66, 0x90, 0xeb, 0x04, 0xf4, 0xf4, 0xf4, 0xf4, 0xc3, 0x90});
  for (const uint64_t second : {500, 1000, 2000}) {
    std::vector<Edit> edits(2);
    edits[0].ip = Ip{kCode + 2};
    edits[0].old_bytes = bytes_of({0xeb, 0x04});
    edits[0].new_bytes = bytes_of({0xff, 0xe0});
    edits[0].time = {TimeNs{1000}, TimeNs{1000}};
    edits[1].ip = Ip{kCode + 8};
    edits[1].old_bytes = bytes_of({0xc3, 0x90});
    edits[1].new_bytes = bytes_of({0xeb, 0xf8});
    edits[1].time = {TimeNs{second}, TimeNs{second}};
    const Outcome got = decode(code, trace_of({0x7d, 0x02, 0x10, 0x40, 0, 0, 0, 0x01}), {}, edits);
    const bool is_loop = std::find(got.events.begin(), got.events.end(), EventKind::skipped) != got.events.end();
    EXPECT_EQ(is_loop, second < 1000) << second;
  }
}

TEST(SilentLoop, LongStraightCodeIsWalkedToItsEnd) {
  std::vector<std::byte> code(1U << 20, std::byte{0x90});
  append(code, bytes_of({0x74, 0x00, 0xc3}));
  const Outcome got = decode(code, trace_of({0x06, 0x2d, 0x00, 0x10}));  // not taken, then RET's TIP back to kCode
  EXPECT_GE(got.instructions, (1U << 20) + 2U);
  EXPECT_TRUE(got.gaps.empty() || got.gaps.front() != GapReason::limit);
}

TEST(SilentLoop, WalksThatLeadNowhereShareOneLimit) {
  constexpr uint64_t kLimit = 1U << 18, kLeast = 1U << 15, kTips = 200;
  const std::vector<std::byte> code(2 * kLimit, std::byte{0x90});
  std::vector<std::byte> trace = trace_of({});
  for (uint64_t i = 0; i < kTips; ++i) append(trace, bytes_of({0x06, 0x2d, 0x00, 0x10}));  // TNT, then TIP to kCode
  for (const bool exact : {false, true}) {
    pt::DecoderOptions options;
    options.max_silent_instructions = kLimit;
    options.exact_only = exact;
    options.config.tip_order = pt::TipOrder::prompt;
    const Outcome got = decode(code, trace, options);
    EXPECT_GT(got.gaps.size(), kTips / 2);
    EXPECT_GE(got.instructions, kLimit);
    EXPECT_LT(got.instructions, kLimit + (kLeast + 2) * (kTips + 1));
  }
}

TEST(SilentLoop, TheFastPathEndsWhereTheWalkerDoes) {
  constexpr uint64_t kLimit = 1U << 18;
  struct Case {
    std::vector<std::byte> code;
    std::vector<GapReason> gaps;  // after the first packet
    uint64_t least, most;         // instructions
  };
  const auto jumps = [](size_t count, const std::vector<std::byte>& end) {
    std::vector<std::byte> code;
    for (size_t i = 0; i < count; ++i) append(code, bytes_of({0xeb, 0x00}));
    append(code, end);
    return code;
  };
  const auto nops = [](size_t count, const std::vector<std::byte>& end) {
    std::vector<std::byte> code(count, std::byte{0x90});
    append(code, end);
    return code;
  };
  const auto branch = bytes_of({0x74, 0x00, 0xf4, 0xc3});  // jz, hlt
  const Case cases[] = {
      {jumps(10000, branch), {}, 10001, 10002},
      {jumps(60000, branch), {GapReason::limit}, 10000, 1U << 15},  // each jump is a block, at eight bytes of output
      {nops(100000, branch), {}, 100001, 100002},                   // blocks of 4096
      {nops(kLimit - 1, branch), {}, kLimit, kLimit + 1},
      {nops(kLimit, branch), {GapReason::limit}, kLimit, kLimit + 1},
      {nops(20000, jumps(200, branch)), {}, 20201, 20202},
      {jumps(300, bytes_of({0xeb, 0xfe})), {GapReason::limit}, 300, 1000},
  };
  for (const Case& one : cases) {
    pt::DecoderOptions options;
    options.max_silent_instructions = kLimit;
    const auto trace = trace_of({0x06});  // a TNT
    const Outcome fast = decode(one.code, trace, options);
    options.exact_only = true;
    const Outcome exact = decode(one.code, trace, options);
    EXPECT_EQ(fast.instructions, exact.instructions);
    EXPECT_EQ(fast.gaps, exact.gaps);
    EXPECT_GE(fast.instructions, one.least);
    EXPECT_LE(fast.instructions, one.most);
    const size_t gaps = static_cast<size_t>(std::count(fast.gaps.begin(), fast.gaps.end(), GapReason::limit));
    EXPECT_EQ(gaps, one.gaps.size()) << one.code.size();
  }
}

// The first walk uses up the limit. After it the flow, which the fast path follows, may go as far as the walker.
TEST(SilentLoop, TheFastPathKeepsTheLimitThatIsLeft) {
  constexpr uint64_t kLimit = 1U << 18;
  constexpr size_t kShort = 20000;
  std::vector<std::byte> code(kShort, std::byte{0x90});
  append(code, bytes_of({0x74, 0x00, 0xc3}));                         // jz, RET
  std::vector<std::byte> trace = trace_of({0x06, 0x2d, 0x00, 0x80});  // TNT, TIP into the long straight code
  append(trace, bytes_of({0x06, 0x2d, 0x00, 0x10}));                  // a TNT that it cannot take, then a TIP to kCode
  for (int i = 0; i < 20; ++i) append(trace, bytes_of({0x06, 0x2d, 0x00, 0x10}));
  code.resize(0x7000 + 2 * kLimit, std::byte{0x90});
  Outcome got[2];
  for (const bool exact : {false, true}) {
    pt::DecoderOptions options;
    options.max_silent_instructions = kLimit;
    options.exact_only = exact;
    options.config.tip_order = pt::TipOrder::prompt;
    got[exact ? 1 : 0] = decode(code, trace, options);
  }
  EXPECT_EQ(got[0].instructions, got[1].instructions);
  EXPECT_EQ(got[0].gaps, got[1].gaps);
  EXPECT_EQ(std::count(got[0].gaps.begin(), got[0].gaps.end(), GapReason::limit), 1);
  EXPECT_GE(got[0].instructions, kLimit + 20 * kShort);
}

TEST(SilentLoop, ALoopWithABranchInItIsNone) {
  // jz .+0; jmp kCode: a TNT per iteration.
  std::vector<std::byte> trace = trace_of({});
  for (int i = 0; i < 1000; ++i) trace.push_back(std::byte{0xfe});
  const Outcome got = decode(bytes_of({0x74, 0x00, 0xeb, 0xfc}), trace);
  EXPECT_GE(got.instructions, 2U * 6 * 1000 - 1);
  EXPECT_TRUE(got.gaps.empty());
}

}  // namespace
}  // namespace ptd
