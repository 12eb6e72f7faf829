// Elements that occur in no capture of the corpus, in traces written by hand from their patterns: flow and events match the specification,
// and the packaged OpenCSD gives the same flow if it can read the packets at all.
#include <gtest/gtest.h>

#include <algorithm>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/flow_cursor.h"
#include "ptdecode/timeline_builder.h"
#include "tests/coresight/support/opencsd_peer.h"

namespace ptd::test {
namespace {

using Raw = std::vector<uint8_t>;

constexpr uint64_t kBase32 = 0x8000, kBase64 = 0x10000;
constexpr uint32_t kNop64 = 0xd503201f, kHere64 = 0x14000000;  // b .

// [ETMv4] "Trace Info", "Trace On"; then an address with a context: A32 and T32 at kBase32, A64 at kBase64; EL0, non-secure.
constexpr ptrdiff_t kTraceOnAt = 15;
Raw trace(const Raw& start, const Raw& rest) {
  Raw raw(11, 0);
  for (const Raw& part : {Raw{0x80, 0x01, 0x01, 0x00, 0x04}, start, rest}) {
    for (const uint8_t value : part) raw.push_back(value);
  }
  return raw;
}
const Raw kA32 = {0x82, 0x00, 0x40, 0x00, 0x00, 0x20};
const Raw kT32 = {0x83, 0x00, 0x80, 0x00, 0x00, 0x20};
const Raw kA64 = {0x85, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x30};

template <typename Word>
std::vector<std::byte> code_of(std::initializer_list<Word> words) {
  const auto raw = std::as_bytes(std::span(words.begin(), words.size()));
  return {raw.begin(), raw.end()};
}

constexpr int32_t kThread = 77;

struct ElementOutput {
  std::vector<std::pair<uint64_t, uint64_t>> blocks;  // [start, end)
  std::vector<uint64_t> addresses;                    // of instructions
  std::vector<uint16_t> flags;                        // of the blocks
  std::vector<Event> events;
  std::vector<Gap> gaps;
  std::vector<int32_t> threads;  // of the events
};

arm::TraceConfig etmv4() {
  arm::TraceConfig config;
  config.protocol = arm::Protocol::etmv4;
  config.trace_id = 0x10;
  config.traceidr = 0x10;
  return config;
}
arm::TraceConfig ete() {
  arm::TraceConfig config = etmv4();
  config.protocol = arm::Protocol::ete;
  config.devarch = 0x47705a13;
  return config;
}

ElementOutput decode(const arm::TraceConfig& config, uint64_t base, const std::vector<std::byte>& code, const Raw& packets,
                     bool exact = false) {
  TimelineBuilder builder;
  Section section;
  section.space = builder.add_space();
  section.ip = Ip{base};
  section.code = own_bytes(code);
  section.size_bytes = code.size();
  arm::DecoderOptions options;
  options.config = config;
  options.follow.default_space = section.space;
  options.follow.exact_only = exact;
  options.follow.use_time = true;
  options.follow.time.time_mult = 1;
  builder.add_section(std::move(section));
  const Timeline timeline = builder.build();
  const ContextTrack contexts;
  arm::Decoder decoder(timeline, contexts, options);
  AuxSegment segment;
  segment.bytes = std::as_bytes(std::span(packets));
  segment.tid = kThread;
  segment.time = {TimeNs{1}, TimeNs{1000}};
  Batch batch;
  decoder.begin(segment);
  EXPECT_FALSE(decoder.next(batch));
  ElementOutput output;
  FlowCursor cursor;
  cursor.begin(batch);
  for (FlowItem item = cursor.next(); item != FlowItem::end; item = cursor.next()) {
    if (item == FlowItem::event) output.threads.push_back(cursor.context().tid);
  }
  for (const Block& block : batch.blocks) {
    const BlockInfo& info = decoder.blocks().info(block.node);
    output.flags.push_back(block.flags);
    output.blocks.emplace_back(info.ip.value - base, info.ip.value - base + info.size_bytes);
    const Bytes bytes = decoder.blocks().bytes(block.node);
    for (uint64_t at = 0; at < bytes.size(); at += classify_arm(bytes.subspan(at), info.mode).length_bytes) {
      output.addresses.push_back(info.ip.value + at);
    }
  }
  output.events = batch.events;
  output.gaps = batch.gaps;
  return output;
}

using Blocks = std::vector<std::pair<uint64_t, uint64_t>>;

/// Decodes on both paths and with the peer.
ElementOutput expect_flow(const arm::TraceConfig& config, uint64_t base, const std::vector<std::byte>& code, const Raw& packets,
                          const Blocks& blocks) {
  for (const bool exact : {false, true}) EXPECT_EQ(decode(config, base, code, packets, exact).blocks, blocks) << "exact " << exact;
  ElementOutput output = decode(config, base, code, packets);
  EXPECT_EQ(peer_flow(config, Ip{base}, code, std::as_bytes(std::span(packets))), output.addresses);
  return output;
}

size_t count(const ElementOutput& output, EventKind kind) {
  return static_cast<size_t>(std::count_if(output.events.begin(), output.events.end(), [&](const Event& e) { return e.kind == kind; }));
}

// [ETMv4] "Use of the return stack": no address follows the return.
TEST(ArmElements, ReturnStackOfA32) {
  // 0: BL 10. 4: B . 10: MOV R0, R0; BX LR
  const auto code = code_of<uint32_t>({0xeb000002, 0xeafffffe, 0, 0, 0xe1a00000, 0xe12fff1e});
  arm::TraceConfig config = etmv4();
  config.configr = 0x1000;
  const ElementOutput output = expect_flow(config, kBase32, code, trace(kA32, {0xf7, 0xf7, 0xf7}), {{0, 4}, {0x10, 0x18}, {4, 8}});
  EXPECT_TRUE(output.gaps.empty());
}

TEST(ArmElements, ReturnStackOfT32) {
  // 0: BL 10. 4: B . 10: MOVS R0, #1; POP {PC}
  const auto code = code_of<uint16_t>({0xf000, 0xf806, 0xe7fe, 0xbf00, 0xbf00, 0xbf00, 0xbf00, 0xbf00, 0x2001, 0xbd00, 0xbf00, 0xbf00});
  arm::TraceConfig config = etmv4();
  config.configr = 0x1000;
  const ElementOutput output = expect_flow(config, kBase32, code, trace(kT32, {0xff}), {{0, 4}, {0x10, 0x14}, {4, 6}});
  EXPECT_TRUE(output.gaps.empty());
}

// An address takes precedence over that of the return stack ([ETMv4]: an address is output if the stack does not match).
TEST(ArmElements, AnAddressOverridesTheReturnStack) {
  const auto code = code_of<uint32_t>({0xeb000002, 0xeafffffe, 0xeafffffe, 0, 0xe1a00000, 0xe12fff1e});
  arm::TraceConfig config = etmv4();
  config.configr = 0x1000;
  const ElementOutput output = expect_flow(config, kBase32, code, trace(kA32, {0xdb, 0x95, 0x02, 0xf7}), {{0, 4}, {0x10, 0x18}, {8, 12}});
  EXPECT_TRUE(output.gaps.empty());
}

// [ETMv4] "Q element": the given number of instructions was executed, none of their branches was taken, and the flow continues at the
// address.
TEST(ArmElements, QWithACount) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  arm::TraceConfig config = etmv4();
  config.idr0 |= 0x18000;
  const ElementOutput output = decode(config, kBase64, code, trace(kA64, {0xa5, 0x03, 0x03, 0xf7}));
  EXPECT_EQ(output.blocks, (Blocks{{0, 12}, {12, 20}}));
  EXPECT_EQ(count(output, EventKind::skipped), 0U);
  EXPECT_TRUE(output.gaps.empty());
}

TEST(ArmElements, QWithoutACount) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  arm::TraceConfig config = etmv4();
  config.idr0 |= 0x18000;
  const ElementOutput output = decode(config, kBase64, code, trace(kA64, {0xaf, 0x95, 0x03, 0xf7}));
  EXPECT_EQ(output.blocks, (Blocks{{12, 20}}));
  ASSERT_EQ(count(output, EventKind::skipped), 1U);
  for (const Event& event : output.events) {
    if (event.kind != EventKind::skipped) continue;
    EXPECT_EQ(event.from.value, kBase64);
    EXPECT_EQ(event.to.value, kBase64 + 12);
  }
  EXPECT_TRUE(output.gaps.empty());
}

// A count that does not lead to the address: the executed code is unknown, and is reported as such.
TEST(ArmElements, QWhoseCountDoesNotFit) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  arm::TraceConfig config = etmv4();
  config.idr0 |= 0x18000;
  const ElementOutput output = decode(config, kBase64, code, trace(kA64, {0xa5, 0x03, 0x02, 0xf7}));
  EXPECT_EQ(output.blocks, (Blocks{{12, 20}}));
  EXPECT_EQ(count(output, EventKind::skipped), 1U);
}

// The last of the instructions is a conditional branch: it was taken if the address is its target, and not taken if the address is the
// next.
TEST(ArmElements, QThatEndsInABranch) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, 0x54000060, kNop64, kNop64, kHere64});  // 8: B.EQ 14
  const auto flags = [&](const std::vector<std::byte>& bytes, uint8_t next) {
    arm::TraceConfig config = etmv4();
    config.idr0 |= 0x18000;
    const ElementOutput output = decode(config, kBase64, bytes, trace(kA64, {0xa5, next, 0x03, 0xf7}));
    EXPECT_TRUE(output.gaps.empty());
    return count(output, EventKind::skipped) != 0 ? -1 : static_cast<int>(output.flags.front());
  };
  const int branch = static_cast<int>(BlockFlag::ends_in_branch), taken = branch | static_cast<int>(BlockFlag::taken);
  EXPECT_EQ(flags(code, 3), branch);
  EXPECT_EQ(flags(code, 5), taken);
  EXPECT_EQ(flags(code, 4), -1);
  const auto always = code_of<uint32_t>({kNop64, kNop64, 0x14000003, kNop64, kNop64, kHere64});  // 8: B 14
  EXPECT_EQ(flags(always, 3), -1);
  EXPECT_EQ(flags(always, 5), taken);
  const auto indirect = code_of<uint32_t>({kNop64, kNop64, 0xd61f0020, kNop64, kNop64, kHere64});  // 8: BR X1
  EXPECT_EQ(flags(indirect, 3), taken);
  EXPECT_EQ(flags(indirect, 4), taken);
}

// [ETE] "Source Address element": the branch at it was taken, P0 instructions before it were not.
TEST(ArmElements, SourceAddress) {
  // 0: NOP; CBZ X0, 10. 8: NOP; CBZ X1, 0. 10: NOP; B 10
  const auto code = code_of<uint32_t>({kNop64, 0xb4000060, kNop64, 0xb4ffffa1, kNop64, 0x17ffffff});
  const ElementOutput output =
      expect_flow(ete(), kBase64, code, trace(kA64, {0xb4, 0x03, 0xf7, 0xf7}), {{0, 8}, {8, 16}, {0, 8}, {16, 24}});
  EXPECT_TRUE(output.gaps.empty());
}

TEST(ArmElements, SourceAddressOf64Bits) {
  const auto code = code_of<uint32_t>({kNop64, 0xb4000060, kNop64, 0xb4ffffa1, kNop64, 0x17ffffff});
  const ElementOutput output = expect_flow(ete(), kBase64, code, trace(kA64, {0xb8, 0x03, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf7}),
                                           {{0, 8}, {8, 16}, {0, 8}});
  EXPECT_TRUE(output.gaps.empty());
}

// [ETE] "Transaction Start", "Transaction Failure" (an exception packet of three bytes, without an address).
TEST(ArmElements, TransactionThatFails) {
  const auto code = code_of<uint32_t>({kNop64, kHere64, 0xd5233060, kNop64, kHere64});
  const ElementOutput output = decode(ete(), kBase64, code, trace(kA64, {0xf7, 0x0a, 0x06, 0x30, 0x00, 0x95, 0x02, 0xf7}));
  std::vector<EventKind> kinds;
  for (const Event& event : output.events) {
    if (event.kind == EventKind::tsx_begin || event.kind == EventKind::tsx_abort || event.kind == EventKind::async_branch) {
      kinds.push_back(event.kind);
    }
  }
  EXPECT_EQ(kinds, (std::vector<EventKind>{EventKind::tsx_begin, EventKind::tsx_abort}));
  EXPECT_TRUE(output.gaps.empty());
}

// [ETMv4] "Exception packet", type 0: the preferred return address of a PE reset is UNKNOWN. No instruction is walked for it.
TEST(ArmElements, ResetHasNoReturnAddress) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  const ElementOutput output = decode(etmv4(), kBase64, code, trace(kA64, {0x06, 0x01, 0x95, 0x03, 0x95, 0x02, 0xf7}));
  EXPECT_EQ(output.blocks, (Blocks{{8, 20}}));
  ASSERT_EQ(count(output, EventKind::async_branch), 1U);
  for (const Event& event : output.events) {
    if (event.kind != EventKind::async_branch) continue;
    EXPECT_EQ(event.flags, kEventHasTo);
    EXPECT_EQ(event.to.value, kBase64 + 8);
  }
  EXPECT_TRUE(output.gaps.empty());
}

// [ETMv4] "Exception packet", type IRQ: the code before the preferred return address was executed.
TEST(ArmElements, AnInterruptRunsUpToItsReturnAddress) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  const ElementOutput output =
      expect_flow(etmv4(), kBase64, code, trace(kA64, {0x06, 0x1d, 0x95, 0x03, 0x95, 0x02, 0xf7}), {{0, 12}, {8, 20}});
  ASSERT_EQ(count(output, EventKind::async_branch), 1U);
  EXPECT_TRUE(output.gaps.empty());
}

// A segment may begin with an exception, if a sync point comes just before it. The event has its thread, though no block comes before it,
// and the first block's mark has a later time.
TEST(ArmElements, AnExceptionBeforeTheFirstBlockHasAThread) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  const Raw exception{0x06, 0x1d, 0x95, 0x00}, handler{0x95, 0x02};
  Raw packets;
  for (const Raw& part : {exception, Raw{0x02, 0x10}, handler, Raw{0x02, 0x20}, Raw{0xf7}})
    packets.insert(packets.end(), part.begin(), part.end());
  Raw segment = trace(kA64, packets);
  segment.erase(segment.begin() + kTraceOnAt);
  const ElementOutput output = decode(etmv4(), kBase64, code, segment);
  EXPECT_EQ(output.blocks, (Blocks{{8, 20}}));
  ASSERT_EQ(count(output, EventKind::async_branch), 1U);
  for (size_t i = 0; i < output.events.size(); ++i) {
    if (output.events[i].kind != EventKind::async_branch) continue;
    EXPECT_EQ(output.events[i].time.first, TimeNs{0x10});
    EXPECT_EQ(output.threads[i], kThread);
  }
}

// [ETMv4] "Timestamp": 0 says that the trace unit has no timestamp.
TEST(ArmElements, ATimestampOfZeroIsNoTime) {
  const auto code = code_of<uint32_t>({kNop64, kNop64, kNop64, kNop64, kHere64});
  const ElementOutput output =
      decode(etmv4(), kBase64, code, trace(kA64, {0x02, 0x10, 0xf7, 0x02, 0x00, 0x06, 0x1d, 0x95, 0x04, 0x95, 0x02, 0xf7}));
  for (const Event& event : output.events) {
    if (event.kind != EventKind::async_branch) continue;
    EXPECT_EQ(event.time.first, TimeNs{0x10});
  }
  EXPECT_EQ(count(output, EventKind::async_branch), 1U);
}

// [ETMv4] "Exception types", Call: at EL0 its instruction is SVC, even where the code is missing. At EL1 it may be HVC or SMC.
TEST(ArmElements, ACallWithoutCodeIsASystemCall) {
  const auto code = code_of<uint32_t>({kNop64, kNop64});
  Raw kernel = kA64;
  kernel.back() = 0x31;
  const auto flags = [&](const Raw& start, uint8_t type) {
    const ElementOutput output = decode(etmv4(), kBase64, code, trace(start, {0x06, type, 0x95, 0x03, 0x95, 0x01, 0xf7}));
    for (const Event& event : output.events) {
      if (event.kind == EventKind::async_branch) return static_cast<int>(event.flags);
    }
    return -1;
  };
  EXPECT_EQ(flags(kA64, 0x05), kEventHasFrom | kEventHasTo | kEventSyscall);
  EXPECT_EQ(flags(kA64, 0x1d), kEventHasFrom | kEventHasTo);
  EXPECT_EQ(flags(kernel, 0x05), kEventHasFrom | kEventHasTo);
}

// [ETMv4] "Numbered Data Synchronization Marker packet": belongs to data trace, not to the flow.
TEST(ArmElements, DataMarkersAreLeftOut) {
  const auto code = code_of<uint32_t>({kNop64, kHere64});
  arm::TraceConfig config = etmv4();
  config.idr0 |= 0x18;
  config.configr = 0x30002;
  const ElementOutput output = decode(config, kBase64, code, trace(kA64, {0x21, 0xf7, 0x29, 0xf7}));
  EXPECT_EQ(output.blocks, (Blocks{{0, 8}, {4, 8}}));
  ASSERT_EQ(count(output, EventKind::ignored_packets), 1U);
  EXPECT_EQ(output.events.back().payload, 2U);
  EXPECT_TRUE(output.gaps.empty());
}

}  // namespace
}  // namespace ptd::test
