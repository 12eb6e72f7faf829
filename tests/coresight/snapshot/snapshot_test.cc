// Hand-written snapshots: dumps in memory spaces, and ini files as people write them.
#include <gtest/gtest.h>

#include <chrono>

#include "ptdecode/bundle.h"
#include "tests/coresight/support/expected.h"
#include "tests/coresight/support/folder.h"
#include "tests/coresight/support/made_frames.h"

namespace ptd::test {
namespace {

constexpr uint32_t kNopCode = 0xd503201f, kBranchToSelf = 0x14000000;

class Snapshot : public Folder {
 public:
  /// Writes snapshot.ini, trace.ini and the trace unit; the core has these dumps.
  void frame(const std::string& dumps) const {
    text("snapshot.ini", "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\n[trace]\nmetadata=trace.ini\n");
    buffer("source_data");
    text("etm.ini",
         "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\n"
         "TRCIDR1=0x4100f403\nTRCIDR2=0x488\nTRCIDR8=0\n");
    text("cpu.ini", "[device]\nname=cpu_0\nclass=core\ntype=Cortex-A53\n" + dumps);
  }
  /// Writes trace.ini: the trace unit's buffer has this format.
  void buffer(const std::string& format) const {
    text("trace.ini", "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB\nfile=trace.bin\nformat=" + format +
                          "\n[core_trace_sources]\ncpu_0=ETM_0\n[source_buffers]\nETM_0=ETB\n");
  }
  std::unique_ptr<Recording> open() const {
    OpenOptions options;
    options.path = path();
    auto opened = Recording::open(options);
    EXPECT_TRUE(opened.ok()) << (opened.ok() ? "" : opened.error().message);
    return opened.ok() ? std::move(*opened) : nullptr;
  }
};

std::vector<Range> flow(const Recording& recording) { return decode_ranges(recording, 0, 1)[0x10]; }

// [ETMv4] "Context packet": 0x31 is AArch64, EL1, non-secure; 0x13 is AArch64, EL3, secure; 0x32 is EL2, 0x11 secure EL1.
TEST(SnapshotSpaces, TheContextPicksTheDump) {
  const Snapshot snapshot;
  snapshot.words("normal.bin", {kNopCode, kBranchToSelf});
  snapshot.words("monitor.bin", {kNopCode, kNopCode, kNopCode, kBranchToSelf});
  snapshot.words("hypervisor.bin", {kBranchToSelf});
  snapshot.frame(
      "[dump1]\nfile=normal.bin\naddress=0x1000\nlength=8\nspace=N\n[dump2]\nfile=monitor.bin\naddress=0x1000\nlength=16\nspace=EL3\n"
      "[dump3]\nfile=hypervisor.bin\naddress=0x2000\nlength=4\nspace=EL2\n");
  snapshot.bytes("trace.bin", {0,    0,    0,    0,    0,    0,    0,    0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04,  // A-Sync, info, on
                               0x82, 0x00, 0x08, 0x00, 0x00, 0x31, 0xf7,    // EL1 non-secure at 1000
                               0x82, 0x00, 0x08, 0x00, 0x00, 0x13, 0xf7,    // EL3 there
                               0x82, 0x00, 0x10, 0x00, 0x00, 0x32, 0xf7,    // EL2 at 2000
                               0x82, 0x00, 0x10, 0x00, 0x00, 0x31, 0xf7,    // EL1: no code there
                               0x82, 0x00, 0x08, 0x00, 0x00, 0x11, 0xf7});  // secure EL1: none either
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  const std::vector<Range> expected = {{0x1000, 0x1008, 2, true}, {0x1000, 0x1010, 4, true}, {0x2000, 0x2004, 1, true}};
  EXPECT_EQ(difference(expected, flow(*recording)), "");
  std::vector<uint64_t> missing;
  (void)recording->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
    for (const Gap& gap : batch.gaps) {
      if (gap.reason == GapReason::no_image) missing.push_back(gap.ip.value);
    }
    return true;
  });
  EXPECT_EQ(missing, (std::vector<uint64_t>{0x2000, 0x1000}));
}

TEST(SnapshotSpaces, ABundleKnowsThem) {
  const Snapshot snapshot;
  snapshot.words("normal.bin", {kNopCode, kBranchToSelf});
  snapshot.words("monitor.bin", {kNopCode, kNopCode, kNopCode, kBranchToSelf});
  snapshot.frame("[dump1]\nfile=normal.bin\naddress=0x1000\nspace=EL1N\n[dump2]\nfile=monitor.bin\naddress=0x1000\nspace=EL3\n");
  snapshot.bytes("trace.bin", {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x80, 0x01, 0x01, 0x00,
                               0x04, 0x82, 0x00, 0x08, 0x00, 0x00, 0x31, 0xf7, 0x82, 0x00, 0x08, 0x00, 0x00, 0x13, 0xf7});
  OpenOptions options;
  options.path = snapshot.path();
  BundleOptions bundle;
  bundle.output_path = snapshot.path() + "/own.ptb";
  const auto report = write_bundle(options, bundle);
  ASSERT_TRUE(report.ok()) << report.error().message;
  options.path = bundle.output_path;
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(difference({{0x1000, 0x1008, 2, true}, {0x1000, 0x1010, 4, true}}, flow(**opened)), "");
}

// The upper half, too: a kernel's code, secure code, and code of any space; in a bundle as in the snapshot.
TEST(SnapshotSpaces, UpperHalvesOfTheirOwn) {
  const Snapshot snapshot;
  snapshot.words("normal.bin", {kNopCode, kBranchToSelf});
  snapshot.words("monitor.bin", {kNopCode, kNopCode, kNopCode, kBranchToSelf});
  snapshot.words("any.bin", {kNopCode, kNopCode, kBranchToSelf, kNopCode, kNopCode, kBranchToSelf});
  snapshot.frame(
      "[dump1]\nfile=normal.bin\naddress=0xffff000000001000\nspace=EL1N\n[dump2]\nfile=monitor.bin\naddress=0xffff000000001000\n"
      "space=EL3\n[dump3]\nfile=any.bin\naddress=0xffff000000001000\n");
  snapshot.bytes("trace.bin", {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x80, 0x01, 0x01,
                               0x00, 0x04, 0x85, 0x00, 0x08, 0x00, 0x00, 0x00, 0x00, 0xff, 0xff, 0x31, 0xf7,  // EL1 non-secure
                               0x82, 0x00, 0x08, 0x00, 0x00, 0x13, 0xf7,                                      // EL3
                               0x82, 0x00, 0x08, 0x00, 0x00, 0x11, 0xf7,                                      // secure EL1: any space's
                               0x82, 0x03, 0x08, 0x00, 0x00, 0x31, 0xf7,                                      // EL1: own, any space's
                               0x82, 0x00, 0x08, 0x00, 0x10, 0x31, 0xf7});                                    // no code
  const std::vector<Range> expected = {{0xffff000000001000, 0xffff000000001008, 2, true},
                                       {0xffff000000001000, 0xffff000000001010, 4, true},
                                       {0xffff000000001000, 0xffff00000000100c, 3, true},
                                       {0xffff00000000100c, 0xffff000000001018, 3, true}};
  OpenOptions options;
  options.path = snapshot.path();
  BundleOptions bundle;
  bundle.output_path = snapshot.path() + "/own.ptb";
  const auto report = write_bundle(options, bundle);
  ASSERT_TRUE(report.ok()) << report.error().message;
  for (const std::string& path : {snapshot.path(), bundle.output_path}) {
    options.path = path;
    const auto recording = Recording::open(options);
    ASSERT_TRUE(recording.ok()) << recording.error().message;
    EXPECT_EQ(difference(expected, flow(**recording)), "") << path;
    std::vector<uint64_t> missing;
    (void)(*recording)->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
      for (const Gap& gap : batch.gaps) {
        if (gap.reason == GapReason::no_image) missing.push_back(gap.ip.value);
      }
      return true;
    });
    EXPECT_EQ(missing, (std::vector<uint64_t>{0xffff000010001000}));
    // Code that is not the same in all spaces has no file name; the code after it, which is the same, has one.
    const Timeline& timeline = (*recording)->timeline();
    EXPECT_EQ(timeline.section_at(kKernelSpace, Ip{0xffff000000001004}, kTimeMin), kNoSection);
    const SectionId behind = timeline.section_at(kKernelSpace, Ip{0xffff000000001014}, kTimeMin);
    ASSERT_NE(behind, kNoSection) << path;
    EXPECT_TRUE(timeline.section(behind).path.ends_with("any.bin"));
  }
}

TEST(SnapshotSpaces, TheEarlierOfTwoDumpsOfOneSpaceCounts) {
  const Snapshot snapshot;
  snapshot.words("a.bin", {kNopCode, kBranchToSelf});
  snapshot.words("b.bin", {kBranchToSelf, kNopCode, kNopCode, kBranchToSelf});
  snapshot.frame("[dump1]\nfile=a.bin\naddress=0x1000\nspace=any\n[dump2]\nfile=b.bin\naddress=0x1000\nspace=EL1N\n");
  snapshot.bytes("trace.bin", {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0x80, 0x01, 0x01, 0x00, 0x04,
                               0x82, 0x00, 0x08, 0x00, 0x00, 0x31, 0xf7, 0x82, 0x02, 0x08, 0x00, 0x00, 0x31, 0xf7});  // 1008: only in b.bin
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  EXPECT_EQ(difference({{0x1000, 0x1008, 2, true}, {0x1008, 0x1010, 2, true}}, flow(*recording)), "");
}

// Dumps of one space with different bytes for an address: a finding with the first such address. Dumps with equal bytes, and those of
// different spaces, are none.
TEST(SnapshotSpaces, DumpsThatContradictEachOther) {
  struct Row {
    std::string dumps;
    std::vector<std::pair<uint64_t, std::string>> want;  // address, its files
  };
  const auto dump = [](const std::string& file, const std::string& address, const std::string& space) {
    return "[dump]\nfile=" + file + "\naddress=" + address + "\nspace=" + space + "\n";
  };
  const std::string a = "a.bin", b = "b.bin", same = "same.bin";
  const Row rows[] = {
      {dump(a, "0x1000", "any") + dump(b, "0x1000", "EL1N"), {{0x1004, "a.bin and b.bin"}}},
      {dump(b, "0x1000", "any") + dump(same, "0x1000", "any") + dump(a, "0x1000", "any"),
       {{0x1004, "b.bin and a.bin"}, {0x1004, "b.bin and same.bin"}}},
      {dump(a, "0x1000", "any") + dump(b, "0x0ffc", "any"), {{0x1004, "a.bin and b.bin"}}},
      {dump(a, "0x1000", "any") + dump(same, "0x1000", "any") + dump(a, "0x1000", "any"), {}},
      {dump(a, "0x1000", "any") + dump(b, "0x1008", "any"), {}},
      {dump(a, "0x1000", "EL1N") + dump(b, "0x1000", "EL3"), {}},
      {dump(a, "0xffff000000001000", "any") + dump(b, "0xffff000000001000", "any"), {{0xffff000000001004, "a.bin and b.bin"}}},
      {dump(a, "0xffff000000001000", "EL1N") + dump(b, "0xffff000000001000", "any"), {{0xffff000000001004, "a.bin and b.bin"}}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(&row - rows);
    const Snapshot snapshot;
    snapshot.words(a, {kNopCode, kBranchToSelf});
    snapshot.words(same, {kNopCode, kBranchToSelf, kNopCode});
    snapshot.words(b, {kNopCode, kNopCode, kNopCode, kBranchToSelf});
    snapshot.frame(row.dumps);
    snapshot.bytes("trace.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording);
    std::vector<std::pair<uint64_t, std::string>> told;
    for (const Finding& finding : recording->findings()) {
      if (finding.kind != FindingKind::section_overlap) continue;
      std::string files =
          finding.what.substr(0, finding.what.find(" contain different bytes for the same addresses; the first one is used"));
      const std::string folder = snapshot.path() + "/";
      for (size_t at = files.find(folder); at != std::string::npos; at = files.find(folder)) files.erase(at, folder.size());
      told.emplace_back(finding.ip.value, files);
    }
    std::sort(told.begin(), told.end());
    auto want = row.want;
    std::sort(want.begin(), want.end());
    EXPECT_EQ(told, want);
  }
}

TEST(SnapshotIni, IsReadAsPeopleWriteIt) {
  const Snapshot snapshot;
  snapshot.words("my code.bin", {0, 0, kNopCode, kBranchToSelf, 0});
  snapshot.text("snapshot.ini",
                "\xef\xbb\xbf[Snapshot]\r\nVersion=1.0\r\n; a comment\r\n[Device_List]\r\nDevice0 = my cpu.ini \r\n[trace]\r\nMetadata=the "
                "trace.ini\r\n"
                "[device_LIST]\r\ndevice1=etm.ini ; the trace unit\r\ndevice2=not there.ini\r\n");
  snapshot.text(
      "the trace.ini",
      "\xef\xbb\xbf[Trace_Buffers]\r\nBuffers = Buffer0 , buffer1\r\n[BUFFER0]\r\nNAME=etb\r\nFile= first part.bin , second part.bin\r\n"
      "Format=Source_Data\r\n[Core_Trace_Sources]\r\nCPU_0=etm_0\r\n[Source_Buffers]\r\netm_0=ETB\r\n");
  snapshot.text(
      "etm.ini",
      "[DEVICE]\r\nName=ETM_0\r\nClass=Trace_Source\r\nType=etm4.0\r\n[Regs]\r\nTRCCONFIGR(0x004)=0X00000001\r\n# more\r\n[regs]\r\n"
      "trctraceidr(0x010)(size:32)=0x00000010\r\nTRCIDR0=0x28000EA1\r\nTRCIDR1=0x4100F403\r\nTRCIDR2=0x488\r\n");
  snapshot.text("my cpu.ini",
                "[device]\r\nname=cpu_0\r\nclass=CORE\r\ntype=Cortex-A53\r\n[Dump]\r\nFILE=my "
                "code.bin\r\nAddress=0X1000\r\nOffset=0x8\r\nLength=8\r\n"
                "[Dump]\r\nfile=gone.bin\r\naddress=0x3000\r\n[dump]\r\nfile=away.bin\r\naddress=0x4000\r\nlength=0x100\r\n");
  snapshot.bytes("first part.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04, 0x82, 0x00});
  snapshot.bytes("second part.bin", {0x08, 0x00, 0x00, 0x31, 0xf7});
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  ASSERT_EQ(recording->streams().size(), 1U);
  EXPECT_EQ(recording->streams()[0].trace_id, 0x10);
  EXPECT_EQ(recording->streams()[0].core, "CPU_0");
  EXPECT_EQ(difference({{0x1000, 0x1008, 2, true}}, flow(*recording)), "");
  // Missing files are named.
  const auto told = [&](const std::string& name) {
    for (const std::string& warning : recording->warnings()) {
      if (warning.find(name) != std::string::npos) return true;
    }
    for (const MissingImage& image : recording->missing_images()) {
      if (image.path.find(name) != std::string::npos) return true;
    }
    return false;
  };
  EXPECT_TRUE(told("not there.ini"));
  EXPECT_TRUE(told("gone.bin"));
  EXPECT_TRUE(told("away.bin"));
}

size_t count_of(const Recording& recording, const std::string& text) {
  size_t count = 0;
  for (const std::string& warning : recording.warnings()) count += warning.find(text) != std::string::npos ? 1 : 0;
  return count;
}

constexpr const char* kOneDump = "[dump1]\nfile=code.bin\naddress=0x1000\n";
const std::vector<uint8_t> kShortTrace = {0,    0,    0,    0,    0,    0,    0,    0,    0,    0,    0,   0x80,
                                          0x01, 0x01, 0x00, 0x04, 0x82, 0x00, 0x08, 0x00, 0x00, 0x31, 0xf7};

TEST(SnapshotDevices, ARegisterThatIsNoNumberIsTold) {
  for (const std::string value : {"0x1", "abc", "", "0x1zz", "-1", "4294967296", "0x1ffffffffffffffff"}) {
    const Snapshot snapshot;
    snapshot.words("code.bin", {kNopCode, kBranchToSelf});
    snapshot.frame(kOneDump);
    snapshot.text("trace.bin", std::string(kShortTrace.begin(), kShortTrace.end()));
    snapshot.text("etm.ini", "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR(0x004)=" + value +
                                 "\nTRCTRACEIDR=0x10\nTRCIDR9=x\n");
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording) << value;
    EXPECT_EQ(count_of(*recording, "/etm.ini: TRCCONFIGR=" + value + " is no number of 32 bits"), value == "0x1" ? 0U : 1U) << value;
    EXPECT_EQ(count_of(*recording, " is no number"), value == "0x1" ? 0U : 1U) << value;
  }
}

// Debuggers also write the bytes of a trace port in the format of a buffer (in OpenCSD's lister this is an option).
TEST(SnapshotFrames, SyncsBetweenFramesAreSeenWhateverTheFormatSays) {
  std::vector<uint8_t> port = {0x12, 0x34, 0x56};
  const std::vector<uint8_t> frames = frames_of({{0x10, kShortTrace}}, [] { return false; });
  for (size_t at = 0; at < frames.size(); ++at) {
    if (at % 16 == 0) port.insert(port.end(), {0xff, 0xff, 0xff, 0x7f});
    if (at == 20) port.insert(port.end(), {0xff, 0x7f});
    port.push_back(frames[at]);
  }
  const std::string of_port(port.begin(), port.end()), of_frames(frames.begin(), frames.end());
  struct Row {
    const char* format;
    const std::string& content;
    bool told;
  };
  const Row rows[] = {{"coresight", of_frames, false},
                      {"coresight", of_port, true},
                      {"dstream_coresight", of_port, false},
                      {"dstream_coresight", of_frames, true}};
  for (const Row& row : rows) {
    const Snapshot snapshot;
    snapshot.words("code.bin", {kNopCode, kBranchToSelf});
    snapshot.frame(kOneDump);
    snapshot.text("trace.ini", std::string("[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB\nfile=trace.bin\nformat=") + row.format +
                                   "\n[core_trace_sources]\ncpu_0=ETM_0\n[source_buffers]\nETM_0=ETB\n");
    snapshot.text("trace.bin", row.content);
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording);
    EXPECT_EQ(difference({{0x1000, 0x1008, 2, true}}, flow(*recording)), "") << row.format;
    EXPECT_EQ(count_of(*recording, "not as its format says"), row.told ? 1U : 0U) << row.format;
  }
}

// Several files are one buffer: a frame may begin in one and end in the next. A source may be listed for several buffers.
TEST(SnapshotFrames, FilesAreJoinedAndBuffersListed) {
  const Snapshot snapshot;
  snapshot.words("code.bin", {kNopCode, kBranchToSelf});
  snapshot.frame(kOneDump);
  const std::vector<uint8_t> frames = frames_of({{0x10, kShortTrace}}, [] { return false; });
  snapshot.text("a.bin", {frames.begin(), frames.begin() + 9});
  snapshot.text("b.bin", {frames.begin() + 9, frames.end()});
  snapshot.text("c.bin", {kShortTrace.begin(), kShortTrace.end()});
  snapshot.text("trace.ini",
                "[trace_buffers]\nbuffers=buffer0,buffer1\n[buffer0]\nname=ETB\nfile=a.bin, b.bin\nformat=coresight\n[buffer1]\nname=ETF\n"
                "file=c.bin\nformat=source_data\n[core_trace_sources]\ncpu_0=ETM_0\n[source_buffers]\nETM_0=ETB, ETF\n");
  snapshot.text("cpu.ini", std::string("[device]\nname=cpu_0\n") + kOneDump);  // a core without class and type
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  ASSERT_EQ(recording->streams().size(), 2U);
  const std::vector<Range> once = {{0x1000, 0x1008, 2, true}};
  for (uint32_t stream = 0; stream < 2; ++stream)
    EXPECT_EQ(difference(once, decode_ranges(*recording, stream, stream + 1)[0x10]), "") << stream;
}

/// Returns the gaps of a recording's first stream.
std::vector<GapReason> gaps_of(const Recording& recording) {
  std::vector<GapReason> reasons;
  (void)recording.decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
    for (const Gap& gap : batch.gaps) reasons.push_back(gap.reason);
    return true;
  });
  return reasons;
}

// A buffer holds whole frames, so one that does not was cut, or lacks bytes: every length but those of whole frames is reported.
TEST(SnapshotFrames, ABufferThatEndsWithinAFrameIsReported) {
  constexpr size_t frame_bytes = 16;
  const std::vector<uint8_t> frames = frames_of({{0x10, kShortTrace}}, [] { return false; });
  for (size_t size = 1; size <= frames.size(); ++size) {
    const Snapshot snapshot;
    snapshot.words("code.bin", {kNopCode, kBranchToSelf});
    snapshot.frame(kOneDump);
    snapshot.buffer("coresight");
    snapshot.text("trace.bin", {frames.begin(), frames.begin() + static_cast<ptrdiff_t>(size)});
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording) << size;
    const bool whole = size % frame_bytes == 0;
    EXPECT_EQ(count_of(*recording, "trace.bin: its " + std::to_string(size) + " bytes are not whole frames"), whole ? 0U : 1U) << size;
    const std::vector<Finding> findings = recording->findings();
    const auto lost = std::count_if(findings.begin(), findings.end(), [](const Finding& each) {
      return each.kind == FindingKind::trace_lost && each.what.find("whole frames") != std::string::npos;
    });
    EXPECT_EQ(lost, whole ? 0 : 1) << size;
    const std::vector<GapReason> gaps = gaps_of(*recording);
    const bool has_trace = size >= frame_bytes;
    EXPECT_EQ(std::count(gaps.begin(), gaps.end(), GapReason::aux_lost), has_trace && !whole ? 1 : 0) << size;
  }
}

// A trace port from which bytes are missing: of each protocol the flow has a gap there, and goes on after it.
TEST(SnapshotFrames, BytesMissingFromATracePortAreAGap) {
  struct Row {
    const char *type, *regs;
    std::vector<uint8_t> trace;  ///< synchronises, and runs one branch
  };
  constexpr uint32_t kA32Nop = 0xe1a00000, kA32ToSelf = 0xeafffffe;
  const Row rows[] = {{"ETM4", "TRCCONFIGR=0x1\nTRCTRACEIDR=0x10\nTRCIDR0=0x28000ea1\nTRCIDR1=0x4100f403\nTRCIDR2=0x488\n", kShortTrace},
                      {"ETM3.5", "ETMTRACEIDR=0x10\n", {0, 0, 0, 0, 0, 0x80, 0x08, 0x29, 0x00, 0x10, 0x00, 0x00, 0x88}},
                      {"PTM1.1", "ETMTRACEIDR=0x10\n", {0, 0, 0, 0, 0, 0x80, 0x08, 0x00, 0x10, 0x00, 0x00, 0x29, 0x84}}};
  for (const Row& row : rows) {
    const bool etmv4 = row.trace == kShortTrace;
    std::vector<uint8_t> trace;
    constexpr size_t kTimes = 8;
    for (size_t i = 0; i < kTimes; ++i) trace.insert(trace.end(), row.trace.begin(), row.trace.end());
    std::vector<uint8_t> port;
    const std::vector<uint8_t> frames = frames_of({{0x10, trace}, {0x11, {1, 2}}, {0x10, trace}}, [] { return false; });
    for (size_t at = 0; at < frames.size(); ++at) {
      if (at % 64 == 0) port.insert(port.end(), {0xff, 0xff, 0xff, 0x7f});
      port.push_back(frames[at]);
    }
    size_t whole = 0;
    for (const size_t missing : {size_t{0}, size_t{1}, size_t{6}}) {
      const Snapshot snapshot;
      snapshot.words("code.bin", {etmv4 ? kNopCode : kA32Nop, etmv4 ? kBranchToSelf : kA32ToSelf});
      snapshot.frame(kOneDump);
      snapshot.buffer("dstream_coresight");
      snapshot.text("etm.ini", std::string("[device]\nname=ETM_0\nclass=trace_source\ntype=") + row.type + "\n[regs]\n" + row.regs);
      std::string content(port.begin(), port.end());
      content.erase(80, missing);
      snapshot.text("trace.bin", content);
      const auto recording = snapshot.open();
      ASSERT_TRUE(recording);
      const std::vector<GapReason> gaps = gaps_of(*recording);
      EXPECT_EQ(std::count(gaps.begin(), gaps.end(), GapReason::aux_lost), missing == 0 ? 0 : 1) << row.type << " " << missing;
      EXPECT_EQ(gaps.size(), missing == 0 ? 0U : 1U) << row.type << " " << missing;
      EXPECT_EQ(count_of(*recording, "not whole frames in 1 places, first at offset 72"), missing == 0 ? 0U : 1U) << row.type;
      // The next id byte comes in the second half.
      const size_t ranges = flow(*recording).size();
      if (missing == 0) whole = ranges;
      EXPECT_GT(ranges, whole / 8) << row.type;
      EXPECT_EQ(ranges == whole, missing == 0) << row.type;
    }
  }
}

// [linux] coresight_barrier_pkt: trace was lost before it. Trace after it that does not begin with an A-Sync lacks its begin; at the begin
// of the buffer, it is what is left in a ring.
TEST(SnapshotFrames, ABarrierWithoutAnAsyncAfterItIsAGap) {
  constexpr size_t kFrame = 16, kCut = 3;
  const std::vector<uint8_t> cut(kShortTrace.begin() + kCut, kShortTrace.end());
  for (const bool is_cut : {false, true}) {
    for (const bool at_begin : {false, true}) {
      std::vector<uint8_t> after = is_cut ? cut : kShortTrace;
      for (size_t i = 0; i < 4; ++i) after.insert(after.end(), kShortTrace.begin(), kShortTrace.end());
      std::vector<uint8_t> buffer;
      if (!at_begin) buffer = frames_of({{0x10, kShortTrace}}, [] { return false; });
      for (size_t i = 0; i < kFrame / 4; ++i) buffer.insert(buffer.end(), {0xff, 0xff, 0xff, 0x7f});
      const std::vector<uint8_t> frames = frames_of({{0x10, after}}, [] { return false; });
      buffer.insert(buffer.end(), frames.begin(), frames.end());
      const Snapshot snapshot;
      snapshot.words("code.bin", {kNopCode, kBranchToSelf});
      snapshot.frame(kOneDump);
      snapshot.buffer("coresight");
      snapshot.text("trace.bin", {buffer.begin(), buffer.end()});
      const auto recording = snapshot.open();
      ASSERT_TRUE(recording);
      const bool is_lost = is_cut && !at_begin;
      EXPECT_EQ(gaps_of(*recording), std::vector<GapReason>(is_lost ? 1 : 0, GapReason::aux_lost)) << is_cut << at_begin;
      EXPECT_EQ(recording->findings().size(), is_lost ? 1U : 0U) << is_cut << at_begin;
    }
  }
}

/// Bytes that are no trace of the unit whose id they have: its description is that of another one, or its synchronisation packets are
/// damaged.
TEST(SnapshotSources, BytesWithoutSynchronisationAreLost) {
  std::vector<uint8_t> other;
  for (unsigned i = 0; i < 500; ++i) other.push_back(static_cast<uint8_t>((i * 37 + 11) % 251 + 1));
  // [ITM] a synchronisation, a value of a stimulus port; then 04, which no packet begins with.
  const std::vector<uint8_t> itm = {0, 0, 0, 0, 0, 0x80, 0x01, 0xaa}, bad_itm = {0, 0, 0, 0, 0, 0x80, 0x01, 0xaa, 0x04, 0x01, 0xaa};
  struct Row {
    const char *type, *regs;
    const std::vector<uint8_t>& trace;
    size_t gaps, findings;
  };
  const Row rows[] = {{"ETM4", "TRCTRACEIDR=0x10\n", other, 0, 1},   {"ETM3.5", "ETMTRACEIDR=0x10\n", other, 1, 0},
                      {"PTM1.1", "ETMTRACEIDR=0x10\n", other, 1, 0}, {"ITM", "ITM_TCR=0x100000\n", other, 1, 0},
                      {"STM", "STMTCSR=0x100000\n", other, 1, 0},    {"ITM", "ITM_TCR=0x100000\n", itm, 0, 0},
                      {"ITM", "ITM_TCR=0x100000\n", bad_itm, 1, 0}};
  for (const Row& row : rows) {
    const Snapshot snapshot;
    snapshot.words("code.bin", {kNopCode, kBranchToSelf});
    snapshot.frame(kOneDump);
    snapshot.text("etm.ini", std::string("[device]\nname=ETM_0\nclass=trace_source\ntype=") + row.type + "\n[regs]\n" + row.regs);
    snapshot.text("trace.bin", {row.trace.begin(), row.trace.end()});
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording) << row.type;
    EXPECT_EQ(recording->findings().size(), row.findings) << row.type;
    std::vector<GapReason> gaps;
    (void)recording->decode(0, 0, Recording::kStreamEnd, [&](const Batch& batch, const FlowDecoder&, const AuxSegment&) {
      for (const Gap& gap : batch.gaps) gaps.push_back(gap.reason);
      return true;
    });
    EXPECT_EQ(gaps, std::vector<GapReason>(row.gaps, GapReason::bad_packet)) << row.type;
  }
}

/// The ids of a description that is wrong or incomplete: two units with one id, a unit that is not described.
TEST(SnapshotSources, IdsThatAreSharedOrNotDescribedAreFindings) {
  struct Row {
    const char* why;
    int second_id;  // in the description
    std::vector<uint8_t> second_trace;
    std::vector<std::string> want;
  };
  const std::vector<uint8_t> no_sync = {0x04, 0x82, 0, 0, 0, 0, 0x81};
  const Row rows[] = {
      {"two units", 0x11, kShortTrace, {}},
      {"one id", 0x10, kShortTrace, {"the sources ETM_0 and ETM_1 have one trace id, 16", "no source with their trace id, 17"}},
      {"no description", 0x12, kShortTrace, {"no source with their trace id, 17"}},
      {"bytes without synchronisation", 0x12, no_sync, {}}};
  for (const Row& row : rows) {
    const Snapshot snapshot;
    snapshot.words("code.bin", {kNopCode, kBranchToSelf});
    snapshot.frame(kOneDump);
    snapshot.text(
        "snapshot.ini",
        "[snapshot]\nversion=1.0\n[device_list]\ndevice0=cpu.ini\ndevice1=etm.ini\ndevice2=etm1.ini\n[trace]\nmetadata=trace.ini\n");
    snapshot.text("trace.ini",
                  "[trace_buffers]\nbuffers=buffer0\n[buffer0]\nname=ETB\nfile=trace.bin\nformat=coresight\n"
                  "[core_trace_sources]\ncpu_0=ETM_0\n[source_buffers]\nETM_0=ETB\nETM_1=ETB\n");
    snapshot.text("etm1.ini", "[device]\nname=ETM_1\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x1\nTRCTRACEIDR=" +
                                  std::to_string(row.second_id) + "\nTRCIDR0=0x28000ea1\nTRCIDR1=0x4100f403\nTRCIDR2=0x488\nTRCIDR8=0\n");
    const std::vector<uint8_t> frames = frames_of({{0x10, kShortTrace}, {0x11, row.second_trace}}, [] { return false; });
    snapshot.text("trace.bin", {frames.begin(), frames.end()});
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording) << row.why;
    const std::vector<Finding> findings = recording->findings();
    ASSERT_EQ(findings.size(), row.want.size()) << row.why;
    for (size_t i = 0; i < findings.size(); ++i) EXPECT_NE(findings[i].what.find(row.want[i]), std::string::npos) << findings[i].what;
  }
}

TEST(SnapshotIni, WhatHasNoFlowIsTold) {
  const Snapshot snapshot;
  snapshot.frame("");
  snapshot.bytes("trace.bin", {0, 0, 0, 0, 0, 0x80, 0x01, 0xaa});
  snapshot.text("etm.ini", "[device]\nname=ETM_0\nclass=trace_source\ntype=ITM\n[regs]\nITM_TCR=0x10009\n");
  const auto itm = snapshot.open();
  ASSERT_TRUE(itm);
  EXPECT_EQ(count_of(*itm, "no source traces instructions"), 1U);
  snapshot.text("etm.ini",
                "[device]\nname=ETM_0\nclass=trace_source\ntype=ETM4\n[regs]\nTRCCONFIGR=0x3\nTRCTRACEIDR=0x10\n"
                "TRCIDR0=0x28000ea7\n");
  const auto loads = snapshot.open();
  ASSERT_TRUE(loads);
  EXPECT_EQ(count_of(*loads, "no source traces instructions"), 0U);
  EXPECT_EQ(count_of(*loads, "loads or stores have their own atoms"), 1U);
}

TEST(SnapshotIni, TypesOfCores) {
  struct Row {
    const char* type;
    bool m_profile, v7;
  };
  constexpr Row kRows[] = {
      {"Cortex-M3", true, true},    {"cortex-m4", true, true},    {"Cortex-M0+", true, true},   {"Cortex-M33", true, false},
      {"Cortex-M35P", true, false}, {"Cortex-M85", true, false},  {"ARMv7-M", true, true},      {"ARMv7E-M", true, true},
      {"ARM-v7M", true, true},      {"ARMv8-M", true, false},     {"ARMv8.1-M", true, false},   {"armv8m.main", true, false},
      {"ARMv7-A", false, true},     {"ARMv7-R", false, true},     {"ARMv8-A", false, false},    {"ARMv8.3-R", false, false},
      {"ARM-AA64", false, false},   {"Cortex-A15", false, false}, {"Cortex-R52", false, false}, {"Neoverse-V2", false, false},
  };
  for (const Row& row : kRows) {
    const Snapshot snapshot;
    snapshot.frame("");
    snapshot.text("cpu.ini", std::string("[device]\nname=cpu_0\nclass=core\ntype=") + row.type + "\n");
    snapshot.bytes("trace.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
    const auto recording = snapshot.open();
    ASSERT_TRUE(recording);
    EXPECT_EQ(recording->arm_config(0)->m_profile, row.m_profile) << row.type;
    EXPECT_EQ(recording->arm_config(0)->v7_core, row.v7) << row.type;
  }
}

/// Returns one dump of `size` bytes.
std::string dump(uint64_t address, uint64_t size, const char* space) {
  return "[dump]\nfile=a.bin\naddress=" + std::to_string(address) + "\nlength=" + std::to_string(size) + "\nspace=" + space + "\n";
}
constexpr uint64_t kUpper = 0xffff000000000000;

TEST(SnapshotHostile, DumpsThatAllOverlapCostNoMoreThanTheyAre) {
  const Snapshot snapshot;
  snapshot.words("a.bin", {kNopCode, kBranchToSelf});
  constexpr uint64_t kDumps = 3000, kApart = 0x1000;
  std::string dumps;
  for (uint64_t i = 0; i < kDumps; ++i) dumps += dump(kUpper + i * kApart, 8, "EL1N");
  for (uint64_t i = 0; i < kDumps; ++i) dumps += dump(kUpper, kDumps * kApart + i, "EL1S");
  snapshot.frame(dumps);
  snapshot.bytes("trace.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  EXPECT_TRUE(recording->warnings().empty());
}

TEST(SnapshotHostile, DumpsBeyondWhatIsTakenAreCounted) {
  const Snapshot snapshot;
  snapshot.words("a.bin", {kNopCode, kBranchToSelf});
  std::string dumps;
  for (uint64_t i = 0; i < 3000; ++i) dumps += dump(kUpper + i * 16, 8, "EL1N");
  snapshot.frame(dumps);
  std::string devices = "[snapshot]\nversion=1.0\n[device_list]\ndevice1=etm.ini\n";  // the same core a thousand times
  for (int i = 2; i < 1002; ++i) devices += "device" + std::to_string(i) + "=cpu.ini\n";
  snapshot.text("snapshot.ini", devices + "[trace]\nmetadata=trace.ini\n");
  snapshot.bytes("trace.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  EXPECT_EQ(count_of(*recording, "only the first 16384 are used"), 1U);
  EXPECT_EQ(count_of(*recording, "its devices fill more than 64 MiB"), 1U);
}

// Comparing every name of the list with every section, and every source with every buffer, would take many seconds.
TEST(SnapshotHostile, NamesAreLookedUpNotSearchedFor) {
  const Snapshot snapshot;
  snapshot.words("a.bin", {kNopCode, kBranchToSelf});
  snapshot.frame(dump(kUpper, 8, "EL1N"));
  std::string names, sections, links;
  for (int i = 0; i < 60000; ++i) {
    const std::string name = "b" + std::to_string(i);
    names += name + ",";
    sections += "[c" + std::to_string(i) + "]\n";  // none of them is listed
    links += "e" + std::to_string(i) + "=ETB\n";
  }
  snapshot.text("trace.ini", "[trace_buffers]\nbuffers=" + names + "BUFFER0\n[Buffer0]\nname=ETB\nfile=trace.bin\nformat=source_data\n" +
                                 "[core_trace_sources]\nCPU_0=etm_0\n[source_buffers]\nETM_0=etb\n" + links + sections);
  snapshot.bytes("trace.bin", {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0x01, 0x01, 0x00, 0x04});
  const auto before = std::chrono::steady_clock::now();
  const auto recording = snapshot.open();
  ASSERT_TRUE(recording);
  EXPECT_EQ(recording->streams().size(), 1U);
  EXPECT_EQ(recording->streams().at(0).cpu, 0);
  EXPECT_EQ(count_of(*recording, "it names more than 4096 sources"), 1U);
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5));
}

}  // namespace
}  // namespace ptd::test
