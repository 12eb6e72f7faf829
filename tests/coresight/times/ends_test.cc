// ArmEnds: the times of cs_etm recordings from the ends of their rings.
#include <gtest/gtest.h>

#include <array>

#include "perfio/format/wire.h"
#include "perfio/perf_writer.h"
#include "ptdecode/survey.h"
#include "recording/arm_ends.h"
#include "tests/coresight/support/folder.h"

namespace ptd::test {
namespace {

constexpr uint64_t kTimestamps = 1U << 11;  // of TRCCONFIGR

TimeConversion times_are_ticks() {
  TimeConversion time;
  time.time_mult = 1;
  return time;
}

/// Returns trace with a sync point for each timestamp, `size` bytes apart.
std::vector<std::byte> trace_with(const std::vector<uint8_t>& timestamps, size_t size) {
  std::vector<std::byte> bytes;
  for (const uint8_t timestamp : timestamps) {  // A-Sync, Trace Info, Timestamp, an address with a context and its id, Atoms
    std::vector<uint8_t> raw{0,         0,    0, 0, 0, 0, 0, 0, 0, 0, 0,    0x80, 0x01, 0x01, 0x00, 0x02,
                             timestamp, 0x85, 0, 0, 1, 0, 0, 0, 0, 0, 0xb0, 7,    0,    0,    0};
    raw.resize(size, 0xf7);
    for (const uint8_t value : raw) bytes.push_back(static_cast<std::byte>(value));
  }
  return bytes;
}

/// Describes two cpus. `clock`: TS_SOURCE; 1: the kernel's virtual counter.
perfio::AuxtraceInfoRecord info_of_cpus(uint64_t clock) {
  perfio::AuxtraceInfoRecord record;
  record.type = perfio::kAuxtraceCsEtm;
  record.priv = {2, 2, 0};
  for (const uint64_t cpu : {0, 1}) {
    for (const uint64_t word : {uint64_t{0x4040404040404040}, cpu, uint64_t{8}, kTimestamps | 0x41, cpu + 0x10, uint64_t{0x28000ea1},
                                uint64_t{0x4100f424}, uint64_t{0x488}, uint64_t{0}, uint64_t{0}, clock})
      record.priv.push_back(word);
  }
  return record;
}

/// A recording of two cpus with one AUX record for each payload, in raw format.
class EndsPerf {
 public:
  void trace(int32_t cpu, const std::vector<uint8_t>& timestamps, size_t size) {
    const auto& bytes = *payloads_.emplace_back(std::make_unique<std::vector<std::byte>>(trace_with(timestamps, size)));
    uint64_t& at = at_[static_cast<size_t>(cpu)];
    perfio::AuxtraceRecord made;
    made.cpu = cpu;
    made.offset_bytes = at;
    made.size_bytes = bytes.size();
    made.payload = bytes;
    add(perfio::AuxRecord{at, bytes.size(), perfio::kAuxFormatRaw}, cpu);
    add(made, cpu);
    at += bytes.size();
  }
  std::vector<ArmEnds::StreamTime> times(uint64_t clock) {
    return ends_.times(perfio::parse_etm_info(info_of_cpus(clock)), times_are_ticks());
  }

 private:
  template <typename Payload>
  void add(Payload payload, int32_t cpu) {
    perfio::Record record;
    record.payload = std::move(payload);
    record.sample_id.cpu = cpu;
    ends_.on_record(record);
  }
  ArmEnds ends_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> payloads_;
  std::array<uint64_t, 2> at_{};  // of each cpu
};

TEST(ArmEnds, AreThoseOfEachRing) {
  EndsPerf made;
  made.trace(0, {10, 11}, 64);
  made.trace(1, {20}, 64);
  made.trace(0, {12}, 64);
  made.trace(0, {13, 14}, 64);
  const std::vector<ArmEnds::StreamTime> times = made.times(1);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].cpu, 0);
  EXPECT_EQ(times[0].time, (Interval{TimeNs{10}, TimeNs{14}}));
  EXPECT_EQ(times[1].cpu, 1);
  EXPECT_EQ(times[1].time, (Interval{TimeNs{20}, TimeNs{20}}));
}

TEST(ArmEnds, OfOneLargePayload) {
  EndsPerf made;
  made.trace(0, {10, 11, 12, 13, 14}, ArmEnds::kEndBytes - 56);
  const std::vector<ArmEnds::StreamTime> times = made.times(1);
  ASSERT_EQ(times.size(), 1U);
  EXPECT_EQ(times[0].time, (Interval{TimeNs{10}, TimeNs{14}}));
}

TEST(ArmEnds, AreUnknownWithoutTheKernelsClock) {
  EndsPerf made;
  made.trace(0, {10, 11}, 64);
  EXPECT_TRUE(made.times(0).empty());
}

// The only AUX record of a stream comes at its end.
TEST(ArmEnds, DateTheStreamsOfASurvey) {
  const Folder folder;
  const std::string path = folder.path() + "/perf.data";
  perfio::EventAttr attr;
  attr.sample_type = perfio::kSampleTid | perfio::kSampleTime | perfio::kSampleCpu | perfio::kSampleIdentifier;
  attr.sample_id_all = true;
  attr.ids = {1};
  auto writer = perfio::PerfWriter::create(path, {{attr}, false, 0});
  ASSERT_TRUE(writer.ok());
  perfio::TimeConvRecord conversion;
  conversion.time_mult = 1;
  const std::vector<std::byte> bytes = trace_with({10, 11, 12}, 64);
  perfio::RecordContext context;
  context.sample_id = {7, 8, 100, true, 0, 1, 0};
  perfio::AuxtraceRecord trace;
  trace.cpu = 0;
  trace.payload = bytes;
  EXPECT_TRUE((*writer)->add_auxtrace_info(info_of_cpus(1)).ok());
  EXPECT_TRUE((*writer)->add_time_conv(conversion).ok());
  EXPECT_TRUE((*writer)->add_aux({0, bytes.size(), perfio::kAuxFormatRaw}, context).ok());
  EXPECT_TRUE((*writer)->add_auxtrace(trace).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  OpenOptions options;
  options.path = path;
  const auto surveyed = survey(options);
  ASSERT_TRUE(surveyed.ok()) << surveyed.error().message;
  ASSERT_EQ(surveyed->streams.size(), 1U);
  EXPECT_EQ(surveyed->streams[0].time, (Interval{TimeNs{10}, TimeNs{100}}));
  EXPECT_EQ(surveyed->time, (Interval{TimeNs{10}, TimeNs{100}}));
}

}  // namespace
}  // namespace ptd::test
