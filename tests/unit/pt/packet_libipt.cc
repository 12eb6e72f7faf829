// Reader and writer compared with each other and with libipt's packet encoder and decoder, for all packets that both support.
#include <gtest/gtest.h>
#include <intel-pt.h>

#include <cstring>
#include <map>
#include <random>
#include <string>

#include "decoder/pt/packet/packet_table.h"
#include "packet_corpus.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::pt {
namespace {

using Status = PacketReader::Status;

pt_config config_of(std::byte* begin, size_t size) {
  pt_config config;
  pt_config_init(&config);
  config.begin = reinterpret_cast<uint8_t*>(begin);
  config.end = config.begin + size;
  return config;
}

// clang-format off
/// to_libipt() for the kinds that carry no flow.
bool rest_to_libipt(const Packet& p, pt_packet& out) {
  const auto has = [&](uint8_t flag) { return (p.flags & flag) != 0; };
  switch (p.kind) {
    case PacketKind::cbr: out.type = ppt_cbr; out.payload.cbr.ratio = static_cast<uint8_t>(p.value); break;
    case PacketKind::tsc: out.type = ppt_tsc; out.payload.tsc.tsc = p.value; break;
    case PacketKind::mtc: out.type = ppt_mtc; out.payload.mtc.ctc = static_cast<uint8_t>(p.value); break;
    case PacketKind::tma:
      out.type = ppt_tma;
      out.payload.tma.ctc = static_cast<uint16_t>(p.value);
      out.payload.tma.fc = static_cast<uint16_t>(p.aux);
      break;
    case PacketKind::cyc: out.type = ppt_cyc; out.payload.cyc.value = p.value; break;
    case PacketKind::mnt: out.type = ppt_mnt; out.payload.mnt.payload = p.value; break;
    case PacketKind::ptw:
      out.type = ppt_ptw;
      out.payload.ptw.payload = p.value;
      out.payload.ptw.plc = p.bits == 8 ? 1 : 0;
      out.payload.ptw.ip = has(kFlagIp);
      break;
    case PacketKind::exstop: out.type = ppt_exstop; out.payload.exstop.ip = has(kFlagIp); break;
    case PacketKind::mwait:
      out.type = ppt_mwait;
      out.payload.mwait.hints = static_cast<uint32_t>(p.value);
      out.payload.mwait.ext = static_cast<uint32_t>(p.aux);
      break;
    case PacketKind::pwre:  // libipt takes bit 3 for hw, the SDM and Linux bit 7: docs/DIFFERENCES
      out.type = ppt_pwre;
      out.payload.pwre.state = pwre_state(p);
      out.payload.pwre.sub_state = pwre_sub_state(p);
      out.payload.pwre.hw = (p.value & 8) != 0;
      break;
    case PacketKind::pwrx:
      out.type = ppt_pwrx;
      out.payload.pwrx.last = pwrx_last(p);
      out.payload.pwrx.deepest = pwrx_deepest(p);
      out.payload.pwrx.interrupt = (p.extra & 1) != 0;
      out.payload.pwrx.store = (p.extra & 4) != 0;
      out.payload.pwrx.autonomous = (p.extra & 8) != 0;
      break;
    default: return false;
  }
  return true;
}

/// Converts our packet to libipt 2.0.5's. Returns false if libipt does not support the kind.
bool to_libipt(const Packet& p, pt_packet& out) {
  const auto has = [&](uint8_t flag) { return (p.flags & flag) != 0; };
  std::memset(&out, 0, sizeof(out));
  switch (p.kind) {
    case PacketKind::pad: out.type = ppt_pad; break;
    case PacketKind::psb: out.type = ppt_psb; break;
    case PacketKind::psbend: out.type = ppt_psbend; break;
    case PacketKind::ovf: out.type = ppt_ovf; break;
    case PacketKind::trace_stop: out.type = ppt_stop; break;
    case PacketKind::tnt_short: case PacketKind::tnt_long:
      out.type = p.kind == PacketKind::tnt_short ? ppt_tnt_8 : ppt_tnt_64;
      out.payload.tnt.bit_size = p.bits;  // member by member, because padding is compared too
      out.payload.tnt.payload = p.value;
      break;
    case PacketKind::tip: case PacketKind::tip_pge: case PacketKind::tip_pgd: case PacketKind::fup:
      out.type = p.kind == PacketKind::tip       ? ppt_tip
                 : p.kind == PacketKind::tip_pge ? ppt_tip_pge
                 : p.kind == PacketKind::tip_pgd ? ppt_tip_pgd
                                                 : ppt_fup;
      out.payload.ip.ipc = static_cast<pt_ip_compression>(p.ip_bytes);
      out.payload.ip.ip = p.value;
      break;
    case PacketKind::mode_exec:
      if (has(kFlagIf)) return false;
      out.type = ppt_mode;
      out.payload.mode.leaf = pt_mol_exec;
      out.payload.mode.bits.exec.csl = has(kFlagCsL);
      out.payload.mode.bits.exec.csd = has(kFlagCsD);
      break;
    case PacketKind::mode_tsx:
      out.type = ppt_mode;
      out.payload.mode.leaf = pt_mol_tsx;
      out.payload.mode.bits.tsx.intx = has(kFlagInTx);
      out.payload.mode.bits.tsx.abrt = has(kFlagAbort);
      break;
    case PacketKind::pip:
      out.type = ppt_pip;
      out.payload.pip.cr3 = p.value;
      out.payload.pip.nr = has(kFlagNonRoot);
      break;
    case PacketKind::vmcs: out.type = ppt_vmcs; out.payload.vmcs.base = p.value; break;
    default: return rest_to_libipt(p, out);
  }
  return true;
}
// clang-format on

// clang-format off
/// Returns a random packet of a kind with every field in range; reserved bits are 0.
Packet random_packet(PacketKind kind, std::mt19937_64& random) {
  const auto upto = [&](unsigned bits) { return random() >> (64 - bits) >> (random() % bits); };
  const auto flag = [&](uint8_t f) { return (random() & 1) != 0 ? f : uint8_t{0}; };
  const auto byte = [](uint64_t v) { return static_cast<uint8_t>(v); };
  Packet p;
  p.kind = kind;
  switch (kind) {
    case PacketKind::tnt_short: case PacketKind::tnt_long:
      p.bits = byte(1 + random() % (kind == PacketKind::tnt_short ? 6 : 47));
      p.value = random() & ((uint64_t{1} << p.bits) - 1);
      break;
    case PacketKind::tip: case PacketKind::tip_pge: case PacketKind::tip_pgd: case PacketKind::fup: {
      static constexpr IpBytes kForms[] = {IpBytes::suppressed, IpBytes::update16, IpBytes::update32, IpBytes::sext48, IpBytes::update48, IpBytes::full64};
      static constexpr unsigned kBits[] = {0, 16, 32, 48, 48, 64};
      const size_t form = random() % 6;
      p.ip_bytes = kForms[form];
      p.value = form == 0 ? 0 : upto(kBits[form]);
      break;
    }
    case PacketKind::mode_exec: p.flags = static_cast<uint8_t>(((random() & 1) != 0 ? flag(kFlagCsL) : flag(kFlagCsD)) | flag(kFlagIf)); break;
    case PacketKind::mode_tsx: p.flags = (random() & 1) != 0 ? flag(kFlagInTx) : flag(kFlagAbort); break;
    case PacketKind::pip: p.value = upto(47) << 5; p.flags = flag(kFlagNonRoot); break;
    case PacketKind::vmcs: p.value = upto(40) << 12; break;
    case PacketKind::cbr: case PacketKind::mtc: p.value = upto(8); break;
    case PacketKind::tsc: p.value = upto(56); break;
    case PacketKind::tma: p.value = upto(16); p.aux = upto(9); break;
    case PacketKind::cyc: case PacketKind::mnt: p.value = upto(64); break;
    case PacketKind::ptw: p.bits = (random() & 1) != 0 ? 8 : 4; p.value = upto(p.bits * 8U); p.flags = flag(kFlagIp); break;
    case PacketKind::exstop: case PacketKind::bep: p.flags = flag(kFlagIp); break;
    case PacketKind::mwait: p.value = upto(32); p.aux = upto(32); break;
    case PacketKind::pwre: p.flags = flag(kFlagHw); p.value = (upto(8) << 8) | (p.flags != 0 ? 0x80U : 0U); break;
    case PacketKind::pwrx: p.extra = byte(upto(4) & 0xd); p.value = upto(8) | (uint64_t{p.extra} << 8); break;
    case PacketKind::bbp: p.bits = (random() & 1) != 0 ? 8 : 4; p.extra = byte(upto(5)); break;
    case PacketKind::bip: p.bits = byte(upto(5)); p.extra = (random() & 1) != 0 ? 8 : 4; p.value = upto(p.extra * 8U); break;
    case PacketKind::cfe: p.bits = byte(upto(5)); p.extra = byte(upto(8)); p.flags = flag(kFlagIp); break;
    case PacketKind::evd: p.bits = byte(upto(6)); p.value = upto(64); break;
    case PacketKind::trig:
      p.extra = byte(upto(8));
      p.flags = static_cast<uint8_t>(flag(kFlagIp) | flag(kFlagMult));
      if ((random() & 1) != 0) {
        p.bits = 2;
        p.value = upto(16);
      }
      break;
    default: break;
  }
  return p;
}
// clang-format on

std::string hex(const std::vector<std::byte>& bytes) {
  std::string text;
  for (const std::byte b : bytes) {
    char pair[3];
    std::snprintf(pair, sizeof(pair), "%02x", static_cast<unsigned>(b));
    text += pair;
  }
  return text;
}

TEST(PacketRoundTrip, EveryKindWithRandomFields) {
  std::mt19937_64 random(20240601);
  for (int kind = 0; kind < kPacketKinds - 1; ++kind) {
    for (int round = 0; round < 2000; ++round) {
      const Packet want = random_packet(static_cast<PacketKind>(kind), random);
      std::vector<std::byte> bytes;
      PacketWriter writer(bytes);
      ASSERT_TRUE(writer.write(want)) << name(want.kind);
      PacketReader reader{Bytes(bytes)};
      if (want.kind == PacketKind::bip) reader.set_block_items(want.extra);
      Packet got;
      ASSERT_EQ(reader.next(got), Status::ok) << name(want.kind) << " " << hex(bytes);
      EXPECT_EQ(got.size_bytes, bytes.size());
      got.size_bytes = 0;
      ASSERT_EQ(got, want) << name(want.kind) << " " << hex(bytes);
      EXPECT_EQ(reader.next(got), Status::end);
    }
  }
}

TEST(PacketRoundTrip, LibiptEncodesAndDecodesTheSame) {
  std::mt19937_64 random(20240602);
  std::map<PacketKind, int> compared;
  for (int kind = 0; kind < kPacketKinds - 1; ++kind) {
    for (int round = 0; round < 500; ++round) {
      const Packet ours = random_packet(static_cast<PacketKind>(kind), random);
      pt_packet theirs;
      if (!to_libipt(ours, theirs) || (ours.value >> 61 != 0 && ours.kind == PacketKind::cyc)) continue;  // libipt: CYC up to 9 bytes
      std::vector<std::byte> bytes;
      PacketWriter writer(bytes);
      ASSERT_TRUE(writer.write(ours));

      std::byte buffer[64] = {};
      pt_config config = config_of(buffer, sizeof(buffer));
      pt_encoder* encoder = pt_alloc_encoder(&config);
      ASSERT_NE(encoder, nullptr);
      ASSERT_EQ(pt_enc_sync_set(encoder, 0), 0);
      const int size = pt_enc_next(encoder, &theirs);
      pt_free_encoder(encoder);
      ASSERT_EQ(size, static_cast<int>(bytes.size())) << name(ours.kind);
      std::vector<std::byte> encoded(buffer, buffer + size);
      if (ours.kind == PacketKind::pwre) encoded[2] = bytes[2];  // libipt: hw is bit 3
      ASSERT_EQ(hex(encoded), hex(bytes)) << name(ours.kind);

      config = config_of(bytes.data(), bytes.size());
      pt_packet_decoder* decoder = pt_pkt_alloc_decoder(&config);
      ASSERT_EQ(pt_pkt_sync_set(decoder, 0), 0);
      pt_packet read;
      std::memset(&read, 0, sizeof(read));
      ASSERT_EQ(pt_pkt_next(decoder, &read, sizeof(read)), static_cast<int>(bytes.size())) << name(ours.kind) << hex(bytes);
      pt_pkt_free_decoder(decoder);
      theirs.size = read.size;
      EXPECT_EQ(std::memcmp(&read, &theirs, sizeof(read)), 0) << name(ours.kind) << " " << hex(bytes);
      ++compared[ours.kind];
    }
  }
  EXPECT_EQ(compared.size(), static_cast<size_t>(kPacketKinds - 1) - 6) << "all but BBP, BIP, BEP, CFE, EVD, TRIG";
}

/// Returns why libipt 2.0.5 may read the bytes at a place differently. Empty: it must agree.
std::string reason(const std::byte* p, Status status, const Packet& ours, int theirs) {
  const auto byte = [&](int i) { return static_cast<unsigned>(p[i]); };
  if (status == Status::ok && ours.kind >= PacketKind::bbp) return "kind not known to 2.0.5";
  if (status == Status::ok && ours.kind == PacketKind::cyc && ours.size_bytes == 10) return "CYC of 10 bytes";
  if (status == Status::ok && ours.kind == PacketKind::tma && theirs == -pte_bad_packet) return "TMA with reserved bits";
  if (status == Status::bad_packet && byte(0) == 0x99) return "MODE with a reserved leaf value";
  return {};
}

TEST(PacketLibipt, SameAtEveryByteOfTheCorpus) {
  std::map<std::string, int> differences;
  uint64_t places = 0;
  for (const char* file : {"pt-xdc-mruby/trace.bin", "pt-xdc-unzip/trace.bin", "pt-perfdata-skylake/aux-cpu3.bin",
                           "pt-perfdata-skylake/perf.data", "pt-dynamorio-simple/trace.bin", "pt-dynamorio-simple/hello"}) {
    auto bytes = test::to_bytes(test::read_text(test::corpus() / file));
    if (bytes.empty()) GTEST_SKIP() << "no " << file;
    bytes.resize(std::min<size_t>(bytes.size(), 200000));
    pt_config config = config_of(bytes.data(), bytes.size());
    pt_packet_decoder* decoder = pt_pkt_alloc_decoder(&config);
    for (uint64_t at = 0; at + 20 < bytes.size(); ++at, ++places) {
      PacketReader reader(bytes, at);
      Packet ours;
      const Status status = reader.next(ours);
      pt_packet theirs;
      std::memset(&theirs, 0, sizeof(theirs));
      ASSERT_EQ(pt_pkt_sync_set(decoder, at), 0);
      const int size = pt_pkt_next(decoder, &theirs, sizeof(theirs));
      const std::string why = reason(bytes.data() + at, status, ours, size);
      if (!why.empty()) {
        ++differences[why];
        continue;
      }
      if (status != Status::ok) {
        ASSERT_LT(size, 0) << file << " " << at;
        continue;
      }
      pt_packet want;
      ASSERT_EQ(size, ours.size_bytes) << file << " " << at << " " << name(ours.kind);
      if (!to_libipt(ours, want)) {
        ASSERT_EQ(ours.kind, PacketKind::mode_exec);  // with RFLAGS.IF
        continue;
      }
      want.size = theirs.size;
      ASSERT_EQ(std::memcmp(&want, &theirs, sizeof(want)), 0) << file << " " << at << " " << name(ours.kind);
    }
    pt_pkt_free_decoder(decoder);
  }
  for (const auto& [why, count] : differences) RecordProperty(why, count);
  EXPECT_GT(places, 500000U);
}

TEST(PacketWriter, CompressesAsLibiptExpands) {
  std::mt19937_64 random(7);
  std::vector<std::byte> bytes;
  PacketWriter writer(bytes);
  writer.psb();
  std::vector<uint64_t> ips;
  uint64_t ip = 0xffffffff81000000;
  for (int i = 0; i < 20000; ++i) {
    const unsigned bits = static_cast<unsigned>(random() % 64) + 1;
    ip ^= random() >> (64 - bits);
    ips.push_back(ip);
    switch (random() % 4) {
      case 0:
        writer.tip(ip);
        break;
      case 1:
        writer.fup(ip);
        break;
      case 2:
        writer.tip_pge(ip);
        break;
      default:
        writer.tip_pgd(ip);
    }
    if (random() % 64 == 0) writer.tip_suppressed();
  }
  PacketReader reader(bytes);
  Packet packet;
  uint64_t last = 0;
  size_t seen = 0;
  std::map<IpBytes, int> forms;
  while (reader.next(packet) == Status::ok) {
    if (packet.kind == PacketKind::psb || packet.ip_bytes == IpBytes::suppressed) continue;
    ASSERT_TRUE(decompress_ip(packet, last));
    ASSERT_EQ(last, ips[seen++]);
    ++forms[packet.ip_bytes];
  }
  EXPECT_EQ(seen, ips.size());
  EXPECT_EQ(forms.size(), 5U) << "all forms occur";
}

}  // namespace
}  // namespace ptd::pt
