// Damaged ids in formatter frames: bytes that no source gets are missing from one, and its flow has a gap there.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "recording/data/stray_ids.h"
#include "tests/coresight/support/expected.h"
#include "tests/coresight/support/folder.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

struct Piece {
  uint8_t id = 0;
  size_t bytes = 0;
  uint8_t value = 0x42;  ///< of each byte, an even one
};

/// Writes an id byte before each piece, also if the id is that of the piece before it. A piece gets a byte more where the next id needs it.
std::vector<std::byte> frames_with_ids(const std::vector<Piece>& pieces) {
  std::vector<std::byte> frames;
  const auto put = [&](unsigned value) {
    frames.push_back(static_cast<std::byte>(value));
    if (frames.size() % 16 == 15) frames.push_back(std::byte{0});
  };
  for (const Piece& piece : pieces) {
    put(piece.id << 1U | 1U);
    for (size_t i = 0; i < piece.bytes || frames.size() % 2 != 0; ++i) put(piece.value);
  }
  while (frames.size() % 16 != 0) frames.push_back(std::byte{0});
  return frames;
}

const std::vector<StrayIds::Source> kSources = {{0, 0x10}, {1, 0x11}, {2, 0x12}};

class NoReader final : public arm::FrameReader {
 public:
  void on_run(const arm::FrameRun& /*run*/) override {}
  void on_barrier(uint64_t /*offset_bytes*/) override {}
  void on_loss(uint64_t /*offset_bytes*/) override {}
};

std::multimap<size_t, StrayIds::Loss> losses_in(const std::vector<std::byte>& frames) {
  StrayIds strays;
  NoReader reader;
  strays.add_frames(frames, arm::FrameFormat::aligned, kSources, reader);
  return strays.losses();
}

/// Returns the ids whose streams have a gap: "10 at 3, 11 at 5".
std::string losses(const std::vector<Piece>& pieces) {
  std::string text;
  for (const auto& [index, loss] : losses_in(frames_with_ids(pieces))) {
    char row[40];
    std::snprintf(row, sizeof row, "%s%x at %llu", text.empty() ? "" : ", ", static_cast<unsigned>(loss.id),
                  static_cast<unsigned long long>(loss.stream_offset_bytes));
    text += row;
  }
  return text;
}

TEST(DamagedIds, AreLossesOfTheSourcesThatMayHaveWrittenTheBytes) {
  constexpr size_t kLong = 121;  // eight frames, after which an id is repeated
  const std::vector<Piece> begin = {{0x10, 11}, {0x11, 21}, {0x12, 31}};
  struct Row {
    const char* why;
    std::vector<Piece> pieces;
    const char* want;
  };
  const Row rows[] = {
      {"no damage", {{0x10, 5}, {0x11, 5}, {0, 40, 0}}, ""},
      {"neither the source before nor the one after it", {{0x10, 5}, {0x33, 5}, {0x11, 5}}, "12 at 31"},
      {"all but the one on both sides", {{0x10, 5}, {0x33, 5}, {0x10, 5}}, "11 at 21, 12 at 31"},
      {"the id before it may have been repeated", {{0x10, kLong}, {0x33, 5}, {0x11, 5}}, "10 at 132, 12 at 31"},
      {"so may the id after it", {{0x10, 5}, {0x33, kLong}, {0x11, 5}}, "11 at 21, 12 at 31"},
      {"at the end of the buffer", {{0x10, 5}, {0x33, 5}}, "11 at 21, 12 at 31"},
      {"two damaged ids", {{0x10, 5}, {0x33, 5}, {0x11, 5}, {0x10, 5}, {0x34, 5}, {0x12, 5}}, "11 at 26, 12 at 31"},
      {"the id of padding", {{0x10, 5}, {0, 5}, {0x11, 5}}, "12 at 31"},
      {"a reserved id", {{0x10, 5}, {0x7f, 5}, {0x11, 5}}, "12 at 31"},
      {"padding is zero", {{0x10, 5}, {0, 5, 0}, {0x11, 5}}, ""},
      {"a trigger", {{0x10, 5}, {0x7d, 1}, {0x11, 5}}, ""},
      {"a source that writes again", {{0x10, 5}, {0x33, 5}, {0x11, 5}, {0x33, 5}, {0x10, 5}}, ""},
      {"no frames of these sources", {{0x33, 5}, {0x34, 5}, {0x35, 5}, {0x36, 5}, {0x37, 5}, {0x38, 5}}, ""},
      {"a source that repeats its id", {{0x10, 5}, {0x33, kLong}, {0x33, 5}, {0x10, 5}}, ""},
  };
  for (const Row& row : rows) {
    std::vector<Piece> pieces = begin;
    pieces.insert(pieces.end(), row.pieces.begin(), row.pieces.end());
    EXPECT_EQ(losses(pieces), row.want) << row.why;
  }
}

// [ITM] "Synchronization packet", [STP] "ASYNC".
TEST(DamagedIds, ASourceThatSynchronisesIsNoDamage) {
  std::vector<std::byte> frames = frames_with_ids({{0x10, 5}, {0x11, 5}, {0x33, 9, 0}});
  const auto zero = std::find(frames.begin(), frames.end(), static_cast<std::byte>(0x33 << 1 | 1));
  ASSERT_LT(zero + 8, frames.end());
  zero[7] = std::byte{0x80};
  EXPECT_TRUE(losses_in(frames).empty());
  zero[7] = std::byte{0x40};
  EXPECT_FALSE(losses_in(frames).empty());
}

/// Returns the gaps of lost trace in a snapshot.
uint64_t gaps_of(const std::string& path, uint64_t& instructions) {
  OpenOptions options;
  options.path = path;
  const auto recording = Recording::open(options);
  EXPECT_TRUE(recording.ok());
  uint64_t gaps = 0;
  instructions = 0;
  for (uint32_t stream = 0; recording.ok() && stream < (*recording)->streams().size(); ++stream) {
    (void)(*recording)->decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
      gaps += static_cast<uint64_t>(
          std::count_if(batch.gaps.begin(), batch.gaps.end(), [](const Gap& gap) { return gap.reason == GapReason::aux_lost; }));
      instructions += instructions_of(batch.blocks);
      return true;
    });
  }
  return gaps;
}

// Each id byte of a capture in turn becomes an id that no source has. The gap is missing only where the formatter repeated an id early, so that
// the bytes may be those of another source.
TEST(DamagedIds, EachGivesAGapInTheCapture) {
  PTD_NEED_CORPUS();
  namespace fs = std::filesystem;
  const Folder folder;
  const fs::path original = corpus_dir() + "/cs-ricsec-fib/capture1";
  const auto content_of = [](const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return std::string{std::istreambuf_iterator<char>(in), {}};
  };
  for (const auto& entry : fs::directory_iterator(original)) folder.text(entry.path().filename(), content_of(entry.path()));
  std::string core = content_of(original / "cpu_0.ini");  // its code is outside of the folder
  constexpr std::string_view kOutside = "../images/";
  for (size_t at = core.find(kOutside); at != std::string::npos; at = core.find(kOutside)) core.erase(at, kOutside.size());
  folder.text("cpu_0.ini", core);
  for (const auto& entry : fs::directory_iterator(original.parent_path() / "images"))
    folder.text(entry.path().filename(), content_of(entry.path()));
  const std::string trace = content_of(original / "cstrace.bin");
  uint64_t whole = 0, damaged = 0, silent = 0, given = 0;
  const uint64_t gaps = gaps_of(folder.path(), whole);
  ASSERT_GT(whole, 0U);
  for (size_t at = 2; at < trace.size(); at += 2) {  // nothing precedes the first
    const auto byte = static_cast<unsigned char>(trace[at]);
    if (byte != (0x10U << 1 | 1) || at % 16 == 14) continue;
    std::string other = trace;
    other[at] = static_cast<char>(0x33 << 1 | 1);
    folder.text("cstrace.bin", other);
    const uint64_t now = gaps_of(folder.path(), given);
    if (given == whole) continue;
    ++damaged;
    silent += now > gaps ? 0 : 1;
  }
  EXPECT_GT(damaged, 50U);
  EXPECT_LE(silent, 3U) << "of " << damaged;
}

TEST(DamagedIds, NoneAreInTheCorpus) {
  PTD_NEED_CORPUS();
  unsigned snapshots = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(corpus_dir())) {
    if (entry.path().filename() != "snapshot.ini") continue;
    uint64_t instructions = 0;
    EXPECT_EQ(gaps_of(entry.path().parent_path(), instructions), 0U) << entry.path();
    ++snapshots;
  }
  EXPECT_GT(snapshots, 10U);
}

}  // namespace
}  // namespace ptd::test
