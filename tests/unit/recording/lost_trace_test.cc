// Missing trace at the beginning and end of data/demo's streams: a gap and a finding, and the unchanged rest of the flow.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "ptdecode/bundle.h"
#include "ptdecode/recording.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

constexpr uint32_t kAux = 11, kTextPoke = 20, kAuxtrace = 71, kFinishedInit = 82;  // record types of perf.data
constexpr uint64_t kRecordHeader = 8;

std::string demo_path() { return std::string(PTD_SOURCE_DIR) + "/data/demo"; }

struct ToldOfLoss {
  std::vector<std::pair<uint64_t, uint16_t>> runs;  ///< ip and number of instructions of each block
  std::vector<bool> uncertain;                      ///< of each block
  std::vector<GapReason> gaps;
  bool ends_in_gap = false;
};

ToldOfLoss decode(const Recording& recording, int32_t cpu, unsigned threads) {
  ToldOfLoss told;
  for (uint32_t i = 0; i < recording.streams().size(); ++i) {
    if (recording.streams()[i].cpu != cpu) continue;
    const Status status = recording.decode_parallel(
        i, 0, Recording::kStreamEnd, threads, [&](const Batch& batch, const FlowDecoder& decoder, const AuxSegment&) {
          for (const Block& block : batch.blocks) {
            told.runs.emplace_back(decoder.blocks().info(block.node).ip.value, block.instructions);
            told.uncertain.push_back((block.flags & kUncertainFlags) != 0);
          }
          for (const Gap& gap : batch.gaps) told.gaps.push_back(gap.reason);
          if (!batch.blocks.empty()) told.ends_in_gap = false;
          if (!batch.gaps.empty()) told.ends_in_gap = batch.gaps.back().before_block == batch.blocks.size();
          return true;
        });
    EXPECT_TRUE(status.ok());
  }
  return told;
}

std::unique_ptr<Recording> open_damaged(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.build_id_cache = "/nonexistent";
  auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? std::move(*opened) : nullptr;
}

/// data/demo in memory, with the positions of the last AUX and AUXTRACE records of one cpu.
class DamagedDemo {
 public:
  explicit DamagedDemo(int32_t cpu) {
    const std::string path = demo_path() + "/data";
    bytes_.resize(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary).read(reinterpret_cast<char*>(bytes_.data()), static_cast<std::streamsize>(bytes_.size()));
    const auto data = number<uint64_t>(40), size = number<uint64_t>(48);
    std::vector<std::pair<uint64_t, uint64_t>> ends;  // of AUX records: end of the trace, place
    uint64_t trace_end = 0;
    for (uint64_t at = data; at + kRecordHeader <= data + size;) {
      uint64_t next = at + number<uint16_t>(at + 6);
      if (number<uint32_t>(at) == kTextPoke) poke_ = at;
      if (number<uint32_t>(at) == kAux) ends.emplace_back(number<uint64_t>(at + 8) + number<uint64_t>(at + 16), at);
      if (number<uint32_t>(at) == kAuxtrace) {
        const auto payload = number<uint64_t>(at + 8);
        if (number<int32_t>(at + 40) == cpu) {
          auxtraces_.push_back(at);
          auxtrace_ = at;
          trace_end = number<uint64_t>(at + 16) + payload;
        }
        next += payload;
      }
      at = next;
    }
    // The recorder aligns payloads to 8 bytes.
    for (const auto& [end, at] : ends) {
      if (end <= trace_end && trace_end - end < 8) aux_ = at;
    }
  }
  [[nodiscard]] bool found() const { return aux_ != 0 && auxtrace_ != 0; }
  /// Makes the last TEXT_POKE (addr u64, old_len u16, new_len u16) longer than its record. Returns whether there is one.
  bool damage_text_poke() {
    constexpr uint64_t kOldBytesAt = 16;
    if (poke_ != 0) put<uint16_t>(poke_ + kOldBytesAt, 0xffff);
    return poke_ != 0;
  }
  void set_flags(uint64_t flags) { put<uint64_t>(aux_ + 24, number<uint64_t>(aux_ + 24) | flags); }
  [[nodiscard]] uint64_t payload_bytes() const { return number<uint64_t>(auxtrace_ + 8); }
  /// Keeps `kept` bytes of the last payload, a multiple of 8: the last ones if `of_end`. Other records fill the rest.
  void shorten(uint64_t kept, bool of_end) {
    const uint64_t first = auxtrace_ + number<uint16_t>(auxtrace_ + 6), whole = payload_bytes();
    if (of_end) std::memmove(bytes_.data() + first, bytes_.data() + first + whole - kept, kept);
    put<uint64_t>(auxtrace_ + 8, kept);
    fill(first + kept, first + whole);
  }
  /// Leaves no AUXTRACE record of the cpu.
  void remove_trace() {
    for (const uint64_t record : auxtraces_) {
      const uint64_t first = record + number<uint16_t>(record + 6);
      fill(record, first + number<uint64_t>(record + 8));
    }
  }
  /// Damages the first PSB packets of the cpu, at most `most`. Returns how many there were.
  size_t spoil_psbs(size_t most) {
    std::vector<std::byte> psb;
    for (int i = 0; i < 8; ++i) psb.insert(psb.end(), {std::byte{0x02}, std::byte{0x82}});
    size_t count = 0;
    for (const uint64_t record : auxtraces_) {
      const auto first = bytes_.begin() + static_cast<ptrdiff_t>(record + number<uint16_t>(record + 6));
      const auto end = first + static_cast<ptrdiff_t>(number<uint64_t>(record + 8));
      for (auto at = first; count < most && (at = std::search(at, end, psb.begin(), psb.end())) != end; ++count) at[5] ^= std::byte{0x10};
    }
    return count;
  }
  [[nodiscard]] std::string write() const {
    dir_.write("data", Bytes(bytes_));
    std::filesystem::copy(demo_path() + "/kcore_dir", dir_.path() + "/kcore_dir", std::filesystem::copy_options::recursive);
    return dir_.path();
  }
  [[nodiscard]] std::unique_ptr<Recording> open() const { return open_damaged(write()); }

 private:
  /// Overwrites bytes with other records.
  void fill(uint64_t first, uint64_t end) {
    for (uint64_t at = first; at < end; at += kRecordHeader) {
      put<uint32_t>(at, kFinishedInit);
      put<uint16_t>(at + 4, 0);
      put<uint16_t>(at + 6, kRecordHeader);
    }
  }
  template <class T>
  [[nodiscard]] T number(uint64_t at) const {
    T value{};
    std::memcpy(&value, bytes_.data() + at, sizeof value);
    return value;
  }
  template <class T>
  void put(uint64_t at, T value) {
    std::memcpy(bytes_.data() + at, &value, sizeof value);
  }
  image_test::TempDir dir_;
  std::vector<std::byte> bytes_;
  uint64_t aux_ = 0, auxtrace_ = 0, poke_ = 0;
  std::vector<uint64_t> auxtraces_;
};

void expect_one_finding(const Recording& recording) {
  const std::vector<Finding> findings = recording.findings();
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].kind, FindingKind::trace_lost);
}

TEST(LostTrace, TheUndamagedRecordingHasNone) {
  const auto whole = open_damaged(demo_path());
  ASSERT_TRUE(whole);
  EXPECT_TRUE(whole->findings().empty());
  for (const int32_t cpu : {0, 1}) EXPECT_TRUE(decode(*whole, cpu, 1).gaps.empty());
}

// AUX records of a cpu exist, and no AUXTRACE record.
TEST(LostTrace, AllTraceOfACpuIsMissing) {
  const auto whole = open_damaged(demo_path());
  ASSERT_TRUE(whole);
  for (const int32_t cpu : {0, 1}) {
    DamagedDemo damaged(cpu);
    ASSERT_TRUE(damaged.found());
    damaged.remove_trace();
    const auto recording = damaged.open();
    ASSERT_TRUE(recording);
    ASSERT_EQ(recording->streams().size(), 1U);
    expect_one_finding(*recording);
    EXPECT_TRUE(recording->findings()[0].what.starts_with("cpu " + std::to_string(cpu) + ": all trace is missing"));
    EXPECT_EQ(decode(*recording, 1 - cpu, 1).runs, decode(*whole, 1 - cpu, 1).runs);
  }
}

TEST(LostTrace, ATextPokeThatContradictsItselfIsSkippedAndAFinding) {
  DamagedDemo damaged(0);
  ASSERT_TRUE(damaged.damage_text_poke());
  const auto recording = damaged.open();
  ASSERT_TRUE(recording);
  const std::vector<Finding> findings = recording->findings();
  EXPECT_EQ(std::count_if(findings.begin(), findings.end(), [](const Finding& f) { return f.kind == FindingKind::bad_record; }), 1);
}

TEST(LostTrace, AFlagOfTheLastAuxRecord) {
  const auto whole = open_damaged(demo_path());
  ASSERT_TRUE(whole);
  for (const int32_t cpu : {0, 1}) {
    const ToldOfLoss truth = decode(*whole, cpu, 1);
    for (const uint64_t flag : {1U, 4U, 8U}) {  // TRUNCATED, PARTIAL, COLLISION
      DamagedDemo damaged(cpu);
      ASSERT_TRUE(damaged.found());
      damaged.set_flags(flag);
      const auto recording = damaged.open();
      ASSERT_TRUE(recording);
      expect_one_finding(*recording);
      for (const unsigned threads : {1U, 4U}) {
        const ToldOfLoss told = decode(*recording, cpu, threads);
        EXPECT_EQ(told.runs, truth.runs) << flag;
        EXPECT_EQ(told.gaps, std::vector{GapReason::aux_lost}) << flag;
        EXPECT_TRUE(told.ends_in_gap);
      }
    }
  }
}

TEST(LostTrace, APayloadShorterThanItsAuxRecord) {
  const auto whole = open_damaged(demo_path());
  ASSERT_TRUE(whole);
  for (const int32_t cpu : {0, 1}) {
    const ToldOfLoss truth = decode(*whole, cpu, 1);
    for (const uint64_t eighth : {1U, 3U, 4U, 7U}) {
      for (const bool of_end : {false, true}) {
        DamagedDemo damaged(cpu);
        ASSERT_TRUE(damaged.found());
        damaged.shorten(damaged.payload_bytes() / 64 * eighth * 8, of_end);
        const auto recording = damaged.open();
        ASSERT_TRUE(recording);
        expect_one_finding(*recording);
        const ToldOfLoss told = decode(*recording, cpu, 1);
        EXPECT_TRUE(std::find(told.gaps.begin(), told.gaps.end(), GapReason::aux_lost) != told.gaps.end());
        EXPECT_TRUE(told.ends_in_gap);
        if (of_end) continue;
        ASSERT_LT(told.runs.size(), truth.runs.size());
        ASSERT_GT(told.runs.size(), 1U);
        // The last block ends with the trace.
        const auto differ = std::mismatch(told.runs.begin(), std::prev(told.runs.end()), truth.runs.begin()).first;
        // Later packets may be the ones that determine which version of changed code was executed.
        const auto certain = static_cast<size_t>(differ - told.runs.begin());
        const bool is_all = certain + 1 == told.runs.size();
        const bool is_marked = is_all || told.uncertain[certain] || told.uncertain[certain + 1];
        EXPECT_TRUE(is_marked) << "cpu " << cpu << ", " << eighth << " of 8, block " << certain << " of " << told.runs.size();
      }
    }
  }
}

// Trace begins with a PSB. If it is damaged, what comes before the next one is lost.
TEST(LostTrace, ABeginningWithoutPsb) {
  const auto whole = open_damaged(demo_path());
  ASSERT_TRUE(whole);
  for (const int32_t cpu : {0, 1}) {
    const ToldOfLoss truth = decode(*whole, cpu, 1);
    for (const size_t most : {size_t{1}, size_t{2}, size_t{9}}) {
      DamagedDemo damaged(cpu);
      ASSERT_EQ(damaged.spoil_psbs(most), most);
      const std::string path = damaged.write();
      const auto recording = open_damaged(path);
      ASSERT_TRUE(recording);
      const std::vector<Finding> findings = recording->findings();
      ASSERT_EQ(findings.size(), 1U);
      EXPECT_EQ(findings[0].kind, FindingKind::trace_lost);
      EXPECT_NE(findings[0].what.find("does not begin with its PSB packet"), std::string::npos) << findings[0].what;
      const ToldOfLoss told = decode(*recording, cpu, 1);
      EXPECT_EQ(told.gaps, std::vector{GapReason::aux_lost});
      ASSERT_LT(told.runs.size(), truth.runs.size());
      EXPECT_TRUE(std::equal(told.runs.rbegin(), std::prev(told.runs.rend()), truth.runs.rbegin()));
      image_test::TempDir folder;  // the same in a bundle
      OpenOptions options;
      options.path = path;
      BundleOptions to;
      to.output_path = folder.path() + "/b.ptb";
      ASSERT_TRUE(write_bundle(options, to).ok());
      const auto bundle = open_damaged(folder.path() + "/b.ptb");
      ASSERT_TRUE(bundle);
      ASSERT_EQ(bundle->findings().size(), 1U);
      EXPECT_EQ(bundle->findings()[0].what, findings[0].what);
      EXPECT_EQ(decode(*bundle, cpu, 1).gaps, told.gaps);
    }
  }
}

TEST(LostTrace, AStreamWithoutAnyPsb) {
  const auto whole = open_damaged(demo_path());
  ASSERT_TRUE(whole);
  for (const int32_t cpu : {0, 1}) {
    DamagedDemo damaged(cpu);
    ASSERT_GT(damaged.spoil_psbs(~size_t{0}), 20U);
    const auto recording = damaged.open();
    ASSERT_TRUE(recording);
    const std::vector<Finding> findings = recording->findings();
    ASSERT_EQ(findings.size(), 1U);
    EXPECT_EQ(findings[0].kind, FindingKind::trace_lost);
    const std::string& what = findings[0].what;
    EXPECT_TRUE(what.starts_with("cpu " + std::to_string(cpu) + ": none of its ")) << what;
    EXPECT_TRUE(decode(*recording, cpu, 1).runs.empty());
    EXPECT_EQ(decode(*recording, 1 - cpu, 1).runs, decode(*whole, 1 - cpu, 1).runs);
  }
}

}  // namespace
}  // namespace ptd
