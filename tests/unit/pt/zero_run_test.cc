// Zeroed trace: runs of zero bytes, and where reading can continue after them. Uses random packets with known boundaries.
#include "decoder/pt/packet/zero_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::pt {
namespace {

/// Checks every byte.
ZeroRun plain_search(Bytes bytes, uint64_t from, uint64_t end) {
  uint64_t zeros = 0;
  for (uint64_t at = from; at < end; ++at) {
    zeros = bytes[at] == std::byte{0} ? zeros + 1 : 0;
    if (zeros < kLeastZeroRun) continue;
    const uint64_t first = at + 1 - zeros;
    while (at < end && bytes[at] == std::byte{0}) ++at;
    return {first, at};
  }
  return {end, end};
}

TEST(ZeroRun, EqualsASearchByteByByte) {
  std::mt19937_64 random(1);
  size_t found = 0;
  for (int trial = 0; trial < 4000; ++trial) {
    std::vector<std::byte> bytes;
    while (bytes.size() < 300) {
      for (uint64_t n = random() % 9; n != 0; --n) bytes.push_back(static_cast<std::byte>(random() % 3));
      const uint64_t zeros = random() % 4 == 0 ? 60 + random() % 9 : random() % 30;
      bytes.insert(bytes.end(), zeros, std::byte{0});
    }
    const uint64_t from = random() % 20, end = bytes.size() - random() % 20;
    const ZeroRun run = find_zero_run(bytes, from, end), expected = plain_search(bytes, from, end);
    ASSERT_EQ(run.first, expected.first) << trial;
    ASSERT_EQ(run.last, expected.last) << trial;
    found += run.first != run.last ? 1 : 0;
  }
  EXPECT_GT(found, 1000U);
  EXPECT_LT(found, 3900U);
}

TEST(ZeroRun, CutsWhatReachesIntoIt) {
  constexpr ZeroRun kNone{100, 100}, kRun{100, 200};
  EXPECT_FALSE(kNone.cuts(95, 105));
  EXPECT_FALSE(kRun.cuts(95, 100));
  EXPECT_TRUE(kRun.cuts(95, 101));
  EXPECT_TRUE(kRun.cuts(100, 101));
  EXPECT_TRUE(kRun.cuts(90, 90));   // invalid packet; its end may be zeroed
  EXPECT_FALSE(kRun.cuts(60, 60));  // invalid packet, and too far away
}

void write_random(PacketWriter& writer, std::mt19937_64& random) {
  const uint64_t value = random();
  switch (value % 16) {
    case 0:
      return writer.pad(1 + static_cast<unsigned>(value >> 8) % 9);
    case 1:
      return writer.tsc(value >> 8);
    case 2:
      return writer.mtc(static_cast<uint8_t>(value >> 8));
    case 3:
      return writer.cyc(value >> (8 + random() % 50));
    case 4:
      return writer.fup(value >> (random() % 48));
    case 5:
      return writer.ptw(random(), true, false);
    case 6:
      writer.bbp(8, 4);
      for (uint64_t n = random() % 6; n != 0; --n) writer.bip(8, static_cast<uint8_t>(random() % 32), random());
      return writer.bep(false);
    case 7:
    case 8:
    case 9:
      return writer.tip(0xffffffff81000000 + (value >> 8) % 0x1000000);
    case 10:
      return writer.tnt(random(), 47);
    default:
      return writer.tnt(value >> 8, 1 + static_cast<unsigned>(value >> 16) % 6);
  }
}

TEST(ZeroRun, ReadingGoesOnWhereAPacketBegins) {
  std::mt19937_64 random(2);
  constexpr int kTrials = 4000;
  int reached = 0;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<std::byte> bytes;
    std::vector<uint64_t> begins;
    PacketWriter writer(bytes);
    for (int n = 0; n < 200; ++n) write_random(writer, random);
    PacketReader reader(bytes);
    Packet packet;
    for (uint64_t at = 0; reader.next(packet) == PacketReader::Status::ok; at = reader.offset()) {
      if (packet.kind != PacketKind::bip) begins.push_back(at);
    }
    ASSERT_EQ(reader.offset(), bytes.size());
    const uint64_t from = 1 + random() % (bytes.size() - 1), found = find_packet(bytes, from, bytes.size(), {});
    ASSERT_GE(found, from);
    if (found == bytes.size()) continue;
    ASSERT_TRUE(std::binary_search(begins.begin(), begins.end(), found)) << trial << " from " << from << " found " << found;
    ++reached;
  }
  EXPECT_GT(reached, kTrials * 8 / 10);
}

TEST(ZeroRun, ReadingDoesNotGoOnWhereEveryPhaseReads) {
  std::vector<std::byte> bytes;  // TIPs of seven bytes 6d: one begins at each byte
  bytes.resize(8192, std::byte{0x6d});
  EXPECT_EQ(find_packet(bytes, 100, bytes.size(), {}), bytes.size());
}

}  // namespace
}  // namespace ptd::pt
