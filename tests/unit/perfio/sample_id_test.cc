// sample_id trailers and SAMPLE fields for several sample_types, and which attr a record belongs to.
#include "perfio/format/sample_id.h"

#include "util.h"

namespace ptd::perfio {
namespace {

using test::hex;

EventAttr attr_with(uint64_t sample_type, std::vector<uint64_t> ids = {}) {
  EventAttr attr;
  attr.sample_type = sample_type;
  attr.sample_id_all = true;
  attr.ids = std::move(ids);
  return attr;
}

struct TrailerCase {
  const char* name;
  uint64_t sample_type;
  const char* bytes;
  SampleId want;
};

TEST(SampleId, TrailerVariants) {
  const TrailerCase cases[] = {
      {"nothing", 0, "", {-1, -1, 0, false, -1, 0, 0}},
      {"ip is not in trailers", kSampleIp | kSamplePeriod, "", {-1, -1, 0, false, -1, 0, 0}},
      {"tid", kSampleTid, "01000000 02000000", {1, 2, 0, false, -1, 0, 0}},
      {"time", kSampleTime, "0500000000000000", {-1, -1, 5, true, -1, 0, 0}},
      {"zero time is no time", kSampleTime, "0000000000000000", {-1, -1, 0, false, -1, 0, 0}},
      {"all",
       kSampleTid | kSampleTime | kSampleId | kSampleStreamId | kSampleCpu | kSampleIdentifier,
       "01000000 02000000 0300000000000000 0400000000000000 0500000000000000 06000000 00000000 0700000000000000",
       {1, 2, 3, true, 6, 7, 5}},
      {"id without identifier", kSampleId | kSampleCpu, "0400000000000000 06000000 00000000", {-1, -1, 0, false, 6, 4, 0}},
  };
  for (const TrailerCase& c : cases) {
    const EventAttr attr = attr_with(c.sample_type);
    const auto bytes = hex(c.bytes);
    EXPECT_EQ(trailer_bytes(attr), bytes.size()) << c.name;
    std::vector<std::byte> record(kRecordHeaderBytes + 16);
    record.insert(record.end(), bytes.begin(), bytes.end());
    const SampleId got = trailer_of(attr, record);
    EXPECT_EQ(got.pid, c.want.pid) << c.name;
    EXPECT_EQ(got.tid, c.want.tid) << c.name;
    EXPECT_EQ(got.time, c.want.time) << c.name;
    EXPECT_EQ(got.has_time, c.want.has_time) << c.name;
    EXPECT_EQ(got.cpu, c.want.cpu) << c.name;
    EXPECT_EQ(got.id, c.want.id) << c.name;
    EXPECT_EQ(got.stream_id, c.want.stream_id) << c.name;
  }
}

TEST(SampleId, NoTrailerWithoutSampleIdAll) {
  EventAttr attr = attr_with(kSampleTid | kSampleTime);
  attr.sample_id_all = false;
  EXPECT_EQ(trailer_bytes(attr), 0U);
}

TEST(SampleId, ARecordThatIsTooShortHasNoTrailer) {
  const EventAttr attr = attr_with(kSampleTime);
  std::vector<std::byte> record(kRecordHeaderBytes + 8, std::byte{1});
  EXPECT_TRUE(trailer_of(attr, record).has_time);
  record.pop_back();
  EXPECT_FALSE(trailer_of(attr, record).has_time);
}

TEST(SampleId, SampleFieldsInOrder) {
  const EventAttr attr =
      attr_with(kSampleIdentifier | kSampleIp | kSampleTid | kSampleTime | kSampleAddr | kSampleCpu | kSamplePeriod | kSampleRaw);
  SampleFields got;
  const auto body =
      hex("0900000000000000 0010000000000000 01000000 02000000 0300000000000000 0020000000000000 06000000 00000000"
          "0800000000000000 04000000 aabbccdd");
  ASSERT_TRUE(parse_sample(attr, body, got));
  EXPECT_EQ(got.id.id, 9U);
  EXPECT_EQ(got.ip, 0x1000U);
  EXPECT_EQ(got.id.pid, 1);
  EXPECT_EQ(got.id.tid, 2);
  EXPECT_EQ(got.id.time, 3U);
  EXPECT_EQ(got.addr, 0x2000U);
  EXPECT_EQ(got.id.cpu, 6);
  EXPECT_EQ(got.period, 8U);
  EXPECT_EQ(std::vector<std::byte>(got.raw.begin(), got.raw.end()), hex("aabbccdd"));
}

// perf's evsel__parse_sample() begins with the attr's sample_period, which is a frequency if attr.freq is set.
TEST(SampleId, APeriodThatNoSampleHasIsThatOfTheEvent) {
  EventAttr attr = attr_with(kSampleIp);
  attr.sample_period = 1000;
  SampleFields fixed, frequency, own;
  ASSERT_TRUE(parse_sample(attr, hex("0010000000000000"), fixed));
  EXPECT_EQ(fixed.period, 1000U);
  attr.flags = kAttrFreq;
  ASSERT_TRUE(parse_sample(attr, hex("0010000000000000"), frequency));
  EXPECT_EQ(frequency.period, 0U);
  attr.sample_type |= kSamplePeriod;
  ASSERT_TRUE(parse_sample(attr, hex("0010000000000000 0700000000000000"), own));
  EXPECT_EQ(own.period, 7U);
}

TEST(SampleId, ReadAndCallchainBeforeRaw) {
  EventAttr attr = attr_with(kSampleRead | kSampleCallchain | kSampleRaw);
  const std::string chain = "0200000000000000 1111111111111111 2222222222222222";
  const std::string raw = "02000000 eeff";
  struct ReadCase {
    uint64_t format;
    std::string bytes;
  };
  const ReadCase cases[] = {
      {0, "0100000000000000"},
      {kFormatId | kFormatTimeEnabled, "0100000000000000 0200000000000000 0300000000000000"},
      {kFormatGroup, "0200000000000000 0100000000000000 0200000000000000"},
      {kFormatGroup | kFormatTimeRunning | kFormatId | kFormatLost,
       "0100000000000000 0500000000000000 0100000000000000 0200000000000000 0300000000000000"},
  };
  for (const ReadCase& c : cases) {
    attr.read_format = c.format;
    SampleFields got;
    const auto body = hex(c.bytes + chain + raw);
    ASSERT_TRUE(parse_sample(attr, body, got)) << c.format;
    EXPECT_EQ(std::vector<std::byte>(got.raw.begin(), got.raw.end()), hex("eeff")) << c.format;
  }
}

// The order of perf_event.h, "PERF_RECORD_SAMPLE".
TEST(SampleId, AuxComesAfterAllOtherFields) {
  EventAttr attr = attr_with(kSampleIdentifier | kSampleRaw | kSampleBranchStack | kSampleRegsUser | kSampleStackUser |
                             kSampleWeightStruct | kSampleDataSource | kSampleTransaction | kSampleRegsIntr | kSamplePhysAddr |
                             kSampleCgroup | kSampleDataPageSize | kSampleCodePageSize | kSampleAux);
  attr.branch_sample_type = kBranchHardwareIndex | kBranchCounters;
  attr.sample_regs_user = 0b101;
  attr.sample_regs_intr = 0b1;
  const std::string words = "1111111111111111 2222222222222222 3333333333333333 4444444444444444";
  const std::string before =
      "0900000000000000"
      "0c000000 aabbccdd aabbccdd aabbccdd"
      "0100000000000000 ffffffffffffffff" +
      words +                                                               // one branch, its counters
      "0200000000000000 1111111111111111 2222222222222222"                  // registers of user code
      "1000000000000000 01010101010101010101010101010101 0800000000000000"  // 16 bytes of stack
      // Weight, source, transaction.
      "1111111111111111 2222222222222222 3333333333333333"
      "0000000000000000"  // no registers
      + words;            // addresses, cgroup, sizes
  SampleFields got;
  const auto body = hex(before + "0800000000000000 0102030405060708");
  ASSERT_TRUE(parse_sample(attr, body, got));
  EXPECT_EQ(got.id.id, 9U);
  EXPECT_EQ(std::vector<std::byte>(got.aux.begin(), got.aux.end()), hex("0102030405060708"));
  for (const char* size : {"0900000000000000", "ffffffffffffffff", "0000000000000080"})
    EXPECT_FALSE(parse_sample(attr, hex(before + size + "0102030405060708"), got)) << size;
  EXPECT_FALSE(parse_sample(attr, hex(before), got));
}

TEST(SampleId, AttrsTellTheSizeOfAuxSamples) {
  std::vector<std::byte> raw(120);
  raw[112] = std::byte{0x10};  // aux_sample_size
  raw[116] = std::byte{kAuxPause};
  raw[88 + 8] = std::byte{3};  // sample_regs_intr
  EventAttr attr;
  ASSERT_TRUE(parse_attr(raw, attr));
  EXPECT_EQ(attr.aux_sample_bytes, 0x10U);
  EXPECT_EQ(attr.aux_action, kAuxPause);
  EXPECT_EQ(attr.sample_regs_intr, 3U);
  EventAttr old;
  ASSERT_TRUE(parse_attr(Bytes(raw).first(112), old));
  EXPECT_EQ(old.aux_sample_bytes, 0U);
}

TEST(SampleId, CountsBeyondTheRecordAreRefused) {
  SampleFields got;
  EXPECT_FALSE(parse_sample(attr_with(kSampleCallchain), hex("ffffffffffffffff 0000000000000000"), got));
  EXPECT_FALSE(parse_sample(attr_with(kSampleRaw), hex("ffffffff 00"), got));
  EventAttr group = attr_with(kSampleRead | kSampleRaw);
  group.read_format = kFormatGroup;
  EXPECT_FALSE(parse_sample(group, hex("ffffffffffffff7f 0000000000000000"), got));
}

TEST(AttrFinder, ByIdentifier) {
  const std::vector<EventAttr> attrs = {attr_with(kSampleIdentifier | kSampleTime, {10, 11}),
                                        attr_with(kSampleIdentifier | kSampleCpu, {12})};
  AttrFinder finder;
  finder.set(attrs);
  const auto sample = hex("09000000 0000 1800 0c00000000000000 0000000000000000");
  EXPECT_EQ(finder.find(read_record_header(sample), sample), 1U);
  const auto exit = hex("0e000000 0000 1800 0000000000000000 0c00000000000000");
  EXPECT_EQ(finder.find(read_record_header(exit), exit), 1U);
  const auto unknown = hex("0e000000 0000 1800 0000000000000000 6300000000000000");
  EXPECT_EQ(finder.find(read_record_header(unknown), unknown), 0U);
  const auto user = hex("46000000 0000 1800 0000000000000000 0c00000000000000");
  EXPECT_EQ(finder.find(read_record_header(user), user), 0U);
}

TEST(AttrFinder, ByIdAtTheSamePlaceInAllEvents) {
  const uint64_t type = kSampleIp | kSampleTid | kSampleId | kSampleCpu;
  const std::vector<EventAttr> attrs = {attr_with(type, {10}), attr_with(type | kSamplePeriod, {12})};
  AttrFinder finder;
  finder.set(attrs);
  const auto sample = hex("09000000 0000 2800 1111111111111111 0100000002000000 0c00000000000000 0000000000000000");
  EXPECT_EQ(finder.find(read_record_header(sample), sample), 1U);
  const auto comm = hex("03000000 0000 2800 0100000001000000 0100000001000000 0c00000000000000 0300000000000000");
  EXPECT_EQ(finder.find(read_record_header(comm), comm), 1U);
}

TEST(AttrFinder, ShortRecordsStayInBounds) {
  const std::vector<EventAttr> attrs = {attr_with(kSampleIdentifier, {10}), attr_with(kSampleIdentifier, {12})};
  AttrFinder finder;
  finder.set(attrs);
  const auto empty = hex("0e000000 0000 0800");
  EXPECT_EQ(finder.find(read_record_header(empty), empty), 0U);
  const auto sample = hex("09000000 0000 0a00 0c00");
  EXPECT_EQ(finder.find(read_record_header(sample), sample), 0U);
}

}  // namespace
}  // namespace ptd::perfio
