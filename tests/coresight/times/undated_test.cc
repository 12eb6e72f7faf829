// cs_etm recordings whose packets have no times, or name no threads: what their AUX records say is used.
#include <gtest/gtest.h>

#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/wire.h"
#include "recording/perf/arm_perf.h"
#include "recording/trace/segments.h"

namespace ptd::test {
namespace {

using Intervals = std::vector<Interval>;
constexpr int32_t kCpu = 0;
constexpr uint64_t kEventId = 5;
constexpr uint8_t kEl0 = 0xb0, kEl1 = 0xb1;  // of a context with an id

/// A recording with one AUX record for each thread, in raw format.
class UndatedPerf {
 public:
  /// A-Sync, Trace Info, an address with a context and its id.
  void trace(int32_t tid, uint64_t time, uint8_t level, uint8_t id) {
    const std::vector<uint8_t> raw{0,    0, 0, 0, 0, 0, 0, 0, 0, 0,     0,  0x80, 0x01, 0x01, 0x00,
                                   0x85, 0, 0, 1, 0, 0, 0, 0, 0, level, id, 0,    0,    0,    0xf7};
    auto& bytes = *payloads_.emplace_back(std::make_unique<std::vector<std::byte>>());
    for (const uint8_t value : raw) bytes.push_back(static_cast<std::byte>(value));
    perfio::Record aux, payload;
    aux.payload = perfio::AuxRecord{at_, bytes.size(), perfio::kAuxFormatRaw};
    aux.sample_id.cpu = kCpu;
    aux.sample_id.pid = aux.sample_id.tid = tid;
    aux.sample_id.has_time = true;
    aux.sample_id.time = time;
    aux.sample_id.id = kEventId;
    arm_.on_record(aux);
    perfio::AuxtraceRecord made;
    made.cpu = kCpu;
    made.offset_bytes = at_;
    made.size_bytes = bytes.size();
    made.payload = bytes;
    payload.payload = made;
    arm_.on_record(payload);
    at_ += bytes.size();
  }
  /// The event whose records have this id is attached to a thread, or (-1) to the cpu.
  void attach(int32_t tid) {
    const std::vector<uint64_t> index{0, 1, kEventId, 0, kCpu, static_cast<uint64_t>(int64_t{tid})};  // ID_INDEX: one event
    perfio::Record record;
    record.type = perfio::kRecordIdIndex;
    record.raw = std::as_bytes(std::span(index));
    arm_.on_record(record);
  }
  /// The file's only event has these flags.
  void set_flags(uint64_t flags) {
    attrs_.assign(1, {});
    attrs_[0].flags = flags;
    arm_.set_attrs(attrs_);
  }
  void start(int32_t cpu, uint64_t time) {
    perfio::Record record;
    record.payload = perfio::ItraceStartRecord{};
    record.sample_id.cpu = cpu;
    record.sample_id.has_time = true;
    record.sample_id.time = time;
    arm_.on_record(record);
  }
  void switches() {
    perfio::Record record;
    record.payload = perfio::SwitchRecord{};
    arm_.on_record(record);
  }
  /// Returns the bounds of the segments, after finish().
  std::vector<Interval> written(bool use_written = true) {
    AuxStream& stream = data.streams.front();
    stream.finish();
    const SegmentIndex index(stream, data.arm.front().config, {});
    SegmentTiming timing;
    timing.use_time = false;
    timing.use_written = use_written;
    std::vector<Interval> written;
    std::vector<std::byte> scratch;
    for (auto entry = index.next(0); entry; entry = index.next(entry->offset_bytes + 1)) {
      const AuxSegment segment = index.segment(*entry, timing, scratch);
      EXPECT_EQ(segment.time, Interval{});
      written.push_back(segment.written);
    }
    return written;
  }
  void finish(uint64_t configr) {
    perfio::AuxtraceInfoRecord record;
    record.type = perfio::kAuxtraceCsEtm;
    record.priv = {2, 1, 0, 0x4040404040404040, kCpu, 8, configr, 0x10, 0x28000ea1, 0x4100f424, 0x488, 0, 0, 1};
    arm_.finish(perfio::parse_etm_info(record), true, data);
  }
  RecordingData data;

 private:
  ArmPerf arm_;
  std::vector<perfio::EventAttr> attrs_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> payloads_;
  uint64_t at_ = 0;
};

TEST(UndatedPerf, AuxRecordsBoundSegments) {
  UndatedPerf made;
  made.trace(7, 1000, kEl0, 7);
  made.trace(8, 2000, kEl0, 8);
  made.finish(0x41);
  EXPECT_EQ(made.data.arm_follow.names, arm::ContextNames::context_id);
  EXPECT_TRUE(made.data.contexts.cpus().empty());
  ASSERT_EQ(made.data.streams.size(), 1U);
  EXPECT_EQ(made.written(), (Intervals{{kTimeMin, TimeNs{1000}}, {TimeNs{1000}, TimeNs{2000}}}));
  EXPECT_EQ(made.written(false), Intervals(2));
}

// The kernel writes ITRACE_START before the trace of a task begins: that of the same cpu, after the AUX record before.
TEST(UndatedPerf, ItraceStartBoundsSegments) {
  UndatedPerf made;
  made.start(kCpu + 1, 400);
  made.start(kCpu, 500);
  made.start(kCpu, 600);
  made.trace(7, 1000, kEl0, 7);
  made.start(kCpu + 1, 1200);
  made.start(kCpu, 1500);
  made.trace(7, 2000, kEl0, 7);
  made.trace(7, 3000, kEl0, 7);
  made.start(kCpu, 3500);
  made.finish(0x41);
  ASSERT_EQ(made.data.streams.size(), 1U);
  EXPECT_EQ(made.written(), (Intervals{{TimeNs{500}, TimeNs{1000}}, {TimeNs{1500}, TimeNs{2000}}, {TimeNs{2000}, TimeNs{3000}}}));
}

// A kernel without CONFIG_PID_IN_CONTEXTIDR: id 0 in user code. In the kernel, it is that of the idle task.
TEST(UndatedPerf, AnIdOfZeroInUserCodeIsNoThread) {
  struct Row {
    uint8_t level, id;
    arm::ContextNames names;
  };
  for (const Row& row :
       {Row{kEl0, 0, arm::ContextNames::none}, Row{kEl1, 0, arm::ContextNames::context_id}, Row{kEl0, 7, arm::ContextNames::context_id}}) {
    UndatedPerf made;
    made.attach(7);
    made.trace(7, 1000, row.level, row.id);
    made.finish(0x41);
    const bool is_none = row.names == arm::ContextNames::none;
    EXPECT_EQ(made.data.arm_follow.names, row.names);
    EXPECT_EQ(made.data.warnings.size(), is_none ? 1U : 0U);
    EXPECT_EQ(made.data.contexts.at_cpu(kCpu, TimeNs{1000}).tid, is_none ? 7 : -1);
  }
}

// Without ids, each task that leaves a cpu writes an AUX record if the event is attached to tasks. That of a whole cpu names the task that
// ran when the ring was read. A task of another name space has no number.
TEST(UndatedPerf, AuxRecordsNameThreads) {
  constexpr uint32_t kTimestamps = 0x800;
  for (const uint32_t configr : {1U, 1U | kTimestamps}) {
    for (const int32_t attached : {7, -1}) {
      UndatedPerf made;
      made.attach(attached);
      made.data.decoder.config.time.time_mult = 1;
      made.data.contexts.add_switch(kCpu, TimeNs{1}, {.pid = 6, .tid = 6});  // of ITRACE_START
      made.trace(7, 1000, kEl0, 0);
      made.trace(8, 2000, kEl0, 0);
      made.trace(0, 3000, kEl0, 0);
      made.finish(configr);
      EXPECT_TRUE(made.data.warnings.empty());
      std::vector<std::pair<uint64_t, int32_t>> threads;
      for (const auto& change : made.data.contexts.switches(kCpu)) threads.emplace_back(change.time.value, change.to.tid);
      EXPECT_EQ(threads, attached < 0 ? decltype(threads)() : (decltype(threads){{1, 6}, {2, 7}, {1001, 8}, {2001, -1}}));
      const bool by_aux = attached > 0 && (configr & kTimestamps) != 0;
      EXPECT_EQ(made.data.arm_follow.names, by_aux ? arm::ContextNames::aux_records : arm::ContextNames::none);
    }
  }
}

// Old versions of perf write no ID_INDEX.
TEST(UndatedPerf, WithoutIdIndexAnEventThatStartsAProgramIsOfItsTasks) {
  constexpr uint64_t kInherit = 1U << 1, kEnableOnExec = 1U << 12;
  for (const uint64_t flags : {kInherit, kInherit | kEnableOnExec}) {
    for (const bool is_of_cpus : {false, true}) {
      UndatedPerf made;
      made.set_flags(flags);
      if (is_of_cpus) made.attach(-1);
      made.data.contexts.add_switch(kCpu, TimeNs{1}, {.pid = 6, .tid = 6});  // of ITRACE_START
      made.trace(7, 1000, kEl0, 0);
      made.finish(1);
      EXPECT_EQ(made.data.contexts.at_cpu(kCpu, TimeNs{1000}).tid, flags == kInherit || is_of_cpus ? -1 : 7);
    }
  }
}

// Records of switches are better where the trace has times.
TEST(UndatedPerf, AuxRecordsNameNoThreadsBesidesSwitches) {
  UndatedPerf made;
  made.attach(7);
  made.data.decoder.config.time.time_mult = 1;
  made.switches();
  made.trace(7, 1000, kEl0, 0);
  made.finish(0x801);
  EXPECT_EQ(made.data.arm_follow.names, arm::ContextNames::none);
  EXPECT_TRUE(made.data.contexts.cpus().empty());
}

}  // namespace
}  // namespace ptd::test
