// Records that are longer than their content and trailer: as kernel 6.18 writes them for the second of two events with KSYMBOL, with a
// damaged size, and those of a newer kernel.
#include "perfio/format/oversized_record.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "perfio/format/record_encode.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"
#include "perfio/zstd_stream.h"
#include "tests/unit/perfio/util.h"

namespace ptd::perfio {
namespace {

std::vector<std::byte> encoded(const Payload& payload) {
  EncodeContext context;
  context.sample_id.pid = 1;
  context.sample_id.tid = 2;
  context.sample_id.time = 77;
  context.sample_id.cpu = 1;
  context.sample_id.id = 5;
  std::vector<std::byte> bytes;
  EXPECT_TRUE(encode_record(payload, context, test::full_attr(5), bytes));
  return bytes;
}

TEST(OversizedRecord, TheTrailerIsFoundWhereTheContentEnds) {
  const EventAttr attr = test::full_attr(5);
  const uint64_t trailer = trailer_bytes(attr);
  KsymbolRecord symbol;
  symbol.addr = 0xffffffffc0000000;
  symbol.size_bytes = 120;
  symbol.type = 1;
  BpfRecord program;
  program.type = 1;
  program.id = 7;
  program.tag.resize(8, std::byte{3});
  TextPokeRecord poke;
  poke.addr = 0x1000;
  std::vector<Payload> payloads;
  for (const size_t length : {0U, 1U, 6U, 7U, 8U, 30U}) {
    symbol.name = std::string(length, 'x');
    payloads.emplace_back(symbol);
    poke.old_bytes.assign(length, std::byte{1});
    poke.new_bytes.assign(length + 3, std::byte{2});
    payloads.emplace_back(poke);
  }
  payloads.emplace_back(program);
  for (const Payload& payload : payloads) {
    const std::vector<std::byte> right = encoded(payload);
    for (uint64_t words = 0; words < 12; ++words) {  // another event's trailer has another length
      std::vector<std::byte> given = right, scratch;
      given.resize(right.size() + words * 8);
      const auto size = static_cast<uint16_t>(given.size());
      std::memcpy(given.data() + 6, &size, sizeof(size));
      const Bytes got = without_excess(given, attr, scratch);
      ASSERT_EQ(std::vector<std::byte>(got.begin(), got.end()), right) << words;
    }
    std::vector<std::byte> other = right, scratch;
    other.insert(other.end() - static_cast<std::ptrdiff_t>(trailer), 8, std::byte{9});
    const auto size = static_cast<uint16_t>(other.size());
    std::memcpy(other.data() + 6, &size, sizeof(size));
    EXPECT_EQ(without_excess(other, attr, scratch).size(), other.size()) << "content that is longer than known here";
    for (size_t kept = 0; kept < right.size(); ++kept) (void)without_excess(Bytes(right).first(kept), attr, scratch);
  }
}

void set_size(std::vector<std::byte>& record, size_t size) {
  const auto stated = static_cast<uint16_t>(size);
  std::memcpy(record.data() + 6, &stated, sizeof(stated));
}

void add_to(std::vector<std::byte>& to, Bytes bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

std::vector<std::byte> encoded_at(const Payload& payload, uint64_t time) {
  std::vector<std::byte> bytes;
  EXPECT_TRUE(encode_record(payload, {test::at(time, 1, 5), 0, true}, test::full_attr(5), bytes));
  return bytes;
}

/// A record of a type that cannot be encoded: its content, and the trailer of full_attr(5).
std::vector<std::byte> other_at(uint32_t type, const std::vector<uint64_t>& content, uint64_t time) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  out.u32(type).u16(0).u16(static_cast<uint16_t>(8 + 8 * content.size() + 32));
  for (const uint64_t word : content) out.u64(word);
  out.i32(7).i32(8).u64(time).i32(1).u32(0).u64(5);
  return bytes;
}

/// One record of each kind whose content has a known size, at time 10.
std::vector<std::vector<std::byte>> all_kinds() {
  MmapRecord map;
  map.pid = map.tid = 7;
  map.addr = 0x400000;
  map.size_bytes = 0x1000;
  map.path = "/bin/true";
  KsymbolRecord symbol;
  symbol.addr = 0xffffffffc0000000;
  symbol.name = "symbol";
  BpfRecord program;
  program.tag.resize(8);
  TextPokeRecord poke;
  poke.addr = 0xffffffff81000000;
  poke.old_bytes.resize(5, std::byte{1});
  poke.new_bytes.resize(5, std::byte{2});
  TaskRecord fork{7, 1, 8, 1, 10, false}, exit = fork;
  exit.exit = true;
  std::vector<std::vector<std::byte>> all;
  const std::vector<Payload> payloads{map,
                                      CommRecord{7, 8, "name", true},
                                      fork,
                                      exit,
                                      symbol,
                                      program,
                                      poke,
                                      AuxRecord{0, 64, 0},
                                      ItraceStartRecord{7, 8},
                                      LostRecord{5, 1, false},
                                      SwitchRecord{true, false, false, -1, -1},
                                      SwitchRecord{true, false, true, 9, 9}};
  for (const Payload& payload : payloads) all.push_back(encoded_at(payload, 10));
  std::vector<std::byte> mmap;
  EXPECT_TRUE(encode_record(map, {test::at(10, 1, 5), 0, false}, test::full_attr(5), mmap));
  all.push_back(mmap);
  all.push_back(other_at(kRecordCgroup, {3, 0x2f}, 10));
  all.push_back(other_at(kRecordAuxOutputHwId, {3}, 10));
  all.push_back(other_at(kRecordNamespaces, {7, 1, 2, 3}, 10));
  all.push_back(other_at(kRecordThrottle, {1, 2, 3}, 10));
  all.push_back(other_at(kRecordLostSamples, {1}, 10));
  std::vector<std::byte> sample;
  ByteWriter out(sample);
  out.u32(kRecordSample).u16(2).u16(48).u64(5).u64(0x400000).i32(7).i32(8).u64(10).i32(1).u32(0);
  all.push_back(sample);
  std::vector<std::byte> conversion;
  ByteWriter(conversion).u32(kRecordTimeConv).u16(0).u16(56).u64(1).u64(1).u64(1).u64(0).u64(0).u64(1);
  all.push_back(conversion);
  return all;
}

struct Seen {
  std::vector<uint32_t> types;
  std::vector<uint64_t> times;
  ReadDamage damage;
};

/// Reads a pipe of one event and these records. Compressed: all of them in one record.
Seen read_all(Bytes records, bool compressed) {
  const test::TempDir dir;
  std::vector<std::byte> pipe;
  ByteWriter(pipe).u64(kPerfMagic2).u64(16);
  std::vector<std::byte> attr = encode_attr(test::full_attr(5), 112);
  ByteWriter(attr).u64(5);
  ByteWriter(pipe).u32(kRecordHeaderAttr).u16(0).u16(static_cast<uint16_t>(8 + attr.size())).bytes(attr);
  if (compressed) {
    ZstdCompressor compressor(3);
    std::vector<std::byte> stream;
    EXPECT_TRUE(compressor.add(records, stream));
    ByteWriter(pipe).u32(kRecordCompressed).u16(0).u16(static_cast<uint16_t>(8 + stream.size())).bytes(stream);
  } else {
    add_to(pipe, records);
  }
  test::save(dir / "pipe", pipe);
  Seen seen;
  auto reader = PerfReader::open(dir / "pipe");
  EXPECT_TRUE(reader.ok());
  if (!reader.ok()) return seen;
  EXPECT_TRUE((*reader)
                  ->read([&seen](const Record& record) {
                    if (record.type == kRecordHeaderAttr) return true;
                    seen.types.push_back(record.type);
                    seen.times.push_back(record.sample_id.time);
                    return true;
                  })
                  .ok());
  seen.damage = (*reader)->damage();
  return seen;
}

/// What follows: five records of 48 and 40 bytes, at times 20 to 24.
std::vector<std::vector<std::byte>> followers() {
  std::vector<std::vector<std::byte>> all;
  for (uint64_t i = 0; i < 5; ++i)
    all.push_back(i % 2 == 0 ? encoded_at(CommRecord{7, 8, "next", true}, 20 + i)
                             : encoded_at(SwitchRecord{true, false, false, -1, -1}, 20 + i));
  return all;
}

TEST(OversizedRecord, RecordsInsideOneOfDamagedSizeAreRead) {
  for (const bool compressed : {false, true}) {
    for (const std::vector<std::byte>& kind : all_kinds()) {
      const uint32_t type = read_record_header(kind).type;
      const uint64_t own_time = type == kRecordTimeConv ? 0 : 10;
      size_t size = kind.size();
      for (size_t swallowed = 0; swallowed <= 5; ++swallowed) {
        if (swallowed != 0) size += followers()[swallowed - 1].size();
        std::vector<std::byte> records = kind;
        set_size(records, size);
        for (const std::vector<std::byte>& next : followers()) add_to(records, next);
        const Seen seen = read_all(records, compressed);
        ASSERT_EQ(seen.types, (std::vector<uint32_t>{type, 3, 14, 3, 14, 3}))
            << "type " << type << ", " << swallowed << " inside" << compressed;
        EXPECT_EQ(seen.times, (std::vector<uint64_t>{own_time, 20, 21, 22, 23, 24})) << "type " << type << ", " << swallowed << " inside";
        EXPECT_EQ(seen.damage.oversized_records, swallowed == 0 ? 0U : 1U) << "type " << type;
        EXPECT_EQ(seen.damage.messages.size(), swallowed == 0 ? 0U : 1U) << "type " << type;
        EXPECT_TRUE(seen.damage.holes.empty());
      }
    }
  }
}

// The end of the wrong size is inside another record.
TEST(OversizedRecord, ASizeThatEndsInsideAnotherRecord) {
  for (const std::vector<std::byte>& kind : all_kinds()) {
    const uint32_t type = read_record_header(kind).type;
    for (size_t more = 8; more < 200; more += 8) {
      std::vector<std::byte> records = kind;
      set_size(records, kind.size() + more);
      for (const std::vector<std::byte>& next : followers()) add_to(records, next);
      const Seen seen = read_all(records, false);
      ASSERT_EQ(seen.types, (std::vector<uint32_t>{type, 3, 14, 3, 14, 3})) << "type " << type << ", " << more;
      EXPECT_EQ(seen.damage.oversized_records, 1U) << "type " << type << ", " << more;
    }
  }
}

TEST(OversizedRecord, BytesAfterTheTrailerThatAreNoRecordsAreLost) {
  for (const std::vector<std::byte>& kind : all_kinds()) {
    const uint32_t type = read_record_header(kind).type;
    if (type == kRecordSample || type == kRecordTimeConv) continue;  // a newer perf may make them longer
    std::vector<std::byte> records = kind;
    records.resize(kind.size() + 40, std::byte{0x5a});
    set_size(records, records.size());
    for (const std::vector<std::byte>& next : followers()) add_to(records, next);
    const Seen seen = read_all(records, false);
    EXPECT_EQ(seen.types, (std::vector<uint32_t>{type, 3, 14, 3, 14, 3})) << "type " << type;
    EXPECT_EQ(seen.times.front(), 10U) << "type " << type;
    EXPECT_EQ(seen.damage.oversized_records, 0U);
    ASSERT_EQ(seen.damage.holes.size(), is_written_too_long(type) ? 0U : 1U) << "type " << type;
    EXPECT_EQ(seen.damage.holes.empty() ? 40U : seen.damage.holes[0].size_bytes, 40U);
    const Seen again = read_all(records, true);
    EXPECT_EQ(again.times.front(), 10U) << "type " << type;
    EXPECT_EQ(again.damage.bad_records, is_written_too_long(type) ? 0U : 1U) << "type " << type;
  }
}

// A newer kernel may add to the content, before the trailer.
TEST(OversizedRecord, LongerContentOfANewerKernelIsNoDamage) {
  for (const std::vector<std::byte>& kind : all_kinds()) {
    const uint32_t type = read_record_header(kind).type;
    if (type == kRecordSample || type == kRecordTimeConv || type == kRecordTextPoke) continue;
    for (const uint64_t word : {uint64_t{0}, uint64_t{5}, uint64_t{0x30'0000'0003}, ~uint64_t{0}}) {
      for (size_t words = 1; words <= 8; ++words) {
        std::vector<std::byte> added, records = kind;
        for (size_t i = 0; i < words; ++i) ByteWriter(added).u64(word);
        records.insert(records.end() - 32, added.begin(), added.end());
        for (size_t i = 8; i < 16; ++i) records[records.size() - 32 + i] = std::byte{0x11};  // a time as it is after days
        set_size(records, records.size());
        for (const std::vector<std::byte>& next : followers()) add_to(records, next);
        const Seen seen = read_all(records, false);
        ASSERT_EQ(seen.types.size(), 6U) << "type " << type;
        EXPECT_EQ(std::count(seen.times.begin(), seen.times.end(), 0x1111111111111111U), 1)
            << "type " << type << ", " << words << " of " << word;
        EXPECT_TRUE(seen.damage.messages.empty())
            << "type " << type << ", " << words << " words of " << word << ": " << seen.damage.messages.front();
      }
    }
  }
}

}  // namespace
}  // namespace ptd::perfio
