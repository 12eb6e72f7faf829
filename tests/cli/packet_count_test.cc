// Packet counts of `stat`: equal to those of PacketReader, packet by packet, on random and damaged trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "cli/list/stream_stat.h"
#include "ptdecode/pt/packet_reader.h"

namespace ptd::cli {
namespace {

struct Counts {
  std::array<uint64_t, pt::kPacketKinds> packets{};
  uint64_t bad_bytes = 0;
};

Counts read_singly(Bytes bytes, uint64_t end) {
  Counts counts;
  pt::PacketReader reader(bytes);
  pt::Packet packet;
  while (reader.offset() < end) {
    const uint64_t at = reader.offset();
    if (reader.next(packet) == pt::PacketReader::Status::ok) {
      ++counts.packets[static_cast<size_t>(packet.kind)];
      continue;
    }
    ++counts.packets[static_cast<size_t>(pt::PacketKind::bad)];
    const uint64_t next = std::min(pt::find_psb(bytes, at + 1), end);
    counts.bad_bytes += next - at;
    if (next >= end) break;
    reader.seek(next);
  }
  return counts;
}

void append(std::vector<std::byte>& out, std::initializer_list<unsigned> bytes) {
  for (const unsigned byte : bytes) out.push_back(static_cast<std::byte>(byte));
}

void append_psb(std::vector<std::byte>& out) {
  for (int i = 0; i < 8; ++i) append(out, {0x02, 0x82});
}

// Opcodes of all kinds, each with a payload of any bytes, so that many packets end where another begins, and some are invalid.
std::vector<std::byte> random_trace(std::mt19937& random, size_t packets) {
  std::vector<std::byte> out;
  append_psb(out);
  for (size_t i = 0; i < packets; ++i) {
    const unsigned any = static_cast<unsigned>(random());
    switch (any % 24) {
      case 0:
        append_psb(out);
        break;
      case 1:
        append(out, {0x02, any >> 8 & 0xff});  // an escape: long TNT, CBR, VMCS, BBP, BEP and others
        break;
      case 2:
        append(out, {0x99, any >> 8 & 0xff});
        break;
      case 3:
        append(out, {0x19, any >> 8 & 0xff});
        break;
      case 4:
        append(out, {0x02, 0x63, any >> 8 & 0x87, 0x04});  // BBP, and a byte that is an item inside a block
        break;
      default: {  // TNT, TIP, MTC, CYC, PAD
        constexpr unsigned kLeads[] = {0x06, 0x1c, 0xfe, 0x2d, 0x6d, 0xcd, 0x0d, 0x31, 0x01, 0x7d, 0x59, 0x59, 0x03, 0x07, 0xfb, 0x00};
        append(out, {kLeads[any >> 8 & 15]});
        for (unsigned k = any >> 12 & 7; k-- > 0;) append(out, {(any >> 16) & 0xfe});
      }
    }
  }
  return out;
}

void expect_same(const std::vector<std::byte>& bytes, uint64_t tail) {
  AuxSegment segment;
  segment.bytes = bytes;
  segment.tail_bytes = tail;
  StreamStat stat;
  stat.add_packets(segment);
  const Counts want = read_singly(bytes, bytes.size() - tail);
  ASSERT_EQ(stat.packets, want.packets);
  ASSERT_EQ(stat.bad_bytes, want.bad_bytes);
  ASSERT_EQ(stat.packet_bytes, bytes.size() - tail);
}

TEST(PacketCount, EqualsThatOfTheReader) {
  std::mt19937 random(19);
  std::array<uint64_t, pt::kPacketKinds> all{};
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::byte> trace = random_trace(random, 1 + random() % 40);
    trace.resize(trace.size() - random() % 12);  // cut inside a packet
    const uint64_t tail = std::min<uint64_t>(random() % 3 == 0 ? random() % 30 : 0, trace.size());
    expect_same(trace, tail);
    const Counts counts = read_singly(trace, trace.size() - tail);
    for (size_t i = 0; i < all.size(); ++i) all[i] += counts.packets[i];
  }
  for (const pt::PacketKind kind : {pt::PacketKind::pad, pt::PacketKind::tnt_short, pt::PacketKind::tip, pt::PacketKind::tip_pge,
                                    pt::PacketKind::tip_pgd, pt::PacketKind::fup, pt::PacketKind::mtc, pt::PacketKind::cyc,
                                    pt::PacketKind::psb, pt::PacketKind::bbp, pt::PacketKind::bip, pt::PacketKind::bad})
    EXPECT_NE(all[static_cast<size_t>(kind)], 0U) << static_cast<int>(kind);
}

TEST(PacketCount, OfEveryFirstByteInFrontOfPads) {
  for (unsigned first = 0; first < 256; ++first) {
    for (size_t size = 1; size < 32; ++size) {
      std::vector<std::byte> trace(size, std::byte{0});
      trace[0] = static_cast<std::byte>(first);
      expect_same(trace, 0);
    }
  }
}

}  // namespace
}  // namespace ptd::cli
