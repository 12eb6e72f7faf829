// Small files with large claims: memory and time follow the size of the file, not its claims.
#include <algorithm>
#include <chrono>

#include "perfio/format/record_encode.h"
#include "perfio/perf_reader.h"
#include "perfio/zstd_stream.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::full_attr;
using test::TempDir;

void append_record(std::vector<std::byte>& to, uint32_t type, Bytes body) {
  ByteWriter(to).u32(type).u16(0).u16(static_cast<uint16_t>(8 + body.size())).bytes(body);
}

void start_pipe(std::vector<std::byte>& out) { ByteWriter(out).u64(kPerfMagic2).u64(16); }

/// Reads to the end, within a bound that only superlinear work exceeds, even on a slow machine and with sanitizers.
std::unique_ptr<PerfReader> read_quickly(const std::string& path, uint64_t* records = nullptr) {
  const auto start = std::chrono::steady_clock::now();
  auto reader = PerfReader::open(path);
  EXPECT_TRUE(reader.ok()) << reader.error().message;
  if (!reader.ok()) return nullptr;
  EXPECT_TRUE((*reader)
                  ->read([&](const Record&) {
                    if (records != nullptr) ++*records;
                    return true;
                  })
                  .ok());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  return std::move(reader).value();
}

TEST(Amplify, AttrsThatShareOneListOfIds) {
  constexpr uint64_t kAttrs = 3000, kIds = 30000, kAttrBytes = 64 + 16;
  std::vector<std::byte> file;
  const uint64_t ids_at = 104 + kAttrs * kAttrBytes, data_at = ids_at + kIds * 8;
  ByteWriter out(file);
  out.u64(kPerfMagic2).u64(104).u64(kAttrBytes).u64(104).u64(kAttrs * kAttrBytes).u64(data_at).u64(8).u64(0).u64(0);
  for (int i = 0; i < 4; ++i) out.u64(0);
  const std::vector<std::byte> attr = encode_attr(full_attr(1), 64);
  for (uint64_t i = 0; i < kAttrs; ++i) out.bytes(attr).u64(ids_at).u64(kIds * 8);
  for (uint64_t i = 0; i < kIds; ++i) out.u64(i);
  append_record(file, 68, {});
  TempDir dir;
  test::save(dir / "shared", file);
  const auto reader = read_quickly(dir / "shared");
  ASSERT_NE(reader, nullptr);
  uint64_t ids = 0;
  for (const EventAttr& known : reader->attrs()) ids += known.ids.size();
  EXPECT_GE(ids, kIds);  // the first list is read
  EXPECT_LE(ids, file.size() / 8);
  EXPECT_TRUE(reader->damage().cut());
}

TEST(Amplify, ManyAttrsAndUpdatesInAPipe) {
  constexpr uint64_t kAttrs = 30000;
  std::vector<std::byte> pipe;
  start_pipe(pipe);
  for (uint64_t id = 1; id <= kAttrs; ++id) {
    std::vector<std::byte> attr = encode_attr(full_attr(id), 64);
    ByteWriter(attr).u64(id);
    append_record(pipe, kRecordHeaderAttr, attr);
  }
  for (uint64_t id = 1; id <= kAttrs; ++id) {
    std::vector<std::byte> update;
    ByteWriter(update).u64(2).u64(kAttrs + 1 - id).text("e" + std::to_string(kAttrs + 1 - id), 8);
    append_record(pipe, kRecordEventUpdate, update);
  }
  TempDir dir;
  test::save(dir / "attrs", pipe);
  const auto reader = read_quickly(dir / "attrs");
  ASSERT_NE(reader, nullptr);
  ASSERT_EQ(reader->attrs().size(), kAttrs);
  EXPECT_EQ(reader->attrs()[12344].name, "e12345");
}

TEST(Amplify, CompressedStreamThatGrowsWithoutEnd) {
  constexpr uint64_t kMiB = 1U << 20, kRecordBytes = 65528, kRecords = 4000;  // 262 MB in a few KB
  std::vector<std::byte> one;
  append_record(one, 9999, std::vector<std::byte>(kRecordBytes - kRecordHeaderBytes));
  std::vector<std::byte> pipe;
  start_pipe(pipe);
  ZstdCompressor zstd(3);
  std::vector<std::byte> many, packed;
  for (int i = 0; i < 100; ++i) many.insert(many.end(), one.begin(), one.end());
  for (uint64_t i = 0; i < kRecords / 100; ++i) {
    packed.clear();
    ASSERT_TRUE(zstd.add(many, packed));
    ASSERT_LT(packed.size(), 60000U);
    append_record(pipe, kRecordCompressed, packed);
  }
  TempDir dir;
  test::save(dir / "bomb", pipe);
  uint64_t records = 0;
  const auto reader = read_quickly(dir / "bomb", &records);
  ASSERT_NE(reader, nullptr);
  EXPECT_TRUE(reader->damage().cut());
  EXPECT_GT(records, 250U);  // 16 MB are read whatever their claimed size
  EXPECT_LT(records, (16 * kMiB + 64 * pipe.size()) / kRecordBytes + 5);
  ASSERT_FALSE(reader->damage().messages.empty());
  EXPECT_NE(reader->damage().messages[0].find("more than 16 MiB and 64 times its size"), std::string::npos) << reader->damage().messages[0];
}

// Whatever its last record lacks is reported, though nothing of a cut block comes out of it. The only other place where a stream can pause
// is between its header and its first block.
TEST(Amplify, ACompressedStreamThatEndsWithinABlockIsCut) {
  ZstdCompressor zstd(3);
  std::vector<std::byte> plain, packed;
  constexpr uint64_t kRecords = 50;
  for (unsigned i = 0; i < kRecords; ++i) append_record(plain, 9999, std::vector<std::byte>(64, static_cast<std::byte>(i * 37)));
  ASSERT_TRUE(zstd.add(plain, packed));
  TempDir dir;
  size_t silent = 0;
  for (size_t size = 0; size <= packed.size(); ++size) {
    std::vector<std::byte> pipe;
    start_pipe(pipe);
    append_record(pipe, kRecordCompressed, Bytes(packed).first(size));
    test::save(dir / "cut", pipe);
    uint64_t records = 0;
    const auto reader = read_quickly(dir / "cut", &records);
    ASSERT_NE(reader, nullptr);
    if (size == 0 || size == packed.size()) {
      EXPECT_FALSE(reader->damage().cut()) << size;
    } else {
      silent += reader->damage().cut() || records == kRecords ? 0 : 1;
    }
  }
  EXPECT_LE(silent, 1U) << "of " << packed.size() << " lengths";
}

TEST(Amplify, CompressedDataInsideCompressedDataIsNamed) {
  ZstdCompressor zstd(3), other(3);
  std::vector<std::byte> plain, inner, nested, outer, pipe;
  append_record(plain, 9999, std::vector<std::byte>(64));
  ASSERT_TRUE(other.add(plain, inner));
  append_record(nested, kRecordCompressed, inner);
  append_record(nested, 9999, std::vector<std::byte>(32));
  ASSERT_TRUE(zstd.add(nested, outer));
  start_pipe(pipe);
  append_record(pipe, kRecordCompressed, outer);
  TempDir dir;
  test::save(dir / "nested", pipe);
  uint64_t records = 0;
  const auto reader = read_quickly(dir / "nested", &records);
  ASSERT_NE(reader, nullptr);
  EXPECT_EQ(reader->damage().bad_records, 1U);
  const std::vector<std::string>& messages = reader->damage().messages;
  const auto names_it = [](const std::string& text) {
    return text.find("a compressed record inside the data of a compressed record") != text.npos;
  };
  EXPECT_TRUE(std::any_of(messages.begin(), messages.end(), names_it));
}

}  // namespace
}  // namespace ptd::perfio
