// Damage of TIME_CONV and AUXTRACE_INFO in data/demo: each is reported, and where it can be told, the times are those of the undamaged recording.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ptdecode/recording.h"
#include "recording/data/miscounts.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

constexpr uint32_t kAuxtraceInfo = 70, kAuxtrace = 71, kTimeConv = 79;
constexpr size_t kConvShift = 8, kConvMult = 16, kConvZero = 24, kConvShort = 49;                              // of TIME_CONV
constexpr size_t kInfoPmuType = 16, kInfoMult = 32, kInfoZero = 40, kInfoRatioN = 112, kInfoRatioD = 120;      // of AUXTRACE_INFO

std::unique_ptr<Recording> open_recorded(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.build_id_cache = "/nonexistent";
  auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? std::move(*opened) : nullptr;
}

class Conversion : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ifstream file(demo() + "/data", std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(file), {}};
    whole_ = open_recorded(demo());
    ASSERT_TRUE(whole_);
  }
  /// Flips a bit of the record of this type.
  void flip(uint32_t type, size_t offset, unsigned bit) {
    for (uint64_t at = number<uint64_t>(40), end = at + number<uint64_t>(48); at + 8 <= end;) {
      if (number<uint32_t>(at) == type) bytes_[at + offset] = static_cast<char>(bytes_[at + offset] ^ 1 << bit);
      at += number<uint16_t>(at + 6) + (number<uint32_t>(at) == kAuxtrace ? number<uint64_t>(at + 8) : 0);
    }
  }
  /// Opens the recording and expects the finding.
  void expect(FindingKind kind, const std::string& words) {
    std::ofstream(dir_.path() + "/data", std::ios::binary) << bytes_;
    std::filesystem::copy(demo() + "/kcore_dir", dir_.path() + "/kcore_dir",
                          std::filesystem::copy_options::recursive | std::filesystem::copy_options::skip_existing);
    damaged_ = open_recorded(dir_.path());
    ASSERT_TRUE(damaged_);
    std::vector<Finding> findings = damaged_->findings();
    for (const Finding& finding : miscount_findings(*damaged_)) findings.push_back(finding);
    EXPECT_TRUE(std::ranges::any_of(findings, [&](const Finding& each) { return each.kind == kind && each.what.find(words) != std::string::npos; }))
        << words << ", " << findings.size() << " findings, the first: " << (findings.empty() ? "" : findings[0].what);
  }
  void expect_true_times() {
    ASSERT_TRUE(damaged_);
    ASSERT_EQ(damaged_->streams().size(), whole_->streams().size());
    for (size_t i = 0; i < whole_->streams().size(); ++i) EXPECT_EQ(damaged_->streams()[i].time, whole_->streams()[i].time) << i;
    const pt::Config& found = damaged_->decoder_options().config;
    EXPECT_EQ(found.mtc_period, whole_->decoder_options().config.mtc_period);
    EXPECT_EQ(found.has_tsc, whole_->decoder_options().config.has_tsc);
  }
  static std::string demo() { return std::string(PTD_SOURCE_DIR) + "/data/demo"; }

 private:
  template <class T>
  [[nodiscard]] T number(uint64_t at) const {
    T value{};
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  image_test::TempDir dir_;
  std::string bytes_;
  std::unique_ptr<Recording> whole_, damaged_;
};

TEST_F(Conversion, TheRecordsChooseBetweenTwo) {
  struct Damage {
    uint32_t type;
    size_t offset;
    unsigned bit;
    const char* used;
  };
  for (const Damage& damage : {Damage{kTimeConv, kConvMult + 3, 5, "that of AUXTRACE_INFO is used, as"}, Damage{kTimeConv, kConvZero + 7, 7, "that of AUXTRACE_INFO is used, as"},
                               Damage{kTimeConv, kConvShift, 1, "that of AUXTRACE_INFO is used, as"}, Damage{kTimeConv, kConvShift, 6, "that of AUXTRACE_INFO is used, the other one is not valid"},
                               Damage{kAuxtraceInfo, kInfoMult + 3, 5, "that of TIME_CONV is used, as"},
                               Damage{kAuxtraceInfo, kInfoZero + 4, 2, "that of TIME_CONV is used, as"}}) {
    SCOPED_TRACE(std::to_string(damage.type) + ", byte " + std::to_string(damage.offset));
    flip(damage.type, damage.offset, damage.bit);
    expect(FindingKind::clock_contradicts, damage.used);
    expect_true_times();
    flip(damage.type, damage.offset, damage.bit);
  }
}

TEST_F(Conversion, ASmallDifferenceIsReported) {
  flip(kTimeConv, kConvZero + 1, 1);
  expect(FindingKind::clock_contradicts, "512 ns apart: that of TIME_CONV is used, but the times of the records do not show which one is right");
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

TEST_F(Conversion, AWrongRatio) {
  for (const auto& [offset, bit] : {std::pair(kInfoRatioN, 1U), std::pair(kInfoRatioN, 7U), std::pair(kInfoRatioN + 3, 7U), std::pair(kInfoRatioD, 0U)}) {
    SCOPED_TRACE("byte " + std::to_string(offset) + ", bit " + std::to_string(bit));
    flip(kAuxtraceInfo, offset, bit);
    expect(FindingKind::clock_contradicts, "the ratio of TSC and crystal clock");
    flip(kAuxtraceInfo, offset, bit);
  }
}

}  // namespace
}  // namespace ptd
