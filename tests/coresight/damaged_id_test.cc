// Damaged ids in formatter frames: bytes that no source gets are missing from one, and its flow has a gap there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>

#include "recording/data/stray_ids.h"
#include "tests/coresight/support/expected.h"
#include "tests/coresight/support/folder.h"
#include "tests/coresight/support/made_frames.h"
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
      {"not the source after it", {{0x10, 5}, {0x33, 5}, {0x11, 5}}, "10 at 16, 12 at 31"},
      {"all but the one on both sides, whose repeated id is not due", {{0x10, 5}, {0x33, 5}, {0x10, 5}}, "11 at 21, 12 at 31"},
      {"the id before it may have been repeated", {{0x10, kLong}, {0x33, 5}, {0x11, 5}}, "10 at 132, 12 at 31"},
      {"so may the id after it", {{0x10, 5}, {0x33, kLong}, {0x11, 5}}, "10 at 16, 11 at 21, 12 at 31"},
      {"at the end of the buffer", {{0x10, 5}, {0x33, 5}}, "10 at 16, 11 at 21, 12 at 31"},
      {"two damaged ids", {{0x10, 5}, {0x33, 5}, {0x11, 5}, {0x10, 5}, {0x34, 5}, {0x12, 5}}, "10 at 16, 10 at 22, 11 at 26, 12 at 31"},
      {"the id of padding", {{0x10, 5}, {0, 5}, {0x11, 5}}, "10 at 16, 12 at 31"},
      {"a reserved id", {{0x10, 5}, {0x7f, 5}, {0x11, 5}}, "10 at 16, 12 at 31"},
      {"padding is zero", {{0x10, 5}, {0, 5, 0}, {0x11, 5}}, ""},
      {"a data byte, before the source's repeated id", {{0x10, 60}, {0x33, 61}, {0x10, 5}}, "10 at 72, 11 at 21, 12 at 31"},
      {"reserved ids, each", {{0x10, 5}, {0x7f, 5}, {0x11, 5}, {0x7f, 5}, {0x12, 5}}, "10 at 16, 10 at 16, 11 at 26, 12 at 31"},
      {"a trigger", {{0x10, 5}, {0x7d, 1}, {0x11, 5}}, ""},
      {"no trigger", {{0x10, 5}, {0x7d, 3, 0xf6}, {0x11, 5}}, "10 at 16, 12 at 31"},
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

// A repeated id that is not due, and padding that ends inside a frame, are damage where they are an exception.
TEST(DamagedIds, OddIdsAreDamageWhereTheyAreAnException) {
  std::vector<Piece> rare, frequent;
  for (unsigned i = 0; i < 20; ++i) {
    const auto id = static_cast<uint8_t>(0x10 + i % 3);
    rare.push_back({id, 5});
    frequent.insert(frequent.end(), {{id, 5}, {id, 5}});
  }
  EXPECT_EQ(losses(rare), "");
  EXPECT_EQ(losses(frequent), "");
  rare.push_back({0x11, 5});
  EXPECT_EQ(losses(rare), "11 at 38");
  rare.back() = {0, 1, 0};
  rare.push_back({0x12, 5});
  EXPECT_EQ(losses(rare), "10 at 37, 11 at 38");
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

std::unique_ptr<Recording> open_snapshot(const std::string& path) {
  OpenOptions options;
  options.path = path;
  auto recording = Recording::open(options);
  EXPECT_TRUE(recording.ok());
  return recording.ok() ? std::move(*recording) : nullptr;
}

/// The addresses of the instructions of a stream, in pieces between which the flow has gaps.
struct Flow {
  std::vector<std::vector<uint64_t>> pieces{1};
  uint64_t instructions = 0, losses = 0;  ///< losses: gaps of lost trace
};

Flow flow_of(const Recording& recording, uint32_t stream) {
  Flow flow;
  (void)recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
    auto gap = batch.gaps.begin();
    const auto pass_gaps = [&](size_t block) {
      for (; gap != batch.gaps.end() && gap->before_block <= block; ++gap) {
        flow.pieces.emplace_back();
        flow.losses += gap->reason == GapReason::aux_lost ? 1 : 0;
      }
    };
    for (size_t i = 0; i < batch.blocks.size(); ++i) {
      pass_gaps(i);
      const uint64_t begin = decoder.blocks().info(batch.blocks[i].node).ip.value;
      for (uint64_t k = 0; k < batch.blocks[i].instructions; ++k) flow.pieces.back().push_back(begin + 4 * k);
      flow.instructions += batch.blocks[i].instructions;
    }
    pass_gaps(batch.blocks.size());
    return true;
  });
  return flow;
}

std::vector<Flow> flows_of(const std::string& path) {
  std::vector<Flow> flows;
  const auto recording = open_snapshot(path);
  for (uint32_t stream = 0; recording && stream < recording->streams().size(); ++stream) flows.push_back(flow_of(*recording, stream));
  return flows;
}

/// Returns whether the flow is `truth` with parts left out at gaps.
bool is_honest(const Flow& flow, const std::vector<uint64_t>& truth) {
  const std::vector<uint64_t>& first = flow.pieces.front();
  const std::vector<uint64_t>& last = flow.pieces.back();
  if (flow.pieces.size() == 1) return first == truth;
  if (first.size() > truth.size() || !std::equal(first.begin(), first.end(), truth.begin())) return false;
  auto at = truth.begin() + static_cast<std::ptrdiff_t>(first.size());
  for (size_t i = 1; i + 1 < flow.pieces.size(); ++i) {
    at = std::search(at, truth.end(), flow.pieces[i].begin(), flow.pieces[i].end());
    if (at == truth.end() && !flow.pieces[i].empty()) return false;
    at += static_cast<std::ptrdiff_t>(flow.pieces[i].size());
  }
  return static_cast<std::ptrdiff_t>(last.size()) <= truth.end() - at && std::equal(last.rbegin(), last.rend(), truth.rbegin());
}

/// Returns the gaps of lost trace in a snapshot.
uint64_t gaps_of(const std::string& path, uint64_t& instructions) {
  uint64_t gaps = 0;
  instructions = 0;
  for (const Flow& flow : flows_of(path)) {
    gaps += flow.losses;
    instructions += flow.instructions;
  }
  return gaps;
}

std::string content_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  return std::string{std::istreambuf_iterator<char>(in), {}};
}

void replace_all(std::string& text, const std::string& what, const std::string& by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) text.replace(at, what.size(), by);
}

/// A copy of a capture whose trace can be replaced.
struct Copy {
  Folder folder;
  std::string trace;

  Copy() {
    const std::filesystem::path original = corpus_dir() + "/cs-ricsec-fib";
    for (const auto& entry : std::filesystem::directory_iterator(original / "capture1"))
      folder.text(entry.path().filename(), content_of(entry.path()));
    for (const auto& entry : std::filesystem::directory_iterator(original / "images"))
      folder.text(entry.path().filename(), content_of(entry.path()));
    core("capture1", "cpu_0", "cpu_0");
    trace = content_of(original / "capture1/cstrace.bin");
  }
  /// Writes the description of a core; its code is outside of the folder that it is from.
  void core(const std::string& capture, const std::string& name, const std::string& source) const {
    std::string text = content_of(corpus_dir() + "/cs-ricsec-fib/" + capture + "/" + source + ".ini");
    replace_all(text, "../images/", "");
    replace_all(text, source, name);
    folder.text(name + ".ini", text);
  }
  /// Adds the source of another capture to the buffer. Both write in turns.
  void add_source(const std::string& capture, uint8_t id);
};

void Copy::add_source(const std::string& capture, uint8_t id) {
  core(capture, "cpu_1", "cpu_0");
  std::string unit = content_of(folder.path() + "/etm_0.ini");
  replace_all(unit, "etm_0", "etm_1");
  replace_all(unit, "0x00000010", "0x000000" + std::string{"0123456789abcdef"[id >> 4U], "0123456789abcdef"[id & 15U]});
  folder.text("etm_1.ini", unit);
  std::string list = content_of(folder.path() + "/snapshot.ini");
  replace_all(list, "device1=etm_0.ini", "device1=etm_0.ini\ndevice2=cpu_1.ini\ndevice3=etm_1.ini");
  folder.text("snapshot.ini", list);
  list = content_of(folder.path() + "/trace.ini");
  replace_all(list, "etm_0=etr_0", "etm_0=etr_0\netm_1=etr_0");
  replace_all(list, "cpu_0=etm_0", "cpu_0=etm_0\ncpu_1=etm_1");
  folder.text("trace.ini", list);
  using Source = std::vector<uint8_t>;
  const auto bytes_of = [](const std::string& frames) {
    Source bytes;
    arm::split_frames(
        std::as_bytes(std::span(frames)), arm::FrameFormat::aligned,
        [&](const arm::FrameRun& run) {
          for (const std::byte byte : run.bytes) bytes.push_back(static_cast<uint8_t>(byte));
        },
        [](uint64_t) {});
    return bytes;
  };
  const Source sources[] = {bytes_of(trace), bytes_of(content_of(corpus_dir() + "/cs-ricsec-fib/" + capture + "/cstrace.bin"))};
  std::vector<std::pair<uint8_t, Source>> pieces;
  size_t done[2] = {};
  constexpr size_t kPieces[] = {3, 20, 8, 200, 60, 30, 5};
  for (size_t i = 0; done[0] < sources[0].size() || done[1] < sources[1].size(); ++i) {
    const Source& source = sources[i % 2];
    const size_t end = std::min(source.size(), done[i % 2] + kPieces[i % std::size(kPieces)]);
    pieces.emplace_back(i % 2 == 0 ? 0x10 : id, Source(source.begin() + static_cast<std::ptrdiff_t>(done[i % 2]),
                                                       source.begin() + static_cast<std::ptrdiff_t>(end)));
    done[i % 2] = end;
  }
  const std::vector<uint8_t> frames = frames_of(
      pieces, [] { return true; }, 8);
  trace.assign(frames.begin(), frames.end());
}

struct Flips {
  uint64_t tried = 0, wrong = 0;
  std::string list;  ///< " byte:id" of each that is wrong
};

/// Flips bit 0 of data bytes in [begin, end), one at a time, so that they become id bytes, but not those with `ids`. Returns how often the
/// flow is not honest.
Flips flip(const Copy& copy, size_t begin, size_t end, const std::vector<uint8_t>& ids) {
  Flips flips;
  std::vector<std::vector<uint64_t>> truths;
  for (Flow& flow : flows_of(copy.folder.path())) truths.push_back(std::move(flow.pieces.front()));
  for (size_t at = begin; at < end; at += 2) {
    const auto byte = static_cast<unsigned char>(copy.trace[at]);
    if (byte % 2 != 0) continue;
    if (std::find(ids.begin(), ids.end(), byte >> 1U) != ids.end()) continue;
    std::string damaged = copy.trace;
    damaged[at] = static_cast<char>(byte | 1U);
    copy.folder.text("cstrace.bin", damaged);
    const std::vector<Flow> flows = flows_of(copy.folder.path());
    ++flips.tried;
    bool honest = flows.size() == truths.size();
    for (size_t i = 0; honest && i < flows.size(); ++i) honest = is_honest(flows[i], truths[i]);
    if (honest) continue;
    ++flips.wrong;
    flips.list += " " + std::to_string(at) + ":" + std::to_string(byte >> 1U);
  }
  copy.folder.text("cstrace.bin", copy.trace);
  return flips;
}

/// Returns whether to damage a capture everywhere.
bool all_flips() { return std::getenv("PTDECODE_ALL_FLIPS") != nullptr; }

// Each id byte of a capture in turn becomes an id that no source has. The gap is missing only where the formatter repeated an id early, so
// that the bytes may be those of another source.
TEST(DamagedIds, EachGivesAGapInTheCapture) {
  PTD_NEED_CORPUS();
  const Copy copy;
  uint64_t whole = 0, damaged = 0, silent = 0, given = 0;
  const uint64_t gaps = gaps_of(copy.folder.path(), whole);
  ASSERT_GT(whole, 0U);
  for (size_t at = 2; at < copy.trace.size(); at += 2) {  // nothing precedes the first
    const auto byte = static_cast<unsigned char>(copy.trace[at]);
    if (byte != (0x10U << 1 | 1) || at % 16 == 14) continue;
    std::string other = copy.trace;
    other[at] = static_cast<char>(0x33 << 1 | 1);
    copy.folder.text("cstrace.bin", other);
    const uint64_t now = gaps_of(copy.folder.path(), given);
    if (given == whole) continue;
    ++damaged;
    silent += now > gaps ? 0 : 1;
  }
  EXPECT_GT(damaged, 50U);
  EXPECT_LE(silent, 3U) << "of " << damaged;
}

// One wrong bit makes an id byte of a data byte.
TEST(DamagedIds, ADataByteThatBecomesOneGivesAGap) {
  PTD_NEED_CORPUS();
  const Copy copy;
  const Flips one = all_flips() ? flip(copy, 0, copy.trace.size(), {}) : flip(copy, 6800, 7600, {});
  EXPECT_GT(one.tried, 300U);
  EXPECT_EQ(one.wrong, 0U) << "of " << one.tried << one.list;
}

// The bytes that another source takes are a limitation.
TEST(DamagedIds, ADataByteThatBecomesOneGivesAGapAmongTwoSources) {
  PTD_NEED_CORPUS();
  Copy copy;
  copy.add_source("capture3", 0x12);
  copy.folder.text("cstrace.bin", copy.trace);
  const std::vector<uint8_t> ids = {0x10, 0x12};
  const Flips two = all_flips() ? flip(copy, 0, copy.trace.size(), ids) : flip(copy, 9000, 9600, ids);
  EXPECT_GT(two.tried, 250U);
  EXPECT_LE(two.wrong, all_flips() ? 3U : 0U) << "of " << two.tried << two.list;
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
