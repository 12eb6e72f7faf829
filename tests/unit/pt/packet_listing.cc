// Packet listings of the corpus (ptdump), line by line: offsets, packets, fields and, where listed, times.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "packet_corpus.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"

namespace ptd::pt {
namespace {

std::string ip_text(const Packet& p) {
  const unsigned ipc = static_cast<unsigned>(p.ip_bytes);
  uint64_t ip = 0;
  switch (p.ip_bytes) {
    case IpBytes::suppressed:
      return "0: ????????????????";
    case IpBytes::update16:
      return fmt::format("{:x}: ????????????{:04x}", ipc, p.value);
    case IpBytes::update32:
      return fmt::format("{:x}: ????????{:08x}", ipc, p.value);
    case IpBytes::update48:
      return fmt::format("{:x}: ????{:012x}", ipc, p.value);
    default:
      return decompress_ip(p, ip) ? fmt::format("{:x}: {:016x}", ipc, ip) : "?";
  }
}

std::string branches(const Packet& p) {
  std::string text;
  for (unsigned bit = p.bits; bit-- != 0;) text += ((p.value >> bit) & 1) != 0 ? '!' : '.';
  return text;
}

/// Returns the packet in ptdump's words, columns separated by one blank.
std::string line_of(const Packet& p, uint64_t offset) {
  const auto has = [&](uint8_t flag) { return (p.flags & flag) != 0; };
  const auto line = [&](std::string_view opcode, const std::string& rest = {}) {
    return fmt::format("{:016x} {}{}{}", offset, opcode, rest.empty() ? "" : " ", rest);
  };
  switch (p.kind) {
    case PacketKind::psb:
      return line("psb");
    case PacketKind::psbend:
      return line("psbend");
    case PacketKind::ovf:
      return line("ovf");
    case PacketKind::trace_stop:
      return line("stop");
    case PacketKind::tnt_short:
      return line("tnt.8", branches(p));
    case PacketKind::tnt_long:
      return line("tnt.64", branches(p));
    case PacketKind::tip:
      return line("tip", ip_text(p));
    case PacketKind::tip_pge:
      return line("tip.pge", ip_text(p));
    case PacketKind::tip_pgd:
      return line("tip.pgd", ip_text(p));
    case PacketKind::fup:
      return line("fup", ip_text(p));
    case PacketKind::mode_exec:
      return line("mode.exec", has(kFlagCsL) ? "cs.l" : has(kFlagCsD) ? "cs.d" : "");
    case PacketKind::mode_tsx:
      return line("mode.tsx", has(kFlagInTx) ? "intx" : has(kFlagAbort) ? "abrt" : "");
    case PacketKind::pip:
      return line("pip", fmt::format("{:x}{} cr3 {:016x}", p.value, has(kFlagNonRoot) ? ", nr" : "", p.value));
    case PacketKind::vmcs:
      return line("vmcs", fmt::format("{:x} vmcs {:016x}", p.value, p.value));
    case PacketKind::cbr:
      return line("cbr", fmt::format("{:x}", p.value));
    case PacketKind::tsc:
      return line("tsc", fmt::format("{:x}", p.value));
    case PacketKind::mtc:
      return line("mtc", fmt::format("{:x}", p.value));
    case PacketKind::tma:
      return line("tma", fmt::format("{:x}, {:x}", p.value, p.aux));
    case PacketKind::cyc:
      return line("cyc", fmt::format("{:x}", p.value));
    default:
      return line(name(p.kind));
  }
}

std::string one_blank(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c != ' ' || (!out.empty() && out.back() != ' ')) out += c;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

struct Case {
  const char *folder, *trace, *listing;
  size_t packets;  ///< lines of the listing
  bool times;
};

std::ostream& operator<<(std::ostream& out, const Case& c) { return out << c.folder << "/" << c.trace; }

/// case.json of pt-perfdata-skylake.
Config skylake() {
  Config config;
  config.mtc_period = 3;
  config.max_nonturbo_ratio = 12;
  config.tsc_ctc_ratio_n = 100;
  config.tsc_ctc_ratio_d = 2;
  config.has_mtc = true;
  return config;
}

class PacketListing : public testing::TestWithParam<Case> {};

TEST_P(PacketListing, EqualsPtdump) {
  const Case& test_case = GetParam();
  const auto folder = test::corpus() / test_case.folder;
  const auto want = test::split(test::read_text(folder / "expected" / test_case.listing), '\n');
  const auto bytes = test::to_bytes(test::read_text(folder / test_case.trace));
  if (bytes.empty() || want.empty()) GTEST_SKIP() << "no " << folder;

  PacketReader reader(bytes, find_psb(bytes, 0));
  PtClock clock(skylake());
  size_t line = 0;
  size_t differences = 0;
  Packet packet;
  for (;;) {
    const uint64_t at = reader.offset();
    const auto status = reader.next(packet);
    if (status == PacketReader::Status::bad_packet) {
      reader.seek(find_psb(bytes, at + 1));
      continue;
    }
    if (status != PacketReader::Status::ok) break;
    if (packet.kind == PacketKind::pad) continue;
    std::string got = line_of(packet, at);
    if (test_case.times && clock.on_packet(packet, at)) got += fmt::format(" tsc {:016x}", clock.now().value);
    ASSERT_LT(line, want.size()) << "more packets than the listing: " << got;
    if (got != one_blank(want[line]) && ++differences <= 10) ADD_FAILURE() << "got  " << got << "\nwant " << one_blank(want[line]);
    ++line;
  }
  EXPECT_EQ(line, want.size());
  EXPECT_EQ(line, test_case.packets);
  EXPECT_EQ(differences, 0U);
  RecordProperty("packets", static_cast<int>(line));
  RecordProperty("differences", static_cast<int>(differences));
}

INSTANTIATE_TEST_SUITE_P(Corpus, PacketListing,
                         testing::Values(Case{"pt-dynamorio-simple", "trace.bin", "packets.txt", 1096, false},
                                         Case{"pt-lldb-multifile", "trace.bin", "packets.txt", 86, false},
                                         Case{"pt-lldb-single", "trace.bin", "packets.txt", 25, false},
                                         Case{"pt-perfdata-skylake", "aux-cpu0.bin", "packets-time-cpu0.txt.gz", 9106, true},
                                         Case{"pt-perfdata-skylake", "aux-cpu3.bin", "packets-time-cpu3.txt.gz", 75987, true},
                                         Case{"pt-xdc-kernel-packets", "trace.bin", "packets.txt", 252, false},
                                         Case{"pt-xdc-mruby", "trace.bin", "packets.txt.gz", 159902, false},
                                         Case{"pt-xdc-unzip", "trace.bin", "packets.txt.gz", 8629, false}),
                         [](const testing::TestParamInfo<Case>& param) {
                           std::string label;
                           for (const char c : std::string(param.param.folder) + "_" + param.param.trace)
                             label += c == '-' || c == '.' ? '_' : c;
                           return label;
                         });

}  // namespace
}  // namespace ptd::pt
