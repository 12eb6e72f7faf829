// ArmEnds: the times of cs_etm recordings from the ends of their rings.
#include <gtest/gtest.h>

#include <array>

#include "recording/arm_ends.h"

namespace ptd::test {
namespace {

constexpr uint64_t kTimestamps = 1U << 11;  // of TRCCONFIGR

TimeConversion times_are_ticks() {
  TimeConversion time;
  time.time_mult = 1;
  return time;
}

/// A recording of two cpus with one AUX record for each payload, in raw format.
class EndsPerf {
 public:
  /// Adds a payload with a sync point for each timestamp, `size` bytes apart.
  void trace(int32_t cpu, const std::vector<uint8_t>& timestamps, size_t size) {
    auto& bytes = *payloads_.emplace_back(std::make_unique<std::vector<std::byte>>());
    for (const uint8_t timestamp : timestamps) {  // A-Sync, Trace Info, Timestamp, an address with a context and its id, Atoms
      std::vector<uint8_t> raw{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x02, timestamp, 0x85, 0, 0, 1, 0, 0, 0, 0, 0, 0xb0, 7, 0, 0, 0};
      raw.resize(size, 0xf7);
      for (const uint8_t value : raw) bytes.push_back(static_cast<std::byte>(value));
    }
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
  /// `clock`: TS_SOURCE; 1: the kernel's virtual counter.
  std::vector<ArmEnds::StreamTime> times(uint64_t clock) {
    perfio::AuxtraceInfoRecord record;
    record.type = perfio::kAuxtraceCsEtm;
    record.priv = {2, 2, 0};
    for (const uint64_t cpu : {0, 1}) {
      for (const uint64_t word : {uint64_t{0x4040404040404040}, cpu, uint64_t{8}, kTimestamps | 0x41, cpu + 0x10, uint64_t{0x28000ea1}, uint64_t{0x4100f424},
                                  uint64_t{0x488}, uint64_t{0}, uint64_t{0}, clock})
        record.priv.push_back(word);
    }
    return ends_.times(perfio::parse_etm_info(record), times_are_ticks());
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

}  // namespace
}  // namespace ptd::test
