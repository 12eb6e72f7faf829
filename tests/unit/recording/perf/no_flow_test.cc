// data/demo as recorded without branch packets (branch=0), or without TNT packets (notnt): no flow is made up, and no file is said to be
// wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "ptdecode/bundle.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/recording.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

constexpr uint64_t kBranch = uint64_t{1} << 13, kPassThrough = 1, kNoTnt = uint64_t{1} << 55;

struct Output {
  size_t blocks = 0, gaps = 0, frequencies = 0, others = 0;
  std::vector<int32_t> tids;
};

class NoFlow : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string demo = std::string(PTD_SOURCE_DIR) + "/data/demo";
    std::ifstream file(demo + "/data", std::ios::binary);
    bytes_ = {std::istreambuf_iterator<char>(file), {}};
    std::filesystem::copy(demo + "/kcore_dir", dir_.path() + "/kcore_dir", std::filesystem::copy_options::recursive);
  }
  [[nodiscard]] uint64_t number(uint64_t at, size_t size = 8) const {
    uint64_t value = 0;
    std::memcpy(&value, bytes_.data() + at, size);
    return value;
  }
  /// Changes the config of the Intel PT event, the first one.
  void set_config(uint64_t set, uint64_t cleared) {
    constexpr size_t kAttrs = 24, kConfig = 8;
    const uint64_t at = number(kAttrs) + kConfig;
    const uint64_t config = (number(at) | set) & ~cleared;
    std::memcpy(bytes_.data() + at, &config, sizeof(config));
  }
  /// Replaces packets by PADs, but for those of PSB+.
  template <typename Drops>
  void drop(const Drops& drops) {
    constexpr uint32_t kTrace = 71;
    for (uint64_t at = number(40), end = at + number(48); at + 8 <= end;) {
      const uint64_t header = number(at + 6, 2), payload = number(at, 4) == kTrace ? number(at + 8) : 0;
      std::byte* trace = reinterpret_cast<std::byte*>(bytes_.data()) + at + header;
      pt::PacketReader reader(Bytes{trace, payload});
      pt::Packet packet;
      bool in_psb = false;
      for (uint64_t from = 0; reader.next(packet) == pt::PacketReader::Status::ok; from = reader.offset()) {
        in_psb = packet.kind == pt::PacketKind::psb || (in_psb && packet.kind != pt::PacketKind::psbend);
        if (!in_psb && drops(packet.kind)) std::fill_n(trace + from, reader.offset() - from, std::byte{});
      }
      at += header + payload;
    }
  }
  std::unique_ptr<Recording> open(const std::string& name = "") {
    if (name.empty()) std::ofstream(dir_.path() + "/data", std::ios::binary) << bytes_;
    options_.path = dir_.path() + name;
    options_.build_id_cache = "/nonexistent";
    auto recording = Recording::open(options_);
    EXPECT_TRUE(recording.ok());
    return recording.ok() ? std::move(*recording) : nullptr;
  }
  [[nodiscard]] static Output decode(const Recording& recording) {
    Output output;
    for (uint32_t stream = 0; stream < recording.streams().size(); ++stream) {
      const Status status = recording.decode_parallel(
          stream, 0, Recording::kStreamEnd, 1, [&](const Batch& batch, const FlowDecoder& /*decoder*/, const AuxSegment& /*segment*/) {
            output.blocks += batch.blocks.size();
            for (const Gap& gap : batch.gaps) output.gaps += gap.reason == GapReason::aux_lost ? 0 : 1;  // long runs of PADs
            for (const Event& event : batch.events)
              ++((event.kind == EventKind::cbr || (event.flags & kEventStatus) != 0) ? output.frequencies : output.others);
            for (const Mark& mark : batch.marks) output.tids.push_back(mark.tid);
            return true;
          });
      EXPECT_TRUE(status.ok());
    }
    return output;
  }
  [[nodiscard]] static bool warns(const Recording& recording, const std::string& words) {
    return std::ranges::any_of(recording.warnings(), [&](const std::string& each) { return each.find(words) != std::string::npos; });
  }
  [[nodiscard]] std::string path() const { return dir_.path(); }
  OpenOptions options_;

 private:
  image_test::TempDir dir_;
  std::string bytes_;
};

bool is_tnt(pt::PacketKind kind) { return kind == pt::PacketKind::tnt_short || kind == pt::PacketKind::tnt_long; }
bool is_flow(pt::PacketKind kind) {
  using enum pt::PacketKind;
  return is_tnt(kind) || kind == tip || kind == tip_pge || kind == tip_pgd || kind == fup || kind == mode_exec;
}

TEST_F(NoFlow, WithoutBranches) {
  set_config(kPassThrough, kBranch);
  drop(is_flow);
  const auto recording = open();
  ASSERT_TRUE(recording);
  EXPECT_TRUE(warns(*recording, "recorded without branch packets (intel_pt/branch=0/): no flow is decoded"));
  const Output output = decode(*recording);
  EXPECT_EQ(output.blocks, 0U);
  EXPECT_EQ(output.gaps, 0U);
  EXPECT_GT(output.frequencies, 0U);
}

TEST_F(NoFlow, WithoutTnt) {
  set_config(kNoTnt, 0);
  drop(is_tnt);
  const auto recording = open();
  ASSERT_TRUE(recording);
  EXPECT_TRUE(warns(*recording, "recorded without TNT packets (intel_pt/notnt/): no flow is decoded"));
  const Output output = decode(*recording);
  EXPECT_EQ(output.blocks, 0U);
  EXPECT_EQ(output.gaps, 0U);
  BundleOptions bundle;
  bundle.output_path = path() + "/notnt.ptd";
  ASSERT_TRUE(write_bundle(options_, bundle).ok());
  const auto read = open("/notnt.ptd");
  ASSERT_TRUE(read);
  EXPECT_EQ(decode(*read).blocks, 0U);
}

TEST_F(NoFlow, AConfigThatTheTraceContradicts) {
  const size_t blocks = decode(*open()).blocks;
  for (const auto& [set, cleared] : {std::pair(kNoTnt, uint64_t{0}), std::pair(kPassThrough, kBranch)}) {
    set_config(set, cleared);
    const auto recording = open();
    ASSERT_TRUE(recording);
    EXPECT_TRUE(warns(*recording, "the recording contradicts itself"));
    EXPECT_EQ(decode(*recording).blocks, blocks);
    set_config(cleared, set & ~kPassThrough);
  }
}

}  // namespace
}  // namespace ptd
