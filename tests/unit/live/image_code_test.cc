// The code of BPF programs and trampolines: what is read from memory may end with free bytes, or be freed.
#include "capture/live/kernel/image_code.h"

#include <gtest/gtest.h>

namespace ptd::live {
namespace {

constexpr std::byte kFree{0xcc};

std::vector<std::byte> code(size_t size_bytes) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i < size_bytes; ++i) bytes.push_back(std::byte(i % 100));
  return bytes;
}

std::vector<std::byte> with_free(std::vector<std::byte> bytes, size_t count) {
  bytes.insert(bytes.end(), count, kFree);
  return bytes;
}

TEST(ImageCode, CodeThatFillsItsMemory) {
  EXPECT_EQ(image_code(code(300), true), code(300));
  EXPECT_EQ(image_code(code(300), false), code(300));
}

// Linux 6.9 and later: BPF_INSN_SAFETY bytes are left.
TEST(ImageCode, ATrampolineEndsBeforeItsUnusedMemory) {
  EXPECT_EQ(image_code(with_free(code(300), 64), false), code(300));
  EXPECT_EQ(image_code(with_free(code(300), 3), false), code(300));
}

TEST(ImageCode, FreedMemoryHasNoCode) {
  for (const bool program : {false, true}) {
    EXPECT_TRUE(image_code(with_free({}, 40), program).empty());
    EXPECT_TRUE(image_code(with_free({}, 400), program).empty());
    // The first part is a shorter program by now.
    EXPECT_TRUE(image_code(with_free(code(300), 65), program).empty());
    // The last part is another one.
    std::vector<std::byte> reused = with_free({}, 64);
    const std::vector<std::byte> other = code(300);
    reused.insert(reused.end(), other.begin(), other.end());
    EXPECT_TRUE(image_code(reused, program).empty());
  }
  EXPECT_TRUE(image_code(with_free(code(300), 64), true).empty());  // a program has no unused memory
}

TEST(ImageCode, NothingWasRead) { EXPECT_TRUE(image_code({}, false).empty()); }

}  // namespace
}  // namespace ptd::live
