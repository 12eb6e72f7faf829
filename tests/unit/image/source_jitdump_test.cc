// Jitdump reader: records according to the specification; damage does not affect earlier records.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "image/source/jitdump.h"
#include "source_support.h"

namespace ptd {
namespace {

using image_test::append;

// Writes a jitdump by the layout of tools/perf "jitdump-specification".
class JitdumpWriter {
 public:
  explicit JitdumpWriter(uint64_t flags = 0) {
    append(out_, uint32_t{0x4A695444});
    append(out_, uint32_t{1});
    append(out_, uint32_t{40});
    append(out_, uint32_t{62});
    append(out_, uint32_t{0});
    append(out_, uint32_t{77});
    append(out_, uint64_t{123});
    append(out_, flags);
  }
  void load(uint64_t time, uint64_t address, uint64_t index, const std::string& name, const std::vector<std::byte>& code) {
    record(0, time, 40 + name.size() + 1 + code.size());
    append(out_, uint32_t{77});
    append(out_, uint32_t{78});
    append(out_, address);
    append(out_, address);
    append(out_, uint64_t{code.size()});
    append(out_, index);
    for (const char c : name) out_.push_back(static_cast<std::byte>(c));
    out_.push_back(std::byte{0});
    out_.insert(out_.end(), code.begin(), code.end());
  }
  void move(uint64_t time, uint64_t from, uint64_t to, uint64_t size, uint64_t index) {
    record(1, time, 48);
    append(out_, uint32_t{77});
    append(out_, uint32_t{78});
    append(out_, to);
    append(out_, from);
    append(out_, to);
    append(out_, size);
    append(out_, index);
  }
  void other(uint32_t type, uint64_t time, size_t body) {
    record(type, time, body);
    out_.resize(out_.size() + body);
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return out_; }

 private:
  void record(uint32_t type, uint64_t time, uint64_t body) {
    append(out_, type);
    append(out_, static_cast<uint32_t>(16 + body));
    append(out_, time);
  }
  std::vector<std::byte> out_;
};

JitdumpWriter sample() {
  JitdumpWriter writer;
  writer.load(1000, 0x7f0000001000, 1, "first", image_test::bytes_of({0x90, 0xc3}));
  writer.other(2, 1500, 32);  // debug info
  writer.move(2000, 0x7f0000001000, 0x7f0000002000, 2, 1);
  writer.load(3000, 0x7f0000001000, 2, "second", image_test::bytes_of({0xcc, 0xcc, 0xc3}));
  writer.other(3, 4000, 0);  // close
  writer.load(5000, 0x7f0000003000, 3, "after the end", image_test::bytes_of({0xc3}));
  return writer;
}

TEST(SourceJitdump, LoadMoveDebugClose) {
  const JitdumpWriter writer = sample();
  std::vector<JitCode> codes;
  const auto result = read_jitdump(writer.bytes(), [&](const JitCode& code) { codes.push_back(code); });
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(result->closed);
  EXPECT_FALSE(result->cut);
  EXPECT_EQ(result->header.pid, 77U);
  EXPECT_FALSE(result->header.tsc_clock);
  ASSERT_EQ(codes.size(), 4U) << "perf inject reads on after a close";
  EXPECT_EQ(codes[0].name, "first");
  EXPECT_EQ(codes[0].time, 1000U);
  EXPECT_EQ(codes[0].address, 0x7f0000001000U);
  ASSERT_EQ(codes[0].code.size(), 2U);
  EXPECT_EQ(codes[0].code[0], std::byte{0x90});
  EXPECT_TRUE(codes[1].move);
  EXPECT_EQ(codes[1].old_address, 0x7f0000001000U);
  EXPECT_EQ(codes[1].address, 0x7f0000002000U);
  EXPECT_EQ(codes[1].index, 1U);
  EXPECT_EQ(codes[2].tid, 78U);
  EXPECT_EQ(codes[2].code.size(), 3U);
}

TEST(SourceJitdump, TscClockIsTold) {
  const JitdumpWriter writer(1);
  const auto result = read_jitdump(writer.bytes(), [](const JitCode&) {});
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result->header.tsc_clock);
}

TEST(SourceJitdump, RefusesForeignFiles) {
  std::vector<std::byte> bytes = sample().bytes();
  EXPECT_FALSE(read_jitdump(Bytes(bytes).first(39), [](const JitCode&) {}).ok());
  std::swap(bytes[0], bytes[3]);
  std::swap(bytes[1], bytes[2]);
  const auto swapped = read_jitdump(bytes, [](const JitCode&) {});
  ASSERT_FALSE(swapped.ok());
  EXPECT_EQ(swapped.error().kind(), ErrorKind::unsupported);
  bytes[0] = std::byte{'x'};
  EXPECT_FALSE(read_jitdump(bytes, [](const JitCode&) {}).ok());
}

TEST(SourceJitdump, CutAnywhereKeepsWhatCameBefore) {
  const std::vector<std::byte> bytes = sample().bytes();
  std::vector<std::string> whole;
  (void)read_jitdump(bytes, [&](const JitCode& code) { whole.push_back(code.name + std::to_string(code.time)); });
  for (size_t size = 40; size < bytes.size(); ++size) {
    std::vector<std::string> part;
    const auto result =
        read_jitdump(Bytes(bytes).first(size), [&](const JitCode& code) { part.push_back(code.name + std::to_string(code.time)); });
    ASSERT_TRUE(result.ok());
    ASSERT_LE(part.size(), whole.size());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin())) << size;
  }
}

std::vector<std::string> names_of(Bytes bytes, JitdumpResult& result) {
  std::vector<std::string> names;
  const auto read = read_jitdump(bytes, [&](const JitCode& code) { names.push_back(code.name); });
  if (read.ok()) result = *read;
  return names;
}

TEST(SourceJitdump, ACutFileSaysSinceWhenRecordsAreMissing) {
  std::vector<std::byte> bytes = sample().bytes();
  bytes.resize(bytes.size() - 1);
  JitdumpResult result;
  EXPECT_EQ(names_of(bytes, result).size(), 3U);
  EXPECT_TRUE(result.cut);
  ASSERT_EQ(result.damage.size(), 1U);
  EXPECT_TRUE(result.damage[0].has_time);
  EXPECT_EQ(result.damage[0].time, 4000U);
}

// The size of the first record is the u32 at byte 44: it is 16 + 40 + 6 + 2.
TEST(SourceJitdump, ReadingContinuesAfterARecordWithABadSize) {
  for (const uint32_t size : {0U, 8U, 15U, 0x7fffffffU, 0xffffffffU}) {
    std::vector<std::byte> bytes = sample().bytes();
    std::memcpy(bytes.data() + 44, &size, sizeof size);
    JitdumpResult result;
    EXPECT_EQ(names_of(bytes, result), (std::vector<std::string>{"second", "after the end"})) << size;
    EXPECT_FALSE(result.cut);
    ASSERT_EQ(result.damage.size(), 1U);
    EXPECT_EQ(result.damage[0].offset_bytes, 40U);
    EXPECT_FALSE(result.damage[0].has_time);
    EXPECT_EQ(result.lost_bytes, result.damage[0].size_bytes);
  }
}

TEST(SourceJitdump, EveryMalformedRecordOfCodeIsCounted) {
  constexpr size_t kBody = 40 + 16, kAddress = kBody + 16, kSize = kBody + 24;
  const auto with = [](size_t at, uint64_t value) {
    std::vector<std::byte> bytes = sample().bytes();
    std::memcpy(bytes.data() + at, &value, sizeof value);
    return bytes;
  };
  for (const auto& bytes : {with(kSize, 0), with(kSize, 3), with(kSize, uint64_t{1} << 32), with(kSize, ~uint64_t{0}),
                            with(kAddress, ~uint64_t{0} - 1), with(kAddress, 0xffffffff81000000)}) {
    JitdumpResult result;
    EXPECT_EQ(names_of(bytes, result).size(), 3U);
    EXPECT_EQ(result.malformed, 1U);
    ASSERT_EQ(result.damage.size(), 1U);
    EXPECT_EQ(result.damage[0].time, 1000U);
    EXPECT_EQ(result.lost_bytes, 0U);
  }
}

TEST(SourceJitdump, AFileOfBytesThatLookLikeRecordsIsSearchedInBoundedWork) {
  JitdumpWriter writer;
  std::vector<std::byte> bytes = writer.bytes();
  bytes.resize(4U << 20);  // zeros: type JIT_CODE_LOAD everywhere, no size
  JitdumpResult result;
  EXPECT_TRUE(names_of(bytes, result).empty());
  EXPECT_TRUE(result.cut);
  EXPECT_EQ(result.damage.size(), 1U);
}

TEST(SourceJitdump, MutationsNeverReadOutside) {
  const std::vector<std::byte> good = sample().bytes();
  std::mt19937 random(3);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::byte> bad = good;
    for (int i = 0; i < 3; ++i) bad[random() % bad.size()] = static_cast<std::byte>(random());
    uint64_t sum = 0;
    const auto result = read_jitdump(bad, [&](const JitCode& code) {
      EXPECT_LE(code.code.size(), bad.size());
      for (const std::byte byte : code.code) sum += std::to_integer<unsigned>(byte);
    });
    EXPECT_TRUE(!result.ok() || result->end_offset_bytes <= bad.size());
  }
}

}  // namespace
}  // namespace ptd
