// data/demo as recorded by a processor whose TSC has more than the 56 bits of a TSC packet, or gets more within the recording: flow,
// threads and times are those of data/demo.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ptdecode/bundle.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"
#include "ptdecode/recording.h"
#include "recording/perf/perf_time.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

constexpr uint32_t kInfo = 70, kTraceRecord = 71, kConversion = 79;
constexpr size_t kInfoClock = 24, kConversionClock = 8;  // shift, mult and zero of AUXTRACE_INFO and TIME_CONV
constexpr size_t kReference = 24;
constexpr size_t kTscBytes = 8;
constexpr uint64_t kWrap = uint64_t{1} << 56;

std::string demo_path() { return std::string(PTD_SOURCE_DIR) + "/data/demo"; }

std::unique_ptr<Recording> opened(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.build_id_cache = "/nonexistent";
  auto recording = Recording::open(options);
  EXPECT_TRUE(recording.ok());
  return recording.ok() ? std::move(*recording) : nullptr;
}

struct Executed {
  uint64_t ip = 0;
  uint16_t flags = 0;
  int32_t tid = -1;
  Interval time;
};

std::vector<Executed> executed(const Recording& recording, uint32_t stream) {
  std::vector<Executed> blocks;
  const Status status = recording.decode_parallel(stream, 0, Recording::kStreamEnd, 1,
                                                  [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& /*segment*/) {
                                                    EXPECT_TRUE(batch.gaps.empty());
                                                    size_t mark = 0;
                                                    for (size_t i = 0; i < batch.blocks.size(); ++i) {
                                                      while (mark < batch.marks.size() && batch.marks[mark].before_block <= i) ++mark;
                                                      Executed block = mark == 0 && !blocks.empty() ? blocks.back() : Executed{};
                                                      if (mark != 0) block = {0, 0, batch.marks[mark - 1].tid, batch.marks[mark - 1].time};
                                                      block.ip = decoder.blocks().info(batch.blocks[i].node).ip.value;
                                                      block.flags = batch.blocks[i].flags;
                                                      blocks.push_back(block);
                                                    }
                                                    return true;
                                                  });
  EXPECT_TRUE(status.ok());
  return blocks;
}

class TscBits : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(demo_path() + "/data", std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(file), {}};
    std::filesystem::copy(demo_path() + "/kcore_dir", dir_.path() + "/kcore_dir", std::filesystem::copy_options::recursive);
    whole_ = opened(demo_path());
    ASSERT_TRUE(whole_);
  }
  [[nodiscard]] uint64_t number(uint64_t at, size_t size = 8) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at, size);
    return value;
  }
  void add(uint64_t at, uint64_t value) {
    const uint64_t sum = number(at) + value;
    std::memcpy(bytes_.data() + at, &sum, sizeof(sum));
  }
  template <typename Visit>
  void each_record(const Visit& visit) {
    for (uint64_t at = number(40), end = at + number(48); at + 8 <= end;) {
      const auto type = static_cast<uint32_t>(number(at, 4));
      const uint64_t header = number(at + 6, 2), payload = type == kTraceRecord ? number(at + 8) : 0;
      visit(type, at, at + header, payload);
      at += header + payload;
    }
  }
  /// The TSC in the middle of the recording.
  [[nodiscard]] uint64_t middle() const {
    const TimeConversion& time = whole_->decoder_options().config.time;
    Interval all = whole_->streams()[0].time;
    return time.to_tsc(TimeNs{all.first.value + (all.last.value - all.first.value) / 2}).value;
  }
  /// Makes the processor's TSC `ticks` later, at the same times.
  void move_tsc(uint64_t ticks) {
    const auto move_clock = [&](uint64_t at) {
      const auto ns = static_cast<uint64_t>(static_cast<unsigned __int128>(ticks) * number(at + 8) >> number(at));
      add(at + 16, 0 - ns);
    };
    each_record([&](uint32_t type, uint64_t at, uint64_t trace, uint64_t size) {
      if (type == kInfo) move_clock(at + kInfoClock);
      if (type == kConversion) move_clock(at + kConversionClock);
      if (type != kTraceRecord) return;
      add(at + kReference, ticks);
      move_packets(trace, size, ticks);
    });
  }
  void open() {
    std::ofstream(dir_.path() + "/data", std::ios::binary) << bytes_;
    moved_ = opened(dir_.path());
    ASSERT_TRUE(moved_);
  }
  void expect_same(const Recording& moved) const {
    EXPECT_TRUE(moved.findings().empty()) << moved.findings()[0].what;
    ASSERT_EQ(moved.streams().size(), whole_->streams().size());
    for (uint32_t i = 0; i < moved.streams().size(); ++i) {
      const std::vector<Executed> is = executed(moved, i), was = executed(*whole_, i);
      ASSERT_EQ(is.size(), was.size());
      for (size_t k = 0; k < is.size(); ++k) {
        ASSERT_TRUE(is[k].ip == was[k].ip && is[k].flags == was[k].flags && is[k].tid == was[k].tid) << k;
        ASSERT_LE(is[k].time.first.value - was[k].time.first.value + 2, 4U) << k;
        ASSERT_LE(is[k].time.last.value - was[k].time.last.value + 2, 4U) << k;
      }
    }
  }
  [[nodiscard]] const std::string& path() const { return dir_.path(); }
  std::unique_ptr<Recording> whole_, moved_;

 private:
  void move_packets(uint64_t trace, uint64_t size, uint64_t ticks) {
    const Bytes bytes{reinterpret_cast<const std::byte*>(bytes_.data()) + trace, size};
    pt::PacketReader reader(bytes);
    pt::Packet packet;
    for (uint64_t at = 0; reader.next(packet) == pt::PacketReader::Status::ok; at = reader.offset()) {
      if (packet.kind != pt::PacketKind::tsc) continue;
      const uint64_t value = (packet.value + ticks) << 8 | 0x19;
      std::memcpy(bytes_.data() + trace + at, &value, kTscBytes);
    }
  }
  image_test::TempDir dir_;
  std::string bytes_;
};

TEST_F(TscBits, MoreThanAPacketHas) {
  for (const uint64_t wraps : {1U, 5U}) {
    SCOPED_TRACE(wraps);
    move_tsc(wraps * kWrap);
    open();
    expect_same(*moved_);
  }
}

TEST_F(TscBits, TheyWrapWithinTheRecording) {
  for (const uint64_t from : {uint64_t{0}, kWrap}) {
    SCOPED_TRACE(from);
    move_tsc(from != 0 ? kWrap : kWrap - middle());
    open();
    expect_same(*moved_);
  }
}

TEST_F(TscBits, ABundleKeepsThem) {
  move_tsc(kWrap);
  open();
  OpenOptions options;
  options.path = path();
  BundleOptions bundle;
  bundle.output_path = path() + "/moved.ptd";
  ASSERT_TRUE(write_bundle(options, bundle).ok());
  const auto read = opened(bundle.output_path);
  ASSERT_TRUE(read);
  expect_same(*read);
}

// A payload with one TSC, and its record. Without records that have a time, the reference tells the upper bits, if it is a TSC.
TEST(TscReference, GivesTheUpperBits) {
  TimeConversion time;
  time.time_shift = 10;
  time.time_mult = 1024;  // ticks are nanoseconds
  std::vector<std::byte> trace;
  pt::PacketWriter writer(trace);
  writer.psb();
  writer.tsc(5000);
  writer.psbend();
  for (const auto& [reference, want] : {std::pair(3 * kWrap + 7000, 3 * kWrap + 5000), std::pair(kWrap - 7, kWrap + 5000),
                                        std::pair(3 * kWrap + kWrap / 3, uint64_t{5000}), std::pair(uint64_t{1}, uint64_t{5000})}) {
    perfio::AuxtraceRecord payload;
    payload.reference = reference;
    payload.payload = trace;
    perfio::Record record;
    record.payload = payload;
    ClockWitness witness;
    witness.on_record(record);
    EXPECT_EQ(witness.for_packets(time).to_ns(Tsc{5000}).value, want) << reference;
  }
}

}  // namespace
}  // namespace ptd
