// Timestamps with a wrong bit, in traces written by hand: the times that are used are those that the trace was written with, or keep the
// order of those around them, and a finding names what contradicts them. Clocks that jump for another reason are left alone.
#include "decoder/arm/packet/timestamps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <random>

#include "decoder/arm/decoder.h"
#include "image/source/code_bytes.h"
#include "ptdecode/timeline_builder.h"
#include "recording/trace/clock_survey.h"
#include "recording/trace/timestamp_findings.h"

namespace ptd::test {
namespace {

constexpr uint64_t kBase = 0x10000;
constexpr size_t kSegments = 8, kPartials = 40;

/// A timestamp packet and its true time.
struct TruePacket {
  uint64_t offset = 0, time = 0;
  unsigned bytes = 0;  ///< of the time
};

/// A trace of a loop with timestamps. Full ones follow each A-Sync, the others have the bytes that changed ([ETMv4] "Timestamp instruction
/// trace packet").
struct Written {
  std::vector<std::byte> bytes;
  std::vector<TruePacket> stamps;
  uint64_t last = 0;

  void put(std::initializer_list<unsigned> values) {
    for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  }
  void stamp(uint64_t time, bool full) {
    unsigned count = 1;
    while (count < 9 && (full || (time ^ last) >> (7 * count) != 0)) ++count;
    stamps.push_back({bytes.size(), time, count});
    put({0x02});
    for (unsigned i = 0; i < count; ++i) {
      const uint64_t part = time >> (7 * i);
      put({static_cast<unsigned>(i == 8 ? part & 0xff : (part & 0x7f) | (i + 1 < count ? 0x80U : 0U))});
    }
    last = time;
  }
};

/// `offset_of`: added to the clock from that packet on, as for a guest.
Written write(
    unsigned seed, const std::function<uint64_t(size_t segment, size_t i)>& offset_of = [](size_t, size_t) { return 0; }) {
  std::mt19937_64 random(seed);
  Written out;
  uint64_t time = 0x1eac760689e6;
  for (size_t segment = 0; segment < kSegments; ++segment) {
    out.put({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00});
    time += 1 + random() % 3000;
    out.stamp(time + offset_of(segment, 0), true);
    if (segment == 0) out.put({0x04});
    out.put({0x85, 0x00, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x30});
    for (size_t i = 1; i <= kPartials; ++i) {
      out.put({0xf7, 0xf7});
      time += 1 + random() % (random() % 10 == 0 ? 300'000 : 3000);
      out.stamp(time + offset_of(segment, i), false);
    }
  }
  return out;
}

arm::TraceConfig config_with_time() {
  arm::TraceConfig config;
  config.protocol = arm::Protocol::etmv4;
  config.configr = 0x800;
  return config;
}

TimeConversion one_to_one() {
  TimeConversion time;
  time.time_mult = 1;
  return time;
}

/// What a reader of the trace gets.
struct Read {
  std::map<uint64_t, std::optional<uint64_t>> times;  ///< by offset; empty: not used
  std::vector<Finding> findings;
  size_t unused() const {
    return static_cast<size_t>(std::count_if(times.begin(), times.end(), [](const auto& stamp) { return !stamp.second; }));
  }
};

class Index {
 public:
  /// `written`: time of an AUX record at the end, 0: none.
  explicit Index(const std::vector<std::byte>& bytes, uint64_t written = 0) {
    pt::Config clock;
    if (written != 0) clock.time = timing_.time = one_to_one();
    stream_.cpu = 0;
    stream_.add_payload(0, bytes.size(), bytes, false);
    if (written != 0) stream_.add_written(bytes.size(), TimeNs{written});
    stream_.finish();
    index_.emplace(stream_, config_with_time(), nullptr);
    ClockSurvey survey(clock, 1, false);
    index_->sample(
        SIZE_MAX, [&](const PsbEntry& entry) { survey.add(0, stream_, entry); }, nullptr);
    index_->set_clock(survey.clock_of(0, stream_, *index_));
  }
  template <typename Take>
  void segments(const Take& take) const {
    std::vector<std::byte> scratch;
    for (auto entry = index_->next(0); entry; entry = index_->next(entry->offset_bytes + 1))
      take(index_->segment(*entry, timing_, scratch));
  }
  [[nodiscard]] Read read() const {
    Read out;
    segments([&](const AuxSegment& segment) {
      const auto check = arm::check_timestamps(segment.bytes, config_with_time(), segment.timestamps, segment.tsc.use);
      arm::PacketReader reader(segment.bytes, config_with_time());
      reader.set_repairs(check.repairs);
      arm::Packet packet;
      for (uint64_t at = 0; reader.next(packet) == arm::PacketReader::Status::ok; at = reader.offset()) {
        if (packet.kind != arm::PacketKind::timestamp) continue;
        auto& time = out.times[segment.stream_offset_bytes + at];
        if ((packet.flags & arm::kFlagNoTime) == 0) time = packet.value;
      }
    });
    out.findings = clock_findings(stream_, *index_, timing_, [](uint64_t) {});
    for (Finding& finding : timestamp_findings(stream_, *index_, timing_, config_with_time(), [](uint64_t) {}))
      out.findings.push_back(finding);
    return out;
  }

 private:
  AuxStream stream_;
  std::optional<SegmentIndex> index_;
  SegmentTiming timing_;
};

/// Times in order of the packets as a reader without checks gets them.
bool goes_back(const std::vector<std::byte>& bytes) {
  arm::PacketReader reader(bytes, config_with_time());
  arm::Packet packet;
  uint64_t before = 0;
  while (reader.next(packet) == arm::PacketReader::Status::ok) {
    if (packet.kind == arm::PacketKind::timestamp && packet.value < std::exchange(before, packet.value)) return true;
  }
  return false;
}

/// Flips `bit` of the time in packet `stamp`, not one of the bits that say whether another byte follows.
std::vector<std::byte> flipped(const Written& trace, const TruePacket& stamp, unsigned bit) {
  std::vector<std::byte> bytes = trace.bytes;
  const unsigned byte = std::min(bit / 7, 8U);
  bytes[stamp.offset + 1 + byte] ^= std::byte{1} << (bit - 7 * byte);
  return bytes;
}
unsigned bits_of(const TruePacket& stamp) { return stamp.bytes == 9 ? 64 : 7 * stamp.bytes; }

/// The times used keep the order of the trace, but for those of a full packet: a segment does not know the last time of the segment before
/// it.
void expect_ordered(const Written& trace, const Read& read, const std::string& what) {
  ASSERT_EQ(read.times.size(), trace.stamps.size()) << what;
  uint64_t before = 0, full_before = 0;
  for (size_t i = 0; i < trace.stamps.size(); ++i) {
    const auto& time = read.times.at(trace.stamps[i].offset);
    if (!time) continue;
    const bool full = i % (kPartials + 1) == 0;
    EXPECT_GE(*time, full ? full_before : before) << what << ", packet " << i;
    before = *time;
    if (full) full_before = before;
  }
  EXPECT_LE(before, trace.stamps.back().time) << what;
}

TEST(ArmTimestamps, UndamagedOnesAreRight) {
  for (unsigned seed = 1; seed < 20; ++seed) {
    const Written trace = write(seed);
    for (const uint64_t written : {uint64_t{0}, trace.last + 1000}) {
      const Read read = Index(trace.bytes, written).read();
      EXPECT_TRUE(read.findings.empty());
      for (const TruePacket& stamp : trace.stamps) EXPECT_EQ(read.times.at(stamp.offset), stamp.time);
    }
  }
}

// A bit of more ticks than lie between two A-Syncs, forward and back: corrected, except at the beginning, where nothing says how far back
// it is wrong, and at the end, where the AUX record does.
TEST(ArmTimestamps, AHighBitOfAFullOne) {
  const Written trace = write(1);
  for (size_t segment = 0; segment < kSegments; ++segment) {
    const TruePacket& stamp = trace.stamps[segment * (kPartials + 1)];
    ASSERT_EQ(stamp.bytes, 9U);
    for (unsigned bit = 28; bit < 64; ++bit) {
      const std::string what = "segment " + std::to_string(segment) + ", bit " + std::to_string(bit);
      const bool back = (stamp.time >> bit & 1) != 0;
      if (segment == 0 && back) continue;  // nothing is before it
      const Read read = Index(flipped(trace, stamp, bit), trace.last + 1000).read();
      ASSERT_EQ(read.findings.size(), 1U) << what;
      EXPECT_EQ(read.findings[0].kind, FindingKind::clock_contradicts);
      for (const TruePacket& each : trace.stamps) {
        const auto& time = read.times.at(each.offset);
        if (segment == 0 && !time) continue;
        EXPECT_EQ(time, each.time) << what << ", packet at " << each.offset;
      }
      EXPECT_LE(read.unused(), segment == 0 ? kPartials + 1 : 0) << what;
    }
  }
}

// Any bit of any packet. One whose time is in order with a wrong bit, too, cannot be found.
TEST(ArmTimestamps, AnyBitOfAnyPacket) {
  size_t found = 0, corrected = 0;
  for (unsigned seed = 1; seed < 4; ++seed) {
    const Written trace = write(seed);
    for (size_t i = 1; i < trace.stamps.size(); ++i) {
      const TruePacket& stamp = trace.stamps[i];
      for (unsigned bit = 0; bit < bits_of(stamp); ++bit) {
        const std::vector<std::byte> bytes = flipped(trace, stamp, bit);
        const std::string what = "seed " + std::to_string(seed) + ", packet " + std::to_string(i) + " bit " + std::to_string(bit);
        const bool last_segment = i + kPartials >= trace.stamps.size();
        const Read read = Index(bytes, trace.last + 1000).read();
        if (!last_segment) expect_ordered(trace, read, what);
        if (!read.findings.empty()) {
          ++found;
          corrected += read.unused() == 0 ? 1 : 0;
          continue;
        }
        EXPECT_FALSE(goes_back(bytes)) << what;
      }
    }
  }
  EXPECT_GT(found, 3000U);
  EXPECT_GT(corrected, 1000U);
}

// A guest's virtual counter has an offset: the time jumps at any packet, and back.
TEST(ArmTimestamps, AClockWithAnotherOffsetIsNotDamage) {
  for (const uint64_t offset : {uint64_t{0x5123456789}, ~uint64_t{0x5123456789} + 1, uint64_t{987'654'321}, ~uint64_t{987'654'321} + 1}) {
    for (const size_t period : {3U, 17U, 60U, 150U}) {
      const auto offset_of = [&](size_t segment, size_t i) { return (segment * (kPartials + 1) + i) / period % 2 == 0 ? 0 : offset; };
      const Written trace = write(2, offset_of);
      const Read read = Index(trace.bytes).read();
      for (const Finding& finding : read.findings)
        ADD_FAILURE() << finding.what << ", offset " << std::hex << offset << std::dec << ", every " << period;
      for (const TruePacket& stamp : trace.stamps) EXPECT_EQ(read.times.at(stamp.offset), stamp.time);
    }
  }
}

// A trace unit without a timestamp writes 0.
TEST(ArmTimestamps, ZeroIsNoTime) {
  Written trace;
  trace.put({0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00});
  for (const uint64_t time : {0x123456, 0, 0x123556, 0x123656, 0, 0, 0x123756}) trace.stamp(time, true);
  const Read read = Index(trace.bytes).read();
  EXPECT_TRUE(read.findings.empty());
  EXPECT_EQ(read.unused(), 0U);
}

// The marks of the decoder have the times of the undamaged trace.
TEST(ArmTimestamps, TheDecoderUsesRightTimes) {
  TimelineBuilder builder;
  Section section;
  section.space = builder.add_space();
  section.ip = Ip{kBase};
  const uint32_t loop = 0x14000000;  // b .
  const auto raw = std::as_bytes(std::span(&loop, 1));
  const std::vector<std::byte> code(raw.begin(), raw.end());
  section.code = own_bytes(code);
  section.size_bytes = code.size();
  const SpaceId space = section.space;
  builder.add_section(std::move(section));
  const Timeline timeline = builder.build();
  const ContextTrack contexts;
  const Written trace = write(3);
  const auto times_of = [&](const std::vector<std::byte>& bytes, uint32_t speculation) {
    arm::DecoderOptions options;
    options.config = config_with_time();
    options.config.idr8 = speculation;
    options.follow.default_space = space;
    arm::Decoder decoder(timeline, contexts, options);
    std::vector<std::pair<uint64_t, uint64_t>> times;
    Index(bytes).segments([&](const AuxSegment& segment) {
      decoder.begin(segment);
      Batch batch;
      for (bool more = true; more;) {
        batch.clear();
        more = decoder.next(batch);
        for (const Mark& mark : batch.marks) times.emplace_back(mark.time.first.value, mark.time.last.value);
      }
    });
    return times;
  };
  for (const uint32_t speculation : {0U, 4U}) {
    const auto want = times_of(trace.bytes, speculation);
    EXPECT_GT(want.size(), kSegments * kPartials / 2);
    const TruePacket& full = trace.stamps[3 * (kPartials + 1)];
    for (const unsigned bit : {30U, 36U, 43U, 44U, 56U, 63U}) {
      const auto got = times_of(flipped(trace, full, bit), speculation);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < want.size(); ++i) {
        EXPECT_LE(got[i].first, want[i].first) << bit;  // until the timestamp, that of the segment before
        EXPECT_GE(got[i].second, want[i].second) << bit;
        EXPECT_TRUE(got[i] == want[i] || got[i].first != got[i].second) << bit;  // bounds of a segment
      }
      EXPECT_LE(std::inner_product(got.begin(), got.end(), want.begin(), 0, std::plus<>(), std::not_equal_to<>()), 2) << bit;
    }
  }
}

}  // namespace
}  // namespace ptd::test
