// Sideband fold: records of trace -> streams, their breaks and samples.
#include <algorithm>

#include "perfio/format/wire.h"
#include "tests/unit/recording/fold_support.h"

namespace ptd {
namespace {

TEST_F(Fold, AuxFlagsBreakTheStreamWhereTheySay) {
  const std::vector<std::byte> bytes(256, std::byte{1});
  feed(perfio::AuxRecord{0, 128, 1}, 1000, 10, 10, 2);
  feed(perfio::AuxRecord{128, 128, 0}, 2000, 10, 10, 2);
  perfio::AuxtraceRecord payload;
  payload.size_bytes = 256;
  payload.cpu = 2;
  payload.tid = 10;
  payload.payload = bytes;
  feed(payload, 0);
  payload.cpu = -1;  // a per-thread stream of the same recording is another stream
  feed(payload, 0);
  finish();
  ASSERT_EQ(data_->streams.size(), 2U);
  EXPECT_EQ(data_->streams[0].cpu, 2);
  EXPECT_EQ(data_->streams[1].tid, 10);
  data_->streams[0].finish();
  ASSERT_EQ(data_->streams[0].seams().size(), 2U);
  EXPECT_EQ(data_->streams[0].seams()[1].offset_bytes, 128U);
  EXPECT_EQ(data_->streams[0].seams()[1].why, AuxBreak::truncated);
  EXPECT_EQ(data_->streams[0].written_by(200).value, 2000U);
  EXPECT_EQ(data_->lost.aux_truncated, 1U);
}

// Files that lost power while they were written end with zeros. What the recorder wrote beyond the AUX records is its padding.
TEST_F(Fold, ZerosAtTheEndThatWereTraceAreMissing) {
  std::vector<std::byte> bytes(512, std::byte{1});
  std::fill_n(bytes.end() - 30, 30, std::byte{});
  for (const int32_t cpu : {2, 3}) {
    feed(perfio::AuxRecord{0, cpu == 2 ? 512U : 500U, 0}, 1000, 10, 10, cpu);
    perfio::AuxtraceRecord payload;
    payload.size_bytes = bytes.size();
    payload.cpu = cpu;
    payload.payload = bytes;
    feed(payload, 0);
  }
  finish();
  EXPECT_EQ(data_->streams.at(0).written_zeros_at_end(), 30U);
  EXPECT_EQ(data_->streams.at(0).seams().back().offset_bytes, 512U);
  EXPECT_EQ(data_->streams.at(0).seams().back().why, AuxBreak::missing);
  EXPECT_EQ(data_->streams.at(1).written_zeros_at_end(), 18U);
  EXPECT_EQ(data_->streams.at(1).seams().back().offset_bytes, 0U);
}

// Each flag at the first byte of a thread: of one with trace, and of one of which nothing was stored.
TEST_F(Fold, TraceThatIsLostBeforeAnyIsAFinding) {
  const std::vector<std::byte> bytes(256, std::byte{1});
  for (const uint64_t flag : {1U, 4U, 8U}) {
    start();
    for (const int32_t tid : {10, 11}) {
      feed(perfio::ItraceStartRecord{tid, tid}, 900, tid, tid, -1);
      feed(perfio::AuxRecord{0, 0, flag}, 1000, tid, tid, -1);
    }
    feed(perfio::AuxRecord{0, 256, 0}, 2000, 10, 10, -1);
    perfio::AuxtraceRecord payload;
    payload.size_bytes = bytes.size();
    payload.cpu = -1;
    payload.tid = 10;
    payload.payload = bytes;
    feed(payload, 0);
    finish();
    ASSERT_EQ(data_->streams.size(), 1U);
    const std::vector<Seam>& seams = data_->streams[0].seams();
    EXPECT_EQ(seams.front().offset_bytes, 0U);
    EXPECT_EQ(seams.front().why, flag == 1 ? AuxBreak::truncated : flag == 4 ? AuxBreak::partial : AuxBreak::collision);
    std::vector<std::string> absent;
    for (const Finding& finding : data_->timeline.findings()) {
      if (finding.kind == FindingKind::trace_lost) absent.push_back(finding.what);
    }
    ASSERT_EQ(absent.size(), 1U) << flag;
    EXPECT_TRUE(absent[0].starts_with("thread 11: all trace is missing: ")) << absent[0];
    EXPECT_NE(absent[0].find("AUX flag "), std::string::npos) << absent[0];
  }
}

TEST_F(Fold, EachAuxFlagIsAReasonOfItsOwn) {
  const std::vector<std::byte> bytes(512, std::byte{1});
  feed(perfio::AuxRecord{0, 128, 4}, 1000, 10, 10, 2);    // PARTIAL
  feed(perfio::AuxRecord{128, 128, 8}, 2000, 10, 10, 2);  // COLLISION
  feed(perfio::AuxRecord{256, 128, 2}, 3000, 10, 10, 2);  // OVERWRITE: normal for a snapshot's ring, not a loss
  feed(perfio::AuxRecord{384, 128, 0}, 4000, 10, 10, 2);
  perfio::AuxtraceRecord payload;
  payload.size_bytes = bytes.size();
  payload.cpu = 2;
  payload.payload = bytes;
  feed(payload, 0);
  finish();
  AuxStream& stream = data_->streams.at(0);
  stream.finish();
  ASSERT_EQ(stream.seams().size(), 3U);  // the stream's start is the first
  EXPECT_EQ(stream.seams()[1].offset_bytes, 128U);
  EXPECT_EQ(stream.seams()[1].why, AuxBreak::partial);
  EXPECT_EQ(stream.seams()[2].offset_bytes, 256U);
  EXPECT_EQ(stream.seams()[2].why, AuxBreak::collision);
  EXPECT_EQ(data_->lost.aux_partial, 1U);
  EXPECT_EQ(data_->lost.aux_collision, 1U);
  EXPECT_EQ(data_->lost.aux_truncated, 0U);
}

TEST_F(Fold, SamplesHoldTheTraceOfTheRingThatTheirEventIsOf) {
  perfio::EventAttr dummy, sampler;
  sampler.sample_type = perfio::kSampleAux;
  sampler.name = "cycles:u";
  const std::vector<perfio::EventAttr> attrs{dummy, sampler};
  fold_->set_attrs(attrs);
  // ID_INDEX: two events, of cpu 3 and of thread 30.
  std::vector<uint64_t> index{0, 2, 7, 0, 3, ~uint64_t{0}, 8, 1, ~uint64_t{0}, 30};
  perfio::Record ids;
  ids.type = perfio::kRecordIdIndex;
  ids.raw = std::as_bytes(std::span(index));
  fold_->on_record(ids);
  const std::vector<std::byte> window(64, std::byte{2});
  const auto sample = [&](uint64_t id, uint64_t time, Bytes aux, bool transient) {
    perfio::Record record;
    record.type = perfio::kRecordSample;
    record.attr_index = 1;
    record.sample_id = {30, 30, time, true, 5, id, 0};
    record.payload = perfio::OtherSample{0x401000, {}, aux, transient};
    fold_->on_record(record);
  };
  sample(7, 1000, window, false);
  sample(8, 2000, window, false);
  sample(8, 3000, {}, false);
  {
    const std::vector<std::byte> passing(8, std::byte{0x1a});
    sample(8, 4000, passing, true);  // from a compressed record: its bytes are gone after the call
  }
  feed(perfio::AuxRecord{0, 4096, 2}, 5000, 30, 30, 3);
  finish();
  ASSERT_EQ(data_->streams.size(), 2U);
  EXPECT_EQ(data_->streams[0].cpu, 3);
  EXPECT_EQ(data_->streams[1].tid, 30);
  const std::vector<AuxSample>& samples = data_->streams[1].samples();
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].time.value, 2000U);
  EXPECT_EQ(samples[0].ip, Ip{0x401000});
  EXPECT_EQ(samples[0].pid, 30);
  EXPECT_EQ(samples[1].last_bytes - samples[1].first_bytes, 8U);
  EXPECT_EQ(data_->sample_names, std::vector<std::string>{"cycles:u"});
  EXPECT_EQ(data_->streams[1].chunks().back().bytes.front(), std::byte{0x1a});
  EXPECT_EQ(data_->lost.aux_truncated, 0U);
  for (const Finding& finding : data_->timeline.findings()) EXPECT_NE(finding.kind, FindingKind::trace_lost) << finding.what;
  ASSERT_EQ(data_->warnings.size(), 1U);
  EXPECT_NE(data_->warnings[0].find("1 of 4 AUX samples hold no trace"), std::string::npos) << data_->warnings[0];
}

// A window of one byte needs memory for its sample too.
TEST_F(Fold, ManySmallSamplesInCompressedRecordsAreBounded) {
  perfio::EventAttr sampler;
  sampler.sample_type = perfio::kSampleAux;
  const std::vector<perfio::EventAttr> attrs{sampler};
  fold_->set_attrs(attrs);
  fold_->limit_copies(64U << 10);
  const std::vector<std::byte> byte(1);
  for (uint64_t i = 0; i < 1000; ++i) feed(perfio::OtherSample{0, {}, byte, true}, 1000 + i, 1, 1, 2);
  finish();
  ASSERT_EQ(data_->streams.size(), 1U);
  EXPECT_GT(data_->streams[0].samples().size(), 100U);
  EXPECT_LT(data_->streams[0].samples().size(), 256U);
  ASSERT_EQ(data_->timeline.findings().size(), 1U);
  EXPECT_NE(data_->timeline.findings()[0].what.find("needs more than 1 GiB of memory"), std::string::npos)
      << data_->timeline.findings()[0].what;
}

TEST_F(Fold, AStreamHasTraceInSamplesOrInAuxtraceRecords) {
  perfio::EventAttr sampler;
  sampler.sample_type = perfio::kSampleAux;
  const std::vector<perfio::EventAttr> attrs{sampler};
  fold_->set_attrs(attrs);
  const std::vector<std::byte> bytes(64, std::byte{2});
  perfio::AuxtraceRecord whole;
  whole.size_bytes = bytes.size();
  whole.cpu = 2;
  whole.payload = bytes;
  feed(whole, 0);
  feed(perfio::OtherSample{0, {}, bytes}, 1000, 1, 1, 2);  // of the same cpu
  feed(perfio::OtherSample{0, {}, bytes}, 2000, 1, 1, 4);
  whole.cpu = 4;
  feed(whole, 0);
  finish();
  ASSERT_EQ(data_->streams.size(), 2U);
  EXPECT_EQ(data_->streams[0].size_bytes(), 64U);
  EXPECT_TRUE(data_->streams[0].samples().empty());
  EXPECT_EQ(data_->streams[1].size_bytes(), 64U);
  EXPECT_EQ(data_->streams[1].samples().size(), 1U);
  const auto& findings = data_->timeline.findings();
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), [](const Finding& finding) { return finding.kind == FindingKind::trace_lost; }),
            1);
}

// What AUXTRACE_INFO says, with what the kernel says of the ring in AUX records: whether the trace is snapshots, and whether that is a
// finding.
TEST_F(Fold, ASnapshotModeThatCannotBeIsAFinding) {
  const std::vector<std::byte> bytes(256, std::byte{0x02});
  struct Case {
    uint64_t word, flags;
    bool has_aux, is_snapshot, is_found;
  };
  std::vector<Case> cases{{0, 0, true, false, false}, {1, 2, true, true, false}, {0, 0, false, false, false},
                          {1, 0, false, true, false}, {1, 0, true, false, true}, {0, 2, true, true, true}};
  for (int bit = 1; bit < 64; ++bit) {
    cases.push_back({uint64_t{1} << bit, 0, true, false, true});
    cases.push_back({uint64_t{1} << bit | 1, 2, true, true, true});
    cases.push_back({uint64_t{1} << bit, 0, false, false, true});
  }
  for (const Case& each : cases) {
    start();
    fold_->set_snapshot_word(each.word);
    if (each.has_aux) feed(perfio::AuxRecord{0, 256, each.flags}, 1000, 10, 10, 2);
    perfio::AuxtraceRecord payload;
    payload.size_bytes = bytes.size();
    payload.cpu = 2;
    payload.payload = bytes;
    feed(payload, 0);
    finish();
    EXPECT_EQ(fold_->is_snapshot(), each.is_snapshot) << each.word << " " << each.flags;
    const auto& findings = data_->timeline.findings();
    EXPECT_EQ(std::ranges::count(findings, FindingKind::bad_record, &Finding::kind), each.is_found ? 1 : 0)
        << each.word << " " << each.flags;
  }
}

}  // namespace
}  // namespace ptd
