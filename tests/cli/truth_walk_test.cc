// Segments of a ground truth: how much of the last one a packet can tell of.
#include "cli/verify/truth_walk.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>

#include "cli/verify/truth_compare.h"

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

/// A ground truth file of a log. Its blocks are these, again and again.
class TruthFile {
 public:
  explicit TruthFile(const std::function<void(emulate::TruthLog&)>& write, const std::vector<emulate::TruthBlock>& blocks) {
    std::vector<std::byte> bytes;
    emulate::TruthLog log(bytes);
    write(log);
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    auto writer = emulate::TruthFileWriter::create(path());
    EXPECT_TRUE(writer.ok());
    const auto lookup = [&](uint64_t number) { return &blocks[number % blocks.size()]; };
    EXPECT_TRUE((*writer)->append(bytes, lookup, 0, [](Bytes) {}).ok());
    EXPECT_TRUE((*writer)->finish().ok());
  }
  ~TruthFile() { fs::remove_all(folder_); }
  TruthFile(const TruthFile&) = delete;
  TruthFile& operator=(const TruthFile&) = delete;
  [[nodiscard]] std::string path() const { return folder_ + "/truth"; }
  [[nodiscard]] std::unique_ptr<emulate::TruthFileReader> open() const {
    auto reader = emulate::TruthFileReader::open(path());
    EXPECT_TRUE(reader.ok());
    return std::move(*reader);
  }

 private:
  std::string folder_ = (fs::temp_directory_path() / "ptd-walk-XXXXXX").string();
};

/// Of a ground truth of these blocks, each of which ran once.
TruthSegment segment_of(const std::vector<emulate::TruthBlock>& blocks, bool is_pt) {
  const TruthFile file(
      [&](emulate::TruthLog& log) {
        log.psb(0, 1);
        for (uint32_t i = 0; i < blocks.size(); ++i) log.block(i);
        log.end();
      },
      blocks);
  const auto reader = file.open();
  TruthWalk walk(*reader, is_pt);
  TruthSegment segment;
  EXPECT_TRUE(walk.next(segment));
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

/// How often each address retired.
std::map<uint64_t, uint64_t> times_of(const TruthSegment& segment) {
  std::map<uint64_t, uint64_t> times;
  for (const uint64_t ip : segment.insns.ips) ++times[ip];
  (void)segment.skipped.for_each([&](uint64_t ip, uint64_t count) {
    times[ip] += count;
    return true;
  });
  return times;
}

// The middle of a long segment is counted, with the same result as if it was held.
TEST(TruthWalk, HoldsBothEndsOfALongSegment) {
  constexpr size_t kHeld = 40;
  std::mt19937 random(5);
  std::vector<emulate::TruthBlock> blocks;
  for (uint64_t i = 0; i < 9; ++i) {
    const size_t size = 1 + random() % 7;
    blocks.push_back({0x1000 + 0x100 * i, std::vector<uint8_t>(size, 1),
                      std::vector<std::byte>(size, std::byte{i % 3 == 0 ? uint8_t{0xc3} : uint8_t{0x90}})});
  }
  const TruthFile file(
      [&](emulate::TruthLog& log) {
        bool loses = false;
        for (int i = 0; i < 4000; ++i) {
          const auto block = static_cast<uint32_t>(random() % blocks.size());
          const auto size = static_cast<unsigned>(blocks[block].lengths.size());
          if (random() % 50 == 0) (loses ? log.recover() : log.lose()), loses = !loses;
          if (random() % 100 == 0) log.psb(static_cast<uint64_t>(i), 0);
          if (random() % 3 == 0) {
            const auto first = static_cast<unsigned>(random() % size);
            log.part(block, first, static_cast<unsigned>(random() % (size - first + 1)));
          } else {
            log.block(block);
          }
        }
        log.end();
      },
      blocks);
  const auto whole_reader = file.open(), reader = file.open();
  TruthWalk whole_walk(*whole_reader, true), walk(*reader, true);
  TruthSegment whole, segment;
  size_t skipped = 0;
  while (whole_walk.more()) {
    ASSERT_EQ(walk.psbs(), whole_walk.psbs());
    ASSERT_TRUE(whole_walk.next(whole) && walk.next(segment, kHeld));
    ASSERT_EQ(whole.skipped.count, 0U);
    ASSERT_EQ(segment.size(), whole.size());
    EXPECT_EQ(segment.psbs, whole.psbs);
    EXPECT_EQ(segment.lost, whole.lost);
    EXPECT_EQ(segment.told_end, whole.told_end);
    EXPECT_LE(segment.insns.size(), 2 * kHeld + 8);
    EXPECT_EQ(times_of(segment), times_of(whole));
    const auto before = static_cast<std::ptrdiff_t>(segment.skipped.before),
               after = static_cast<std::ptrdiff_t>(segment.insns.size()) - before;
    EXPECT_TRUE(std::equal(segment.insns.ips.begin(), segment.insns.ips.begin() + before, whole.insns.ips.begin()));
    EXPECT_TRUE(std::equal(segment.insns.ips.end() - after, segment.insns.ips.end(), whole.insns.ips.end() - after));
    skipped += segment.skipped.count != 0 ? 1 : 0;
  }
  EXPECT_FALSE(walk.more());
  EXPECT_GT(skipped, 10U);
}

uint64_t peak_bytes() {
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) << 10;
}

// A file of less than 1 KiB can say that a hundred million instructions ran.
TEST(TruthWalk, MemoryDoesNotGrowWithWhatAFileClaims) {
  constexpr uint64_t kInsns = 4000, kTimes = 25000;
  const std::vector<emulate::TruthBlock> blocks{{0x1000, std::vector<uint8_t>(kInsns, 1), std::vector<std::byte>(kInsns, std::byte{0x90})}};
  const TruthFile file(
      [](emulate::TruthLog& log) {
        log.psb(0, 0);
        for (uint64_t i = 0; i < kTimes; ++i) log.block(0);
        log.end();
      },
      blocks);
  EXPECT_LT(fs::file_size(file.path()), 1024U);
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR) + "/data/user/patch.bundle";
  const auto recording = Recording::open(options);
  ASSERT_TRUE(recording.ok());
  const auto counts = compare_with_truth(**recording, 0, file.path(), {"*"}, [](uint64_t) {});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->truth, kInsns * kTimes);
  EXPECT_EQ(counts->right + counts->wrong + counts->wrong_flagged + counts->lost + counts->after_end + counts->untold, counts->truth);
  EXPECT_LT(peak_bytes(), uint64_t{3} << 29);
}

// The same for blocks: each of them is defined once, but they are alike.
TEST(TruthWalk, AFileDefinesBlocksInProportionToItsSize) {
  constexpr size_t kInsns = 4096, kBlocks = 5000;
  const emulate::TruthBlock block{0x1000, std::vector<uint8_t>(kInsns, 15), std::vector<std::byte>(15 * kInsns, std::byte{0x90})};
  const TruthFile file(
      [&](emulate::TruthLog& log) {
        for (uint32_t i = 0; i < kBlocks; ++i) log.block(i);
      },
      {block});
  const auto reader = file.open();
  size_t blocks = 0;
  for (emulate::TruthRecord record; reader->next(record);) ++blocks;
  EXPECT_EQ(reader->error(), "the ground truth defines more blocks than a file of its size can");
  EXPECT_GT(blocks, 1000U);
  EXPECT_LT(blocks, kBlocks / 2);
}

}  // namespace
}  // namespace ptd::cli
