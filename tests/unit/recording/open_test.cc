// Opens the users' formats: LLDB bundles, raw captures, perf.data; every corpus case.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "perfio/format/wire.h"
#include "perfio/perf_writer.h"
#include "ptdecode/code_view.h"
#include "ptdecode/recording.h"
#include "ptdecode/survey.h"
#include "recording/perf/perf_texts.h"
#include "tests/unit/image/source_support.h"

namespace ptd {
namespace {

using image_test::TempDir;

#define NEED_CORPUS(name)                            \
  const std::string name = image_test::corpus_dir(); \
  if (name.empty()) GTEST_SKIP() << "no corpus (set PTDECODE_CORPUS)"

OpenOptions open_options(const std::string& path) {
  OpenOptions options;
  options.path = path;
  options.build_id_cache = "/nonexistent";
  return options;
}

// Returns the number of bytes of all segments without tails.
uint64_t covered(const Recording& recording, uint32_t stream) {
  uint64_t bytes = 0;
  std::vector<std::byte> scratch;
  AuxSegment segment;
  for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) {
    bytes += segment.bytes.size() - segment.tail_bytes;
  }
  return bytes;
}

int byte_at(const Recording& recording, SpaceId space, uint64_t ip) {
  CodeView view(recording.timeline());
  std::array<CodeCandidate, 4> out;
  const FetchResult result = view.fetch(space, Ip{ip}, {}, {}, out);
  return result.status == FetchStatus::ok ? std::to_integer<int>(out[0].bytes[0]) : -1;
}

// user/pair: process 28571 with thread 28573, as the names of its ground truth files say; the first thread of arm/threads is the process.
TEST(OpenSurvey, NamesTheProcessOfEachThread) {
  for (const auto& [path, threads] : {std::pair("user/pair.bundle", 2U), std::pair("arm/threads.bundle", 5U)}) {
    const auto opened = Recording::open(open_options(std::string(PTD_SOURCE_DIR "/data/") + path));
    ASSERT_TRUE(opened.ok()) << path;
    const Survey found = survey_of(**opened);
    ASSERT_EQ(found.threads.size(), threads) << path;
    for (const ThreadInfo& thread : found.threads) EXPECT_EQ(thread.pid, found.threads.front().tid) << path << ", thread " << thread.tid;
  }
}

// Without AUXTRACE_INFO and ID_INDEX, trace in samples is taken to be of their cpus.
TEST(OpenSurvey, TraceInSamplesIsOfTheStreamsOfTheOpenedRecording) {
  const TempDir dir;
  const std::string path = dir.path() + "/perf.data";
  perfio::EventAttr attr;
  attr.sample_type =
      perfio::kSampleIp | perfio::kSampleTid | perfio::kSampleTime | perfio::kSampleCpu | perfio::kSampleIdentifier | perfio::kSampleAux;
  attr.sample_id_all = true;
  attr.ids = {1};
  auto writer = perfio::PerfWriter::create(path, {{attr}, false, 0});
  ASSERT_TRUE(writer.ok());
  const std::vector<std::byte> window(64);
  perfio::RecordContext context;
  context.sample_id = {7, 8, 1000, true, 3, 1, 0};
  ASSERT_TRUE((*writer)->add_sample({0x401000, {}, window, false}, context).ok());
  ASSERT_TRUE((*writer)->finish().ok());
  const auto opened = Recording::open(open_options(path));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto surveyed = survey(open_options(path));
  ASSERT_TRUE(surveyed.ok()) << surveyed.error().message;
  ASSERT_EQ((*opened)->streams().size(), 1U);
  ASSERT_EQ(surveyed->streams.size(), 1U);
  EXPECT_EQ((*opened)->streams()[0].cpu, 3);
  EXPECT_EQ(surveyed->streams[0].cpu, 3);
  EXPECT_EQ(surveyed->streams[0].tid, -1);
}

TEST(OpenCpuid, BothForms) {
  pt::CpuId cpu;
  EXPECT_TRUE(parse_cpuid("GenuineIntel,6,78,3", cpu));
  EXPECT_EQ(cpu, (pt::CpuId{6, 78, 3}));
  EXPECT_TRUE(parse_cpuid("GenuineIntel-6-5E-3", cpu));
  EXPECT_EQ(cpu, (pt::CpuId{6, 94, 3}));
  EXPECT_TRUE(parse_cpuid("GenuineIntel-6-4E", cpu));
  EXPECT_EQ(cpu, (pt::CpuId{6, 78, 0}));
  for (const char* bad : {"", "GenuineIntel", "GenuineIntel,6", "GenuineIntel,6,999,1", "AuthenticAMD,23,1,1", "GenuineIntel,,6,1"}) {
    pt::CpuId untouched{1, 2, 3};
    EXPECT_FALSE(parse_cpuid(bad, untouched)) << bad;
    EXPECT_EQ(untouched, (pt::CpuId{1, 2, 3}));
  }
}

TEST(OpenLldb, SingleModule) {
  NEED_CORPUS(corpus);
  const auto opened = Recording::open(open_options(corpus + "/pt-lldb-single/trace.json"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Recording& recording = **opened;
  ASSERT_EQ(recording.streams().size(), 1U);
  EXPECT_EQ(recording.streams()[0].tid, 3842849);
  EXPECT_EQ(recording.streams()[0].size_bytes, 4096U);
  EXPECT_EQ(recording.decoder_options().config.cpu, (pt::CpuId{6, 79, 1}));
  const Context context = recording.contexts().at_thread(3842849, TimeNs{0});
  EXPECT_EQ(context.pid, 1234);
  EXPECT_EQ(byte_at(recording, context.space, 0x40050d), 0x55);  // main: push %rbp
  const auto symbol = recording.symbolizer().find(context.space, Ip{0x40050e}, TimeNs{0});
  ASSERT_TRUE(symbol);
  EXPECT_EQ(symbol->name, "main");
  EXPECT_TRUE(recording.missing_images().empty());
}

TEST(OpenLldb, SharedLibrariesAtTheirLoadAddress) {
  NEED_CORPUS(corpus);
  const auto opened = Recording::open(open_options(corpus + "/pt-lldb-multifile/trace.json"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const auto foo = (*opened)->symbolizer().addresses_of("foo");
  EXPECT_EQ(std::count(foo.begin(), foo.end(), Ip{140737349783552 + 0x6e0}), 1);  // nm libfoo.so: foo() at 6e0
}

TEST(OpenLldb, AWrongUuidIsRefused) {
  NEED_CORPUS(corpus);
  const TempDir dir;
  std::filesystem::copy(corpus + "/pt-lldb-single/a.out", dir.path() + "/a.out");
  std::filesystem::copy(corpus + "/pt-lldb-single/trace.bin", dir.path() + "/trace.bin");
  const std::string json =
      R"({"type":"intel-pt","cpuInfo":{"vendor":"GenuineIntel","family":6,"model":79,"stepping":1},"processes":[{"pid":1,)"
      R"("threads":[{"tid":2,"iptTrace":"trace.bin"}],"modules":[{"file":"a.out","systemPath":"/bin/a","loadAddress":"0x400000",)"
      R"("uuid":"11111111-6F28-2F33-377D-59FECE874C71-5B41261A"}]}]})";
  const auto opened = Recording::open(open_options(dir.write("trace.json", json)));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  ASSERT_EQ((*opened)->missing_images().size(), 1U);
  EXPECT_EQ((*opened)->missing_images()[0].reason, "wrong build id");
  EXPECT_EQ(byte_at(**opened, (*opened)->contexts().at_thread(2, TimeNs{0}).space, 0x40050d), -1);
}

// Processes that all name one trace and one module: the trace is one stream, not one each, and each process has the code.
TEST(OpenLldb, ATraceNamedAgainIsOneStream) {
  NEED_CORPUS(corpus);
  const TempDir dir;
  std::filesystem::copy(corpus + "/pt-lldb-single/a.out", dir.path() + "/a.out");
  std::filesystem::copy(corpus + "/pt-lldb-single/trace.bin", dir.path() + "/trace.bin");
  std::string processes;
  for (int i = 1; i <= 300; ++i) {
    const std::string number = std::to_string(i), file = i % 2 == 0 ? "trace.bin" : "./trace.bin";
    processes += (i == 1 ? "{" : ",{") + (R"("pid":)" + number) + R"(,"threads":[{"tid":)" + number + R"(,"iptTrace":")" + file +
                 R"("}],"modules":[{"file":"a.out","loadAddress":"0x400000"},{"file":"absent","loadAddress":"0x800000"}]})";
  }
  const auto opened = Recording::open(open_options(dir.write("trace.json", R"({"type":"intel-pt","processes":[)" + processes + "]}")));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ((*opened)->streams().size(), 1U);
  size_t traces = 0, modules = 0;
  for (const std::string& warning : (*opened)->warnings()) {
    traces += warning.find("trace.bin: named by several") != std::string::npos ? 1 : 0;
    modules += warning.find("absent") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(traces, 1U);
  EXPECT_EQ(modules, 1U);
  EXPECT_NE(byte_at(**opened, (*opened)->contexts().at_thread(300, TimeNs{0}).space, 0x40050d), -1);
}

TEST(OpenLldb, HostileJson) {
  NEED_CORPUS(corpus);
  const TempDir dir;
  const std::string good = [&] {
    std::ifstream in(corpus + "/pt-lldb-multifile/trace.json");
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    std::string bad = good;
    if (round % 3 == 0) bad.resize(random() % bad.size());
    for (unsigned i = 0; i < 1 + random() % 6 && bad.size() > 1; ++i) bad[1 + random() % (bad.size() - 1)] = static_cast<char>(random());
    (void)Recording::open(open_options(dir.write("trace.json", bad)));
  }
  for (const std::string& text :
       {std::string("{"), std::string("{}"), std::string(R"({"type":"intel-pt","processes":[1,2,null,{"threads":7}]})"),
        "{\"type\":\"intel-pt\",\"x\":" + std::string(200000, '[')}) {
    EXPECT_FALSE(Recording::open(open_options(dir.write("trace.json", text))).ok());
  }
}

RawOptions xdc(const std::string& dir) {
  RawOptions raw;
  raw.pt_path = dir + "/trace.bin";
  raw.pages_dump = dir + "/pages.dump";
  raw.pages_addresses = dir + "/pages.addr";
  raw.cpu = {6, 94, 3};
  return raw;
}

TEST(OpenRaw, PageDumps) {
  NEED_CORPUS(corpus);
  for (const auto& [name, psbs] : std::map<std::string, uint64_t>{{"pt-xdc-unzip", 74}, {"pt-xdc-mruby", 349}}) {  // expected/packets.txt
    const auto opened = Recording::open_raw(xdc(corpus + "/" + name), open_options(""));
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    EXPECT_EQ((*opened)->segment_starts(0).size(), psbs);
    EXPECT_EQ((*opened)->decoder_options().config.cpu.model, 94);
  }
}

// As written by libxdc: the last entry is not a page.
TEST(OpenRaw, APageAtAnOddAddressIsSkippedWithAWarning) {
  const TempDir dir;
  RawOptions raw;
  raw.pt_path = dir.write("trace", std::string("\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82\x02\x82", 16));
  raw.pages_dump = dir.write("pages.dump", std::string(2 * 4096, '\x90'));
  raw.pages_addresses = dir.write("pages.addr", std::string("\0\x10\x40\0\0\0\0\0\x18\0\0\0\0\0\0\0", 16));
  const auto opened = Recording::open_raw(raw, open_options(""));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  EXPECT_EQ(byte_at(**opened, (*opened)->decoder_options().default_space, 0x401fff), 0x90);
  const auto& warnings = (*opened)->warnings();
  EXPECT_TRUE(std::any_of(warnings.begin(), warnings.end(), [](const std::string& warning) {
    return warning.find("pages.addr: skipped 1 of the dump's pages") != std::string::npos && warning.find("0x18") != std::string::npos;
  }));
}

TEST(OpenRaw, ImagePieces) {
  NEED_CORPUS(corpus);
  const std::string dir = corpus + "/pt-dynamorio-simple";
  RawOptions raw;
  raw.pt_path = dir + "/trace.bin";
  raw.cpu = {6, 85, 4};
  OpenOptions options = open_options("");
  options.images = {{dir + "/hello", 4096, 39, 0x401000}};
  const auto opened = Recording::open_raw(raw, options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const SpaceId space = (*opened)->decoder_options().default_space;
  EXPECT_NE(byte_at(**opened, space, 0x401000), -1);
  EXPECT_NE(byte_at(**opened, space, 0x401026), -1);
  EXPECT_EQ(byte_at(**opened, space, 0x401027), -1);
  options.images[0].file_offset_bytes = 1U << 30;
  const auto beyond = Recording::open_raw(raw, options);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().kind(), ErrorKind::usage);
  options.images.clear();
  raw.pt_path = dir + "/absent";
  const auto absent = Recording::open_raw(raw, options);
  ASSERT_FALSE(absent.ok());
  EXPECT_EQ(absent.error().kind(), ErrorKind::file_open);
}

// case.json, expected/summary.json and perf script -D of the case.
TEST(OpenPerf, SkylakeStreamsContextsAndMissingImages) {
  NEED_CORPUS(corpus);
  const auto opened = Recording::open(open_options(corpus + "/pt-perfdata-skylake/perf.data"));
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Recording& recording = **opened;
  ASSERT_EQ(recording.streams().size(), 2U);
  EXPECT_EQ(recording.streams()[0].cpu, 0);
  EXPECT_EQ(recording.streams()[0].size_bytes, 12240U);
  EXPECT_EQ(recording.segment_starts(0).size(), 1U);
  EXPECT_EQ(recording.streams()[1].cpu, 3);
  EXPECT_EQ(recording.streams()[1].size_bytes, 137728U);
  const std::vector<uint64_t> starts = recording.segment_starts(1);
  ASSERT_EQ(starts.size(), 9U);
  EXPECT_EQ(covered(recording, 1), 137728U);
  const pt::Config& config = recording.decoder_options().config;
  EXPECT_EQ(config.cpu, (pt::CpuId{6, 78, 3}));
  EXPECT_EQ(config.mtc_period, 3);
  EXPECT_EQ(config.tsc_ctc_ratio_n, 100U);
  EXPECT_EQ(config.tsc_ctc_ratio_d, 2U);
  EXPECT_EQ(config.max_nonturbo_ratio, 12);
  EXPECT_TRUE(config.has_tsc && config.has_mtc);
  // 3 641255849446 ... SWITCH_CPU_WIDE IN of the task that 641255848111 named.
  EXPECT_EQ(recording.contexts().at_cpu(3, TimeNs{641255849446}).tid, 1760);
  EXPECT_EQ(recording.contexts().at_cpu(3, TimeNs{641255852546}).tid, 0);
  const auto& missing = recording.missing_images();
  const auto rfcomm = std::find_if(missing.begin(), missing.end(), [](const MissingImage& m) { return m.path.ends_with("rfcomm.ko"); });
  ASSERT_NE(rfcomm, missing.end());
  EXPECT_EQ(rfcomm->build_id, "74fe22dda1e9e3256d3f95d2655970cbb98f2061");
  // The last AUX record of cpu 3 (641257914974) bounds the last segment.
  std::vector<std::byte> scratch;
  AuxSegment last;
  uint64_t at = starts[8];
  ASSERT_TRUE(recording.next_segment(1, at, last, scratch));
  EXPECT_EQ(last.time.last.value, 641257914974U);
  EXPECT_FALSE(recording.next_segment(1, at, last, scratch));
  EXPECT_EQ(recording.segment_at(1, TimeNs{0}), starts[0]);
  EXPECT_EQ(recording.segment_at(1, TimeNs{641257914974}), starts[8]);
}

TEST(OpenPerf, TimelessSegmentsSayNothingOfTime) {
  NEED_CORPUS(corpus);
  OpenOptions options = open_options(corpus + "/pt-perfdata-skylake/perf.data");
  options.use_time = false;
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  std::vector<std::byte> scratch;
  AuxSegment segment;
  uint64_t at = 0;
  ASSERT_TRUE((*opened)->next_segment(1, at, segment, scratch));
  EXPECT_EQ(segment.time, Interval{});
}

TEST(OpenPerf, KernelRecordingWithPokes) {
  NEED_CORPUS(corpus);
  const TempDir dir;
  const std::string command = "tar -C '" + dir.path() + "' -xJf '" + corpus + "/pt-kernel-pokes/recording.tar.xz' 2>/dev/null";
  if (std::system(command.c_str()) != 0) GTEST_SKIP() << "pt-kernel-pokes could not be unpacked";
  OpenOptions options = open_options(dir.path() + "/recording");
  options.symfs = {dir.path() + "/root"};
  options.kcore_after = {dir.path() + "/after"};
  const auto opened = Recording::open(options);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  const Recording& recording = **opened;
  ASSERT_EQ(recording.streams().size(), 2U);
  const uint64_t trace_bytes = recording.streams()[0].size_bytes + recording.streams()[1].size_bytes;
  EXPECT_GE(trace_bytes, 61975866U);  // the corpus README; payloads are padded to 8 bytes
  EXPECT_LT(trace_bytes, 61975866U + 16);
  EXPECT_TRUE(recording.missing_images().empty());
  EXPECT_TRUE(recording.timeline().findings().empty());
  // kallsyms of the recording: asm_exc_int3, and back to its name.
  const Ip entry = recording.decoder_options().breakpoint_entry;
  EXPECT_EQ(recording.symbolizer().addresses_of("asm_exc_int3"), std::vector<Ip>{entry});
  EXPECT_EQ(recording.symbolizer().find(kKernelSpace, Ip{0xffffffffc0390010}, TimeNs{18059111085})->name, "kprobe_insn_page");
  EXPECT_EQ(recording.decoder_options().config.return_compression, pt::ReturnCompression::off);
  for (uint32_t stream = 0; stream < 2; ++stream) {
    EXPECT_EQ(covered(recording, stream), recording.streams()[stream].size_bytes);
    std::vector<std::byte> scratch;
    TimeNs before;
    AuxSegment segment;
    for (uint64_t at = 0; recording.next_segment(stream, at, segment, scratch);) {
      const Interval time = segment.time;
      ASSERT_LE(before, time.first);
      ASSERT_LE(time.first, time.last);
      before = time.first;
    }
  }
}

TEST(OpenPerf, DamagedFilesGiveWhatTheyHold) {
  NEED_CORPUS(corpus);
  const TempDir dir;
  std::ifstream in(corpus + "/pt-perfdata-skylake/perf.data", std::ios::binary);
  const std::string good((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(9);
  std::vector<std::byte> scratch;
  for (int round = 0; round < 120; ++round) {
    std::string bad = good;
    if (round % 4 == 0) bad.resize(random() % bad.size());
    // Sideband lies in the first 12 KiB and features after byte 168,872 (case listing); the rest is trace.
    for (unsigned i = 0; i < 8 && !bad.empty(); ++i) bad[random() % std::min<size_t>(bad.size(), 12288)] = static_cast<char>(random());
    const auto opened = Recording::open(open_options(dir.write("perf.data", bad)));
    if (!opened.ok()) continue;
    for (uint32_t stream = 0; stream < (*opened)->streams().size(); ++stream) {
      EXPECT_LE(covered(**opened, stream), bad.size());
      AuxSegment segment;
      for (uint64_t at = 0; (*opened)->next_segment(stream, at, segment, scratch);) {
        ASSERT_LE(segment.tail_bytes, segment.bytes.size());
      }
    }
  }
}

// AUXTRACE_INFO names the bit of the event's config that turns return compression off. Here it names one that is clear.
TEST(OpenPerf, ReturnCompressionThatContradictsItselfIsNamedAndDecodedByThePackets) {
  constexpr std::string_view kInfoHeader("\x46\0\0\0\0\0\xa0\0\1\0\0\0\0\0\0\0", 16);  // AUXTRACE_INFO of 160 bytes, Intel PT
  constexpr size_t kNoRetCompAt = 6 * 8;                                               // priv[INTEL_PT_NORETCOMP_BIT]
  const TempDir dir;
  std::ifstream in(std::string(PTD_SOURCE_DIR) + "/data/demo/data", std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(in)), {});
  const size_t info = file.find(kInfoHeader);
  ASSERT_NE(info, std::string::npos);
  const auto named = [](const Recording& recording) {
    return std::any_of(recording.warnings().begin(), recording.warnings().end(),
                       [](const std::string& text) { return text.find("contradicts itself on return compression") != std::string::npos; });
  };
  const auto undamaged = Recording::open(open_options(dir.write("perf.data", file)));
  ASSERT_TRUE(undamaged.ok());
  EXPECT_FALSE(named(**undamaged));
  file.replace(info + kInfoHeader.size() + kNoRetCompAt, 8, std::string(8, '\0'));
  file[info + kInfoHeader.size() + kNoRetCompAt + 1] = 1 << 4;  // bit 12
  const auto opened = Recording::open(open_options(dir.write("perf.data", file)));
  ASSERT_TRUE(opened.ok());
  EXPECT_TRUE(named(**opened));
  EXPECT_EQ((*opened)->decoder_options().config.return_compression, pt::ReturnCompression::unknown);
}

TEST(OpenPerf, AbsentAndForeignFilesAreErrors) {
  const TempDir dir;
  EXPECT_FALSE(Recording::open(open_options(dir.path() + "/absent")).ok());
  EXPECT_FALSE(Recording::open(open_options(dir.write("text", std::string("hello")))).ok());
  EXPECT_FALSE(Recording::open(open_options(dir.write("empty", std::string()))).ok());
}

}  // namespace
}  // namespace ptd
