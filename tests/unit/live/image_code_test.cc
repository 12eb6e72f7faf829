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

// Linux 6.9 and later: the record says 4,096 bytes, the code is shorter, 64 free bytes follow, then other code.
TEST(ImageCode, ATrampolineEndsBeforeFreeMemory) {
  std::vector<std::byte> page = with_free(code(300), 64);
  const std::vector<std::byte> other = code(3732);
  page.insert(page.end(), other.begin(), other.end());
  EXPECT_EQ(image_code(page, false), code(300));
  EXPECT_EQ(image_code(with_free(code(300), 64), false), code(300));
  EXPECT_EQ(image_code(with_free(code(300), 3), false), with_free(code(300), 3));
  EXPECT_TRUE(image_code(page, true).empty());  // the record of a program has its size: the rest is another one's
}

TEST(ImageCode, FreedMemoryHasNoCode) {
  for (const bool program : {false, true}) {
    std::vector<std::byte> reused = with_free({}, 64);
    EXPECT_TRUE(image_code(reused, program).empty());
    const std::vector<std::byte> other = code(300);
    reused.insert(reused.end(), other.begin(), other.end());
    EXPECT_TRUE(image_code(reused, program).empty());
  }
}

TEST(ImageCode, NothingWasRead) { EXPECT_TRUE(image_code({}, false).empty()); }

}  // namespace
}  // namespace ptd::live
