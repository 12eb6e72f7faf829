// Hand-written packet sequences: reserved forms, PSB search, block items, writer limits.
#include "ptdecode/pt/packet_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "decoder/pt/packet/packet_table.h"
#include "packet_corpus.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::pt {
namespace {

using Status = PacketReader::Status;

std::string psb_hex(int pairs) {
  std::string hex;
  for (int i = 0; i < pairs; ++i) hex += "0282";
  return hex;
}

uint64_t find(const std::string& hex, uint64_t from = 0) { return find_psb(test::from_hex(hex), from); }

TEST(FindPsb, WholeTornAndRepeated) {
  const std::string psb = psb_hex(8);
  EXPECT_EQ(find(psb), 0U);
  EXPECT_EQ(find(""), 0U);
  EXPECT_EQ(find("0000" + psb + "0223"), 2U);
  EXPECT_EQ(find("00" + psb), 1U);
  EXPECT_EQ(find("02" + psb), 1U);  // torn: one byte of the pattern before
  EXPECT_EQ(find("82" + psb), 1U);
  EXPECT_EQ(find(psb_hex(7)), 14U);  // cut: none
  EXPECT_EQ(find(psb_hex(7) + "02"), 15U);
  EXPECT_EQ(find(psb_hex(7) + "0223" + psb), 16U);  // broken off, then a whole one
  EXPECT_EQ(find(psb_hex(3) + "82" + psb), 7U);     // the other parity
  EXPECT_EQ(find(psb_hex(5) + psb), 10U);           // a torn one right before: the last 16 bytes of the run
  EXPECT_EQ(find(psb + psb), 16U);
  EXPECT_EQ(find(psb + "0203", 0), 0U);         // the next packet begins with 02, too
  EXPECT_EQ(find(psb + "0223" + psb, 1), 18U);  // from inside a PSB: the next one
  EXPECT_EQ(find(psb, 1), 16U);
  EXPECT_EQ(find(psb, 100), 16U);
}

/// The definition, byte by byte: the last 16 bytes of the first run of pairs with at least 16 bytes at or after `from`.
uint64_t find_plainly(Bytes bytes, uint64_t from) {
  const auto pair = [&](uint64_t at) { return at + 2 <= bytes.size() && bytes[at] == std::byte{0x02} && bytes[at + 1] == std::byte{0x82}; };
  for (uint64_t at = from; at + 16 <= bytes.size(); ++at) {
    uint64_t end = at;
    while (pair(end)) end += 2;
    if (end - at >= 16) return end - 16;
  }
  return bytes.size();
}

TEST(FindPsb, EqualsThePlainDefinition) {
  std::mt19937 random(11);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> bytes;
    while (bytes.size() < 120) {
      if (random() % 3 != 0) {
        for (auto i = random() % 12; i != 0; --i) bytes.insert(bytes.end(), {std::byte{0x02}, std::byte{0x82}});
      } else {
        bytes.push_back(random() % 2 != 0 ? std::byte{0x02} : std::byte{0x82});
      }
      if (random() % 4 == 0) bytes.push_back(static_cast<std::byte>(random()));
    }
    const uint64_t from = random() % 40;
    ASSERT_EQ(find_psb(bytes, from), find_plainly(bytes, from));
  }
}

TEST(FindPsb, IsLinearOnPatternRuns) {
  const auto bytes = test::from_hex(psb_hex(1 << 16) + "00");
  uint64_t at = 0;
  int found = 0;
  while ((at = find_psb(bytes, at)) < bytes.size()) {
    ++at;
    ++found;
  }
  EXPECT_EQ(found, 1);
}

struct Bad {
  const char* why;
  const char* hex;
  Status status;
};

TEST(PacketReader, ReservedFormsAreBadAndShortOnesCut) {
  const Bad kCases[] = {
      {"TIP IPBytes 5", "ad0102030405060708", Status::bad_packet},
      {"TIP IPBytes 7", "ed0102030405060708", Status::bad_packet},
      {"FUP IPBytes 5", "bd", Status::bad_packet},
      {"free opcode", "c9", Status::bad_packet},
      {"MODE leaf 2", "9940", Status::bad_packet},
      {"MODE.Exec CS.L and CS.D", "9903", Status::bad_packet},
      {"MODE.TSX InTX and TXAbort", "9923", Status::bad_packet},
      {"escape 04", "0204", Status::bad_packet},
      {"PTW PayloadBytes 2", "025201020304", Status::bad_packet},
      {"PTW PayloadBytes 3", "027201020304", Status::bad_packet},
      {"02 C3 without 88", "02c387", Status::bad_packet},
      {"long TNT without stop bit", "02a3000000000000", Status::bad_packet},
      {"long TNT without branches", "02a3010000000000", Status::bad_packet},
      {"PSB broken off", "02820283", Status::bad_packet},
      {"CYC of 11 bytes", "0701010101010101010102", Status::bad_packet},
      {"CYC of 65 bits", "ffffffffffffffffff10", Status::bad_packet},
      {"escape alone", "02", Status::cut},
      {"PSB cut", "0282028202", Status::cut},
      {"TIP cut", "6d010203", Status::cut},
      {"TRIG with count cut", "d9c00102", Status::cut},
      {"nothing", "", Status::end},
  };
  for (const Bad& bad : kCases) {
    const auto bytes = test::from_hex(bad.hex);
    PacketReader reader{Bytes(bytes)};
    Packet packet;
    packet.value = 1;
    EXPECT_EQ(reader.next(packet), bad.status) << bad.why;
    EXPECT_EQ(packet, Packet{}) << bad.why;
    EXPECT_EQ(reader.offset(), 0U) << bad.why;
  }
}

TEST(PacketReader, ItemsStandInBlocksOnly) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.bbp(4, 1);
  writer.bip(4, 3, 0x11223344);
  writer.mtc(5);  // timing packets are allowed inside
  writer.bip(4, 4, 0x55);
  writer.tnt(1, 1);  // TNT.1 T is 06: not an item, so it ends the block
  writer.tnt(0, 1);  // 04 is a TNT again
  writer.bbp(8, 2);
  writer.bip(8, 31, 0x1122334455667788);
  writer.bep(true);
  writer.tnt(2, 2);
  PacketReader reader{Bytes(bytes)};
  const PacketKind kWant[] = {PacketKind::bbp,       PacketKind::bip, PacketKind::mtc, PacketKind::bip, PacketKind::tnt_short,
                              PacketKind::tnt_short, PacketKind::bbp, PacketKind::bip, PacketKind::bep, PacketKind::tnt_short};
  Packet packet;
  for (const PacketKind want : kWant) {
    ASSERT_EQ(reader.next(packet), Status::ok);
    EXPECT_EQ(packet.kind, want);
  }
  EXPECT_EQ(reader.next(packet), Status::end);
}

TEST(PacketReader, TriggerPackets) {  // [SDM] "Trigger Tracing"; libipt 2.3 pt_packet.c
  const auto bytes = test::from_hex(
      "d9a005"
      "d94007"
      "3412");
  PacketReader reader{Bytes(bytes)};
  Packet packet;
  ASSERT_EQ(reader.next(packet), Status::ok);
  EXPECT_EQ(packet.size_bytes, 3);
  EXPECT_EQ(packet.flags, kFlagIp | kFlagMult);
  EXPECT_EQ(packet.extra, 5);
  EXPECT_EQ(packet.bits, 0);
  ASSERT_EQ(reader.next(packet), Status::ok);
  EXPECT_EQ(packet.size_bytes, 5);
  EXPECT_EQ(packet.flags, 0);
  EXPECT_EQ(packet.extra, 7);
  EXPECT_EQ(packet.value, 0x1234U);
}

TEST(PacketReader, CorruptTmaOfSkz84IsSkipped) {
  const auto bytes = test::from_hex(
      "02730102ff000055"
      "5907");
  PacketReader reader{Bytes(bytes)};
  Errata errata;
  errata.skz84 = true;
  reader.set_errata(errata);
  Packet packet;
  ASSERT_EQ(reader.next(packet), Status::ok);
  EXPECT_EQ(packet.kind, PacketKind::pad);
  EXPECT_EQ(packet.size_bytes, 8);
  ASSERT_EQ(reader.next(packet), Status::ok);
  EXPECT_EQ(packet.kind, PacketKind::mtc);
}

TEST(PacketReader, OvfInACycOfSkd007IsAnOvf) {
  const auto kinds_of = [](const char* hex, bool skd007) {
    const auto bytes = test::from_hex(hex);
    PacketReader reader{Bytes(bytes)};
    Errata errata;
    errata.skd007 = skd007;
    reader.set_errata(errata);
    std::vector<PacketKind> kinds;
    for (Packet packet; reader.next(packet) == Status::ok;) kinds.push_back(packet.kind);
    return kinds;
  };
  using enum PacketKind;
  for (const char* torn : {"f702f300", "0702f300"}) {
    EXPECT_EQ(kinds_of(torn, true), (std::vector{ovf, pad}));
    EXPECT_EQ(kinds_of(torn, false), (std::vector{cyc, cyc, pad}));
  }
  for (const char* whole : {"f704f300", "f7025907", "f703f202", "f702"}) EXPECT_EQ(kinds_of(whole, true), kinds_of(whole, false));
}

// The FUPs of the PSB+ of published captures have IPBytes 3, also those of low addresses, and perf 6.1 relies on it.
TEST(PacketWriter, FirstIpAfterAPsbIsNotCompressed) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.tip(0x401170);
  writer.psb();
  const size_t first = bytes.size();
  writer.fup(0x401173);
  writer.tip(0x401175);
  EXPECT_EQ(std::vector<std::byte>(bytes.begin() + static_cast<std::ptrdiff_t>(first), bytes.end()),
            (std::vector<std::byte>{std::byte{0x7d}, std::byte{0x73}, std::byte{0x11}, std::byte{0x40}, std::byte{0}, std::byte{0},
                                    std::byte{0}, std::byte{0x2d}, std::byte{0x75}, std::byte{0x11}}));
}

TEST(PacketWriter, RefusesWhatDoesNotFit) {
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  Packet packet;
  EXPECT_FALSE(writer.write(packet));  // bad
  packet.kind = PacketKind::tsc;
  packet.value = uint64_t{1} << 56;
  EXPECT_FALSE(writer.write(packet));
  packet = {};
  packet.kind = PacketKind::pip;
  packet.value = 0x1001;  // bits 4:0 have no field
  EXPECT_FALSE(writer.write(packet));
  packet = {};
  packet.kind = PacketKind::tnt_short;
  packet.bits = 7;
  EXPECT_FALSE(writer.write(packet));
  packet = {};
  packet.kind = PacketKind::tip;
  packet.ip_bytes = static_cast<IpBytes>(5);
  EXPECT_FALSE(writer.write(packet));
  packet.ip_bytes = IpBytes::update16;
  packet.value = 0x10000;
  EXPECT_FALSE(writer.write(packet));
  packet = {};
  packet.kind = PacketKind::pwrx;
  packet.extra = 1;  // but the payload has 0
  EXPECT_FALSE(writer.write(packet));
  packet = {};
  packet.kind = PacketKind::mtc;
  packet.flags = kFlagIp;
  EXPECT_FALSE(writer.write(packet));
  EXPECT_TRUE(bytes.empty());
}

TEST(PacketWriter, LongTntOfAnyLength) {
  for (unsigned bits = 1; bits <= 64; ++bits) {
    std::vector<std::byte> bytes;
    PacketWriter writer(bytes);
    const uint64_t branches = 0x9e3779b97f4a7c15 & (bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1);
    writer.tnt(branches, bits);
    PacketReader reader(bytes);
    Packet packet;
    uint64_t got = 0;
    unsigned count = 0;
    while (reader.next(packet) == Status::ok) {
      got = (got << packet.bits) | packet.value;
      count += packet.bits;
    }
    EXPECT_EQ(count, bits);
    EXPECT_EQ(got, branches);
  }
}

TEST(PacketTable, FormsDoNotOverlap) {
  const auto forms = packet_forms();
  const auto fits = [](const PacketForm& f, unsigned a, unsigned b, unsigned c) {
    return (a & f.first_mask) == f.first && (b & f.second_mask) == f.second && (c & f.third_mask) == f.third;
  };
  for (unsigned a = 0; a < 256; ++a) {
    for (unsigned b = 0; b < 256; ++b) {
      for (const unsigned c : {0U, 0x80U, 0x88U}) {
        int hits = 0;
        for (const PacketForm& form : forms) {
          if (form.layout == Layout::block_item || (form.kind == PacketKind::tnt_short && (a == 0 || a == 2))) continue;
          hits += fits(form, a, b, c) ? 1 : 0;
        }
        ASSERT_LE(hits, 1) << a << " " << b << " " << c;
      }
    }
  }
}

}  // namespace
}  // namespace ptd::pt
