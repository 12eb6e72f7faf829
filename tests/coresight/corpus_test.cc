// The CoreSight cases of the corpus and of OpenCSD's own tests: executed ranges and packets are those of OpenCSD (in the corpus 1.8.0).
#include "tests/support/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ptdecode/arm/packet_reader.h"
#include "tests/coresight/support/expected.h"

namespace ptd::test {
namespace {

namespace fs = std::filesystem;

std::unique_ptr<Recording> open(const std::string& path, std::vector<std::string> roots = {}) {
  OpenOptions options;
  options.path = path;
  options.symfs = std::move(roots);
  auto opened = Recording::open(options);
  EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
  return opened.ok() ? std::move(*opened) : nullptr;
}

bool is_ours(const StreamInfo& info) { return info.protocol == arm::Protocol::etmv4 || info.protocol == arm::Protocol::ete; }

bool has_flow(const StreamInfo& info) {
  return is_ours(info) || info.protocol == arm::Protocol::etmv3 || info.protocol == arm::Protocol::ptm;
}

/// Returns whether the decoder says that it does not know where a return leads, because calls may have run in missing code.
bool has_unknown_return(const Recording& recording, uint32_t stream) {
  bool unknown = false;
  const Status status = recording.decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
    unknown = unknown || std::ranges::any_of(batch.gaps, [](const Gap& gap) { return gap.reason == GapReason::unknown_return; });
    return !unknown;
  });
  EXPECT_TRUE(status.ok());
  return unknown;
}

/// Returns `expected` without the ranges that `found` leaves out; the whole if `found` has others, or leaves out more than one in twenty.
std::vector<Range> without_lost(const std::vector<Range>& expected, const std::vector<Range>& found) {
  std::vector<Range> common;
  for (const Range& range : expected) {
    if (common.size() < found.size() && found[common.size()] == range) common.push_back(range);
  }
  return expected.size() - common.size() > expected.size() / 20 ? expected : common;
}

/// Ids of the streams that the peer decoded: those of the first buffer, or of all.
void compare_ranges(const Recording& recording, const std::string& file, uint32_t streams, bool exact) {
  RangesById expected;
  ASSERT_TRUE(read_ranges(file, expected)) << file;
  const RangesById found = decode_ranges(recording, 0, streams);
  for (uint32_t stream = 0; stream < streams; ++stream) {
    const StreamInfo& info = recording.streams()[stream];
    if (!has_flow(info)) continue;
    const auto own = found.find(info.trace_id);
    const std::vector<Range> none;
    const std::vector<Range>& ranges = own == found.end() ? none : own->second;
    std::vector<Range> wanted = expected[info.trace_id];
    if (wanted != ranges && has_unknown_return(recording, stream)) wanted = without_lost(wanted, ranges);  // docs/DIFFERENCES.md, OpenCSD
    const std::string what = exact ? difference(wanted, ranges) : difference(joined(wanted), joined(ranges));
    EXPECT_EQ(what, "") << file << ", id " << std::hex << unsigned{info.trace_id};
  }
}

class CoreSight : public testing::TestWithParam<Capture> {};

TEST_P(CoreSight, RangesAreThePeers) {
  const Capture& capture = GetParam();
  const auto recording = open(capture.path);
  ASSERT_TRUE(recording);
  const auto all = static_cast<uint32_t>(recording->streams().size());
  const std::string by_branch = existing(capture.expected_dir + "/ranges_src_addr_N.tsv");
  const std::string sessions = session_ranges_of(capture);
  const std::string ranges = ranges_of(capture);
  // The peer decodes the first buffer unless an option requests all of them.
  if (!sessions.empty()) {
    compare_ranges(*recording, sessions, all, true);
    compare_ranges(*recording, ranges, 1, true);
  } else if (!ranges.empty()) {
    if (!by_branch.empty()) compare_ranges(*recording, by_branch, all, true);
    // With source addresses the peer continues over branches that were not taken; the listing does not show whether it did.
    compare_ranges(*recording, ranges, all, by_branch.empty() && capture.results.empty());
  } else {
    // No range is expected: the peer's listing has none.
    for (const auto& [id, found] : decode_ranges(*recording, 0, all)) EXPECT_TRUE(found.empty()) << "id " << id;
  }
}

TEST_P(CoreSight, CountsOfCyclesOnlyGrow) {
  const auto recording = open(GetParam().path);
  ASSERT_TRUE(recording);
  for (uint32_t stream = 0; stream < recording->streams().size(); ++stream) {
    uint64_t cycles = 0, offset = ~uint64_t{0};
    const Status status =
        recording->decode(stream, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment& segment) {
          if (std::exchange(offset, segment.stream_offset_bytes) != offset) cycles = 0;
          size_t mark = 0;
          for (const Event& event : batch.events) {
            for (; mark < batch.marks.size() && batch.marks[mark].before_block < event.before_block; ++mark) {
              EXPECT_GE(batch.marks[mark].cycles, cycles);
              cycles = std::max(cycles, batch.marks[mark].cycles);
            }
            EXPECT_GE(event.cycles, cycles) << name(event.kind) << " at " << event.stream_offset_bytes;
            cycles = std::max(cycles, event.cycles);
          }
          for (; mark < batch.marks.size(); ++mark) cycles = std::max(cycles, batch.marks[mark].cycles);
          return true;
        });
    EXPECT_TRUE(status.ok());
  }
}

std::string upper(const char* name) {
  std::string text = "I_";
  for (; *name != '\0'; ++name) text += static_cast<char>(std::toupper(static_cast<unsigned char>(*name)));
  return text;
}

uint64_t hex_behind(const std::string& text, const std::string& label, bool& found) {
  const size_t at = text.find(label);
  found = at != std::string::npos;
  return found ? std::stoull(text.substr(at + label.size()), nullptr, 16) : 0;
}

std::string atoms_of(const arm::Packet& packet) {
  std::string text;
  for (unsigned i = 0; i < packet.bits; ++i) text += (packet.value >> i & 1) != 0 ? 'E' : 'N';
  return text;
}

/// Compares the packet's fields with the description in the listing.
void compare_fields(const ListedPacket& listed, const arm::Packet& packet, const std::string& where) {
  bool told = false;
  if (const uint64_t address = hex_behind(listed.text, "Addr=0x", told); told) {
    EXPECT_EQ(packet.value, address) << where;
  }
  if (const uint64_t time = hex_behind(listed.text, "Updated val = 0x", told); told) {
    EXPECT_EQ(packet.value, time) << where;
  }
  if (const uint64_t id = hex_behind(listed.text, "CID=0x", told); told) {
    EXPECT_EQ(packet.context.context_id, id) << where;
  }
  if (const uint64_t id = hex_behind(listed.text, "VMID=0x", told); told) {
    EXPECT_EQ(packet.context.vmid, id) << where;
  }
  if (packet.context.present) {
    EXPECT_EQ(packet.context.is64, listed.text.find("AArch64") != std::string::npos) << where;
    EXPECT_NE(listed.text.find("EL" + std::to_string(packet.context.level)), std::string::npos) << where << listed.text;
  }
  if (arm::is_atom(packet.kind)) {
    EXPECT_EQ(listed.text.substr(listed.text.rfind("; ") + 2), atoms_of(packet)) << where;
  }
}

void compare_packets(const Recording& recording, uint32_t stream, const std::vector<ListedPacket>& expected) {
  size_t next = 0;
  std::vector<std::byte> scratch;
  const auto meaningless = [&] { return next < expected.size() && expected[next].name == "I_NOT_SYNC"; };
  AuxSegment segment;
  for (uint64_t from = 0; recording.next_segment(stream, from, segment, scratch);) {
    arm::PacketReader reader(segment.bytes, *recording.arm_config(stream));
    arm::Packet packet;
    while (true) {
      const uint64_t at = reader.offset();
      const auto status = reader.next(packet);
      if (status == arm::PacketReader::Status::end || status == arm::PacketReader::Status::cut) break;
      if (status == arm::PacketReader::Status::bad_packet) reader.seek(at + 1);
      while (meaningless()) ++next;
      const std::string where = "packet " + std::to_string(next) + " at " + std::to_string(at);
      ASSERT_LT(next, expected.size()) << where;
      const ListedPacket& listed = expected[next++];
      // The peer counts the bytes of a frame from the id before them.
      const uint64_t place = recording.buffer_offset(stream, segment.stream_offset_bytes + at);
      ASSERT_LT(std::max(place, listed.offset) - std::min(place, listed.offset), 16U) << where;
      if (status == arm::PacketReader::Status::bad_packet) {
        ASSERT_TRUE(listed.name.starts_with("I_RESERVED") || listed.name.starts_with("I_BAD")) << where << listed.name;
        continue;
      }
      std::string name = upper(arm::name(packet.kind));
      if (const size_t swapped = name.find("SRC_ADDR"); swapped != std::string::npos && listed.name.find("SCR_ADDR") != std::string::npos) {
        name.replace(swapped, 8, "SCR_ADDR");
      }
      ASSERT_EQ(name, listed.name) << where;
      EXPECT_EQ(packet.size_bytes, listed.size) << where << listed.name;
      compare_fields(listed, packet, where + " " + listed.name + listed.text);
    }
  }
  // The rest of the peer's list is a packet that the end cuts off.
  while (meaningless()) ++next;
  EXPECT_LE(expected.size() - next, 1U) << (next < expected.size() ? expected[next].name : "");
}

TEST_P(CoreSight, PacketsAreThePeers) {
  const Capture& capture = GetParam();
  const auto recording = open(capture.path);
  ASSERT_TRUE(recording);
  const std::string file = listing_of(capture);
  std::map<uint32_t, std::vector<ListedPacket>> expected;
  ASSERT_TRUE(read_listing(file, expected)) << file;
  if (expected.empty()) GTEST_SKIP() << "the listing has no packets";
  std::map<uint32_t, bool> done;
  for (uint32_t stream = 0; stream < recording->streams().size(); ++stream) {
    const StreamInfo& info = recording->streams()[stream];
    if (!is_ours(info) || done[info.trace_id]) continue;
    done[info.trace_id] = true;
    // Packets of a buffer without frames are listed with id 0.
    compare_packets(*recording, stream, expected.contains(info.trace_id) ? expected[info.trace_id] : expected[0]);
  }
}

// The ranges in the listing equal those of the files of ranges: the suite can use either.
TEST_P(CoreSight, ListedRangesAreThoseOfTheFile) {
  const std::string file = ranges_of(GetParam()), listing = listing_of(GetParam());
  if (file.empty() || file == listing) GTEST_SKIP() << "no file of ranges";
  RangesById ranges, listed;
  ASSERT_TRUE(read_ranges(file, ranges));
  ASSERT_TRUE(read_ranges(listing, listed));
  EXPECT_EQ(ranges.size(), listed.size());
  for (const auto& [id, own] : ranges) EXPECT_EQ(difference(own, listed[id]), "") << "id " << std::hex << id;
}

std::string test_name(const testing::TestParamInfo<Capture>& which) {
  std::string name = which.param.name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Corpus, CoreSight, testing::ValuesIn(captures()), test_name);
INSTANTIATE_TEST_SUITE_P(Upstream, CoreSight, testing::ValuesIn(upstream_captures()), test_name);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CoreSight);

/// A folder that is deleted with the object.
struct CaseFolder {
  fs::path path;
  CaseFolder() {
    std::string name = (fs::temp_directory_path() / "ptd-coresight-XXXXXX").string();
    if (mkdtemp(name.data()) != nullptr) path = name;
  }
  ~CaseFolder() {
    std::error_code error;
    fs::remove_all(path, error);
  }
};

TEST(CoreSightPerf, SimpleperfsRecordingGivesThePeersRanges) {
  PTD_NEED_CORPUS();
  const CaseFolder root;
  const std::string dir = corpus_dir() + "/cs-simpleperf-etm";
  fs::create_directories(root.path / "data/local/tmp");
  fs::copy_file(dir + "/snapshot-cpu7/etm_test_loop", root.path / "data/local/tmp/etm_test_loop");
  OpenOptions options;
  options.path = dir + "/perf.data";
  options.symfs = {root.path.string()};
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_EQ((*opened)->streams().size(), 1U);
  EXPECT_EQ((*opened)->streams()[0].cpu, 7);
  RangesById expected;
  ASSERT_TRUE(read_ranges(dir + "/expected/ranges-cpu7.tsv", expected));
  EXPECT_EQ(difference(expected[0x1e], decode_ranges(**opened, 0, 1)[0x1e]), "");
}

TEST(CoreSightPerf, ARecordingWithoutItsTraceIsAccepted) {
  PTD_NEED_CORPUS();
  const auto recording = open(corpus_dir() + "/cs-simpleperf-missing-aux/perf.data");
  ASSERT_TRUE(recording);
  for (uint32_t stream = 0; stream < recording->streams().size(); ++stream) EXPECT_TRUE(recording->segment_starts(stream).empty());
}

// The registers of its device file, its dumps and its trace in one capture file: the same flow as from the snapshot's files.
TEST(CoreSightCapture, GivesTheFlowOfTheSnapshot) {
  PTD_NEED_CORPUS();
  const std::string dir = corpus_dir() + "/cs-ricsec-fib/capture1";
  const auto snapshot = open(dir);
  ASSERT_TRUE(snapshot);
  const arm::TraceConfig& config = *snapshot->arm_config(0);
  std::string ini = "[capture]\nformat=coresight\nfile=" + dir + "/" + [&] {
    for (const auto& entry : fs::directory_iterator(dir)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("cstrace") || name.starts_with("trace.bin")) return name;
    }
    return std::string();
  }();
  char registers[400];
  std::snprintf(registers, sizeof registers,
                "\n[source ETM_9]\ntype=ETM4\ncore=cpu_9\nTRCCONFIGR=%#x\nTRCTRACEIDR=%#x\nTRCIDR0=%#x\nTRCIDR1=%#x\nTRCIDR2=%#x\n"
                "TRCIDR8=%u\nTRCDEVARCH=%#x\n[core cpu_9]\ntype=Cortex-A53\n",
                config.configr, config.traceidr, config.idr0, config.idr1, config.idr2, config.idr8, config.devarch);
  ini += registers;
  for (SectionId id = 0; id < snapshot->timeline().section_count(); ++id) {
    const Section& section = snapshot->timeline().section(id);
    ini += "[dump" + std::to_string(id) + "]\nfile=" + section.path.str() + "\naddress=" + std::to_string(section.ip.value) +
           "\noffset=" + std::to_string(section.file_offset_bytes) + "\nlength=" + std::to_string(section.size_bytes) + "\n";
  }
  const CaseFolder folder;
  std::ofstream(folder.path / "own.ini") << ini;
  const auto capture = open((folder.path / "own.ini").string(), {"/"});  // its files are elsewhere
  ASSERT_TRUE(capture);
  ASSERT_EQ(capture->streams().size(), 1U);
  EXPECT_EQ(capture->streams()[0].core, "cpu_9");
  const std::vector<Range> flow = decode_ranges(*snapshot, 0, 1).begin()->second;
  EXPECT_GT(flow.size(), 1000U);
  EXPECT_EQ(difference(flow, decode_ranges(*capture, 0, 1).begin()->second), "");
}

TEST(CoreSightCorpus, IsThere) {
  PTD_NEED_CORPUS();
  EXPECT_GE(captures().size(), 25U);
}

}  // namespace
}  // namespace ptd::test
