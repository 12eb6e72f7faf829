// The times of AUX records of emulated machines: a decoder takes them as the latest time of the trace before them.
#include "capture/emulate/system/trace_chunks.h"

#include <gtest/gtest.h>

#include <array>

namespace ptd::emulate {
namespace {

uint64_t twice(uint64_t tsc) { return 2 * tsc; }

TEST(TraceChunks, EachEndsWithTheNextPsbAndTheLastWithTheTrace) {
  constexpr std::array<uint64_t, 8> kPsbs = {0, 10, 40, 11, 100, 12, 130, 20};  // offset, TSC
  const auto chunks = trace_chunks({3, 150, kPsbs, 99}, 100, twice);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[0].cpu, 3);
  EXPECT_EQ(chunks[0].size_bytes, 100U);
  EXPECT_EQ(chunks[0].end_ns, 24U);
  EXPECT_EQ(chunks[1].offset_bytes, 100U);
  EXPECT_EQ(chunks[1].size_bytes, 50U);
  EXPECT_EQ(chunks[1].end_ns, 198U) << "its last PSB is at 20, and what follows that PSB ran until 99";
}

TEST(TraceChunks, TimesDoNotGoBack) {
  constexpr std::array<uint64_t, 4> kPsbs = {0, 10, 100, 50};
  const auto chunks = trace_chunks({0, 150, kPsbs, 0}, 100, twice);
  ASSERT_EQ(chunks.size(), 2U);
  EXPECT_EQ(chunks[1].end_ns, 100U);
}

TEST(TraceChunks, APsbAtTheEndBeginsNoChunk) {
  constexpr std::array<uint64_t, 4> kPsbs = {0, 10, 100, 50};
  const auto chunks = trace_chunks({0, 100, kPsbs, 60}, 100, twice);
  ASSERT_EQ(chunks.size(), 1U);
  EXPECT_EQ(chunks[0].end_ns, 100U);
}

TEST(TraceChunks, NoTraceNoChunk) { EXPECT_TRUE(trace_chunks({0, 0, {}, 60}, 100, twice).empty()); }

}  // namespace
}  // namespace ptd::emulate
