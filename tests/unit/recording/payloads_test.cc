// Payloads of AUXTRACE records: placed by offset, each byte once, whatever their order, sizes and repetitions.
#include "recording/trace/payloads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "recording/trace/lost_trace.h"
#include "recording/trace/streams.h"

namespace ptd {
namespace {

constexpr uint64_t kBytes = 4000;

std::vector<std::byte> make_bytes() {
  std::vector<std::byte> bytes(kBytes);
  std::mt19937 random(3);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

const std::vector<std::byte> kWhole = make_bytes();

AuxPayload piece(uint64_t first, uint64_t last, uint32_t ring = 0) {
  return {first, last - first, Bytes(kWhole).subspan(first, last - first), ring};
}

AuxStream stream_of(const std::vector<AuxPayload>& payloads) {
  AuxStream stream;
  for (const AuxPayload& one : payloads) stream.add_payload(one.offset_bytes, one.size_bytes, one.bytes, false, one.ring);
  stream.finish();
  return stream;
}

std::vector<std::byte> all_of(const AuxStream& stream) {
  std::vector<std::byte> scratch;
  const Bytes bytes = stream.read(0, kBytes, scratch);
  return {bytes.begin(), bytes.end()};
}

std::vector<AuxPayload> cut(uint64_t size) {
  std::vector<AuxPayload> pieces;
  for (uint64_t at = 0; at < kBytes; at += size) pieces.push_back(piece(at, std::min(kBytes, at + size)));
  return pieces;
}

TEST(Payloads, InAnyOrderAndRepeatedGiveTheWholeTrace) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<AuxPayload> pieces = cut(1 + random() % 500);
    for (auto more = random() % 20; more > 0; --more) {
      const uint64_t first = random() % kBytes;
      pieces.push_back(piece(first, first + 1 + random() % (kBytes - first)));
    }
    if (seed % 3 != 0) std::shuffle(pieces.begin(), pieces.end(), random);
    const AuxStream stream = stream_of(pieces);
    EXPECT_EQ(all_of(stream), kWhole) << seed;
    EXPECT_EQ(stream.size_bytes(), kBytes) << seed;
    EXPECT_EQ(stream.seams().size(), 1U) << seed;
    EXPECT_TRUE(lost_trace_findings(stream, false).empty()) << seed;
  }
}

TEST(Payloads, FindingsNameWhatWasRepeatedOrOutOfOrder) {
  std::vector<AuxPayload> pieces = cut(1000);
  EXPECT_TRUE(placement_findings(stream_of(pieces)).empty());
  std::swap(pieces[1], pieces[2]);
  const std::vector<Finding> late = placement_findings(stream_of(pieces));
  ASSERT_EQ(late.size(), 1U);
  EXPECT_NE(late[0].what.find("1 AUXTRACE record is out of order, the first at trace offset 1000"), std::string::npos) << late[0].what;
  pieces = cut(1000);
  pieces.push_back(piece(1500, 2700));
  const std::vector<Finding> doubled = placement_findings(stream_of(pieces));
  ASSERT_EQ(doubled.size(), 1U);
  EXPECT_NE(doubled[0].what.find("1200 bytes of trace are in the file twice, from trace offset 1500 on"), std::string::npos)
      << doubled[0].what;
}

// Bytes of which there are two versions are in no chunk; no other byte is lost but for the alignment.
TEST(Payloads, ContradictingBytesAreLost) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    std::vector<AuxPayload> pieces = cut(50 + random() % 500);
    std::vector<std::vector<std::byte>> changed(1 + random() % 4);
    std::set<uint64_t> wrong;
    std::vector<bool> may_go(kBytes);
    for (std::vector<std::byte>& bytes : changed) {
      const uint64_t first = random() % (kBytes - 100), size = 20 + random() % (kBytes - first - 20);
      bytes.assign(kWhole.begin() + static_cast<std::ptrdiff_t>(first), kWhole.begin() + static_cast<std::ptrdiff_t>(first + size));
      const uint64_t at = 8 + random() % (size - 16);  // what differs nearer to an end may be padding
      bytes[at] ^= std::byte{0x10};
      wrong.insert(first + at);
      for (uint64_t i = first; i < first + size; ++i) may_go[i] = true;
      pieces.push_back({first, size, bytes, 0});
    }
    if (seed % 2 == 0) std::shuffle(pieces.begin(), pieces.end(), random);
    const PlacedPayloads placed = place_payloads(pieces);
    std::vector<bool> kept(kBytes);
    uint64_t end = 0;
    for (const AuxChunk& chunk : placed.chunks) {
      ASSERT_GE(chunk.offset_bytes, end);
      end = chunk.end();
      for (uint64_t i = chunk.offset_bytes; i < end; ++i) {
        kept[i] = true;
        ASSERT_EQ(chunk.bytes[i - chunk.offset_bytes], kWhole[i]) << seed << ": " << i;
      }
    }
    for (const uint64_t at : wrong) EXPECT_FALSE(kept[at]) << seed;
    const uint64_t first_wrong = *wrong.begin(), last_wrong = *wrong.rbegin();
    for (uint64_t i = 0; i < kBytes; ++i) EXPECT_TRUE(kept[i] || (i + 16 > first_wrong && i < last_wrong + 16)) << seed << ": " << i;
    const AuxStream stream = stream_of(pieces);
    const std::vector<Finding> findings = placement_findings(stream);
    ASSERT_FALSE(findings.empty());
    EXPECT_EQ(findings[0].kind, FindingKind::trace_lost);
    EXPECT_TRUE(lost_trace_findings(stream, false).empty()) << lost_trace_findings(stream, false)[0].what;  // the file lacks nothing
    EXPECT_TRUE(std::any_of(stream.seams().begin(), stream.seams().end(), [](const Seam& seam) { return seam.why == AuxBreak::missing; }))
        << seed;
  }
}

TEST(Payloads, PaddingIsNoConflict) {
  for (uint64_t padding = 1; padding <= 7; ++padding) {
    std::vector<std::byte> first(kWhole.begin(), kWhole.begin() + 1000);
    std::fill(first.end() - static_cast<std::ptrdiff_t>(padding), first.end(), std::byte{0});
    const std::vector<AuxPayload> pieces = {{0, 1000, first, 0}, piece(1000 - padding, kBytes)};
    for (const auto& given : {pieces, {pieces[1], pieces[0]}, {pieces[0], pieces[1], pieces[0]}}) {
      const AuxStream stream = stream_of(given);
      EXPECT_EQ(all_of(stream), kWhole);
      EXPECT_EQ(stream.seams().size(), 1U);
      EXPECT_EQ(placement_findings(stream).size(), given.size() == 2 && given[0].offset_bytes == 0 ? 0U : 1U);
    }
  }
}

TEST(Payloads, OfAnotherRingFollow) {
  const AuxStream stream = stream_of({piece(0, 100, 0), piece(0, 300, 1), piece(100, 200, 0), piece(300, 400, 1)});
  EXPECT_EQ(stream.size_bytes(), 600U);
  ASSERT_EQ(stream.seams().size(), 2U);
  EXPECT_EQ(stream.seams()[1].offset_bytes, 200U);
  EXPECT_EQ(stream.seams()[1].why, AuxBreak::missing);
  EXPECT_TRUE(placement_findings(stream).empty());
  std::vector<std::byte> scratch;
  const Bytes second = stream.read(200, 600, scratch);
  EXPECT_TRUE(std::equal(second.begin(), second.end(), kWhole.begin(), kWhole.begin() + 400));
}

TEST(Payloads, ARepeatedSnapshotIsDroppedWhereverItIs) {
  AuxStream stream;
  for (const auto& [offset, first] : {std::pair<uint64_t, uint64_t>{0, 0}, {2000, 2000}, {0, 0}, {2000, 2000}})
    stream.add_payload(offset, 1000, Bytes(kWhole).subspan(first, 1000), true);
  stream.finish();
  EXPECT_EQ(stream.size_bytes(), 2000U);
  EXPECT_EQ(stream.seams().size(), 2U);
}

}  // namespace
}  // namespace ptd
