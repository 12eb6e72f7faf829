// Truncated and mutated recordings: no crash, no hang, and the same output before the damage.
#include <algorithm>
#include <random>

#include "perfio/perf_edit.h"
#include "perfio/perf_writer.h"
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
    EXPECT_TRUE((*reader)->damage().cut) << cut;
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
    ASSERT_TRUE((*writer)->add_comm({1, 1, "comm" + std::to_string(i * 7919), false}, context).ok());
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

TEST(Hostile, AZstdBombIsReadInPieces) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "bomb", {{test::full_attr(1)}, false, 0});
  ASSERT_TRUE(writer.ok());
  ZstdCompressor compressor(19);
  std::vector<std::byte> plain;
  for (int i = 0; i < (16 << 20) / 8; ++i) ByteWriter(plain).u32(kRecordFinishedRound).u16(0).u16(8);  // 16 MiB of 8-byte records
  std::vector<std::byte> compressed;
  ASSERT_TRUE(compressor.add(plain, compressed));
  ASSERT_LT(compressed.size(), 60000U);
  std::vector<std::byte> record;
  ByteWriter(record).u32(kRecordCompressed).u16(0).u16(static_cast<uint16_t>(8 + compressed.size())).bytes(compressed);
  ASSERT_TRUE((*writer)->add_raw(record).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = PerfReader::open(dir / "bomb");
  ASSERT_TRUE(reader.ok());
  uint64_t count = 0;
  ASSERT_TRUE((*reader)
                  ->read([&count](const Record&) {
                    ++count;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(count, (16U << 20) / 8);
}

}  // namespace
}  // namespace ptd::perfio
