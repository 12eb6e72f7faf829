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

/// Of a ground truth of these blocks, each of which ran once.
TruthSegment segment_of(const std::vector<emulate::TruthBlock>& blocks, bool is_pt) {
  std::vector<std::byte> bytes;
  emulate::TruthLog log(bytes);
  log.psb(0, 1);
  for (uint32_t i = 0; i < blocks.size(); ++i) log.block(i);
  log.end();
  std::string folder = (fs::temp_directory_path() / "ptd-walk-XXXXXX").string();
  EXPECT_NE(mkdtemp(folder.data()), nullptr);
  const std::string path = folder + "/truth";
  auto writer = emulate::TruthFileWriter::create(path);
  EXPECT_TRUE(writer.ok());
  const auto lookup = [&](uint64_t number) { return number < blocks.size() ? &blocks[number] : nullptr; };
  EXPECT_TRUE((*writer)->append(bytes, lookup, 0, [](Bytes) {}).ok());
  EXPECT_TRUE((*writer)->finish().ok());
  auto reader = emulate::TruthFileReader::open(path);
  EXPECT_TRUE(reader.ok());
  TruthWalk walk(**reader, is_pt);
  TruthSegment segment;
  EXPECT_TRUE(walk.next(segment));
  fs::remove_all(folder);
  EXPECT_TRUE(walk.ended());
  return segment;
}

// The last instruction's first byte is that of an x86-64 RET.
TEST(TruthWalk, NoPacketTellsOfWhatFollowsTheLastBranchThatLedOn) {
  constexpr uint32_t kAdd = 0x8b0600c3, kBranch = 0x14000002;  // ADD X3, X6, X6; B +8
  const TruthSegment segment =
      segment_of({a64_block(0x1000, {kAdd, kBranch}), a64_block(0x100c, {kAdd, kAdd, kAdd}), a64_block(0x1018, {kAdd, kBranch})}, false);
  EXPECT_EQ(segment.insns.size(), 7U);
  EXPECT_EQ(segment.told_end, 2U) << "the flow after the last branch, and so its atom, is not known";
}

TEST(TruthWalk, OneByteOf32BitCodeThatIsAPrefixIn64BitCodeLeavesNoPacket) {
  const emulate::TruthBlock ret{0x1000, {1}, {std::byte{0xc3}}}, inc{0x2000, {1}, {std::byte{0x40}}};
  EXPECT_EQ(segment_of({ret, inc}, true).told_end, 1U);
}

}  // namespace
}  // namespace ptd::cli
