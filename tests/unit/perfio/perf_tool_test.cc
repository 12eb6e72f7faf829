// Compared with the installed perf: it reads the files that we write, and we read its recordings like it does.
#include <map>
#include <sstream>

#include "perfio/format/auxtrace_pt.h"
#include "perfio/perf_writer.h"
#include "tests/support/perf_edit.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::at;
using test::full_attr;
using test::hex;
using test::run;
using test::TempDir;

bool have_perf() { return run("perf --version 2>/dev/null").starts_with("perf version"); }

#define PTD_NEEDS_PERF() \
  if (!have_perf()) GTEST_SKIP() << "perf is not installed"

/// Returns "NAME time" of each record that `perf script -D` prints, in its order; records that only wrap others are omitted.
std::vector<std::string> perf_listing(const std::string& arguments) {
  std::vector<std::string> out;
  std::istringstream in(run("perf script -D --no-itrace " + arguments + " 2>/dev/null"));
  for (std::string line; std::getline(in, line);) {
    const size_t at_name = line.find("PERF_RECORD_");
    if (at_name == std::string::npos || line.find("]: ") == std::string::npos) continue;
    std::istringstream words(line);
    std::string cpu, time;
    words >> cpu >> time;
    if (time.starts_with("0x")) time = cpu;  // "TIME 0xOFFSET [..": no cpu
    if (cpu.starts_with("0x")) time = "0";   // "0xOFFSET [..": neither
    if (time == "-1") time = "0";
    size_t end = at_name + 12;
    while (end < line.size() &&
           (std::isupper(static_cast<unsigned char>(line[end])) || line[end] == '_' || std::isdigit(static_cast<unsigned char>(line[end]))))
      ++end;
    const std::string name = line.substr(at_name + 12, end - at_name - 12);
    if (name != "COMPRESSED") out.push_back(name + " " + time);
  }
  return out;
}

const std::map<uint32_t, std::string> kNames = {{1, "MMAP"},       {3, "COMM"},          {4, "EXIT"},           {7, "FORK"},
                                                {9, "SAMPLE"},     {10, "MMAP2"},        {14, "SWITCH"},        {15, "SWITCH_CPU_WIDE"},
                                                {17, "KSYMBOL"},   {18, "BPF_EVENT"},    {19, "CGROUP"},        {16, "NAMESPACES"},
                                                {64, "ATTR"},      {66, "TRACING_DATA"}, {67, "BUILD_ID"},      {68, "FINISHED_ROUND"},
                                                {69, "ID_INDEX"},  {73, "THREAD_MAP"},   {74, "CPU_MAP"},       {78, "EVENT_UPDATE"},
                                                {79, "TIME_CONV"}, {80, "FEATURE"},      {82, "FINISHED_INIT"}, {20, "TEXT_POKE"}};

std::vector<std::string> our_listing(const std::string& path) {
  std::vector<std::string> out;
  auto reader = PerfReader::open(path);
  EXPECT_TRUE(reader.ok()) << reader.error().message;
  if (!reader.ok()) return out;
  EXPECT_TRUE((*reader)
                  ->read([&out](const Record& record) {
                    const auto name = kNames.find(record.type);
                    out.push_back((name == kNames.end() ? std::to_string(record.type) : name->second) + " " +
                                  std::to_string(record.sample_id.time));
                    return true;
                  })
                  .ok());
  EXPECT_EQ((*reader)->damage().messages.size(), 0U);
  return out;
}

/// Returns the records with a time; perf does not print all records with which a pipe describes itself.
std::vector<std::string> sideband(const std::vector<std::string>& listing) {
  std::vector<std::string> out;
  for (const std::string& line : listing) {
    if (!line.ends_with(" 0")) out.push_back(line);
  }
  return out;
}

struct RecordCase {
  const char* name;
  const char* options;
};

TEST(PerfTool, WeReadWhatItRecords) {
  PTD_NEEDS_PERF();
  TempDir dir;
  const std::string workload = " -- sh -c 'for i in 1 2 3 4 5 6 7 8; do true | cat; done' >/dev/null 2>&1";
  for (const RecordCase& c :
       {RecordCase{"plain", "-e dummy"}, RecordCase{"compressed", "-e cpu-clock -F 2000 -z"},
        RecordCase{"two events", "-e dummy -e cpu-clock -F 500"}, RecordCase{"timeless", "-e dummy --no-timestamp"}}) {
    const std::string path = dir / c.name;
    int status = 0;
    run("perf record " + std::string(c.options) + " -o '" + path + "'" + workload, &status);
    if (status != 0 || !std::filesystem::exists(path)) GTEST_SKIP() << "perf record is not permitted here";
    const auto want = perf_listing("-i '" + path + "'");
    const auto got = our_listing(path);
    EXPECT_GT(want.size(), 10U) << c.name;
    EXPECT_EQ(got, want) << c.name;
  }
}

TEST(PerfTool, WeReadItsPipes) {
  PTD_NEEDS_PERF();
  TempDir dir;
  for (const char* options : {"-e dummy", "-e cpu-clock -F 2000 -z"}) {
    const std::string path = dir / "pipe";
    int status = 0;
    run("perf record " + std::string(options) + " -o - -- sh -c 'true | cat' 2>/dev/null > '" + path + "'", &status);
    if (status != 0 || std::filesystem::file_size(path) < 1000) GTEST_SKIP() << "perf record is not permitted here";
    const auto want = sideband(perf_listing("-i - < '" + path + "'"));
    EXPECT_GT(want.size(), 5U);
    EXPECT_EQ(sideband(our_listing(path)), want) << options;
    auto reader = PerfReader::open(path);
    ASSERT_TRUE(reader.ok());
    EXPECT_EQ((*reader)->attrs().size(), 1U);
    EXPECT_FALSE((*reader)->features().os_release.empty());
    EXPECT_FALSE((*reader)->attrs()[0].name.empty());
  }
}

TEST(PerfTool, ItReadsWhatWeWrite) {
  PTD_NEEDS_PERF();
  for (const int level : {0, 3}) {
    TempDir dir;
    EventAttr pt = full_attr(2);
    pt.type = 8;
    pt.config = 0x300e601;
    pt.name = "intel_pt//";
    auto writer = PerfWriter::create(dir / "rec", {{full_attr(1), pt}, true, level});
    ASSERT_TRUE(writer.ok());
    AuxtraceInfoRecord info;
    info.type = kAuxtraceIntelPt;
    info.priv = {8, 0, 1, 0, 1, 0x400, 0x800, 3, 0, 1, 0x200, 0x3c000, 100, 2, 2, 12, 0};
    ASSERT_TRUE((*writer)->add_time_conv({0, 1, 0, 0, 0, true, false}).ok());
    ASSERT_TRUE((*writer)->add_auxtrace_info(info).ok());
    RecordContext context;
    context.misc = kMiscUser;
    MmapRecord mmap;
    mmap.pid = mmap.tid = 7;
    mmap.addr = 0x400000;
    mmap.size_bytes = 0x1000;
    mmap.prot = 5;
    mmap.build_id = std::string(20, '\x5a');
    mmap.path = "/bin/x";
    context.sample_id = at(10);
    ASSERT_TRUE((*writer)->add_mmap2(mmap, context).ok());
    context.sample_id = at(20);
    ASSERT_TRUE((*writer)->add(CommRecord{7, 8, "x", true}, context).ok());
    context.sample_id = at(30);
    ASSERT_TRUE((*writer)->add_switch({true, false, true, 0, 0}, context).ok());
    context.misc = kMiscKernel;
    context.sample_id = at(40);
    ASSERT_TRUE((*writer)->add_text_poke({0xffffffff81000000, hex("0f1f440000"), hex("e811223344")}, context).ok());
    context.sample_id = at(50);
    ASSERT_TRUE((*writer)->add(KsymbolRecord{0xffffffffc0000000, 64, 1, false, "bpf_prog_0102030405060708_p"}, context).ok());
    AuxtraceRecord auxtrace;
    const auto payload = hex("02820282028202820282028202820282 0223");
    auxtrace.payload = payload;
    auxtrace.cpu = 0;
    ASSERT_TRUE((*writer)->add_auxtrace(auxtrace).ok());
    Features features;
    features.hostname = "written-host";
    features.cpuid = "GenuineIntel,6,78,3";
    features.cmdline = {"perf", "record"};
    features.pmu_types = {{"intel_pt", 8}};
    features.build_ids = {{"/bin/x", std::string(20, '\x5a'), -1, kMiscUser}};
    BpfProgInfo prog;
    prog.id = 5;
    prog.name = "p";
    prog.jited_insns = hex("90c3");
    prog.jited_ksyms = {0xffffffffc0000000};
    prog.jited_func_lens = {2};
    prog.tags = hex("0102030405060708");
    features.bpf_progs = {prog};
    (*writer)->set_features(features);
    ASSERT_TRUE((*writer)->finish().ok());

    const auto listing = sideband(perf_listing("-i '" + (dir / "rec") + "'"));
    EXPECT_EQ(listing, (std::vector<std::string>{"MMAP2 10", "COMM 20", "SWITCH_CPU_WIDE 30", "TEXT_POKE 40", "KSYMBOL 50"}));
    int status = 0;
    const std::string header = run("perf report --header-only -I -i '" + (dir / "rec") + "' 2>&1", &status);
    EXPECT_EQ(status, 0) << header;
    for (const char* want : {"hostname : written-host", "cpuid : GenuineIntel,6,78,3", "name = intel_pt//", "intel_pt = 8",
                             "contains AUX area data", "bpf_prog_info 5: bpf_prog_0102030405060708_p addr 0xffffffffc0000000 size 2"}) {
      EXPECT_NE(header.find(want), std::string::npos) << want << "\n" << header;
    }
    const std::string dump = run("perf script -D -i '" + (dir / "rec") + "' 2>&1");
    EXPECT_NE(dump.find("PSB"), std::string::npos);
    EXPECT_NE(dump.find("5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a"), std::string::npos);
    EXPECT_NE(run("perf buildid-list -i '" + (dir / "rec") + "'").find("5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a5a /bin/x"),
              std::string::npos);
  }
}

TEST(PerfTool, ItSeesNoDifferenceInAnEditedCopy) {
  PTD_NEEDS_PERF();
  const std::string path = test::corpus("pt-perfdata-skylake/perf.data");
  PTD_NEEDS_CORPUS(path);
  TempDir dir;
  ASSERT_TRUE(edit_perf_data(path, dir / "copy", [](const EditRecord&) { return EditAction{}; }).ok());
  const auto want = perf_listing("-i " + path);
  EXPECT_EQ(want.size(), 257U);
  EXPECT_EQ(perf_listing("-i '" + (dir / "copy") + "'"), want);
}

}  // namespace
}  // namespace ptd::perfio
