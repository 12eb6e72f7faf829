// Moved TSC packets and damaged clock records of data/demo: each is reported, and flow and times are those of the undamaged recording.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/recording.h"
#include "recording/data/miscounts.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

constexpr size_t kPsbBytes = 16, kTscBytes = 8;

std::string demo() { return std::string(PTD_SOURCE_DIR) + "/data/demo"; }

/// The instructions of a stream with their decoded times.
struct Told {
  struct Run {
    uint64_t ip = 0;
    uint16_t instructions = 0, flags = 0;
    Interval time;
    uint64_t segment = 0;  ///< its offset in the stream
    int32_t tid = -1;
    bool same(const Run& other) const { return ip == other.ip && instructions == other.instructions; }
  };
  std::vector<Run> runs;
  uint64_t gaps = 0;
};

/// The number at an offset of a file.
template <class T, class Content>
T number_at(const Content& content, uint64_t at) {
  T value{};
  std::memcpy(&value, content.data() + at, sizeof value);
  return value;
}

Told decode(const Recording& recording, uint32_t stream, unsigned threads = 1) {
  Told told;
  const Status status = recording.decode_parallel(
      stream, 0, Recording::kStreamEnd, threads, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment& segment) {
        size_t mark = 0;
        for (size_t i = 0; i < batch.blocks.size(); ++i) {
          while (mark < batch.marks.size() && batch.marks[mark].before_block <= i) ++mark;
          const Block& block = batch.blocks[i];
          const Interval time = mark != 0 ? batch.marks[mark - 1].time : told.runs.empty() ? Interval{} : told.runs.back().time;
          const int32_t tid = mark != 0 ? batch.marks[mark - 1].tid : told.runs.empty() ? -1 : told.runs.back().tid;
          told.runs.push_back(
              {decoder.blocks().info(block.node).ip.value, block.instructions, block.flags, time, segment.stream_offset_bytes, tid});
        }
        told.gaps += batch.gaps.size();
        return true;
      });
  EXPECT_TRUE(status.ok());
  return told;
}

std::unique_ptr<Recording> open_at(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.build_id_cache = "/nonexistent";
  auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? std::move(*opened) : nullptr;
}

/// data/demo in memory, and the trace of one cpu in it.
class Damaged {
 public:
  explicit Damaged(int32_t cpu) {
    const std::string path = demo() + "/data";
    bytes_.resize(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    constexpr uint32_t kAuxtrace = 71;
    const auto data = number_at<uint64_t>(bytes_, 40), size = number_at<uint64_t>(bytes_, 48);
    for (uint64_t at = data; at + 8 <= data + size;) {
      const auto record_bytes = number_at<uint16_t>(bytes_, at + 6);
      const uint64_t payload = number_at<uint32_t>(bytes_, at) == kAuxtrace ? number_at<uint64_t>(bytes_, at + 8) : 0;
      if (payload != 0 && number_at<int32_t>(bytes_, at + 40) == cpu) find_psbs(at + record_bytes, at + record_bytes + payload);
      at += record_bytes + payload;
    }
  }

  [[nodiscard]] size_t segments() const { return psbs_.size(); }
  /// Moves the TSC of segment `i`'s PSB+.
  void move_tsc(size_t i, int64_t ticks) {
    std::byte* tsc = bytes_.data() + psbs_[i] + kPsbBytes;
    ASSERT_EQ(*tsc, std::byte{0x19});
    uint64_t value = 0;
    std::memcpy(&value, tsc, kTscBytes);
    value = ((value >> 8) + static_cast<uint64_t>(ticks)) << 8 | 0x19;
    std::memcpy(tsc, &value, kTscBytes);
  }
  /// Replaces the TSC of segment `i`'s PSB+ by PADs.
  void remove_tsc(size_t i) {
    std::byte* tsc = bytes_.data() + psbs_[i] + kPsbBytes;
    ASSERT_EQ(*tsc, std::byte{0x19});
    std::fill_n(tsc, kTscBytes, std::byte{});
  }
  /// Flips a bit of the MTC packet `number` of segment `i`. Returns its distance from the PSB; 0: the segment has fewer.
  [[nodiscard]] uint64_t flip_mtc(size_t i, size_t number, unsigned bit) {
    const Bytes trace = Bytes(bytes_).subspan(psbs_[i], (i + 1 < psbs_.size() ? psbs_[i + 1] : bytes_.size()) - psbs_[i]);
    pt::PacketReader reader(trace);
    pt::Packet packet;
    for (uint64_t at = 0; reader.next(packet) == pt::PacketReader::Status::ok; at = reader.offset()) {
      if (packet.kind != pt::PacketKind::mtc || number-- != 0) continue;
      bytes_[psbs_[i] + at + 1] ^= static_cast<std::byte>(1U << bit);
      return at;
    }
    return 0;
  }
  /// Sets a bit of the FastCounter of segment `i`'s TMA. Returns its distance from the PSB.
  [[nodiscard]] uint64_t flip_tma(size_t i, unsigned bit) {
    constexpr size_t kFastCounter = 5;
    pt::PacketReader reader(Bytes(bytes_).subspan(psbs_[i]));
    pt::Packet packet;
    uint64_t at = 0;
    for (; reader.next(packet) == pt::PacketReader::Status::ok && packet.kind != pt::PacketKind::tma; at = reader.offset()) {
    }
    bytes_[psbs_[i] + at + kFastCounter + bit / 8] |= static_cast<std::byte>(1U << bit % 8);
    return at;
  }
  /// Writes the recording to a folder and opens it.
  [[nodiscard]] std::unique_ptr<Recording> open() const {
    dir_.write("data", Bytes(bytes_));
    std::filesystem::copy(demo() + "/kcore_dir", path() + "/kcore_dir",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
    return open_at(path());
  }
  [[nodiscard]] const std::string& path() const { return dir_.path(); }

 private:
  void find_psbs(uint64_t first, uint64_t end) {
    const Bytes trace = Bytes(bytes_).subspan(first, end - first);
    for (uint64_t at = pt::find_psb(trace, 0); at + kPsbBytes <= trace.size(); at = pt::find_psb(trace, at + kPsbBytes))
      psbs_.push_back(first + at);
  }
  image_test::TempDir dir_;
  std::vector<std::byte> bytes_;
  std::vector<uint64_t> psbs_;  ///< offsets in the file
};

/// The demo's recording, and the true flow of its cpu 0.
class Demo : public ::testing::Test {
 protected:
  void SetUp() override {
    whole_ = open_at(demo());
    ASSERT_TRUE(whole_);
    for (uint32_t i = 0; i < whole_->streams().size(); ++i) {
      if (whole_->streams()[i].cpu == 0) stream_ = i;
    }
    truth_ = decode(*whole_, stream_);
  }
  std::unique_ptr<Recording> whole_;
  uint32_t stream_ = 0;
  Told truth_;
};

class MovedTsc : public Demo, public ::testing::WithParamInterface<int64_t> {
 protected:
  /// Expects one report, and the true flow and times.
  void expect_found(const Damaged& damaged) const {
    const auto recording = damaged.open();
    ASSERT_TRUE(recording);
    const std::vector<Finding> findings = recording->findings();
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].kind, FindingKind::clock_contradicts);
    const Told told = decode(*recording, stream_, 4);
    EXPECT_EQ(told.gaps, 0U);
    ASSERT_EQ(told.runs.size(), truth_.runs.size());
    for (size_t i = 0; i < told.runs.size(); ++i) {
      ASSERT_TRUE(told.runs[i].same(truth_.runs[i]) && told.runs[i].flags == truth_.runs[i].flags) << i;
      // A corrected time is exact to a tick of the crystal clock.
      ASSERT_TRUE(is_near(told.runs[i].time.first, truth_.runs[i].time.first) && is_near(told.runs[i].time.last, truth_.runs[i].time.last))
          << i << ": " << told.runs[i].time.first.value << ".." << told.runs[i].time.last.value << ", true "
          << truth_.runs[i].time.first.value << ".." << truth_.runs[i].time.last.value;
    }
  }
  static bool is_near(TimeNs a, TimeNs b) { return (a < b ? b.value - a.value : a.value - b.value) < 100; }
};

TEST_P(MovedTsc, OneIsFoundAndMovesNothing) {
  EXPECT_TRUE(whole_->findings().empty() && miscount_findings(*whole_).empty());
  const size_t segments = Damaged(0).segments();
  ASSERT_GT(segments, 8U);
  for (size_t i = 0; i < segments; i += 2) {
    SCOPED_TRACE("segment " + std::to_string(i));
    Damaged damaged(0);
    damaged.move_tsc(i, GetParam());
    expect_found(damaged);
    if (HasFatalFailure()) return;
  }
}

TEST_P(MovedTsc, AllLaterOnesAreOneFinding) {
  const size_t segments = Damaged(0).segments();
  for (size_t i = 1; i < segments; i += 5) {
    SCOPED_TRACE("segment " + std::to_string(i));
    Damaged damaged(0);
    for (size_t later = i; later < segments; ++later) damaged.move_tsc(later, GetParam());
    expect_found(damaged);
    if (HasFatalFailure()) return;
  }
}

/// Damage that leaves the flow as it is: times become uncertain, not wrong.
class UncertainTimes : public Demo {
 protected:
  void SetUp() override {
    Demo::SetUp();
    if (HasFatalFailure()) return;
    starts_ = whole_->segment_starts(stream_);
  }
  /// Expects one finding that names `place` (or none, if `may_have_no_effect`), and the true flow and times, but for `slack_ns`, in all
  /// segments without doubtful code. Where the time is wide, code that changes is doubtful.
  void expect_uncertain(const Damaged& damaged, const std::string& place, uint64_t slack_ns, bool may_have_no_effect = false,
                        bool same_threads = false) const {
    const auto recording = damaged.open();
    ASSERT_TRUE(recording);
    std::vector<Finding> findings = recording->findings();
    for (const Finding& finding : miscount_findings(*recording)) findings.push_back(finding);
    if (!may_have_no_effect || !findings.empty()) {
      ASSERT_EQ(findings.size(), 1U);
      EXPECT_EQ(findings[0].kind, FindingKind::clock_contradicts);
      EXPECT_NE(findings[0].what.find(place), std::string::npos) << findings[0].what << ", expected " << place;
    }
    const Told told = decode(*recording, stream_, 4);
    EXPECT_EQ(told.gaps, 0U);
    const auto found = by_segment(told), real = by_segment(truth_);
    ASSERT_EQ(found.size(), real.size());
    size_t doubtful = 0;
    for (const auto& [segment, runs] : real) {
      const std::map<uint64_t, Told::Run>& here = found.at(segment);
      if (std::any_of(here.begin(), here.end(), [](const auto& run) { return (run.second.flags & kUncertainFlags) != 0; })) {
        ++doubtful;
        continue;
      }
      for (const auto& [at, run] : runs) {
        const auto same = here.find(at);
        ASSERT_TRUE(same != here.end() && same->second.ip == run.ip) << segment << ' ' << at;
        ASSERT_TRUE(!same_threads || same->second.tid == run.tid) << segment << ' ' << at;
        const Interval time = same->second.time;  // both contain the true time of the block
        ASSERT_TRUE(time.first.value <= run.time.last.value + slack_ns && run.time.first.value <= time.last.value + slack_ns)
            << segment << ' ' << at << ": " << time.first.value << ".." << time.last.value << ", true " << run.time.first.value << ".."
            << run.time.last.value;
      }
    }
    EXPECT_LE(doubtful, 2U);
  }
  /// The runs of each segment by the number of its instructions before them.
  static std::map<uint64_t, std::map<uint64_t, Told::Run>> by_segment(const Told& told) {
    std::map<uint64_t, std::map<uint64_t, Told::Run>> segments;
    uint64_t count = 0, before = 0;
    for (const Told::Run& run : told.runs) {
      if (run.segment != std::exchange(before, run.segment)) count = 0;
      if (run.instructions != 0) segments[run.segment].emplace(count, run);
      count += run.instructions;
    }
    return segments;
  }

  std::vector<uint64_t> starts_;
};

// A wrong MTC packet moves all times up to the next TSC, by 256 periods: the TSC contradicts them. Bit 0 moves one period, which the
// repetition of a count shows; bit 1 moves two periods before the count shows it. The first MTC after a TMA may belong to an edge before
// it, and has no effect then.
TEST_F(UncertainTimes, OneBitOfAnMtc) {
  constexpr uint64_t kPeriodNs = 334;  // 8 ticks of 24 MHz: tests/demo/pt_stream.h
  size_t trials = 0;
  for (size_t i = 0; i + 1 < starts_.size(); i += 3) {
    for (const unsigned bit : {0U, 1U, 2U, 4U, 7U}) {
      for (const size_t number : {size_t{0}, size_t{3}, size_t{20}}) {
        Damaged damaged(0);
        const uint64_t at = damaged.flip_mtc(i, number, bit);
        if (at == 0) continue;
        SCOPED_TRACE("segment " + std::to_string(i) + ", MTC " + std::to_string(number) + ", bit " + std::to_string(bit));
        expect_uncertain(damaged, "trace offset " + (bit <= 1 ? "" : std::to_string(starts_[i] + at)), bit <= 1 ? 2 * kPeriodNs : 0,
                         number == 0);
        if (HasFatalFailure()) return;
        ++trials;
      }
    }
  }
  EXPECT_GT(trials, 20U);
}

// A FastCounter of more ticks than a tick of the crystal clock has: times are uncertain by half a tick.
TEST_F(UncertainTimes, OneBitOfATma) {
  constexpr uint64_t kHalfTickNs = 21;  // of 24 MHz
  for (size_t i = 0; i + 1 < starts_.size(); i += 3) {
    for (const unsigned bit : {7U, 8U}) {
      Damaged damaged(0);
      const uint64_t at = damaged.flip_tma(i, bit);
      SCOPED_TRACE("segment " + std::to_string(i) + ", bit " + std::to_string(bit));
      expect_uncertain(damaged, "trace offset " + std::to_string(starts_[i] + at), kHalfTickNs);
      if (HasFatalFailure()) return;
    }
  }
}

// A multiple of a wrap of the crystal clock's 16 bits, which TMA packets do not show: the TSCs around bound the times.
TEST_F(UncertainTimes, OneTscFarAway) {
  constexpr int64_t kWrap = 65536 * 125;
  constexpr uint64_t kTwoSegmentsNs = 60'000;
  for (size_t i = 1; i < starts_.size(); i += 2) {
    for (const int64_t ticks : {-1000 * kWrap, 1000 * kWrap, kWrap << 20, kWrap << 30}) {
      SCOPED_TRACE("segment " + std::to_string(i) + " by " + std::to_string(ticks));
      Damaged damaged(0);
      damaged.move_tsc(i, ticks);
      expect_uncertain(damaged, "trace offset " + std::to_string(starts_[i]) + ":", kTwoSegmentsNs);
      if (HasFatalFailure()) return;
    }
  }
}

// A PSB+ without its TSC: the TSCs around bound the times. The threads are right, or the blocks are marked.
TEST_F(UncertainTimes, OneTscIsMissing) {
  constexpr uint64_t kTwoSegmentsNs = 60'000;
  for (size_t i = 0; i < starts_.size(); ++i) {
    SCOPED_TRACE("segment " + std::to_string(i));
    Damaged damaged(0);
    damaged.remove_tsc(i);
    expect_uncertain(damaged, "trace offset " + std::to_string(starts_[i]) + ":", kTwoSegmentsNs, false, true);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Ticks, MovedTsc, ::testing::Values(-3'000'000'000, -20'000, 3'000'000, 900'000'000));

// Damage of TIME_CONV and AUXTRACE_INFO: each is reported, and where it can be told, the times are those of the undamaged recording.
constexpr uint32_t kAux = 11, kAuxtraceInfo = 70, kAuxtrace = 71, kTimeConv = 79;
constexpr size_t kConvShift = 8, kConvMult = 16, kConvZero = 24, kConvShort = 49;  // of TIME_CONV
// Of AUXTRACE_INFO.
constexpr size_t kInfoPmuType = 16, kInfoMult = 32, kInfoZero = 40, kInfoPeriod = 104, kInfoRatioN = 112, kInfoRatioD = 120;

class Conversion : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(demo() + "/data", std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(file), {}};
    whole_ = open_at(demo());
    ASSERT_TRUE(whole_);
  }
  void flip_at(uint64_t at, unsigned bit) { bytes_[at] = static_cast<char>(bytes_[at] ^ 1 << bit); }
  /// Flips a bit of the record of this type.
  void flip(uint32_t type, size_t offset, unsigned bit) {
    for (uint64_t at = number_at<uint64_t>(bytes_, 40), end = at + number_at<uint64_t>(bytes_, 48); at + 8 <= end;) {
      if (number_at<uint32_t>(bytes_, at) == type) flip_at(at + offset, bit);
      at += number_at<uint16_t>(bytes_, at + 6) + (number_at<uint32_t>(bytes_, at) == kAuxtrace ? number_at<uint64_t>(bytes_, at + 8) : 0);
    }
  }
  /// Repeats the record of this type and returns where it is. The feature sections, which follow the data, move.
  uint64_t repeat(uint32_t type) {
    uint64_t at = number_at<uint64_t>(bytes_, 40);
    const uint64_t end = at + number_at<uint64_t>(bytes_, 48);
    while (number_at<uint32_t>(bytes_, at) != type) at += number_at<uint16_t>(bytes_, at + 6);
    const uint64_t size_bytes = number_at<uint16_t>(bytes_, at + 6);
    const auto move = [&](uint64_t where) {
      const uint64_t moved = number_at<uint64_t>(bytes_, where) + size_bytes;
      std::memcpy(&bytes_[where], &moved, sizeof(moved));
    };
    for (uint64_t section = end; section < number_at<uint64_t>(bytes_, end); section += 16) move(section);
    move(48);
    bytes_.insert(at, std::string(bytes_, at, size_bytes));
    return at;
  }
  void open() {
    std::ofstream(dir_.path() + "/data", std::ios::binary) << bytes_;
    std::filesystem::copy(demo() + "/kcore_dir", dir_.path() + "/kcore_dir",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
    damaged_ = open_at(dir_.path());
    ASSERT_TRUE(damaged_);
  }
  /// Opens the recording and expects the finding.
  void expect(FindingKind kind, const std::string& words) {
    open();
    std::vector<Finding> findings = damaged_->findings();
    for (const Finding& finding : miscount_findings(*damaged_)) findings.push_back(finding);
    EXPECT_TRUE(
        std::ranges::any_of(findings, [&](const Finding& each) { return each.kind == kind && each.what.find(words) != std::string::npos; }))
        << words << ", " << findings.size() << " findings, the first: " << (findings.empty() ? "" : findings[0].what);
  }
  [[nodiscard]] const Recording& whole() const { return *whole_; }
  [[nodiscard]] const Recording& damaged() const { return *damaged_; }
  void expect_true_times() {
    ASSERT_TRUE(damaged_);
    ASSERT_EQ(damaged_->streams().size(), whole_->streams().size());
    for (size_t i = 0; i < whole_->streams().size(); ++i) EXPECT_EQ(damaged_->streams()[i].time, whole_->streams()[i].time) << i;
    const pt::Config& found = damaged_->decoder_options().config;
    EXPECT_EQ(found.mtc_period, whole_->decoder_options().config.mtc_period);
    EXPECT_EQ(found.has_tsc, whole_->decoder_options().config.has_tsc);
  }

 private:
  image_test::TempDir dir_;
  std::string bytes_;
  std::unique_ptr<Recording> whole_, damaged_;
};

TEST_F(Conversion, WithoutAuxRecordsTheLastTimingPacketIsTheEnd) {
  flip(kAux, 0, 5);  // to a type that no record has
  open();
  for (uint32_t i = 0; i < whole().streams().size(); ++i) {
    const TimeNs end = damaged().streams()[i].time.last;
    EXPECT_LE(end, whole().streams()[i].time.last) << i;
    EXPECT_GE(end, decode(damaged(), i).runs.back().time.first) << i;  // every run begins at a timing packet, or after it
  }
}

TEST_F(Conversion, AMissingInfoIsAFinding) {
  flip(kAuxtraceInfo, 0, 7);  // to a type that no record has
  expect(FindingKind::bad_record, "AUXTRACE_INFO is missing");
}

TEST_F(Conversion, TheRecordsChooseBetweenTwo) {
  struct Damage {
    uint32_t type;
    size_t offset;
    unsigned bit;
    const char* used;
  };
  const char* const info_used = "that of AUXTRACE_INFO is used, as";
  const char* const conv_used = "that of TIME_CONV is used, as";
  for (const Damage& damage : {Damage{kTimeConv, kConvMult + 3, 5, info_used}, Damage{kTimeConv, kConvZero + 7, 7, info_used},
                               Damage{kTimeConv, kConvShift, 1, info_used},
                               Damage{kTimeConv, kConvShift, 6, "that of AUXTRACE_INFO is used, the other one is not valid"},
                               Damage{kAuxtraceInfo, kInfoMult + 3, 5, conv_used}, Damage{kAuxtraceInfo, kInfoZero + 4, 2, conv_used}}) {
    SCOPED_TRACE(std::to_string(damage.type) + ", byte " + std::to_string(damage.offset));
    flip(damage.type, damage.offset, damage.bit);
    expect(FindingKind::clock_contradicts, damage.used);
    expect_true_times();
    flip(damage.type, damage.offset, damage.bit);
  }
}

TEST_F(Conversion, ASmallDifferenceIsReported) {
  flip(kTimeConv, kConvZero + 1, 1);
  expect(FindingKind::clock_contradicts,
         "512 ns apart: that of TIME_CONV is used, but the times of the records do not show which one is right");
}

TEST_F(Conversion, BothMayBeWrong) {
  flip(kTimeConv, kConvZero + 4, 2);
  flip(kAuxtraceInfo, kInfoZero + 4, 2);
  expect(FindingKind::clock_contradicts, "the conversion is wrong");
}

TEST_F(Conversion, AShortClockNeedsAMask) {
  flip(kTimeConv, kConvShort, 0);
  expect(FindingKind::bad_record, "cap_user_time_short");
  expect_true_times();
}

TEST_F(Conversion, AnUnknownPmuType) {
  flip(kAuxtraceInfo, kInfoPmuType, 0);
  expect(FindingKind::bad_record, "PMU type 9");
  expect_true_times();
}

TEST_F(Conversion, ThePmuTypeOfAnotherEvent) {  // 1, that of the dummy event
  flip(kAuxtraceInfo, kInfoPmuType, 0);
  flip(kAuxtraceInfo, kInfoPmuType, 3);
  expect(FindingKind::bad_record, "PMU type 1, which is not that of the Intel PT event: that has type 8");
  expect_true_times();
}

TEST_F(Conversion, AWrongMask) {
  flip(kAuxtraceInfo, kInfoPeriod + 1, 6);
  expect(FindingKind::bad_record, "masks of timing bits");
  expect_true_times();
}

TEST_F(Conversion, AnImpossibleRatio) {
  for (const auto& [offset, bit] : {std::pair(kInfoRatioD, 1U), std::pair(kInfoRatioD + 2, 3U)}) {  // 250:0 and 250:524290
    flip(kAuxtraceInfo, offset, bit);
    expect(FindingKind::bad_record, "impossible ratio");
    flip(kAuxtraceInfo, offset, bit);
  }
}

TEST_F(Conversion, NoRatio) {
  for (const unsigned bit : {1U, 3U, 4U, 5U, 6U, 7U}) flip(kAuxtraceInfo, kInfoRatioN, bit);  // 250:2 to 0:0
  flip(kAuxtraceInfo, kInfoRatioD, 1);
  expect(FindingKind::bad_record, "does not contain the ratio of TSC and crystal clock");
}

TEST_F(Conversion, TwoThatDiffer) {
  const uint64_t first = repeat(kAuxtraceInfo);
  open();
  EXPECT_TRUE(damaged().findings().empty());
  flip_at(first + kInfoPeriod, 6);
  expect(FindingKind::bad_record, "is there twice");
}

TEST_F(Conversion, AWrongRatio) {
  for (const auto& [offset, bit] :
       {std::pair(kInfoRatioN, 1U), std::pair(kInfoRatioN, 7U), std::pair(kInfoRatioN + 3, 7U), std::pair(kInfoRatioD, 0U)}) {
    SCOPED_TRACE("byte " + std::to_string(offset) + ", bit " + std::to_string(bit));
    flip(kAuxtraceInfo, offset, bit);
    expect(FindingKind::clock_contradicts, "the ratio of TSC and crystal clock");
    flip(kAuxtraceInfo, offset, bit);
  }
}

}  // namespace
}  // namespace ptd
