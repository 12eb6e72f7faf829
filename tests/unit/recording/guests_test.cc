// Whether a guest runs in a trace: in all of it, or in a sample of its parts.
#include <gtest/gtest.h>

#include "ptdecode/pt/packet_reader.h"
#include "recording/trace/guest_entries.h"

namespace ptd {
namespace {

constexpr size_t kSegmentBytes = 4096, kSegments = 1024;
const std::vector<uint8_t> kPip = {0x02, 0x43, 0x01, 0, 0, 0, 0, 0};  // with NR
const std::vector<uint8_t> kBad = {0x02, 0xff};

/// A trace of segments: a PSB+ and PAD packets.
class GuestEntries : public ::testing::Test {
 protected:
  GuestEntries() : trace_(kSegments * kSegmentBytes) {
    for (size_t i = 0; i < kSegments; ++i) {
      for (size_t at = 0; at < 16; at += 2) put(i, at, {0x02, 0x82});
      put(i, 16, {0x02, 0x23});
    }
  }
  void put(size_t segment, size_t at, const std::vector<uint8_t>& packet) {
    for (size_t i = 0; i < packet.size(); ++i) trace_[segment * kSegmentBytes + at + i] = static_cast<std::byte>(packet[i]);
  }
  bool runs_guests(size_t stretches) {
    AuxStream stream;
    stream.add_payload(0, trace_.size(), trace_, false);
    stream.finish();
    const SegmentIndex index(stream);
    read_ = 0;
    return ptd::runs_guests(index, {}, {}, stretches, [&] { ++read_; });
  }
  std::vector<std::byte> trace_;
  size_t read_ = 0;  ///< segments
};

TEST_F(GuestEntries, AreFoundAnywhere) {
  EXPECT_FALSE(runs_guests(SIZE_MAX));
  EXPECT_EQ(read_, kSegments);
  put(700, 2000, kPip);
  EXPECT_TRUE(runs_guests(SIZE_MAX));
  EXPECT_EQ(read_, 701U);
}

// A packet that cannot be read hides what follows it only up to the next PSB.
TEST_F(GuestEntries, AreFoundAfterADamagedPacket) {
  for (const size_t damaged : {size_t{0}, size_t{699}, size_t{700}}) put(damaged, 100, kBad);
  pt::PacketReader reader(Bytes(trace_).subspan(100));
  pt::Packet packet;
  ASSERT_EQ(reader.next(packet), pt::PacketReader::Status::bad_packet);
  put(700, 2000, kPip);
  EXPECT_FALSE(runs_guests(SIZE_MAX));
  put(701, 2000, kPip);
  EXPECT_TRUE(runs_guests(SIZE_MAX));
}

TEST_F(GuestEntries, OfASampleAreThoseOfItsParts) {
  constexpr size_t kParts = 4, kStretchBytes = 256U << 10;
  EXPECT_FALSE(runs_guests(kParts));
  EXPECT_LE(read_, kParts * kStretchBytes / kSegmentBytes);
  put(kSegments - 1, 2000, kPip);
  EXPECT_TRUE(runs_guests(kParts));
}

}  // namespace
}  // namespace ptd
