// Segments of a ground truth: how much of the last one a packet can tell of.
#include "cli/verify/truth_walk.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>

namespace ptd::cli {
namespace {

namespace fs = std::filesystem;

emulate::TruthBlock a64_block(uint64_t ip, std::initializer_list<uint32_t> words) {
  emulate::TruthBlock block{ip, std::vector<uint8_t>(words.size(), 4), {}};
  for (const uint32_t word : words) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&word);
    block.bytes.insert(block.bytes.end(), bytes, bytes + sizeof(word));
  }
  return block;
}

// The last instruction's first byte is that of an x86-64 RET.
TEST(TruthWalk, NoPacketTellsOfWhatFollowsTheLastBranchThatLedOn) {
  constexpr uint32_t kAdd = 0x8b0600c3, kBranch = 0x14000002;  // ADD X3, X6, X6; B +8
  const std::vector<emulate::TruthBlock> blocks = {a64_block(0x1000, {kAdd, kBranch}), a64_block(0x100c, {kAdd, kAdd, kAdd}), a64_block(0x1018, {kAdd, kBranch})};
  std::vector<std::byte> bytes;
  emulate::TruthLog log(bytes);
  log.psb(0, 1);
  log.block(0);
  log.block(1);
  log.block(2);
  log.end();
  std::string folder = (fs::temp_directory_path() / "ptd-walk-XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/truth";
  auto writer = emulate::TruthFileWriter::create(path);
  ASSERT_TRUE(writer.ok());
  const auto lookup = [&](uint64_t number) { return number < blocks.size() ? &blocks[number] : nullptr; };
  ASSERT_TRUE((*writer)->append(bytes, lookup, 0, [](Bytes) {}).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = emulate::TruthFileReader::open(path);
  ASSERT_TRUE(reader.ok());
  TruthWalk walk(**reader, false);
  TruthSegment segment;
  ASSERT_TRUE(walk.next(segment));
  fs::remove_all(folder);
  EXPECT_TRUE(walk.ended());
  EXPECT_EQ(segment.insns.size(), 7U);
  EXPECT_EQ(segment.told_end, 2U) << "the flow after the last branch, and so its atom, is not known";
}

}  // namespace
}  // namespace ptd::cli
