// cs_etm recordings built record by record: which bytes belong to which CPU and thread, and the versions of their metadata.
#include <gtest/gtest.h>

#include <algorithm>

#include "perfio/format/auxtrace_etm.h"
#include "recording/perf/arm_perf.h"

namespace ptd::test {
namespace {

using Words = std::vector<uint64_t>;
constexpr uint64_t kEtmv3 = 0x3030303030303030, kEtmv4 = 0x4040404040404040, kEte = 0x5050505050505050;

perfio::EtmInfo parse(Words words) {
  perfio::AuxtraceInfoRecord record;
  record.type = perfio::kAuxtraceCsEtm;
  record.priv = std::move(words);
  return perfio::parse_etm_info(record);
}

// tools/perf "util/cs-etm.h": version 0 has blocks of fixed length, later ones contain it; version 2 is 1 with ids by AUX_OUTPUT_HW_ID.
TEST(EtmInfo, Versions) {
  const perfio::EtmInfo old = parse({0, uint64_t{8} << 32 | 2, 1, kEtmv4, 3, 0x41, 0x12, 10, 11, 12, 18, 0, kEtmv3, 1, 0x1000, 0x21, 5, 6});
  ASSERT_EQ(old.cpus.size(), 2U);
  EXPECT_TRUE(old.snapshot_mode);
  EXPECT_EQ(old.pmu_type, 8U);
  EXPECT_EQ(old.cpus[0].cpu, 3);
  EXPECT_EQ(old.cpus[0].configr, 0x41U);
  EXPECT_EQ(old.cpus[0].traceidr, 0x12U);
  EXPECT_EQ(old.cpus[0].idr8, 18U);
  EXPECT_EQ(old.cpus[0].ts_source, -1);
  EXPECT_EQ(old.cpus[1].kind, perfio::EtmKind::etmv3);
  EXPECT_EQ(old.cpus[1].configr, 0x1000U);
  EXPECT_EQ(old.cpus[1].traceidr, 0x21U);
  EXPECT_EQ(old.cpus[1].idr1, 5U);
  EXPECT_EQ(old.cpus[1].idr0, 6U);
  for (const uint64_t version : {1, 2}) {
    const perfio::EtmInfo info = parse({version,
                                        uint64_t{8} << 32 | 3,
                                        0,  //
                                        kEtmv4,
                                        0,
                                        8,
                                        0x41,
                                        0x10,
                                        10,
                                        11,
                                        12,
                                        18,
                                        0,
                                        1,  //
                                        kEte,
                                        1,
                                        9,
                                        0x42,
                                        0x11,
                                        20,
                                        21,
                                        22,
                                        28,
                                        0,
                                        0x47705a13,
                                        1,  //
                                        kEtmv4,
                                        2,
                                        10,
                                        0x43,
                                        0x12,
                                        30,
                                        31,
                                        32,
                                        38,
                                        0,
                                        ~uint64_t{0},
                                        77,
                                        78});  // longer, from a later kernel
    ASSERT_EQ(info.cpus.size(), 3U) << version;
    EXPECT_EQ(info.version, version);
    EXPECT_EQ(info.cpus[0].ts_source, 1);
    EXPECT_EQ(info.cpus[1].kind, perfio::EtmKind::ete);
    EXPECT_EQ(info.cpus[1].devarch, 0x47705a13U);
    EXPECT_EQ(info.cpus[1].ts_source, 1);
    EXPECT_EQ(info.cpus[2].configr, 0x43U);
    EXPECT_EQ(info.cpus[2].idr8, 38U);
    EXPECT_EQ(info.cpus[2].ts_source, -1);
  }
  EXPECT_FALSE(parse({3, 1, 0, kEtmv4, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0}).valid);
  EXPECT_EQ(parse({0, 2, 0, kEtmv4, 3, 0x41, 0x12, 10, 11, 12, 18, 0, kEtmv4, 4, 1}).cpus.size(), 1U);  // the second is cut
}

TEST(EtmInfo, HardwareIds) {
  // Bits 63:60 and 59:56 the version, 39:8 the sink, 6:0 the id ([linux] "coresight-pmu.h").
  const perfio::EtmHwId old = perfio::parse_etm_hw_id(0x15);
  EXPECT_EQ(old.trace_id, 0x15);
  EXPECT_FALSE(old.has_sink);
  const perfio::EtmHwId by_sink = perfio::parse_etm_hw_id(0x0100001234567816);
  EXPECT_EQ(by_sink.trace_id, 0x16);
  EXPECT_TRUE(by_sink.has_sink);
  EXPECT_EQ(by_sink.sink, 0x12345678U & 0xffffffff);
  EXPECT_TRUE(old.valid && by_sink.valid);
  EXPECT_FALSE(perfio::parse_etm_hw_id(0x1000000000000015).valid);
}

/// A recording under construction.
struct MadePerf {
  ArmPerf arm;
  std::vector<std::unique_ptr<std::vector<std::byte>>> payloads;
  std::vector<int32_t> cpus;
  std::map<int32_t, uint64_t> at;  // size of each ring so far
  uint64_t kind = kEtmv4;

  template <typename Payload>
  void record(Payload payload, int32_t cpu, int32_t tid) {
    perfio::Record made;
    made.payload = std::move(payload);
    made.sample_id.cpu = cpu;
    made.sample_id.tid = tid;
    arm.on_record(made);
  }
  void aux(int32_t cpu, int32_t tid, uint64_t offset, uint64_t size, uint64_t flags) {
    record(perfio::AuxRecord{offset, size, flags}, cpu, tid);
  }
  void payload(int32_t cpu, int32_t tid, uint64_t offset, const std::vector<uint8_t>& raw) {
    auto& bytes = *payloads.emplace_back(std::make_unique<std::vector<std::byte>>());
    for (const uint8_t value : raw) bytes.push_back(static_cast<std::byte>(value));
    perfio::AuxtraceRecord made;
    made.cpu = cpu;
    made.tid = tid;
    made.offset_bytes = offset;
    made.size_bytes = bytes.size();
    made.payload = bytes;
    record(made, -1, -1);
  }
  void hw_id(int32_t cpu, uint64_t id) { record(perfio::AuxOutputHwIdRecord{id}, cpu, -1); }
  /// Adds an AUX record and its bytes, of the ring of a CPU, or of a thread that ran on it. `lost`: bytes that the record covers before
  /// them.
  void trace(int32_t cpu, int32_t tid, uint64_t flags, std::vector<uint8_t> raw, uint64_t lost = 0) {
    auto& bytes = *payloads.emplace_back(std::make_unique<std::vector<std::byte>>());
    for (const uint8_t value : raw) bytes.push_back(static_cast<std::byte>(value));
    uint64_t& offset = at[tid >= 0 ? tid : -2 - cpu];
    perfio::AuxRecord aux;
    constexpr uint64_t kOverwrite = 2;  // then the offset is the ring's position after it
    aux.aux_offset_bytes = (flags & kOverwrite) != 0 ? offset + bytes.size() : offset;
    aux.aux_size_bytes = bytes.size() + lost;
    aux.flags = flags;
    record(aux, cpu, tid);
    perfio::AuxtraceRecord payload;
    payload.cpu = tid >= 0 ? -1 : cpu;
    payload.tid = tid;
    payload.offset_bytes = offset;
    payload.size_bytes = bytes.size();
    payload.payload = bytes;
    record(payload, -1, -1);
    offset += bytes.size();
  }
  void finish(RecordingData& data, uint64_t first_id) {
    Words words = {2, cpus.size(), 0};
    for (const int32_t cpu : cpus) {
      const uint64_t id = first_id == 0x7f ? 0x7f : first_id + static_cast<uint64_t>(cpu);  // bit 31, too: assigned by perf
      words.insert(words.end(), {kind, static_cast<uint64_t>(cpu), 8, 0x1001, id, 0x28000ea1, 0x4100f424, 0x488, 0, 0, 1});
    }
    arm.finish(parse(words), true, data);
  }
};

/// Returns the content of a stream as text: "cpu 1 tid -1: 0a 0b".
std::string text_of(RecordingData& data, size_t stream) {
  AuxStream& bytes = data.streams[stream];
  bytes.finish();
  std::string text = "cpu " + std::to_string(bytes.cpu) + " tid " + std::to_string(bytes.tid) + ":";
  std::vector<std::byte> scratch;
  for (uint64_t from = bytes.begin_offset(); from < bytes.end_offset();) {
    const Bytes part = bytes.read(from, bytes.end_offset(), scratch);
    const Seam* seam = bytes.seam_after(from);
    const uint64_t end = std::min(from + part.size(), seam == nullptr ? bytes.end_offset() : seam->offset_bytes);
    for (uint64_t i = from; i < end; ++i) {
      char hex[4];
      std::snprintf(hex, sizeof hex, " %02x", static_cast<unsigned>(part[i - from]));
      text += hex;
    }
    if (end < bytes.end_offset()) text += seam->why == AuxBreak::truncated ? " lost" : " |";
    from = end;
  }
  return text;
}

// [CoreSight] "Formatter": ids in even bytes with bit 0 set, the low bits of data bytes in the last one.
std::vector<uint8_t> frame(uint8_t id, uint8_t data, uint8_t other_id, uint8_t other_data) {
  std::vector<uint8_t> bytes(16, 0);
  bytes[0] = static_cast<uint8_t>(id << 1 | 1);
  bytes[1] = data;
  bytes[2] = static_cast<uint8_t>(other_id << 1 | 1);
  bytes[3] = other_data;
  bytes[4] = 1;  // id 0: padding
  return bytes;
}

TEST(ArmPerf, OneBufferOfTwoCpus) {
  MadePerf made;
  made.cpus = {0, 1};
  made.trace(0, -1, 0, frame(0x10, 0xaa, 0x11, 0xbb));
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 2U);
  EXPECT_EQ(text_of(data, 0), "cpu 0 tid -1: aa");
  EXPECT_EQ(text_of(data, 1), "cpu 1 tid -1: bb");
  EXPECT_TRUE(data.warnings.empty());
}

TEST(ArmPerf, IdsThatTheKernelTells) {
  MadePerf made;
  made.cpus = {0, 1, 2};
  made.hw_id(0, 0x20);
  made.hw_id(1, 0x21);
  made.trace(0, -1, 0, frame(0x21, 0xaa, 0x20, 0xbb));
  made.trace(1, -1, 0, frame(0x21, 0xcc, 0x33, 0xdd));
  RecordingData data;
  made.finish(data, 0x7f);
  ASSERT_EQ(data.streams.size(), 2U);
  EXPECT_EQ(text_of(data, 0), "cpu 0 tid -1: bb");
  EXPECT_EQ(text_of(data, 1), "cpu 1 tid -1: aa | cc");
  ASSERT_EQ(data.warnings.size(), 1U);
  EXPECT_EQ(data.warnings[0], "1 bytes of trace id 51 belong to no source");
  ASSERT_EQ(made.arm.findings().size(), 1U);
  EXPECT_EQ(made.arm.findings()[0].what, data.warnings[0]);
}

// One id twice, in two sinks: the buffer of a CPU contains the output of its sink.
TEST(ArmPerf, IdsBySink) {
  MadePerf made;
  made.cpus = {0, 1};
  made.hw_id(0, 0x0100000000000110 | uint64_t{1} << 8);
  made.hw_id(1, 0x0100000000000010 | uint64_t{2} << 8);
  made.trace(0, -1, 0, frame(0x10, 0xaa, 0x10, 0xab));
  made.trace(1, -1, 0, frame(0x10, 0xbb, 0x10, 0xbc));
  RecordingData data;
  made.finish(data, 0x7f);
  ASSERT_EQ(data.streams.size(), 2U);
  EXPECT_EQ(text_of(data, 0), "cpu 0 tid -1: aa ab");
  EXPECT_EQ(text_of(data, 1), "cpu 1 tid -1: bb bc");
}

TEST(ArmPerf, RawTraceIsTakenAsItIs) {
  MadePerf made;
  made.cpus = {0, 1};
  made.trace(1, -1, perfio::kAuxFormatRaw, {1, 2, 3});
  made.trace(1, -1, perfio::kAuxFormatRaw | 1, {4});  // truncated
  made.trace(1, -1, perfio::kAuxFormatRaw, {5});
  RecordingData data;
  made.finish(data, 0x7f);
  ASSERT_EQ(data.streams.size(), 1U);
  EXPECT_EQ(text_of(data, 0), "cpu 1 tid -1: 01 02 03 | 04 lost 05");
}

// [perf] "cs_etm__queue_aux_fragment": in snapshot mode the offset of an AUX record is that of its end, and its size is that of all
// written bytes.
TEST(ArmPerf, SnapshotsOfARing) {
  constexpr uint64_t kOverwrite = 2;
  MadePerf made;
  made.cpus = {0, 1};
  made.trace(0, -1, perfio::kAuxFormatRaw | kOverwrite, {1, 2, 3});
  made.trace(0, -1, perfio::kAuxFormatRaw | kOverwrite, {4, 5, 6}, 100);
  made.trace(1, -1, kOverwrite | 1, frame(0x10, 0xaa, 0x11, 0xbb), 16);
  made.trace(1, -1, kOverwrite, frame(0x11, 0xab, 0x11, 0xcb));
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 2U);
  EXPECT_EQ(text_of(data, 0), "cpu 0 tid -1: 01 02 03 | 04 05 06 | aa");
  EXPECT_EQ(text_of(data, 1), "cpu 1 tid -1: bb lost ab cb");
}

// A trace unit begins with an A-Sync when it is enabled: for each AUX record. Where the first bytes are others, they are damaged.
// [ETMv4], [ETE]: 11 bytes 0, then 80. [ETMv3]: at least 5. 70: [ETE] "Ignore packet".
TEST(ArmPerf, TraceBeginsWithAnAsync) {
  constexpr uint64_t kOverwrite = 2;
  const std::vector<uint8_t> async = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01}, etmv3 = {0, 0, 0, 0, 0, 0x80, 0x08},
                             ete = {0x70, 0x70, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80}, zeros(20), middle = {0xf7, 0xf8};
  std::vector<uint8_t> damaged = async, at_5 = async, at_10 = async, at_0 = async;
  damaged[11] = 0x81;
  at_0[0] = at_5[5] = at_10[10] = 0x80;
  struct Row {
    uint64_t kind;
    std::vector<std::vector<uint8_t>> pieces;
    uint64_t flags;
    std::vector<AuxBreak> want;  // of each piece
  };
  constexpr auto kStart = AuxBreak::stream_start, kPause = AuxBreak::snapshot, kLost = AuxBreak::missing;
  const Row rows[] = {{kEtmv4, {async, async}, 0, {kStart, kPause}},
                      {kEtmv3, {etmv3, async, zeros}, 0, {kStart, kPause, kPause}},
                      {kEte, {ete, zeros}, 0, {kStart, kPause}},
                      {kEtmv4, {damaged, async}, 0, {kLost, kPause}},
                      {kEtmv4, {async, damaged, async}, 0, {kStart, kLost, kPause}},
                      {kEtmv4, {at_5, at_10, at_0, async}, 0, {kLost, kLost, kLost, kPause}},
                      {kEte, {async, at_5, at_10, at_0}, 0, {kStart, kLost, kLost, kLost}},
                      {kEtmv4, {middle}, 0, {kLost}},
                      {kEtmv4, {middle, middle}, kOverwrite, {kStart, kPause}}};
  for (const Row& row : rows) {
    MadePerf made;
    made.kind = row.kind;
    made.cpus = {0};
    for (const std::vector<uint8_t>& piece : row.pieces) made.trace(0, -1, perfio::kAuxFormatRaw | row.flags, piece);
    RecordingData data;
    made.finish(data, 0x10);
    ASSERT_EQ(data.streams.size(), 1U);
    data.streams[0].finish();
    std::vector<AuxBreak> told;
    for (const Seam& seam : data.streams[0].seams()) {
      if (seam.offset_bytes < data.streams[0].end_offset()) told.push_back(seam.why);
    }
    EXPECT_EQ(told, row.want) << &row - rows;
  }
}

std::vector<uint8_t> joined(const std::vector<std::vector<uint8_t>>& parts) {
  std::vector<uint8_t> all;
  for (const std::vector<uint8_t>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// The places of a stream where its bytes do not continue: "0 start, 14 pause, 28 lost".
std::string seams_of(AuxStream& stream) {
  stream.finish();
  std::string text;
  for (const Seam& seam : stream.seams()) {
    const bool start = seam.why == AuxBreak::stream_start, pause = seam.why == AuxBreak::snapshot, lost = seam.why == AuxBreak::missing;
    text += (text.empty() ? "" : ", ") + std::to_string(seam.offset_bytes) +
            (start   ? " start"
             : pause ? " pause"
             : lost  ? " lost"
                     : " other");
  }
  return text;
}

std::string told_by(const MadePerf& made) {
  std::string text;
  for (const Finding& finding : made.arm.findings()) text += (text.empty() ? "" : "\n") + finding.what;
  return text;
}

const std::vector<uint8_t> kFirst = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xf7, 0xf8};
const std::vector<uint8_t> kSecond = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xf9, 0xfa};
constexpr const char* kBoth = "00 00 00 00 00 00 00 00 00 00 00 80 f7 f8 00 00 00 00 00 00 00 00 00 00 00 80 f9 fa";

std::string without_bars(std::string text) {
  for (size_t bar = text.find(" |"); bar != std::string::npos; bar = text.find(" |")) text.erase(bar, 2);
  return text;
}

// Each byte of a ring is decoded once, whichever AUX records name it. `kFirst` and `kSecond` are what the trace unit wrote in two runs.
TEST(ArmPerf, RecordsThatOverlapOrAreMissing) {
  struct Row {
    std::vector<std::pair<uint64_t, uint64_t>> records;  // offset, size
    std::string seams, told;                             // `told`: the beginning
  };
  const std::string intact = "0 start, 14 pause, 28 pause", twice = "cpu 0: AUX records overlap: ", none = "cpu 0: no AUX record names ";
  const Row rows[] = {
      {{{0, 14}, {14, 14}}, intact, ""},
      {{{14, 14}, {0, 14}}, intact, ""},
      {{{0, 14}, {0, 14}, {14, 14}},
       intact,
       twice + "14 bytes of trace are named twice, from offset 0 of the ring on; they are decoded once"},
      {{{0, 14}, {14, 14}, {14, 14}}, intact, twice + "14 bytes of trace are named twice, from offset 14 "},
      {{{0, 20}, {14, 14}}, intact, twice + "6 bytes of trace are named twice, from offset 14 "},
      {{{0, 28}, {14, 7}}, intact, twice + "7 bytes of trace are named twice, from offset 14 "},
      {{{0, 14}, {10, 18}}, "0 start, 10 lost, 28 pause", twice + "4 bytes of trace are named twice, from offset 10 "},
      {{{14, 14}}, intact, none + "14 bytes of trace, the first at offset 0 of the ring"},
      {{{0, 14}}, intact, none + "14 bytes of trace, the first at offset 14 "},
      {{{0, 14}, {14, 0}}, intact, none + "14 bytes of trace, the first at offset 14 "},
      {{{0, 7}, {14, 14}}, "0 start, 7 lost, 14 pause, 28 pause", none + "7 bytes of trace, the first at offset 7 "},
      {{{0, 14}, {14, 7}}, "0 start, 14 pause, 21 lost, 28 pause", none + "7 bytes of trace, the first at offset 21 "},
      {{{0, 14}, {14, 15}}, "0 start, 14 pause, 28 lost", ""},
      {{{0, ~uint64_t{0}}, {14, 14}}, "0 start, 14 pause, 28 lost", twice + "14 bytes of trace "},
      {{{0, 14}, {~uint64_t{0}, 14}}, intact, none + "14 bytes of trace, the first at offset 14 "},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(&row - rows);
    MadePerf made;
    made.cpus = {0};
    for (const auto& [offset, size] : row.records) made.aux(0, -1, offset, size, perfio::kAuxFormatRaw);
    made.payload(0, -1, 0, joined({kFirst, kSecond}));
    RecordingData data;
    made.finish(data, 0x10);
    ASSERT_EQ(data.streams.size(), 1U);
    EXPECT_EQ(without_bars(text_of(data, 0)), std::string("cpu 0 tid -1: ") + kBoth);
    EXPECT_EQ(seams_of(data.streams[0]), row.seams);
    EXPECT_EQ(told_by(made).substr(0, row.told.size()), row.told);
    EXPECT_EQ(told_by(made).empty(), row.told.empty());
  }
}

// The TRBE driver fills the end of its buffer with Ignore packets, which no AUX record names ([linux] "trbe_pad_buf"); perf pads with
// zeros. In frames, id 0 and barriers are padding.
TEST(ArmPerf, PaddingNeedsNoRecord) {
  MadePerf made;
  made.cpus = {0, 1};
  made.aux(0, -1, 0, 14, perfio::kAuxFormatRaw);
  made.aux(0, -1, 18, 14, perfio::kAuxFormatRaw);
  made.payload(0, -1, 0, joined({kFirst, {0x70, 0x70, 0x70, 0}, kSecond, {0, 0, 0}}));
  const std::vector<uint8_t> sync = {0xff, 0xff, 0xff, 0x7f}, barrier = joined({sync, sync, sync, sync});
  const std::vector<uint8_t> padding = {1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  made.aux(1, -1, 0, 16, 0);
  made.aux(1, -1, 48, 16, 0);
  made.payload(1, -1, 0, joined({frame(0x11, 0xaa, 0x11, 0xab), padding, barrier, frame(0x11, 0xac, 0x11, 0xad)}));
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 2U);
  EXPECT_EQ(without_bars(text_of(data, 0)), std::string("cpu 0 tid -1: ") + kBoth);
  EXPECT_EQ(text_of(data, 1), "cpu 1 tid -1: aa ab | ac ad");
  EXPECT_EQ(told_by(made), "");
}

// The only stream has kFirst and kSecond once, and nothing is reported.
void expect_both(MadePerf& made) {
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 1U);
  EXPECT_EQ(without_bars(text_of(data, 0)), std::string("cpu 0 tid -1: ") + kBoth);
  EXPECT_EQ(told_by(made), "");
}

// perf makes the size of each payload a multiple of eight, and begins the next one where the trace ended: the zeros between are not what
// the next record names.
TEST(ArmPerf, PaddingOfAPayloadIsNotOfTheNextRecord) {
  MadePerf made;
  made.cpus = {0};
  made.aux(0, -1, 0, 14, perfio::kAuxFormatRaw);
  made.aux(0, -1, 14, 14, perfio::kAuxFormatRaw);
  made.payload(0, -1, 0, joined({kFirst, {0, 0}}));
  made.payload(0, -1, 14, joined({kSecond, {0, 0}}));
  expect_both(made);
}

// Payloads that the file lacks, of which AUX records tell: the first, the second or the third.
TEST(ArmPerf, PayloadsThatAreMissing) {
  const std::string want[] = {"0 lost, 14 pause, 28 pause", "0 start, 14 lost, 28 pause", "0 start, 14 pause, 28 lost"};
  for (uint64_t lost = 0; lost < 3; ++lost) {
    MadePerf made;
    made.cpus = {0};
    for (uint64_t i = 0; i < 3; ++i) {
      made.aux(0, -1, 14 * i, 14, perfio::kAuxFormatRaw);
      if (i != lost) made.payload(0, -1, 14 * i, kFirst);
    }
    RecordingData data;
    made.finish(data, 0x10);
    ASSERT_EQ(data.streams.size(), 1U);
    EXPECT_EQ(seams_of(data.streams[0]), want[lost]);
    EXPECT_EQ(told_by(made), "");
  }
}

// A snapshot of a ring that is not full yet holds the bytes of the one before, too.
TEST(ArmPerf, SnapshotsThatRepeatBytes) {
  constexpr uint64_t kFlags = perfio::kAuxFormatRaw | perfio::kAuxOverwrite;
  MadePerf made;
  made.cpus = {0};
  made.aux(0, -1, 14, 14, kFlags);
  made.payload(0, -1, 0, kFirst);
  made.aux(0, -1, 28, 14, kFlags);
  made.aux(0, -1, 28, 14, kFlags);
  made.payload(0, -1, 0, joined({kFirst, kSecond}));
  expect_both(made);
}

// [linux] "perf_event_tid": the last AUX record of a thread may lack its tid. It tells nothing about bytes that another record names.
TEST(ArmPerf, RecordsWithoutAThread) {
  MadePerf made;
  made.cpus = {0};
  made.aux(0, 100, 0, 14, perfio::kAuxFormatRaw);
  made.aux(0, -1, 14, 14, perfio::kAuxFormatRaw);
  made.payload(-1, 100, 0, joined({kFirst, kSecond}));
  made.aux(0, 200, 0, 28, perfio::kAuxFormatRaw);
  made.payload(-1, 200, 0, joined({kFirst, kSecond}));
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 2U);
  EXPECT_EQ(seams_of(data.streams[0]), "0 start, 14 pause, 28 pause");
  EXPECT_EQ(seams_of(data.streams[1]), "0 start, 28 pause");
  EXPECT_EQ(told_by(made), "");
}

// A payload without its own record is not taken for frames if the others are not frames.
TEST(ArmPerf, APayloadThatNoRecordDescribes) {
  MadePerf made;
  made.cpus = {0};
  made.trace(0, -1, perfio::kAuxFormatRaw, {1, 2, 3});
  perfio::AuxtraceRecord payload;
  std::vector<std::byte> bytes = {std::byte{4}, std::byte{5}};
  payload.cpu = 0;
  payload.offset_bytes = 0x1000;
  payload.size_bytes = bytes.size();
  payload.payload = bytes;
  made.record(payload, -1, -1);
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 1U);
  EXPECT_EQ(text_of(data, 0), "cpu 0 tid -1: 01 02 03 | 04 05");
}

// [perf] "cs_etm__clear_unused_trace_ids_metadata": bit 31 marks invalid ids if the kernel reports ids. Here cpu 1 has the id that perf
// assigned to cpu 0.
TEST(ArmPerf, IdsThatPerfMadeUp) {
  for (const bool told : {true, false}) {
    MadePerf made;
    made.cpus = {1, 0};
    if (told) made.hw_id(1, 0x10);
    made.trace(1, -1, 0, frame(0x10, 0xaa, 0x10, 0xab));
    RecordingData data;
    made.finish(data, 0x80000010);
    ASSERT_EQ(data.streams.size(), 1U);
    EXPECT_EQ(text_of(data, 0), told ? "cpu 1 tid -1: aa ab" : "cpu 0 tid -1: aa ab");
  }
}

TEST(ArmPerf, IdsOfALaterVersionAreNotRead) {
  MadePerf made;
  made.cpus = {0};
  made.hw_id(0, 0x1000000000000015);
  made.trace(0, -1, 0, frame(0x10, 0xaa, 0x10, 0xab));
  RecordingData data;
  made.finish(data, 0x10);
  EXPECT_EQ(text_of(data, 0), "cpu 0 tid -1: aa ab");
  EXPECT_EQ(data.warnings.size(), 1U);
}

// The bits of the control register that enable tracing of context ids: [ETMv3] "ETMCR" 15:14, [ETMv4] "TRCCONFIGR" 6.
TEST(ArmPerf, ThreadsByContextId) {
  struct Row {
    uint64_t magic, control;
    arm::ContextNames names;
  };
  constexpr Row kRows[] = {
      {kEtmv3, 0xc000, arm::ContextNames::context_id}, {kEtmv3, 0x40, arm::ContextNames::none},
      {kEtmv4, 0x40, arm::ContextNames::context_id},   {kEtmv4, 0xc000, arm::ContextNames::none},
      {kEtmv4, 0x8080, arm::ContextNames::vmid},       {kEtmv3, 0x8080, arm::ContextNames::context_id},
  };
  for (const Row& row : kRows) {
    MadePerf made;
    made.trace(0, -1, 0, frame(0x10, 0xaa, 0x10, 0xab));
    Words words = {1, 1, 0, row.magic, 0, 8, row.control, 0x10, 0, 0, 0, 0, 0, 0};
    RecordingData data;
    made.arm.finish(parse(words), true, data);
    EXPECT_EQ(data.arm_follow.names, row.names) << row.magic << " " << row.control;
  }
}

TEST(ArmPerf, ThreadsHaveStreamsOfTheirOwn) {
  MadePerf made;
  made.cpus = {0, 1};
  made.trace(0, 100, 0, frame(0x10, 0xaa, 0x10, 0xab));
  made.trace(1, 200, 0, frame(0x11, 0xba, 0x11, 0xbb));
  made.trace(0, 200, 0, frame(0x10, 0xca, 0x10, 0xcb));
  made.trace(1, 100, perfio::kAuxFormatRaw, {7, 8});
  RecordingData data;
  made.finish(data, 0x10);
  ASSERT_EQ(data.streams.size(), 4U);
  EXPECT_EQ(text_of(data, 0), "cpu -1 tid 100: aa ab");
  EXPECT_EQ(text_of(data, 1), "cpu -1 tid 200: ba bb");
  EXPECT_EQ(text_of(data, 2), "cpu -1 tid 200: ca cb");
  EXPECT_EQ(text_of(data, 3), "cpu -1 tid 100: 07 08");
}

TEST(ArmPerf, RawTraceOfAnUnknownCpuIsNotGuessed) {
  MadePerf made;
  made.cpus = {0, 1};
  made.trace(-1, 100, perfio::kAuxFormatRaw, {1, 2});
  RecordingData data;
  made.finish(data, 0x10);
  EXPECT_TRUE(data.streams.empty());
  ASSERT_EQ(data.warnings.size(), 1U);
  EXPECT_EQ(data.warnings[0], "2 bytes of trace belong to no known cpu");
  ASSERT_EQ(made.arm.findings().size(), 1U);
  EXPECT_EQ(made.arm.findings()[0].kind, FindingKind::trace_lost);
  EXPECT_EQ(told_by(made), data.warnings[0]);
}

// One wrong bit of a cpu's number in the metadata.
TEST(ArmPerf, MetadataOfAnotherCpuIsAFinding) {
  for (const bool raw : {false, true}) {
    for (const bool told : {false, true}) {
      for (const int32_t wrong : {0, 2, 65}) {
        MadePerf made;
        made.cpus = {0, wrong};
        if (told) made.hw_id(0, 0x10);
        if (told) made.hw_id(1, 0x11);
        made.trace(0, -1, raw ? perfio::kAuxFormatRaw : 0, raw ? std::vector<uint8_t>{1, 2} : frame(0x10, 0xaa, 0x10, 0xab));
        made.trace(1, -1, raw ? perfio::kAuxFormatRaw : 0, raw ? std::vector<uint8_t>{3, 4} : frame(0x11, 0xba, 0x11, 0xbb));
        RecordingData data;
        made.finish(data, told ? 0x80000010 : 0x10);
        EXPECT_FALSE(told_by(made).empty()) << "raw " << raw << " told " << told << " cpu " << wrong;
      }
    }
  }
}

}  // namespace
}  // namespace ptd::test
