// ETMv3: branch packets that cancel the instruction that was traced last. Hand-written traces.
#include <gtest/gtest.h>

#include <string>

#include "decoder/arm/legacy_decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"

namespace ptd::test {
namespace {

using Raw = std::vector<uint8_t>;
constexpr uint64_t kBase = 0x8000, kHandler = 0x80, kElsewhere = 0x40;
constexpr uint32_t kNop = 0xe1a00000, kBxLr = 0xe12fff1e, kReturn = 0xe25ef004;  // SUBS PC, LR, #4
constexpr uint32_t kOver = 0xea000000, kFurther = 0xea000001;                    // b .+8, b .+12
constexpr uint32_t kT32Nops = 0xbf00bf00, kT32BxLrNop = 0xbf004770;

Raw operator+(Raw one, const Raw& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

// [ETMv3] "P-header": 1NEEEE00; with cycles 1N0EEE00, and 1E1WWW00.
Raw e(unsigned count) { return {static_cast<uint8_t>(0x80 | count << 2)}; }
const Raw kN = {0xc0}, kWait = {0xb0}, kIgnore = {0x66}, kTrigger = {0x0c}, kTime = {0x42, 0x05}, kExceptionReturn = {0x76};

/// A branch to kBase + `to`. `information`: the exception information byte; 0: none follows.
Raw branch(uint64_t to, unsigned information = 0, bool t32 = false) {
  const uint64_t value = (kBase + to) >> (t32 ? 1 : 2);
  const auto part = [&](unsigned shift) { return static_cast<uint8_t>(0x80 | (value >> shift & 0x7f)); };
  Raw raw = {static_cast<uint8_t>(0x81 | (value & 0x3f) << 1), part(6), part(13), part(20),
             static_cast<uint8_t>((t32 ? 0x10 : 0x08) | (information != 0 ? 0x40 : 0))};
  if (information != 0) raw.push_back(static_cast<uint8_t>(information));
  return raw;
}
// [ETMv3] "Exception information bytes": NS in bit 0, the number in bits 4:1, Can in bit 5.
Raw exception(unsigned number, bool cancels, bool t32 = false) { return branch(kHandler, number << 1 | 1U | (cancels ? 0x20U : 0U), t32); }
Raw isync(uint64_t to, unsigned reason, bool t32 = false) {
  const uint64_t ip = kBase + to;
  return {
      0x08, static_cast<uint8_t>(reason << 5 | 0x09), static_cast<uint8_t>((ip & 0xff) | (t32 ? 1 : 0)), static_cast<uint8_t>(ip >> 8), 0,
      0};
}
constexpr unsigned kPeriodic = 0, kTraceOn = 1;
Raw start(bool t32 = false) { return Raw{0, 0, 0, 0, 0, 0x80} + isync(0, kTraceOn, t32); }
Raw times(size_t count, const Raw& raw) {
  Raw all;
  for (size_t i = 0; i < count; ++i) all = all + raw;
  return all;
}

struct Code {
  std::vector<uint32_t> words = std::vector<uint32_t>(64, kNop);
  size_t changed = 0;  ///< index of the word that has another version, at an unknown time
  uint32_t other = 0;
  bool cycles = false, m_profile = false;
};
Code with(size_t index, uint32_t word, bool cycles = false) {
  Code code;
  code.words[index] = word;
  code.cycles = cycles;
  return code;
}
Code with_cycles() { return with(0, kNop, true); }

Timeline timeline_of(const Code& code, SpaceId& space) {
  TimelineBuilder builder;
  const auto raw = std::as_bytes(std::span(code.words));
  Section section;
  section.space = space = builder.add_space();
  section.ip = Ip{kBase};
  section.code = own_bytes({raw.begin(), raw.end()});
  section.size_bytes = raw.size();
  builder.add_section(std::move(section));
  if (code.other != 0) {
    const auto old_bytes = raw.subspan(4 * code.changed, 4), new_bytes = std::as_bytes(std::span(&code.other, 1));
    Edit edit;
    edit.space = space;
    edit.ip = Ip{kBase + 4 * code.changed};
    edit.old_bytes.assign(old_bytes.begin(), old_bytes.end());
    edit.new_bytes.assign(new_bytes.begin(), new_bytes.end());
    edit.origin = EditOrigin::dated_copy;
    builder.add_edit(std::move(edit));
  }
  return builder.build();
}

void take(const Batch& batch, const BlockTable& blocks, std::string& text) {
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  const auto hex = [](uint64_t value) {
    char digits[20];
    std::snprintf(digits, sizeof digits, "%llx", static_cast<unsigned long long>(value));
    return std::string(digits);
  };
  size_t event = 0, gap = 0;
  for (size_t i = 0; i <= batch.blocks.size(); ++i) {
    for (; gap < batch.gaps.size() && batch.gaps[gap].before_block <= i; ++gap) add(std::string("gap:") + name(batch.gaps[gap].reason));
    for (; event < batch.events.size() && batch.events[event].before_block <= i; ++event) {
      const Event& told = batch.events[event];
      const std::string from = (told.flags & kEventHasFrom) != 0 ? "@" + hex(told.from.value - kBase) : "@?";
      if (told.kind == EventKind::async_branch) add("x" + std::to_string(told.payload) + from);
      if (told.kind == EventKind::exception_return) add("return");
    }
    if (i == batch.blocks.size()) break;
    add(hex(blocks.info(batch.blocks[i].node).ip.value - kBase));
  }
}

std::string decode(const Code& code, const Raw& packets, size_t capacity) {
  constexpr uint32_t kCycleAccurate = 1U << 12;
  arm::TraceConfig config;
  config.protocol = arm::Protocol::etmv3;
  config.idr0 = 0x4110f250;
  config.idr1 = 0;
  config.configr = code.cycles ? kCycleAccurate : 0;
  config.m_profile = code.m_profile;
  arm::FollowOptions options;
  const Timeline timeline = timeline_of(code, options.default_space);
  const ContextTrack contexts;
  arm::LegacyDecoder decoder(timeline, contexts, config, options);
  AuxSegment segment;
  segment.bytes = std::as_bytes(std::span(packets));
  decoder.begin(segment);
  std::string text;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch, capacity);
    take(batch, decoder.blocks(), text);
  }
  return text;
}

struct Row {
  const char* why;
  Code code;
  Raw packets;
  const char* want;  ///< blocks and exceptions by their offsets from kBase
};

TEST(LegacyCancels, TheLastInstructionDidNotRun) {
  const Raw run = start() + e(3), on = e(1);
  const Row rows[] = {
      {"nothing is cancelled", {}, run + exception(14, false) + on, "0 4 8 x14@c 80"},
      {"at once", {}, run + exception(14, true) + on, "0 4 x14@8 80"},
      {"the first one", {}, start() + e(1) + exception(14, true) + on, "x14@0 80"},
      {"the last of several packets", {}, run + kN + exception(14, true) + on, "0 4 8 x14@c 80"},
      {"after cycles", with_cycles(), run + kWait + kWait + exception(14, true) + on, "0 4 x14@8 80"},
      {"after a trigger and ignored bytes", {}, run + kTrigger + kIgnore + exception(14, true) + on, "0 4 x14@8 80"},
      {"after a time", {}, run + kTime + exception(14, true) + on, "0 4 x14@8 80"},
      {"after a periodic I-Sync", {}, run + isync(0xc, kPeriodic) + exception(14, true) + on, "0 4 x14@8 80"},
      {"after its target", with(2, kBxLr), run + branch(kElsewhere) + exception(14, true) + on, "0 4 x14@8 80"},
      {"an exception return", with(2, kReturn), run + kExceptionReturn + branch(kElsewhere) + exception(14, true) + on, "0 4 x14@8 80"},
      {"an exception return that ran", with(2, kReturn), run + kExceptionReturn + branch(kElsewhere) + on, "0 4 8 return 40"},
      {"without an exception", {}, run + branch(kElsewhere, 0x21) + on, "0 4 40"},
      {"by two exceptions", {}, run + exception(2, true) + exception(14, true) + on, "0 4 x2@8 x14@80 80"},
      {"another one runs after it", {}, run + exception(2, true) + on + exception(14, true) + on, "0 4 x2@8 x14@80 80"},
  };
  for (const Row& row : rows) {
    for (const size_t capacity : {size_t{1}, size_t{2}, size_t{4096}})
      EXPECT_EQ(decode(row.code, row.packets, capacity), row.want) << row.why << ", " << capacity;
  }
}

// [Cortex-M3] "Exception return": the branch cancels the return, while the instruction has run.
TEST(LegacyCancels, OnTheMProfileAReturnButNotItsInstruction) {
  Code code;
  code.words.assign(64, kT32Nops);
  code.words[1] = kT32BxLrNop;
  code.m_profile = true;
  const Raw run = start(true) + e(3);
  EXPECT_EQ(decode(code, run + kExceptionReturn + exception(14, true, true) + e(1), 4096), "0 2 4 x14@? 80");
  EXPECT_EQ(decode(code, run + kExceptionReturn + branch(kElsewhere, 0, true) + e(1), 4096), "0 2 4 return 40");
  EXPECT_EQ(decode(code, run + exception(14, true, true) + e(1), 4096), "0 2 x14@4 80");
}

TEST(LegacyCancels, WhatHasNothingToCancelIsNamed) {
  const Raw run = start() + e(3), on = e(1);
  constexpr size_t kMany = 5000;  // more packets than are searched
  const Row rows[] = {
      {"the instruction precedes the trace", {}, start() + exception(14, true) + on, "x14@0 80"},
      {"after the trace started again", {}, run + isync(kElsewhere, kTraceOn) + exception(14, true) + on, "0 4 8 x14@40 80"},
      {"after an exception that did not cancel it",
       {},
       run + exception(2, false) + exception(14, true) + on,
       "0 4 8 gap:bad_packet x2@c x14@? 80"},
      {"after many packets", {}, run + times(kMany, kIgnore) + exception(14, true) + on, "0 4 8 gap:limit x14@? 80"},
  };
  for (const Row& row : rows) EXPECT_EQ(decode(row.code, row.packets, 4096), row.want) << row.why;
}

// The code fits no version, so that the flow is marked up to the next address, and one flow is left. The cancelled instruction does not run
// there either.
TEST(LegacyCancels, WhereFlowsWereDropped) {
  Code code = with(1, kOver);
  code.changed = 1;
  code.other = kFurther;
  EXPECT_EQ(decode(code, start() + e(1) + kN + e(2) + exception(14, true) + e(1), 4096), "0 4 gap:image_mismatch 8 x14@c 80");
}

// The search for code with several versions begins anew every 64 packets or more. It must not matter where.
TEST(LegacyCancels, WhereverAStretchBegins) {
  Code code = with(kHandler / 4, kNop, true);
  code.changed = kHandler / 4;
  code.other = kBxLr;
  for (size_t shift = 0; shift < 200; ++shift) {
    const Raw packets = start() + times(shift, kIgnore) + e(3) + kWait + exception(14, true) + e(1) + branch(kElsewhere) + e(1);
    EXPECT_EQ(decode(code, packets, 4096), "0 4 x14@8 80 40") << shift;
  }
}

}  // namespace
}  // namespace ptd::test
