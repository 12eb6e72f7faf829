// Truncated and mutated recordings: no crash, no hang, and the same output before the damage.
#include <sys/mman.h>

#include <algorithm>
#include <random>

#include "perfio/perf_writer.h"
#include "perfio/raw_stream.h"
#include "tests/support/perf_edit.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::line_of;
using test::TempDir;

/// Returns the records in file order by their offset, as lines.
std::vector<std::pair<uint64_t, std::string>> by_offset(PerfReader& reader) {
  std::vector<std::pair<uint64_t, std::string>> out;
  EXPECT_TRUE(reader
                  .read([&out](const Record& record) {
                    out.emplace_back(record.file_offset_bytes, line_of(record));
                    return true;
                  })
                  .ok());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  return out;
}

std::vector<std::pair<uint64_t, std::string>> read_all(const std::string& path, bool* opened = nullptr) {
  auto reader = PerfReader::open(path);
  if (opened != nullptr) *opened = reader.ok();
  if (!reader.ok()) {
    EXPECT_FALSE(reader.error().message.empty());
    return {};
  }
  auto out = by_offset(**reader);
  EXPECT_LE((*reader)->damage().messages.size(), 32U);
  return out;
}

/// Returns the sideband of the corpus file with short payloads, so that many cuts are cheap.
std::vector<std::byte> small_recording(const TempDir& dir) {
  const Status status = edit_perf_data(test::corpus("pt-perfdata-skylake/perf.data"), dir / "small", [](const EditRecord& edit) {
    EditAction action;
    if (const auto* auxtrace = std::get_if<AuxtraceRecord>(&edit.record.payload)) {
      action.replace_payload = true;
      action.payload.assign(auxtrace->payload.begin(), auxtrace->payload.begin() + 256);
    }
    return action;
  });
  EXPECT_TRUE(status.ok());
  return test::load(dir / "small");
}

TEST(Hostile, CutAtEveryRecordAndAtRandom) {
  PTD_NEEDS_CORPUS(test::corpus("pt-perfdata-skylake/perf.data"));
  TempDir dir;
  const auto bytes = small_recording(dir);
  const auto whole = read_all(dir / "small");
  ASSERT_EQ(whole.size(), 257U);
  std::vector<uint64_t> cuts;
  for (const auto& [offset, line] : whole) cuts.push_back(offset);
  std::mt19937_64 random(20240611);
  for (int i = 0; i < 200; ++i) cuts.push_back(random() % bytes.size());
  for (const uint64_t cut : cuts) {
    test::save(dir / "cut", Bytes(bytes).first(cut));
    auto reader = PerfReader::open(dir / "cut");
    if (!reader.ok()) {
      EXPECT_LT(cut, 104U) << reader.error().message;
      continue;
    }
    if (cut < whole.front().first) continue;  // the events themselves are truncated, so trailers cannot be read
    const auto got = by_offset(**reader);
    EXPECT_TRUE((*reader)->damage().cut()) << cut;
    size_t want = 0;  // records that end before the cut
    while (want < whole.size() && whole[want].first < cut &&
           (want + 1 < whole.size() ? whole[want + 1].first : whole[want].first + 48) <= cut)
      ++want;
    ASSERT_GE(got.size(), want) << cut;
    ASSERT_LE(got.size(), want + 1) << cut;  // an AUXTRACE record may remain with a part of its payload
    for (size_t i = 0; i < want; ++i) ASSERT_EQ(got[i], whole[i]) << cut;
  }
}

TEST(Hostile, MutationsNeverCrash) {
  PTD_NEEDS_CORPUS(test::corpus("pt-perfdata-skylake/perf.data"));
  TempDir dir;
  const auto bytes = small_recording(dir);
  const auto whole = read_all(dir / "small");
  std::mt19937_64 random(7);
  size_t opened_count = 0;
  for (int i = 0; i < 300; ++i) {
    auto mutated = bytes;
    const uint64_t changes = 1 + random() % 8;
    uint64_t first = mutated.size();
    for (uint64_t k = 0; k < changes; ++k) {
      const uint64_t position = random() % mutated.size();
      first = std::min(first, position);
      static constexpr uint8_t kValues[] = {0, 1, 0x7f, 0x80, 0xff};
      mutated[position] = static_cast<std::byte>(random() % 2 == 0 ? kValues[random() % 5] : random());
    }
    test::save(dir / "mutated", mutated);
    bool opened = false;
    const auto got = read_all(dir / "mutated", &opened);
    opened_count += opened;
    if (!opened || first < whole.front().first) continue;
    for (size_t r = 0; r + 1 < whole.size() && whole[r + 1].first <= first; ++r) {
      ASSERT_LT(r, got.size()) << "mutation " << i;
      ASSERT_EQ(got[r], whole[r]) << "mutation " << i;
    }
  }
  EXPECT_GT(opened_count, 270U);
}

TEST(Hostile, MutatedCompressedAndPipeForms) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "z", {{test::full_attr(1)}, false, 3});
  ASSERT_TRUE(writer.ok());
  for (uint64_t i = 0; i < 2000; ++i) {
    RecordContext context;
    context.sample_id = test::at(100 + i * 3 % 1000);
    ASSERT_TRUE((*writer)->add(CommRecord{1, 1, "comm" + std::to_string(i * 7919), false}, context).ok());
    if (i % 100 != 0) continue;
    ASSERT_TRUE((*writer)->add_finished_round().ok());
  }
  ASSERT_TRUE((*writer)->finish().ok());
  const auto bytes = test::load(dir / "z");
  ASSERT_GT(read_all(dir / "z").size(), 2000U);
  std::mt19937_64 random(11);
  for (int i = 0; i < 200; ++i) {
    auto mutated = bytes;
    const bool pipe = i % 2 == 0;
    if (pipe) mutated[8] = std::byte{16};  // reads the same bytes as a pipe
    for (uint64_t k = 0; k < 1 + random() % 4; ++k) mutated[16 + random() % (mutated.size() - 16)] = static_cast<std::byte>(random());
    if (random() % 4 == 0) mutated.resize(random() % mutated.size());
    test::save(dir / "m", mutated);
    EXPECT_LE(read_all(dir / "m").size(), 20000U);
  }
}

/// One COMPRESSED record of `size_bytes` of 8-byte records.
std::vector<std::byte> bomb(size_t size_bytes) {
  ZstdCompressor compressor(19);
  std::vector<std::byte> plain, compressed, record;
  for (size_t i = 0; i < size_bytes / 8; ++i) ByteWriter(plain).u32(kRecordFinishedRound).u16(0).u16(8);
  EXPECT_TRUE(compressor.add(plain, compressed));
  EXPECT_LT(compressed.size(), 60000U);
  ByteWriter(record).u32(kRecordCompressed).u16(0).u16(static_cast<uint16_t>(8 + compressed.size())).bytes(compressed);
  return record;
}

uint64_t records_of(PerfReader& reader) {
  uint64_t count = 0;
  EXPECT_TRUE(reader
                  .read([&count](const Record&) {
                    ++count;
                    return true;
                  })
                  .ok());
  return count;
}

TEST(Hostile, AZstdBombIsReadInPieces) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "bomb", {{test::full_attr(1)}, false, 0});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->add_raw(bomb(16U << 20)).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = PerfReader::open(dir / "bomb");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ(records_of(**reader), (16U << 20) / 8);
}

TEST(Hostile, ZstdBombsInOneFolderShareALimit) {
  constexpr size_t kFiles = 8, kBombBytes = 8U << 20;
  TempDir dir;
  auto writer = PerfWriter::create(dir / "rec", {{test::full_attr(1)}, true, 0});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->finish().ok());
  const std::vector<std::byte> stored = bomb(kBombBytes), honest = bomb(512);
  for (size_t i = 0; i < kFiles; ++i) test::save(dir / ("rec/data." + std::to_string(i)), stored);
  test::save(dir / ("rec/data." + std::to_string(kFiles)), honest);
  auto reader = PerfReader::open(dir / "rec");
  ASSERT_TRUE(reader.ok());
  const uint64_t limit = ExpansionBudget::kFreeBytes + ExpansionBudget::kMaxGrowth * (kFiles * stored.size() + honest.size());
  ASSERT_LT(limit, kFiles * kBombBytes / 2);
  const uint64_t read_bytes = records_of(**reader) * 8;
  EXPECT_LE(read_bytes, limit);
  EXPECT_GT(read_bytes, limit / 2);
  EXPECT_GT((*reader)->damage().cuts.size(), kFiles / 2);
  for (const ReadDamage::Cut& cut : (*reader)->damage().cuts)
    EXPECT_NE((*reader)->damage().name_of(cut.file), "data." + std::to_string(kFiles));
}

/// Zeros that take no memory until they are written to.
class Zeros {
 public:
  explicit Zeros(size_t size_bytes) : size_bytes_(size_bytes) {
    void* at = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    data_ = at == MAP_FAILED ? nullptr : static_cast<std::byte*>(at);
  }
  ~Zeros() { (void)munmap(data_, size_bytes_); }
  Zeros(const Zeros&) = delete;
  Zeros& operator=(const Zeros&) = delete;
  [[nodiscard]] Bytes bytes() const { return {data_, data_ == nullptr ? 0 : size_bytes_}; }
  void put_rounds(size_t offset_bytes, unsigned count) {
    std::vector<std::byte> records;
    for (unsigned i = 0; i < count; ++i) ByteWriter(records).u32(kRecordFinishedRound).u16(0).u16(8);
    std::copy(records.begin(), records.end(), data_ + offset_bytes);
  }

 private:
  size_t size_bytes_;
  std::byte* data_ = nullptr;
};

std::vector<uint64_t> offsets_in(Bytes file, ReadDamage& damage) {
  ExpansionBudget budget;
  RawStream stream(file, 0, file.size(), damage, budget);
  std::vector<uint64_t> offsets;
  for (RawRecord raw; stream.next(raw);) offsets.push_back(raw.file_offset_bytes);
  return offsets;
}

TEST(Hostile, RecordsAfterZerosAreFound) {
  for (const size_t begin : {16U, 17U, 4096U, 4101U, 8191U, 99995U}) {
    Zeros file(begin + 4 * 8);
    ASSERT_FALSE(file.bytes().empty());
    file.put_rounds(0, 1);
    file.put_rounds(begin, 4);
    ReadDamage damage;
    EXPECT_EQ(offsets_in(file.bytes(), damage), (std::vector<uint64_t>{0, begin, begin + 8, begin + 16, begin + 24}));
    EXPECT_FALSE(damage.cut());
    ASSERT_EQ(damage.holes.size(), 1U);
    EXPECT_EQ(damage.holes[0].size_bytes, begin - damage.holes[0].offset_bytes);
  }
}

TEST(Hostile, TheSearchForRecordsEnds) {
  constexpr size_t kFarBytes = (256U << 20) + 4096;
  Zeros file(kFarBytes + 4 * 8);
  if (file.bytes().empty()) GTEST_SKIP() << "no address space";
  file.put_rounds(0, 2);
  file.put_rounds(kFarBytes, 4);
  ReadDamage damage;
  EXPECT_EQ(offsets_in(file.bytes(), damage), (std::vector<uint64_t>{0, 8}));
  EXPECT_TRUE(damage.cut());
  EXPECT_EQ(damage.cuts.at(0).offset_bytes, 16U);
  ASSERT_EQ(damage.messages.size(), 1U);
  EXPECT_EQ(
      damage.messages[0],
      "the 268439568 bytes from a record of impossible size 0 on are lost (no records in 268435456 bytes; the 4112 bytes after them were "
      "not searched), at offset 16");
}

}  // namespace
}  // namespace ptd::perfio
