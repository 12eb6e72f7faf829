// The cost of a segment if records contradict each other and the packets: counted in steps, for any records.
#include "decoder/pt/flow/segment_work.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "image/fetch_steps.h"
#include "perfio/format/record_encode.h"
#include "ptdecode/recording.h"
#include "tests/support/perf_edit.h"

namespace ptd {
namespace {
namespace fs = std::filesystem;
using namespace perfio;

const std::string kDemo = std::string(PTD_SOURCE_DIR) + "/data/demo";

/// data/demo with `count` pokes of random bytes at random times, within `spread` bytes of the first address that it pokes.
class ContradictingPokes {
 public:
  ContradictingPokes(size_t count, uint64_t spread, uint64_t seed)
      : path_(fs::temp_directory_path() / ("pokes-" + std::to_string(::getpid()) + "-" + std::to_string(seed))) {
    std::mt19937_64 random(seed);
    uint64_t address = 0;
    std::vector<size_t> places;  // records before which a poke is inserted
    size_t records = 0;
    const auto is_dated = [](const EditRecord& edit) { return edit.record.sample_id.time != 0; };
    (void)edit_perf_data(kDemo, path_, [&](const EditRecord& edit) {
      const auto* poke = std::get_if<TextPokeRecord>(&edit.record.payload);
      if (poke != nullptr && address == 0) address = poke->addr;
      records += is_dated(edit) ? 1 : 0;
      return EditAction{};
    });
    for (size_t i = 0; i < count; ++i) places.push_back(random() % std::max<size_t>(records, 1));
    std::sort(places.begin(), places.end());
    size_t record = 0, next = 0;
    written_ = edit_perf_data(kDemo, path_,
                              [&](const EditRecord& edit) {
                                EditAction action;
                                for (; is_dated(edit) && next < places.size() && places[next] == record; ++next) {
                                  TextPokeRecord poke;
                                  poke.addr = address + random() % spread;
                                  poke.old_bytes.resize(1 + random() % 5);
                                  poke.new_bytes.resize(poke.old_bytes.size());
                                  for (std::byte& byte : poke.old_bytes) byte = static_cast<std::byte>(random());
                                  for (std::byte& byte : poke.new_bytes) byte = static_cast<std::byte>(random());
                                  EncodeContext context;
                                  context.sample_id = edit.record.sample_id;
                                  std::vector<std::byte> bytes;
                                  if (encode_record(poke, context, edit.attrs[edit.record.attr_index], bytes))
                                    action.before.push_back(bytes);
                                }
                                record += is_dated(edit) ? 1 : 0;
                                return action;
                              })
                   .ok() &&
               next == count && address != 0;
  }
  ~ContradictingPokes() { fs::remove_all(path_); }
  ContradictingPokes(const ContradictingPokes&) = delete;
  ContradictingPokes& operator=(const ContradictingPokes&) = delete;
  [[nodiscard]] bool written() const { return written_; }
  [[nodiscard]] std::string path() const { return path_; }

 private:
  fs::path path_;
  bool written_ = false;
};

struct Seen {
  uint64_t most_work = 0, instructions = 0, uncertain = 0, gaps = 0;
  uint64_t digest = 0;  ///< digest of blocks, their flags and gaps
};

Seen decode(const std::string& path, unsigned threads, bool exact, std::vector<std::string> kcore_after = {}) {
  OpenOptions options;
  options.path = path;
  options.exact_only = exact;
  options.kcore_after = std::move(kcore_after);
  const auto opened = Recording::open(options);
  Seen seen;
  EXPECT_TRUE(opened.ok()) << path;
  if (!opened.ok()) return seen;
  for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
    uint64_t segment_offset = Recording::kStreamEnd, last = fetch_steps().taken + fetch_steps().walked, before = last;
    const Status status = (*opened)->decode_parallel(
        stream, 0, Recording::kStreamEnd, threads, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
          const uint64_t work = fetch_steps().taken + fetch_steps().walked;  // with one thread, this thread decodes
          if (std::exchange(segment_offset, segment.stream_offset_bytes) != segment.stream_offset_bytes) before = last;
          last = work;
          seen.most_work = std::max(seen.most_work, work - before);
          const auto mix = [&](uint64_t value) { seen.digest = (seen.digest ^ value) * 0x100000001b3ULL; };
          for (const Block& block : batch.blocks) {
            seen.instructions += block.instructions;
            if ((block.flags & kUncertainFlags) != 0) seen.uncertain += block.instructions;
            mix(decoder.blocks().info(block.node).ip.value ^ (uint64_t{block.flags} << 48));
          }
          seen.gaps += batch.gaps.size();
          for (const Gap& gap : batch.gaps) mix(gap.stream_offset_bytes ^ gap.ip.value);
          return true;
        });
    EXPECT_TRUE(status.ok());
  }
  return seen;
}

// The budget does not cover fetches that end in one certain content, because their number depends on caches. They add up to 6.5 million
// steps (50 pokes within 64 bytes). Without the budget the recordings exceed the bound.
constexpr uint64_t kMostWork = 25 * pt::kMaxSegmentWork;

class SegmentWork : public ::testing::TestWithParam<size_t> {};

TEST(SegmentWorkLimit, OfARecordingIsBoundedByItsSize) {
  constexpr uint64_t kTraceBytes = 200'000, kLeastSegment = 34;  // PSB, FUP, PSBEND and a few packets
  for (uint64_t bytes = kLeastSegment; bytes < kTraceBytes; bytes *= 2) {
    EXPECT_LE(kTraceBytes / bytes * pt::max_segment_work(bytes), 750 * kTraceBytes) << bytes;
    EXPECT_LE(pt::max_segment_work(bytes), pt::kMaxSegmentWork);
  }
  EXPECT_EQ(pt::max_segment_work(~uint64_t{0}), pt::kMaxSegmentWork);
}

TEST_P(SegmentWork, IsBoundedWhateverTheRecordsSay) {
  for (const uint64_t seed : {1, 2, 3}) {
    const ContradictingPokes pokes(GetParam(), seed == 3 ? 64 : 8, seed);
    ASSERT_TRUE(pokes.written());
    const Seen seen = decode(pokes.path(), 1, false);
    EXPECT_LE(seen.most_work, kMostWork) << GetParam() << " pokes, seed " << seed;
    EXPECT_GT(seen.instructions, 100'000U);
    EXPECT_GT(seen.uncertain + seen.gaps, 0U);
  }
}

TEST_P(SegmentWork, IsSpentAtTheSamePlaceOnAnyNumberOfThreads) {
  const ContradictingPokes pokes(GetParam(), 8, 4);
  ASSERT_TRUE(pokes.written());
  const Seen one = decode(pokes.path(), 1, false), eight = decode(pokes.path(), 8, false);
  EXPECT_EQ(one.digest, eight.digest);
  EXPECT_EQ(one.instructions, eight.instructions);
}

/// Returns a digest of what a decoder gives for one segment.
uint64_t digest_of(FlowDecoder& decoder, const AuxSegment& segment) {
  uint64_t digest = 0;
  const auto mix = [&](uint64_t value) { digest = (digest ^ value) * 0x100000001b3ULL; };
  decoder.begin(segment);
  Batch batch;
  for (bool more = true; more;) {
    more = decoder.next(batch);
    for (const Block& block : batch.blocks) mix(decoder.blocks().info(block.node).ip.value ^ (uint64_t{block.flags} << 48));
    for (const Gap& gap : batch.gaps) mix(gap.stream_offset_bytes ^ gap.ip.value);
  }
  return digest;
}

// A thread's decoder has decoded any segments before, so what it keeps of them must not matter.
TEST(SegmentWorkOf, ASegmentDoesNotDependOnSegmentsDecodedBefore) {
  constexpr size_t kPokes = 50;
  const ContradictingPokes pokes(kPokes, 8, 4);
  ASSERT_TRUE(pokes.written());
  OpenOptions options;
  options.path = pokes.path();
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  std::mt19937_64 random(kPokes);
  for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
    std::vector<AuxSegment> segments;
    std::vector<std::vector<std::byte>> scratch(1000);
    AuxSegment segment;
    uint64_t at = 0;
    while (segments.size() < scratch.size() && (*opened)->next_segment(stream, at, segment, scratch[segments.size()]))
      segments.push_back(segment);
    std::vector<uint64_t> want;
    for (const AuxSegment& each : segments) want.push_back(digest_of(*(*opened)->make_decoder(stream), each));
    std::vector<size_t> order(segments.size());
    for (int round = 0; round < 5; ++round) {
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      const auto decoder = (*opened)->make_decoder(stream);
      for (const size_t i : order) EXPECT_EQ(digest_of(*decoder, segments[i]), want[i]) << "stream " << stream << ", segment " << i;
    }
  }
}

TEST_P(SegmentWork, IsSpentAtTheSamePlaceByTheFastPathAndTheExactWalker) {
  for (const uint64_t seed : {1, 2, 3, 4}) {
    const ContradictingPokes pokes(GetParam(), seed == 3 ? 64 : 8, seed);
    ASSERT_TRUE(pokes.written());
    const Seen fast = decode(pokes.path(), 1, false), exact = decode(pokes.path(), 1, true);
    EXPECT_EQ(fast.instructions, exact.instructions) << GetParam() << " pokes, seed " << seed;
    EXPECT_EQ(fast.gaps, exact.gaps) << GetParam() << " pokes, seed " << seed;
    EXPECT_EQ(fast.uncertain, exact.uncertain) << GetParam() << " pokes, seed " << seed;
    EXPECT_EQ(fast.digest, exact.digest) << GetParam() << " pokes, seed " << seed;
  }
}

INSTANTIATE_TEST_SUITE_P(Pokes, SegmentWork, ::testing::Values(50, 200, 800));

TEST(SegmentWorkOf, AnUndamagedRecordingIsFarBelowTheBound) { EXPECT_LE(decode(kDemo, 1, true).most_work, pt::kMaxSegmentWork / 8); }

/// Copies of data/demo's kernel text that contradict each other: further segments of one kcore with the first one's bytes, 64 bytes apart,
/// or further copies of the kernel that are shifted likewise. Almost every byte has a different content in each of them.
class ContradictingCopies {
 public:
  ContradictingCopies() : folder_(fs::temp_directory_path() / ("copies-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ContradictingCopies() { fs::remove_all(folder_); }
  ContradictingCopies(const ContradictingCopies&) = delete;
  ContradictingCopies& operator=(const ContradictingCopies&) = delete;

  [[nodiscard]] std::string with_segments(unsigned count) const {
    const fs::path made = folder_ / ("segments-" + std::to_string(count));
    fs::copy(kDemo, made, fs::copy_options::recursive);
    write(made / "kcore_dir" / "kcore", count, 0);
    return made;
  }
  [[nodiscard]] std::vector<std::string> later_copies(unsigned count) const {
    std::vector<std::string> folders;
    for (unsigned i = 1; i <= count; ++i) {
      const fs::path made = folder_ / ("later-" + std::to_string(i));
      fs::copy(fs::path(kDemo) / "kcore_dir", made, fs::copy_options::recursive);
      write(made / "kcore", 0, i * kApart);
      folders.push_back(made);
    }
    return folders;
  }

 private:
  static constexpr uint64_t kApart = 64;

  // Moves the program headers to the end of the file, where there is space for more. `shift` is added to the address of each segment.
  static void write(const fs::path& kcore, unsigned more, uint64_t shift) {
    std::ifstream in(kcore, std::ios::binary);
    std::string file{std::istreambuf_iterator<char>(in), {}};
    in.close();
    Elf64_Ehdr header;
    ASSERT_GE(file.size(), sizeof header);
    std::memcpy(&header, file.data(), sizeof header);
    std::vector<Elf64_Phdr> segments(header.e_phnum);
    ASSERT_LE(header.e_phoff + segments.size() * sizeof(Elf64_Phdr), file.size());
    std::memcpy(segments.data(), file.data() + header.e_phoff, segments.size() * sizeof(Elf64_Phdr));
    for (Elf64_Phdr& segment : segments) segment.p_vaddr += shift;
    for (unsigned i = 0; i < more; ++i) {
      segments.push_back(segments.front());
      segments.back().p_vaddr += i * kApart;
    }
    header.e_phoff = file.size();
    header.e_phnum = static_cast<Elf64_Half>(segments.size());
    std::memcpy(file.data(), &header, sizeof header);
    file.append(reinterpret_cast<const char*>(segments.data()), segments.size() * sizeof(Elf64_Phdr));
    std::ofstream(kcore, std::ios::binary | std::ios::trunc) << file;
  }

  fs::path folder_;
};

TEST(SegmentWorkOf, CopiesThatContradictEachOtherIsBounded) {
  const ContradictingCopies copies;
  for (const unsigned count : {2U, 20U}) {
    const std::string path = copies.with_segments(count);
    const Seen fast = decode(path, 1, false), exact = decode(path, 1, true), eight = decode(path, 8, false);
    EXPECT_LE(fast.most_work, kMostWork) << count << " segments";
    EXPECT_LE(exact.most_work, kMostWork) << count << " segments";
    EXPECT_GT(fast.uncertain + fast.gaps, 0U) << count << " segments";
    EXPECT_EQ(fast.digest, exact.digest) << count << " segments";
    EXPECT_EQ(fast.digest, eight.digest) << count << " segments";
  }
  for (const unsigned count : {4U}) {
    const std::vector<std::string> later = copies.later_copies(count);
    const Seen fast = decode(kDemo, 1, false, later), exact = decode(kDemo, 1, true, later);
    EXPECT_LE(fast.most_work, kMostWork) << count << " later copies";
    EXPECT_EQ(fast.digest, exact.digest) << count << " later copies";
    for (const std::string& folder : later) fs::remove_all(folder);
  }
}

/// Ranges of one kernel's memory may appear twice in a kcore: on arm64, the text is part of the vmalloc area.
TEST(SegmentWorkOf, ASegmentThatAppearsTwiceChangesNothing) {
  const ContradictingCopies copies;
  const Seen once = decode(kDemo, 1, false), twice = decode(copies.with_segments(1), 1, false);
  EXPECT_EQ(once.digest, twice.digest);
  EXPECT_EQ(once.uncertain, twice.uncertain);
  EXPECT_EQ(twice.gaps, 0U);
}

/// Returns the recordings of that name in the folder `faults` beside the corpus, those that exist.
std::vector<fs::path> faulty_recordings(std::initializer_list<const char*> names) {
  const char* corpus = std::getenv("PTDECODE_CORPUS");
  const fs::path faults = fs::path(corpus != nullptr ? corpus : std::string(PTD_SOURCE_DIR) + "/../shared/corpus").parent_path() / "faults";
  std::vector<fs::path> found;
  for (const char* name : names) {
    if (fs::exists(faults / name)) found.push_back(faults / name);
  }
  return found;
}

/// Recordings that took more than ten seconds each.
TEST(SegmentWorkOf, FaultyRecordingsIsBounded) {
  const auto faulty =
      faulty_recordings({"contradicting-pokes-50", "contradicting-pokes-800", "mutant-slow-functions", "mutant-slow-timeline"});
  if (faulty.empty()) GTEST_SKIP() << "no folder `faults` beside the corpus";
  for (const fs::path& path : faulty) EXPECT_LE(decode(path, 1, false).most_work, kMostWork) << path;
}

/// What a decoder reads for a flow that is uncertain is not that of the segments after it, whichever these are.
TEST(SegmentWorkOf, NoSegmentDependsOnThoseBeforeIt) {
  const auto faulty = faulty_recordings({"mutant-slow-functions", "mutant-slow-timeline"});
  if (faulty.empty()) GTEST_SKIP() << "no folder `faults` beside the corpus";
  for (const fs::path& path : faulty) {
    const Seen alone = decode(path, 1, false), shared = decode(path, 8, false);
    EXPECT_EQ(alone.digest, shared.digest) << path;
    EXPECT_EQ(alone.digest, decode(path, 1, true).digest) << path;
  }
}

}  // namespace
}  // namespace ptd
