// ETMv3, PTM, STM and ITM packets: those of OpenCSD's listings, and hand-written ITM packets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "decoder/arm/packet/itm_reader.h"
#include "decoder/arm/packet/legacy_packets.h"
#include "tests/coresight/support/expected.h"
#include "tests/support/corpus.h"

namespace ptd::test {
namespace {

namespace fs = std::filesystem;

/// Returns the peer's name for a packet.
std::string listed_name(const arm::LegacyPacket& packet, arm::Protocol protocol) {
  const std::string name = packet.name;
  const bool ptm = protocol == arm::Protocol::ptm;
  static const std::map<std::string, std::string> kNames = {{"async", "A_SYNC"},
                                                            {"isync", "I_SYNC"},
                                                            {"p_header", "P_HDR"},
                                                            {"branch", "BRANCH_ADDRESS"},
                                                            {"timestamp", "TIMESTAMP"},
                                                            {"atom", "ATOM"},
                                                            {"waypoint", "WP_UPDATE"},
                                                            {"exception_return", "ERET"},
                                                            {"context_id", "CTXTID"},
                                                            {"trigger", "TRIGGER"},
                                                            {"exception_exit", "EXCEPTION_EXIT"}};
  if (protocol == arm::Protocol::stm || (ptm && (name == "async" || name == "isync"))) {
    std::string upper;
    for (const char letter : name) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    return upper;
  }
  const auto found = kNames.find(name);
  return found == kNames.end() ? name : found->second;
}

/// Reads the number after `label`. Returns false if it is not listed.
bool listed_number(const ListedPacket& listed, const std::string& label, int base, uint64_t& value) {
  const size_t at = listed.text.find(label);
  if (at == std::string::npos || listed.text.find("0x?") != std::string::npos) return false;  // unknown parts of an address
  value = std::strtoull(listed.text.c_str() + at + label.size(), nullptr, base);
  return true;
}

/// `gray`: the peer lists the Gray codes of timestamps.
void compare_fields(const ListedPacket& listed, const arm::LegacyPacket& packet, bool gray, const std::string& where) {
  uint64_t value = 0;
  if (listed_number(listed, "Addr=0x", 16, value)) {
    EXPECT_EQ(packet.ip.value, value) << where;
  }
  if (packet.kind == arm::LegacyKind::timestamp && listed_number(listed, "TS=0x", 16, value)) {
    EXPECT_EQ(gray ? packet.value ^ packet.value >> 1 : packet.value, value) << where;
  }
  if (listed_number(listed, "Cycles=", 10, value) && packet.has_cycles) {
    EXPECT_EQ(packet.cycles, value) << where;
  }
  if (listed.text.find("ISA=Thumb2") != std::string::npos) {
    EXPECT_EQ(packet.mode, ExecMode::t32) << where;
  }
  if (packet.kind == arm::LegacyKind::atoms) {
    const size_t at = listed.text.find("; ");
    std::string atoms, told;
    for (unsigned i = 0; i < packet.atoms; ++i) atoms += (packet.bits >> i & 1) != 0 ? 'E' : 'N';
    for (size_t i = at + 2; i < listed.text.size() && listed.text[i] != ';'; ++i) {
      if (listed.text[i] == 'E' || listed.text[i] == 'N') told += listed.text[i];
    }
    EXPECT_EQ(atoms, told) << where;
  }
  for (const char* label : {"Master=0x", "Chan=0x", "Data=0x"}) {
    if (!listed_number(listed, label, 16, value)) continue;
    EXPECT_EQ(label[0] == 'M' ? packet.master : label[0] == 'C' ? packet.channel : packet.value, value) << where;
  }
}

/// Returns how many packets were compared.
size_t compare_legacy_packets(const Recording& recording, uint32_t stream, const std::vector<ListedPacket>& expected) {
  const arm::TraceConfig& config = *recording.arm_config(stream);
  size_t next = 0, compared = 0;
  std::vector<std::byte> scratch;
  AuxSegment segment;
  for (uint64_t from = 0; recording.next_segment(stream, from, segment, scratch);) {
    arm::LegacyReader reader(segment.bytes, config);
    for (const auto* packets = &reader.next(); !packets->empty(); packets = &reader.next()) {
      for (const arm::LegacyPacket& packet : *packets) {
        if (packet.kind == arm::LegacyKind::not_sync) continue;
        while (next < expected.size() && expected[next].name.find("NOTSYNC") != std::string::npos) ++next;
        if (next == expected.size()) return compared;  // cut by the end
        const ListedPacket& listed = expected[next++];
        const std::string where = "packet " + std::to_string(next) + " " + listed.name + listed.text;
        const uint64_t place = recording.buffer_offset(stream, segment.stream_offset_bytes + packet.offset_bytes);
        std::string name = listed.name.substr(0, listed.name.find(':'));
        // Half a byte: the peer gives the offset after it, which in frames is arbitrary.
        if (name != "NULL") {
          EXPECT_LT(std::max(place, listed.offset) - std::min(place, listed.offset), 16U) << where;
        }
        if (name == "I_SYNC_CYCLE") name = "I_SYNC";
        EXPECT_EQ(listed_name(packet, config.protocol), name) << where;
        if (testing::Test::HasFailure()) return compared;
        compare_fields(listed, packet, config.idr1 == kCcerOfSnowball, where);
        ++compared;
      }
    }
  }
  while (next < expected.size() && expected[next].name.find("NOTSYNC") != std::string::npos) ++next;
  EXPECT_LE(expected.size() - next, 1U);
  return compared;
}

size_t compare_recording(const std::string& name, const std::string& listing, arm::Protocol protocol) {
  OpenOptions options;
  options.path = corpus_dir() + "/" + name + "/snapshot";
  const auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok());
  std::map<uint32_t, std::vector<ListedPacket>> expected;
  EXPECT_TRUE(read_listing(listing, expected)) << listing;
  size_t compared = 0;
  for (uint32_t stream = 0; opened.ok() && stream < (*opened)->streams().size(); ++stream) {
    const StreamInfo& info = (*opened)->streams()[stream];
    if (info.protocol == protocol) compared += compare_legacy_packets(**opened, stream, expected[info.trace_id]);
  }
  return compared;
}

TEST(LegacyPackets, OfEtmv3AreThePeers) {
  PTD_NEED_CORPUS();
  EXPECT_GT(compare_recording("cs-TC2", corpus_dir() + "/cs-TC2/expected/listing.ppl.gz", arm::Protocol::etmv3), 5000U);
}

TEST(LegacyPackets, OfPtmAreThePeers) {
  PTD_NEED_CORPUS();
  EXPECT_GT(compare_recording("cs-TC2", corpus_dir() + "/cs-TC2/expected/listing.ppl.gz", arm::Protocol::ptm), 1000U);
  EXPECT_GT(compare_recording("cs-Snowball", corpus_dir() + "/cs-Snowball/expected/listing.ppl.gz", arm::Protocol::ptm), 1500U);
}

std::vector<uint64_t> timestamps_of(Bytes bytes, const arm::TraceConfig& config, std::vector<uint32_t>* cycles = nullptr) {
  std::vector<uint64_t> times;
  arm::LegacyReader reader(bytes, config);
  for (const auto* packets = &reader.next(); !packets->empty(); packets = &reader.next()) {
    for (const arm::LegacyPacket& packet : *packets) {
      if (packet.kind != arm::LegacyKind::timestamp) continue;
      times.push_back(packet.value);
      if (cycles != nullptr) cycles->push_back(packet.cycles);
    }
  }
  return times;
}

// [ETMv3] ETMCCER, "Timestamp packet encoding": Gray-coded if bit 28 is 0. Partial timestamps replace low bits of the code, not of the
// number.
TEST(LegacyPackets, TimestampsMayBeGrayCoded) {
  std::vector<std::byte> bytes;
  const auto put = [&bytes](std::initializer_list<unsigned> values) {
    for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
  };
  put({0, 0, 0, 0, 0, 0x80, 0x08, 0, 0, 1, 0, 0x29});  // A-Sync, I-Sync of PTM
  put({0x42, 0x80, 0x04});                             // code 10 0000 0000: 1023
  put({0x42, 0x80, 0x0c});                             // code 110 0000 0000: 1024
  put({0x42, 0x03});                                   // code 110 0000 0011: 1026
  put({0x42, 0xea, 0x0c});                             // code 110 0110 1010: 1100
  put({0x42, 0x80, 0x08});                             // code 100 0000 0000: 2047
  arm::TraceConfig config;
  config.protocol = arm::Protocol::ptm;
  config.idr0 = 0x411cf312;
  const std::vector<uint64_t> codes = {512, 1536, 1539, 1642, 1024}, numbers = {1023, 1024, 1026, 1100, 2047};
  for (const uint32_t ccer : {0x244008f2U, 0x344008f2U, 0U}) {
    config.idr1 = ccer;
    EXPECT_EQ(timestamps_of(bytes, config), ccer == 0x244008f2 ? numbers : codes) << ccer;
  }
}

// A real trace unit with Gray codes: its timestamps never go back, and count the same clock as its cycles.
TEST(LegacyPackets, GrayCodesOfSnowballAreInOrder) {
  PTD_NEED_CORPUS();
  OpenOptions options;
  options.path = corpus_dir() + "/cs-Snowball/snapshot";
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok());
  size_t count = 0, counted = 0;
  for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
    ASSERT_EQ((*opened)->arm_config(stream)->idr1, kCcerOfSnowball);
    std::vector<std::byte> scratch;
    AuxSegment segment;
    for (uint64_t from = 0; (*opened)->next_segment(stream, from, segment, scratch);) {
      std::vector<uint32_t> cycles;
      const std::vector<uint64_t> times = timestamps_of(segment.bytes, *(*opened)->arm_config(stream), &cycles);
      EXPECT_TRUE(std::ranges::is_sorted(times));
      for (size_t i = 1; i < times.size(); ++i) {
        if (cycles[i] < 1000) continue;  // counted since another packet
        EXPECT_EQ(times[i] - times[i - 1], cycles[i]);
        ++counted;
      }
      count += times.size();
    }
  }
  EXPECT_EQ(count, 21U);
  EXPECT_EQ(counted, 1U);
}

// The corpus lists the first buffer of each capture only: the second is listed by the packaged lister.
TEST(LegacyPackets, OfStmAreThePeers) {
  PTD_NEED_CORPUS();
  std::string file = (fs::temp_directory_path() / "ptd-stm-XXXXXX").string();
  const int made = mkstemp(file.data());
  ASSERT_GE(made, 0);
  close(made);
  const std::string command = "trc_pkt_lister -ss_dir " + corpus_dir() + "/cs-juno_r1_1/snapshot -src_name ETB_1 -decode -logfilename " +
                              file + " > /dev/null 2>&1";
  const bool ran = std::system(command.c_str()) == 0;
  const size_t compared = ran ? compare_recording("cs-juno_r1_1", file, arm::Protocol::stm) : 0;
  fs::remove(file);
  if (!ran) GTEST_SKIP() << "trc_pkt_lister (libopencsd-bin) is not installed";
  EXPECT_GT(compared, 100U);
}

// [ETMv3] "Exception information bytes": on the M profile the number has nine bits, the upper five in the second byte.
TEST(LegacyPackets, ExceptionsOfTheMProfile) {
  const uint8_t raw[] = {0,    0,    0,    0,    0,    0x80, 0x08, 0x00, 0x01, 0x80, 0x00, 0x00,  // A-Sync, I-Sync at 8000, T32
                         0x81, 0x81, 0x82, 0x80, 0x50, 0x83, 0x01, 0x84};                         // branch with exception 0x11; one E atom
  for (const bool m_profile : {true, false}) {
    arm::TraceConfig config;
    config.protocol = arm::Protocol::etmv3;
    config.idr0 = 0x4100f240;
    config.idr1 = 0;
    config.m_profile = m_profile;
    arm::LegacyReader reader(std::as_bytes(std::span(raw)), config);
    std::vector<arm::LegacyPacket> packets;
    for (const auto* more = &reader.next(); !more->empty(); more = &reader.next())
      packets.insert(packets.end(), more->begin(), more->end());
    ASSERT_EQ(packets.size(), 4U);
    EXPECT_TRUE(packets[2].exception);
    EXPECT_EQ(packets[2].number, m_profile ? 0x11U : 1U);
    EXPECT_EQ(packets[2].ip.value, 0x8080U);
    EXPECT_EQ(packets[3].atoms, 1);
  }
}

struct ItmRow {
  std::vector<uint8_t> raw;
  arm::ItmKind kind;
  uint32_t source;
  uint64_t value;
};

// [ARMv7-M] "Debug ITM and DWT packet protocol": each packet after a synchronisation.
TEST(ItmPackets, ByTheirPatterns) {
  using enum arm::ItmKind;
  const ItmRow rows[] = {
      {{0x70}, overflow, 0, 0},
      {{0x01, 0xaa}, software, 0, 0xaa},
      {{0xfa, 0x34, 0x12}, software, 31, 0x1234},
      {{0x0b, 0x78, 0x56, 0x34, 0x12}, software, 1, 0x12345678},
      {{0x17, 0x00, 0x01, 0x00, 0x08}, hardware, 2, 0x08000100},  // program counter sample
      {{0x0e, 0x0f, 0x10}, hardware, 1, 0x100f},                  // exception trace
      {{0x05, 0x03}, hardware, 0, 3},                             // event counters
      {{0xc0, 0x05}, local_time, 0, 5},
      {{0xf0, 0x85, 0x81, 0x01}, local_time, 0, 5 + (1 << 7) + (1 << 14)},
      {{0x30}, local_time, 0, 3},
      {{0x94, 0x81, 0x80, 0x80, 0x25}, global_time_low, 0, 1 + (5 << 21)},
      {{0xb4, 0x81, 0x02}, global_time_high, 0, uint64_t{0x101} << 26},
      {{0x28}, extension, 0, 2},
      {{0x9c, 0x01}, extension, 1, 9},
      {{0x04}, bad, 0, 0},
  };
  for (const ItmRow& row : rows) {
    std::vector<std::byte> bytes(8, std::byte{0});
    bytes.push_back(std::byte{0x80});
    const size_t start = bytes.size();
    for (const uint8_t value : row.raw) bytes.push_back(static_cast<std::byte>(value));
    const std::string where = std::string(name(row.kind)) + " " + std::to_string(row.raw[0]);
    arm::ItmReader reader(bytes);
    arm::ItmPacket packet;
    ASSERT_TRUE(reader.next(packet)) << where;
    EXPECT_EQ(packet.kind, sync) << where;
    ASSERT_TRUE(reader.next(packet)) << where;
    EXPECT_EQ(packet.kind, row.kind) << where;
    EXPECT_EQ(packet.source, row.source) << where;
    EXPECT_EQ(packet.value, row.value) << where;
    EXPECT_EQ(packet.size_bytes, row.raw.size()) << where;
    EXPECT_FALSE(reader.next(packet)) << where;
    for (size_t cut = start + 1; cut < bytes.size(); ++cut) {
      arm::ItmReader shorter(Bytes(bytes).first(cut));
      ASSERT_TRUE(shorter.next(packet));
      EXPECT_FALSE(shorter.next(packet)) << where << " cut at " << cut;
    }
  }
}

TEST(ItmPackets, PortsOfAPage) {
  const std::vector<std::byte> bytes = {std::byte{0},    std::byte{0},    std::byte{0},    std::byte{0},   std::byte{0},
                                        std::byte{0x80}, std::byte{0x38}, std::byte{0x09}, std::byte{0x42}};  // page 3, port 1
  arm::TraceConfig config;
  config.protocol = arm::Protocol::itm;
  arm::LegacyReader reader(bytes, config);
  const std::vector<arm::LegacyPacket>& packets = reader.next();
  ASSERT_EQ(packets.size(), 3U);
  EXPECT_EQ(packets[2].channel, 97U);
  EXPECT_EQ(packets[2].value, 0x42U);
  EXPECT_EQ(packets[2].offset_bytes, 7U);
}

}  // namespace
}  // namespace ptd::test
