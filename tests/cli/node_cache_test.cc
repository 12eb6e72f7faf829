// NodeCache: the instructions of blocks.
#include "cli/cache/node_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <span>

namespace ptd::cli {
namespace {

// The decoder passes some words that are no instruction, with a mark: each counts as one.
TEST(NodeCache, AWordThatIsNoInstructionHasALength) {
  const std::array<uint32_t, 4> words = {0xd503201f, 0x00000001, 0x00000000, 0xd65f03c0};  // NOP, two of the reserved group, RET
  ASSERT_EQ(classify(std::as_bytes(std::span(words)).subspan(4), ExecMode::a64).cls, InsnClass::bad);
  BlockTable table;
  const NodeId id = table.intern(SpaceId{1}, Ip{0x1000}, ExecMode::a64, words.size(), std::as_bytes(std::span(words)));
  NodeCache cache;
  cache.bind(table);
  const std::span<const CachedInsn> insns = cache.insns(id);
  ASSERT_EQ(insns.size(), words.size());
  EXPECT_EQ(insns[2].cls, InsnClass::bad);
  EXPECT_EQ(insns[3].offset_bytes, 12U);
  EXPECT_EQ(insns[3].cls, InsnClass::ret);
  EXPECT_EQ(cache.ip_lines(id), "1000\n1004\n1008\n100c\n");
}

}  // namespace
}  // namespace ptd::cli
