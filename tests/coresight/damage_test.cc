// Damaged trace: the output before the damage does not change, and the damage causes only gaps.
#include <gtest/gtest.h>

#include <random>

#include "decoder/arm/decoder.h"
#include "decoder/arm/packet/legacy_packets.h"
#include "ptdecode/arm/packet_reader.h"
#include "tests/coresight/support/expected.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

struct Walked {
  std::vector<Range> ranges;       ///< that are not marked
  std::vector<size_t> before_gap;  ///< ranges before each gap
  bool bad_packet = false;         ///< is the reason of the last gap
  size_t bad_packets = 0;          ///< gaps with this reason
};

Walked walk(FlowDecoder& decoder, const AuxSegment& segment) {
  decoder.begin(segment);
  Walked walked;
  Batch batch;
  for (bool more = true; more;) {
    batch.clear();
    more = decoder.next(batch);
    auto gap = batch.gaps.begin();
    for (size_t i = 0; i <= batch.blocks.size(); ++i) {
      for (; gap != batch.gaps.end() && gap->before_block == i; ++gap) {
        walked.before_gap.push_back(walked.ranges.size());
        walked.bad_packet = gap->reason == GapReason::bad_packet;
        walked.bad_packets += walked.bad_packet ? 1 : 0;
      }
      if (i == batch.blocks.size()) break;
      const Block& block = batch.blocks[i];
      const BlockInfo& info = decoder.blocks().info(block.node);
      if (has(block.flags, BlockFlag::suspect)) continue;
      walked.ranges.push_back({info.ip.value, info.ip.value + info.size_bytes, info.instructions, has(block.flags, BlockFlag::taken)});
    }
  }
  return walked;
}

Walked walk(const Recording& recording, uint32_t stream, Bytes bytes) {
  arm::DecoderOptions options;
  options.config = *recording.arm_config(stream);
  options.follow.default_space = recording.decoder_options().default_space;
  arm::Decoder decoder(recording.timeline(), recording.contexts(), options);
  AuxSegment segment;
  segment.bytes = bytes;
  return walk(decoder, segment);
}

// [ETMv4] "Trace Info instruction trace packet", INFO.cc_enabled: a trace unit that counts no cycles writes no packet with a count.
TEST(ArmDamage, ACycleCountIsAPacketOnlyIfCyclesAreCounted) {
  constexpr unsigned kTimestamp = 0x03, kFormat1 = 0x0f, kFormat2 = 0x0d, kFormat3 = 0x15;
  for (const unsigned header : {kTimestamp, kFormat1, kFormat2, kFormat3}) {
    for (const bool register_says : {false, true}) {
      for (const bool info_says : {false, true}) {
        arm::TraceConfig config;
        config.protocol = arm::Protocol::etmv4;
        config.configr = register_says ? 0x810 : 0x800;
        std::vector<std::byte> bytes;
        for (const unsigned value : {0x01U, 0x01U, info_says ? 1U : 0U, header}) bytes.push_back(static_cast<std::byte>(value));
        bytes.resize(20, std::byte{0x71});
        for (const bool aside : {false, true}) {
          arm::PacketReader reader(bytes, config);
          arm::Packet packet;
          ASSERT_EQ(reader.next(packet), arm::PacketReader::Status::ok);
          const auto status = aside ? reader.next_aside(packet) : reader.next(packet);
          EXPECT_EQ(status == arm::PacketReader::Status::ok, register_says || info_says) << header << aside;
          reader.reset();  // nothing is known again
          reader.seek(3);
          EXPECT_EQ(reader.next(packet), arm::PacketReader::Status::ok) << header << aside;
        }
      }
    }
  }
}

// One wrong bit makes 0x02 a timestamp with a cycle count, which takes the atoms after it, or 0x12, a cycle count.
TEST(ArmDamage, AWrongBitInATimestampHeaderIsAGapThere) {
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR) + "/data/arm_kernel/kernel.bundle";
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  std::vector<std::byte> scratch;
  AuxSegment segment;
  uint64_t from = 0;
  ASSERT_TRUE((*opened)->next_segment(0, from, segment, scratch));
  const std::vector<std::byte> whole(segment.bytes.begin(), segment.bytes.end());
  const Walked right = walk(**opened, 0, whole);
  ASSERT_FALSE(right.bad_packet);
  arm::PacketReader reader(whole, *(*opened)->arm_config(0));
  arm::Packet packet;
  std::vector<uint64_t> headers;
  for (uint64_t at = 0; reader.next(packet) == arm::PacketReader::Status::ok; at = reader.offset()) {
    if (packet.kind == arm::PacketKind::timestamp) headers.push_back(at);
  }
  ASSERT_GT(headers.size(), 100U);
  for (size_t i = 0; i < headers.size(); i += headers.size() / 20) {
    for (const unsigned bit : {0U, 4U}) {
      std::vector<std::byte> damaged = whole;
      damaged[headers[i]] ^= static_cast<std::byte>(1U << bit);
      const Walked got = walk(**opened, 0, damaged), cut = walk(**opened, 0, Bytes(whole).first(headers[i]));
      ASSERT_TRUE(got.bad_packet) << i;
      EXPECT_EQ(got.ranges.size(), got.before_gap.back()) << i << ": no flow up to the next sync point";
      EXPECT_GE(got.ranges.size(), cut.ranges.size()) << i;
      ASSERT_LE(got.ranges.size(), right.ranges.size()) << i;
      for (size_t k = 0; k < got.ranges.size(); ++k) ASSERT_EQ(got.ranges[k], right.ranges[k]) << i << ", range " << k;
    }
  }
}

/// The flow has a gap, before which it is as it was. More gaps may follow, at returns from calls in the lost flow. After the last, it is as
/// it was.
void expect_gap(const Walked& got, const std::vector<Range>& right) {
  ASSERT_FALSE(got.before_gap.empty());
  const auto first = static_cast<std::ptrdiff_t>(got.before_gap.front()), last = static_cast<std::ptrdiff_t>(got.before_gap.back());
  const auto after = static_cast<std::ptrdiff_t>(got.ranges.size()) - last;
  ASSERT_LE(got.ranges.size(), right.size());
  EXPECT_TRUE(std::equal(got.ranges.begin(), got.ranges.begin() + first, right.begin()));
  EXPECT_TRUE(std::equal(got.ranges.begin() + last, got.ranges.end(), right.end() - after));
}

// The atoms before an exception become an event: the flow would walk from its place through branches, without an atom, to the return
// address.
TEST(ArmDamage, MissingAtomsBeforeAnExceptionAreAGap) {
  constexpr auto kEvent = std::byte{0x71};
  OpenOptions options;
  options.path = std::string(PTD_SOURCE_DIR) + "/data/arm_kernel/kernel.bundle";
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  const auto decoder = (*opened)->make_decoder(0);
  std::vector<std::byte> scratch;
  uint64_t from = 0;
  size_t damages = 0;
  AuxSegment segment;
  for (unsigned i = 0; i < 3 && (*opened)->next_segment(0, from, segment, scratch); ++i) {
    const std::vector<std::byte> whole(segment.bytes.begin(), segment.bytes.end());
    const Walked right = walk(*decoder, segment);
    ASSERT_TRUE(right.before_gap.empty());
    arm::PacketReader reader(whole, *(*opened)->arm_config(0));
    arm::Packet packet;
    uint64_t atom = 0;
    for (uint64_t at = 0; reader.next(packet) == arm::PacketReader::Status::ok; at = reader.offset()) {
      if (is_atom(packet.kind)) atom = at;
      if (packet.kind != arm::PacketKind::except || atom == 0 || atom + 1 != at) continue;
      SCOPED_TRACE(at);
      std::vector<std::byte> damaged = whole;
      damaged[atom] = kEvent;
      segment.bytes = damaged;
      expect_gap(walk(*decoder, segment), right.ranges);
      ++damages;
    }
  }
  EXPECT_GE(damages, 10U);
  RecordProperty("damages", std::to_string(damages));
}

// [ETMv4] "Trace Info instruction trace packet": nothing can be decoded between an A-Sync and its Trace Info. If that is missing, or one of
// its bits is wrong, the flow is as it was or has a gap.
TEST(ArmDamage, NoFlowWithoutTraceInfoIsAGap) {
  constexpr size_t kInfoAt = arm::kAsyncBytes, kInfoBytes = 3;
  for (const char* name : {"arm/plain", "arm/threads", "arm_kernel/kernel"}) {
    OpenOptions options;
    options.path = std::string(PTD_SOURCE_DIR) + "/data/" + name + ".bundle";
    const auto opened = Recording::open(options);
    ASSERT_TRUE(opened.ok());
    for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
      std::vector<std::byte> scratch;
      AuxSegment segment;
      uint64_t from = 0;
      ASSERT_TRUE((*opened)->next_segment(stream, from, segment, scratch));
      const Bytes part = segment.bytes.first(std::min<size_t>(segment.bytes.size() - segment.tail_bytes, 20'000));
      const std::vector<std::byte> whole(part.begin(), part.end());
      const auto decoder = (*opened)->make_decoder(stream);
      segment.tail_bytes = 0;
      segment.bytes = whole;
      const Walked right = walk(*decoder, segment);
      ASSERT_FALSE(right.ranges.empty());
      for (size_t bit = 0; bit <= 8 * kInfoBytes; ++bit) {
        std::vector<std::byte> damaged = whole;
        const auto info = damaged.begin() + kInfoAt;
        if (bit == 8 * kInfoBytes)
          damaged.erase(info, info + kInfoBytes);
        else
          info[static_cast<std::ptrdiff_t>(bit / 8)] ^= static_cast<std::byte>(1U << bit % 8);
        segment.bytes = damaged;
        const Walked got = walk(*decoder, segment);
        EXPECT_TRUE(bit < 8 * kInfoBytes || (got.ranges.empty() && got.bad_packet)) << name << stream;
        EXPECT_TRUE(got.before_gap.size() > right.before_gap.size() || got.ranges == right.ranges) << name << stream << ", bit " << bit;
      }
    }
  }
}

// [PFT] and [ETMv3] "I-Sync": nothing can be decoded between an A-Sync and its I-Sync.
TEST(ArmDamage, NoFlowWithoutIsyncIsAGap) {
  PTD_NEED_CORPUS();
  unsigned streams = 0;
  for (const char* name : {"cs-Snowball", "cs-TC2"}) {
    OpenOptions options;
    options.path = corpus_dir() + "/" + name + "/snapshot";
    const auto opened = Recording::open(options);
    ASSERT_TRUE(opened.ok());
    for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
      std::vector<std::byte> scratch;
      AuxSegment segment;
      uint64_t from = 0;
      if (!(*opened)->next_segment(stream, from, segment, scratch)) continue;
      const std::vector<std::byte> whole(segment.bytes.begin(), segment.bytes.end());
      const auto decoder = (*opened)->make_decoder(stream);
      const Walked right = walk(*decoder, segment);
      if (right.ranges.empty()) continue;
      ++streams;
      EXPECT_FALSE(right.bad_packet) << name << stream;
      std::vector<arm::LegacyPacket> packets;
      arm::LegacyReader reader(whole, *(*opened)->arm_config(stream));
      for (const auto* more = &reader.next(); !more->empty(); more = &reader.next())
        packets.insert(packets.end(), more->begin(), more->end());
      for (const arm::LegacyPacket& packet : packets) {  // undamaged trace may begin at any A-Sync
        if (packet.kind != arm::LegacyKind::async) continue;
        segment.bytes = Bytes(whole).subspan(packet.offset_bytes);
        EXPECT_EQ(walk(*decoder, segment).bad_packets, 0U) << name << stream << ", from " << packet.offset_bytes;
      }
      const auto isync =
          std::find_if(packets.begin(), packets.end(), [](const auto& packet) { return packet.kind == arm::LegacyKind::isync; });
      ASSERT_TRUE(isync != packets.end() && isync + 1 != packets.end());
      const auto at = static_cast<std::ptrdiff_t>(isync->offset_bytes), end = static_cast<std::ptrdiff_t>(isync[1].offset_bytes);
      for (unsigned bit = 0; bit <= 8; ++bit) {
        std::vector<std::byte> damaged = whole;
        if (bit == 8)
          damaged.erase(damaged.begin() + at, damaged.begin() + end);
        else
          damaged[isync->offset_bytes] ^= static_cast<std::byte>(1U << bit);
        segment.bytes = damaged;
        const Walked got = walk(*decoder, segment);
        EXPECT_NE(got.ranges, right.ranges) << name << stream;
        EXPECT_GT(got.bad_packets, 0U) << name << stream << ", bit " << bit;
      }
    }
  }
  EXPECT_EQ(streams, 6U);
}

TEST(ArmDamage, TheFlowBeforeItIsUnchanged) {
  PTD_NEED_CORPUS();
  for (const char* name : {"ete_spec_1", "ete-maxspec78_commopt0", "ete_ip", "cs-juno_r1_1"}) {
    OpenOptions options;
    options.path = corpus_dir() + "/" + name + "/snapshot";
    const auto opened = Recording::open(options);
    ASSERT_TRUE(opened.ok());
    const Recording& recording = **opened;
    std::vector<std::byte> scratch;
    AuxSegment segment;
    uint64_t from = 0;
    (void)recording.next_segment(0, from, segment, scratch);
    const std::vector<std::byte> whole(segment.bytes.begin(), segment.bytes.begin() + std::min<size_t>(segment.bytes.size(), 4000));
    std::mt19937 random(3);
    for (unsigned i = 0; i < 60; ++i) {
      const size_t at = random() % whole.size();
      // Cut there: the rest decodes as the beginning of the whole.
      const Walked part = walk(recording, 0, Bytes(whole).first(at));
      const Walked all = walk(recording, 0, whole);
      ASSERT_LE(part.ranges.size(), all.ranges.size()) << name << " cut at " << at;
      for (size_t k = 0; k < part.ranges.size(); ++k)
        ASSERT_EQ(part.ranges[k], all.ranges[k]) << name << " cut at " << at << ", range " << k;
      // Another byte there: the output contains all of the cut one's output.
      std::vector<std::byte> damaged = whole;
      damaged[at] ^= static_cast<std::byte>(1 + random() % 255);
      const Walked other = walk(recording, 0, damaged);
      ASSERT_GE(other.ranges.size(), part.ranges.size()) << name << " damaged at " << at;
      for (size_t k = 0; k < part.ranges.size(); ++k)
        ASSERT_EQ(part.ranges[k], other.ranges[k]) << name << " damaged at " << at << ", range " << k;
    }
  }
}

}  // namespace
}  // namespace ptd::test
