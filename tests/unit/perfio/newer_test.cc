// Files of newer kernels and perf: records and features of unknown types are skipped and counted; compressed records as perf 6.16 writes
// them.
#include <algorithm>
#include <random>

#include "perfio/format/record_encode.h"
#include "perfio/perf_writer.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::at;
using test::full_attr;
using test::TempDir;

std::vector<std::byte> newer_comm_at(uint64_t time, const std::string& name) {
  std::vector<std::byte> record;
  EXPECT_TRUE(encode_record(CommRecord{1, 1, name, false}, {at(time), 0, true}, full_attr(1), record));
  return record;
}

void append_bytes(std::vector<std::byte>& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

/// Returns the start of a pipe: "Pipe-mode data" of perf.data-file-format.txt.
std::vector<std::byte> pipe_start() {
  std::vector<std::byte> pipe;
  ByteWriter(pipe).u64(kPerfMagic2).u64(16);
  std::vector<std::byte> attr = encode_attr(full_attr(1), 112);
  ByteWriter(attr).u64(1);
  ByteWriter(pipe).u32(kRecordHeaderAttr).u16(0).u16(static_cast<uint16_t>(8 + attr.size())).bytes(attr);
  return pipe;
}

struct ReadBack {
  std::vector<std::string> comms;
  ReadDamage damage;
};

ReadBack read_back(const std::string& path) {
  ReadBack back;
  auto reader = PerfReader::open(path);
  EXPECT_TRUE(reader.ok());
  if (!reader.ok()) return back;
  EXPECT_TRUE((*reader)
                  ->read([&back](const Record& record) {
                    if (const auto* comm = std::get_if<CommRecord>(&record.payload)) back.comms.push_back(comm->comm);
                    return true;
                  })
                  .ok());
  back.damage = (*reader)->damage();
  return back;
}

// A kernel's record ends in a sample_id (32 bytes with TID, TIME, CPU and IDENTIFIER); perf's own has none.
std::vector<std::byte> unknown(uint32_t type, size_t words, uint64_t time) {
  std::vector<std::byte> record;
  ByteWriter out(record);
  const bool kernel = type < kRecordUserStart;
  out.u32(type).u16(0).u16(static_cast<uint16_t>(8 + 8 * words + (kernel ? 32 : 0)));
  for (size_t i = 0; i < words; ++i) out.u64(0x0101010101010101U * i);
  if (kernel) out.i32(7).i32(8).u64(time).i32(0).u32(0).u64(1);
  return record;
}

TEST(Newer, UnknownRecordsAreSkippedAndCounted) {
  TempDir dir;
  std::vector<std::byte> pipe = pipe_start();
  for (int i = 0; i < 5; ++i) append_bytes(pipe, unknown(200, 3, 0));  // a run of them, and nothing known before
  append_bytes(pipe, newer_comm_at(10, "a"));
  for (const uint32_t type : {23U, 40U, 87U, 99U, 40U}) append_bytes(pipe, unknown(type, 2 + type % 3, 20));
  append_bytes(pipe, newer_comm_at(30, "b"));
  append_bytes(pipe, newer_comm_at(40, "c"));
  append_bytes(pipe, unknown(23, 9, 50));  // the last record of the file
  test::save(dir / "pipe", pipe);
  const ReadBack back = read_back(dir / "pipe");
  EXPECT_EQ(back.comms, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(back.damage.unknown_records, 11U);
  EXPECT_EQ(back.damage.unknown_types, (std::set<uint32_t>{23, 40, 87, 99, 200}));
  EXPECT_EQ(back.damage.unknown_text(),
            "11 records of unknown types (23, 40, 87, 99, 200) are skipped: a newer kernel or perf wrote the recording");
  EXPECT_TRUE(back.damage.holes.empty());
  EXPECT_TRUE(back.damage.messages.empty());
  EXPECT_FALSE(back.damage.cut());
}

// linux/perf_event.h: CALLCHAIN_DEFERRED is cookie, count and ips; tools/lib/perf event.h: BPF_METADATA, SCHEDSTAT_CPU, SCHEDSTAT_DOMAIN.
TEST(Newer, RecordsOfKnownTypesThatNothingNeedsAreNotCounted) {
  TempDir dir;
  std::vector<std::byte> pipe = pipe_start();
  append_bytes(pipe, newer_comm_at(10, "a"));
  append_bytes(pipe, unknown(22, 5, 20));
  for (const uint32_t type : {84U, 85U, 86U}) append_bytes(pipe, unknown(type, 4, 0));
  append_bytes(pipe, newer_comm_at(30, "b"));
  test::save(dir / "pipe", pipe);
  const ReadBack back = read_back(dir / "pipe");
  EXPECT_EQ(back.comms, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(back.damage.unknown_records, 0U);
  EXPECT_TRUE(back.damage.unknown_text().empty());
}

TEST(Newer, UnknownFeaturesAreKeptAsBytes) {
  TempDir dir;
  auto writer = PerfWriter::create(dir / "perf.data", {{full_attr(1)}, false, 0});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE((*writer)->add_raw(newer_comm_at(10, "a")).ok());
  const std::vector<std::byte> odd(13, std::byte{0xff});
  Features features;
  features.hostname = "here";
  (*writer)->set_features(features);
  for (const uint32_t bit : {32U, 33U, 34U, 255U}) (*writer)->set_feature_bytes(bit, odd);  // CPU_DOMAIN_INFO, E_MACHINE, CLN_SIZE
  ASSERT_TRUE((*writer)->finish().ok());
  auto reader = PerfReader::open(dir / "perf.data");
  ASSERT_TRUE(reader.ok());
  EXPECT_EQ((*reader)->features().hostname, "here");
  EXPECT_EQ(std::count_if((*reader)->features().raw.begin(), (*reader)->features().raw.end(),
                          [](const RawFeature& each) { return each.bit >= 32; }),
            4);
  EXPECT_TRUE((*reader)->damage().messages.empty());
}

/// Names that do not compress, and the records of them.
std::vector<std::string> noisy_comms(size_t count, uint64_t first_time, std::vector<std::byte>& plain) {
  static std::mt19937 random(5);
  std::vector<std::string> names;
  for (size_t i = 0; i < count; ++i) {
    std::string name;
    for (int k = 0; k < 200; ++k) name += static_cast<char>(33 + random() % 94);
    append_bytes(plain, newer_comm_at(first_time + i, name));
    names.push_back(std::move(name));
  }
  return names;
}

// tools/perf builtin-record.c, record__pushfn(): `compressed` counts headers and data; the header's size is the aligned one, in 16 bits;
// the padding is not written if that overflows.
void append_as_perf(std::vector<std::byte>& pipe, Bytes stream, uint16_t misc) {
  constexpr size_t kMostPart = 65519;
  std::vector<std::byte> parts;
  for (size_t from = 0; from < stream.size(); from += kMostPart) {
    const Bytes part = stream.subspan(from, std::min(kMostPart, stream.size() - from));
    ByteWriter(parts).u32(kRecordCompressed2).u16(misc).u16(static_cast<uint16_t>(16 + part.size())).u64(0x5a5a5a5a5a5a5a5aU).bytes(part);
  }
  const uint64_t compressed = parts.size(), aligned = (compressed + 7) / 8 * 8;
  std::vector<std::byte> head;
  ByteWriter(head).u32(kRecordCompressed2).u16(misc).u16(static_cast<uint16_t>(aligned)).u64(compressed - 16);
  std::copy(head.begin(), head.end(), parts.begin());
  append_bytes(pipe, parts);
  if (aligned <= 65535) pipe.resize(pipe.size() + (aligned - compressed));
}

TEST(Newer, CompressedRecordsLongerThanTheirHeaderCanSay) {
  for (const size_t wanted : {size_t{4000}, size_t{65519}, size_t{140000}}) {
    TempDir dir;
    std::vector<std::byte> pipe = pipe_start();
    std::vector<std::string> want;
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<std::byte> plain, stream;
      std::vector<std::string> names = noisy_comms(wanted / 180, 1000 * (round + 1), plain);
      ZstdCompressor compressor(3);
      ASSERT_TRUE(compressor.add(plain, stream));
      if (wanted == 65519) {  // exactly the largest part: a skippable frame of zstd fills it
        ASSERT_LT(stream.size() + 8, wanted);
        const auto fill = static_cast<uint32_t>(wanted - stream.size() - 8);
        ByteWriter(stream).u32(0x184d2a50).u32(fill).zeros(fill);
      }
      want.insert(want.end(), names.begin(), names.end());
      append_as_perf(pipe, stream, round == 1 ? 0xbeef : 0);
    }
    append_bytes(pipe, newer_comm_at(9000, "the last"));
    want.emplace_back("the last");
    test::save(dir / "pipe", pipe);
    const ReadBack back = read_back(dir / "pipe");
    EXPECT_TRUE(back.comms == want) << wanted << ": " << back.comms.size() << " of " << want.size();
    EXPECT_TRUE(back.damage.messages.empty()) << wanted << ": " << (back.damage.messages.empty() ? "" : back.damage.messages.front());
    EXPECT_EQ(back.damage.unknown_records, 0U);
  }
}

// Headers at every eighth byte, none of whose chains reaches the end. Ends only if each header is tried once, not from each possible first
// part.
TEST(Newer, ALongCompressedRecordWithoutAChainOfParts) {
  constexpr uint64_t kDataBytes = (24U << 20) + 1;
  TempDir dir;
  std::vector<std::byte> pipe = pipe_start();
  ByteWriter(pipe).u32(kRecordCompressed2).u16(0).u16(static_cast<uint16_t>((16 + kDataBytes + 7) / 8 * 8)).u64(kDataBytes);
  for (uint64_t at = 0; at + 8 <= kDataBytes; at += 8) ByteWriter(pipe).u32(kRecordCompressed2).u16(0).u16(16);
  ByteWriter(pipe).zeros(kDataBytes % 8);
  append_bytes(pipe, newer_comm_at(9000, "the last"));
  test::save(dir / "pipe", pipe);
  const ReadBack back = read_back(dir / "pipe");
  EXPECT_EQ(back.comms, std::vector<std::string>{"the last"});
  ASSERT_EQ(back.damage.messages.size(), 1U);
  EXPECT_NE(back.damage.messages[0].find("has no parts of a known size"), std::string::npos) << back.damage.messages[0];
}

// perf leaves misc of COMPRESSED as the buffer had it.
TEST(Newer, CompressedRecordsWithAnyMisc) {
  TempDir dir;
  std::vector<std::byte> pipe = pipe_start(), plain, stream;
  const std::vector<std::string> want = noisy_comms(100, 1, plain);
  ZstdCompressor compressor(3);
  ASSERT_TRUE(compressor.add(plain, stream));
  for (size_t from = 0; from < stream.size(); from += 1001) {
    const Bytes part = Bytes(stream).subspan(from, std::min<size_t>(1001, stream.size() - from));
    ByteWriter(pipe).u32(kRecordCompressed).u16(static_cast<uint16_t>(from * 7)).u16(static_cast<uint16_t>(8 + part.size())).bytes(part);
  }
  test::save(dir / "pipe", pipe);
  const ReadBack back = read_back(dir / "pipe");
  EXPECT_TRUE(back.comms == want) << back.comms.size();
  EXPECT_TRUE(back.damage.messages.empty());
}

}  // namespace
}  // namespace ptd::perfio
