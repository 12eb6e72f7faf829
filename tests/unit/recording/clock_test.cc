// Moved TSC packets of data/demo: each is reported, and flow and times are those of the undamaged recording.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/recording.h"
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
    bool same(const Run& other) const { return ip == other.ip && instructions == other.instructions; }
  };
  std::vector<Run> runs;
  uint64_t gaps = 0;
};

Told decode(const Recording& recording, uint32_t stream, unsigned threads = 1) {
  Told told;
  const Status status = recording.decode_parallel(
      stream, 0, Recording::kStreamEnd, threads, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
        size_t mark = 0;
        for (size_t i = 0; i < batch.blocks.size(); ++i) {
          while (mark < batch.marks.size() && batch.marks[mark].before_block <= i) ++mark;
          const Block& block = batch.blocks[i];
          const Interval time = mark != 0 ? batch.marks[mark - 1].time : told.runs.empty() ? Interval{} : told.runs.back().time;
          told.runs.push_back({decoder.blocks().info(block.node).ip.value, block.instructions, block.flags, time});
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
    const auto data = number<uint64_t>(40), size = number<uint64_t>(48);
    for (uint64_t at = data; at + 8 <= data + size;) {
      const auto record_bytes = number<uint16_t>(at + 6);
      const uint64_t payload = number<uint32_t>(at) == kAuxtrace ? number<uint64_t>(at + 8) : 0;
      if (payload != 0 && number<int32_t>(at + 40) == cpu) find_psbs(at + record_bytes, at + record_bytes + payload);
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
  /// Writes the recording to a folder and opens it.
  [[nodiscard]] std::unique_ptr<Recording> open() const {
    dir_.write("data", Bytes(bytes_));
    std::filesystem::copy(demo() + "/kcore_dir", path() + "/kcore_dir",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
    return open_at(path());
  }
  [[nodiscard]] const std::string& path() const { return dir_.path(); }

 private:
  template <class T>
  [[nodiscard]] T number(uint64_t at) const {
    T value{};
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  void find_psbs(uint64_t first, uint64_t end) {
    const Bytes trace = Bytes(bytes_).subspan(first, end - first);
    for (uint64_t at = pt::find_psb(trace, 0); at + kPsbBytes <= trace.size(); at = pt::find_psb(trace, at + kPsbBytes))
      psbs_.push_back(first + at);
  }
  image_test::TempDir dir_;
  std::vector<std::byte> bytes_;
  std::vector<uint64_t> psbs_;  ///< offsets in the file
};

class MovedTsc : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override {
    whole_ = open_at(demo());
    ASSERT_TRUE(whole_);
    for (uint32_t i = 0; i < whole_->streams().size(); ++i) {
      if (whole_->streams()[i].cpu == 0) stream_ = i;
    }
    truth_ = decode(*whole_, stream_);
  }
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

  std::unique_ptr<Recording> whole_;
  uint32_t stream_ = 0;
  Told truth_;
};

TEST_P(MovedTsc, OneIsFoundAndMovesNothing) {
  EXPECT_TRUE(whole_->findings().empty());
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

INSTANTIATE_TEST_SUITE_P(Ticks, MovedTsc, ::testing::Values(-3'000'000'000, -20'000, 3'000'000, 900'000'000));

}  // namespace
}  // namespace ptd
