// Damaged context packets of a kernel's trace: the flow is of the thread of the switch records, and what the packets say is reported.
#include "decoder/arm/context_check.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <string>

#include "ptdecode/arm/packet_reader.h"
#include "ptdecode/flow_decoder.h"
#include "ptdecode/recording.h"
#include "recording/context_findings.h"

namespace ptd::test {
namespace {

/// A context packet with a thread, and the one of the packet before it.
struct Named {
  uint64_t at = 0;
  uint32_t bytes = 0;
  int32_t before = -1, tid = -1;
};

class ContextCheck : public ::testing::Test {
 protected:
  void SetUp() override {
    OpenOptions options;
    options.path = std::string(PTD_SOURCE_DIR) + "/data/arm_kernel/kernel.bundle";
    auto opened = Recording::open(options);
    ASSERT_TRUE(opened.ok());
    recording_ = std::move(*opened);
  }

  [[nodiscard]] std::vector<arm::WrongContext> check(const AuxSegment& segment, uint32_t stream) const {
    return check(segment, stream, recording_->timeline().suspect_windows()).wrong_contexts;
  }
  [[nodiscard]] arm::CheckedSegment check(const AuxSegment& segment, uint32_t stream, std::span<const Interval> lost) const {
    return arm::check_segment(segment, *recording_->arm_config(stream), data_of(*recording_).arm_follow, {recording_->contexts(), lost});
  }
  [[nodiscard]] std::vector<Named> contexts_in(Bytes bytes, uint32_t stream) const {
    std::vector<Named> found;
    arm::PacketReader reader(bytes, *recording_->arm_config(stream));
    arm::Packet packet;
    int32_t tid = -1;
    for (uint64_t at = 0; reader.next(packet) == arm::PacketReader::Status::ok; at = reader.offset()) {
      if (packet.kind != arm::PacketKind::ctxt || !packet.context.present) continue;
      const auto named = static_cast<int32_t>(packet.context.context_id);
      found.push_back({at, packet.size_bytes, tid, named});
      tid = named;
    }
    return found;
  }
  /// Returns the number of instructions of each thread.
  static std::map<int32_t, uint64_t> threads_of(FlowDecoder& decoder, const AuxSegment& segment) {
    std::map<int32_t, uint64_t> counts;
    decoder.begin(segment);
    Batch batch;
    int32_t tid = -1;
    for (bool more = true; more;) {
      batch.clear();
      more = decoder.next(batch);
      size_t mark = 0;
      for (size_t i = 0; i < batch.blocks.size(); ++i) {
        for (; mark < batch.marks.size() && batch.marks[mark].before_block <= i; ++mark) tid = batch.marks[mark].tid;
        counts[tid] += batch.blocks[i].instructions;
      }
    }
    return counts;
  }

  std::unique_ptr<Recording> recording_;
};

TEST_F(ContextCheck, UndamagedContextsFitTheSwitchRecords) {
  std::vector<std::byte> scratch;
  AuxSegment segment;
  size_t contexts = 0;
  for (uint32_t stream = 0; stream < 2; ++stream) {
    for (uint64_t at = 0; recording_->next_segment(stream, at, segment, scratch);) {
      EXPECT_TRUE(check(segment, stream).empty()) << stream << " " << segment.stream_offset_bytes;
      contexts += contexts_in(segment.bytes, stream).size();
    }
    EXPECT_TRUE(context_findings(data_of(*recording_), stream, [](uint64_t) {}).empty());
  }
  EXPECT_GT(contexts, 1000U);
}

// Each trial damages one packet: a wrong bit of the id, the id of another thread, or no packet at all. Where nothing tells when the kernel
// wrote the id, it is taken as written at the time of the record.
TEST_F(ContextCheck, ADamagedContextIsAFindingAndItsFlowIsOfTheRightThread) {
  constexpr uint32_t kStream = 1;
  constexpr uint64_t kMostEarly = 1000;  // instructions from the record to the id
  enum Damage : uint8_t { bit, other_thread, missing };
  std::vector<std::byte> scratch;
  AuxSegment segment;
  size_t trials = 0;
  const auto decoder = recording_->make_decoder(kStream);
  for (uint64_t at = 0; recording_->next_segment(kStream, at, segment, scratch);) {
    const Bytes whole = segment.bytes;
    const std::vector<Named> contexts = contexts_in(whole, kStream);
    if (contexts.size() < 7) continue;
    std::map<int32_t, uint64_t> right = threads_of(*decoder, segment);
    for (size_t i = 3; i + 3 < contexts.size(); i += 7) {
      const Named& named = contexts[i];
      for (const Damage damage : {bit, other_thread, missing}) {
        if (damage == missing && named.before == named.tid) continue;  // the level is wrong, not the thread
        std::vector<std::byte> damaged(whole.begin(), whole.end());
        const auto place = damaged.begin() + static_cast<std::ptrdiff_t>(named.at);
        if (damage == bit) place[2] ^= std::byte{0x20};
        if (damage == other_thread) place[2] = static_cast<std::byte>(named.tid == 14 ? 1 : 14);
        if (damage == missing) damaged.erase(place, place + named.bytes);
        AuxSegment other = segment;
        other.bytes = damaged;
        const uint64_t most = check(other, kStream).empty() || damage == bit ? 0 : kMostEarly;
        for (const auto& [tid, count] : threads_of(*decoder, other)) {
          if (tid < 0) continue;
          EXPECT_LE(count, right[tid] + most) << segment.stream_offset_bytes + named.at << " damage " << damage << " thread " << tid;
        }
        ++trials;
      }
    }
  }
  EXPECT_GT(trials, 200U);
}

// Windows of lost records before the segment change neither the result nor much of the cost; one over it leaves nothing to judge.
TEST_F(ContextCheck, WindowsOfLostRecordsCostLittle) {
  constexpr uint32_t kStream = 1;
  constexpr uint64_t kWindows = 1 << 20, kFewSteps = 1000;
  std::vector<Interval> lost;
  for (uint64_t i = 0; i < kWindows; ++i) lost.push_back({TimeNs{2 * i}, TimeNs{2 * i}});
  std::vector<std::byte> scratch;
  AuxSegment segment;
  size_t found = 0;
  for (uint64_t at = 0; recording_->next_segment(kStream, at, segment, scratch);) {
    const std::vector<Named> contexts = contexts_in(segment.bytes, kStream);
    if (contexts.size() < 7) continue;
    ASSERT_GT(segment.time.first.value, 4 * kWindows);
    std::vector<std::byte> damaged(segment.bytes.begin(), segment.bytes.end());
    damaged[contexts[3].at + 2] ^= std::byte{0x20};
    AuxSegment other = segment;
    other.bytes = damaged;
    const arm::CheckedSegment without = check(other, kStream, {}), with = check(other, kStream, lost);
    EXPECT_EQ(with.wrong_contexts.size(), without.wrong_contexts.size());
    EXPECT_LT(with.steps, without.steps + kFewSteps);
    found += with.wrong_contexts.size();
    std::vector<Interval> during = lost;
    during.push_back({segment.time.first, segment.time.last});
    EXPECT_TRUE(check(other, kStream, during).wrong_contexts.empty());
  }
  EXPECT_GT(found, 10U);
}

}  // namespace
}  // namespace ptd::test
