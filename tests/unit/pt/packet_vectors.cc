// The 120 packet vectors of the corpus (facts of Linux' intel-pt-pkt-decoder-test), for reader and writer.
#include <gtest/gtest.h>

#include <map>

#include "packet_corpus.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::pt {
namespace {

struct Want {
  std::string type;
  uint64_t count = 0, payload = 0;
};

uint64_t left_aligned(const Packet& p) { return p.bits == 0 ? 0 : p.value << (64 - p.bits); }

/// Returns a packet in the conventions of the vectors: see case.json, "format".
Want told(const Packet& p) {
  const bool ip = (p.flags & kFlagIp) != 0;
  const auto flag = [&](uint8_t f) { return (p.flags & f) != 0 ? uint64_t{1} : uint64_t{0}; };
  switch (p.kind) {
    case PacketKind::pad:
      return {"PAD"};
    case PacketKind::psb:
      return {"PSB"};
    case PacketKind::psbend:
      return {"PSBEND"};
    case PacketKind::ovf:
      return {"OVF"};
    case PacketKind::trace_stop:
      return {"TRACESTOP"};
    case PacketKind::tnt_short:
    case PacketKind::tnt_long:
      return {"TNT", p.bits, left_aligned(p)};
    case PacketKind::tip:
      return {"TIP", static_cast<uint64_t>(p.ip_bytes), p.value};
    case PacketKind::tip_pge:
      return {"TIP_PGE", static_cast<uint64_t>(p.ip_bytes), p.value};
    case PacketKind::tip_pgd:
      return {"TIP_PGD", static_cast<uint64_t>(p.ip_bytes), p.value};
    case PacketKind::fup:
      return {"FUP", static_cast<uint64_t>(p.ip_bytes), p.value};
    case PacketKind::mode_exec: {
      const uint64_t mode = flag(kFlagCsL) != 0 ? 0x40 : flag(kFlagCsD) != 0 ? 0x20 : 0x10;
      return {"MODE_EXEC", flag(kFlagCsL) | (flag(kFlagCsD) << 1) | (flag(kFlagIf) << 2), mode};
    }
    case PacketKind::mode_tsx:
      return {"MODE_TSX", 0, flag(kFlagInTx) | (flag(kFlagAbort) << 1)};
    case PacketKind::pip:
      return {"PIP", 0, ((p.value >> 5) << 1) | flag(kFlagNonRoot)};
    case PacketKind::vmcs:
      return {"VMCS", 5, p.value >> 12};
    case PacketKind::cbr:
      return {"CBR", 0, p.value};
    case PacketKind::tsc:
      return {"TSC", 0, p.value};
    case PacketKind::mtc:
      return {"MTC", 0, p.value};
    case PacketKind::tma:
      return {"TMA", p.aux, p.value};
    case PacketKind::cyc:
      return {"CYC", 0, p.value};
    case PacketKind::mnt:
      return {"MNT", 0, p.value};
    case PacketKind::ptw:
      return {ip ? "PTWRITE_IP" : "PTWRITE", p.bits == 8 ? 1U : 0U, p.value};
    case PacketKind::exstop:
      return {ip ? "EXSTOP_IP" : "EXSTOP"};
    case PacketKind::mwait:
      return {"MWAIT", 0, p.value | (p.aux << 32)};
    case PacketKind::pwre:
      return {"PWRE", 0, p.value};
    case PacketKind::pwrx:
      return {"PWRX", 0, p.value};
    case PacketKind::bbp:
      return {"BBP", p.bits == 4 ? 1U : 0U, p.extra};
    case PacketKind::bip:
      return {"BIP", p.bits, p.value};
    case PacketKind::bep:
      return {ip ? "BEP_IP" : "BEP"};
    case PacketKind::cfe:
      return {ip ? "CFE_IP" : "CFE", p.bits, p.extra};
    case PacketKind::evd:
      return {"EVD", p.bits, p.value};
    default:
      return {"none"};
  }
}

uint8_t context(const std::string& name) { return name == "BLK_4" ? 4 : name == "BLK_8" ? 8 : 0; }

TEST(PacketVectors, EveryVectorReadsAndIsWrittenBack) {
  const std::string text = test::read_text(test::corpus() / "pt-packet-vectors" / "vectors.tsv");
  if (text.empty()) GTEST_SKIP() << "no corpus at " << test::corpus();
  size_t vectors = 0;
  for (const std::string& line : test::split(text, '\n')) {
    const auto cell = test::split(line, '\t');
    if (line.empty() || line[0] == '#' || cell.size() < 8) continue;
    SCOPED_TRACE(line);
    ++vectors;
    const auto bytes = test::from_hex(cell[0]);
    PacketReader reader{Bytes(bytes)};
    reader.set_block_items(context(cell[2]));
    Packet packet;
    ASSERT_EQ(reader.next(packet), PacketReader::Status::ok);
    EXPECT_EQ(packet.size_bytes, std::stoul(cell[1]));
    EXPECT_EQ(reader.offset(), std::stoul(cell[1]));
    const Want got = told(packet);
    EXPECT_EQ(got.type, cell[3]);
    EXPECT_EQ(got.count, std::stoull(cell[4]));
    uint64_t payload = std::stoull(cell[5], nullptr, 16);
    if (got.type == "TNT") payload &= ~uint64_t{0} << (64 - got.count);  // the table leaves opcode bits below the branches
    EXPECT_EQ(got.payload, payload);
    EXPECT_EQ(reader.block_items(), context(cell[6]));

    for (const uint8_t items : {uint8_t{4}, uint8_t{8}}) {  // context_must_not_change: the packet is inside a block
      if (cell[7] != "1") continue;
      PacketReader inside{Bytes(bytes)};
      inside.set_block_items(items);
      ASSERT_EQ(inside.next(packet), PacketReader::Status::ok);
      EXPECT_EQ(inside.block_items(), items);
    }
    for (size_t cut = 1; cut < bytes.size(); ++cut) {
      PacketReader part{Bytes(bytes).first(cut)};
      part.set_block_items(context(cell[2]));
      Packet none;
      EXPECT_EQ(part.next(none), PacketReader::Status::cut) << cut;
      EXPECT_EQ(part.offset(), 0U);
      EXPECT_EQ(none.kind, PacketKind::bad);
    }

    std::vector<std::byte> written;
    PacketWriter writer(written);
    ASSERT_TRUE(writer.write(packet));
    PacketReader again{Bytes(written)};
    again.set_block_items(context(cell[2]));
    Packet second;
    ASSERT_EQ(again.next(second), PacketReader::Status::ok);
    EXPECT_EQ(second, packet);
  }
  EXPECT_EQ(vectors, 120U);
}

}  // namespace
}  // namespace ptd::pt
