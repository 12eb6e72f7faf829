// Real recordings compared with the output of quipper (upstream.pb_text) and perf 6.1 (perf-script-D.txt).
#include <algorithm>
#include <map>
#include <sstream>

#include "perfio/format/auxtrace_pt.h"
#include "util.h"

namespace ptd::perfio {
namespace {

using test::corpus;

const char* const kSkylake = "pt-perfdata-skylake";

std::string number(uint64_t value) { return std::to_string(value); }

/// quipper's text of one event: the fields by name (nested names without their parents, the first of each kept).
using Fields = std::multimap<std::string, std::string>;

std::vector<Fields> quipper_events(const std::string& text) {
  std::vector<Fields> events;
  std::istringstream in(text);
  bool inside = false;
  for (std::string line; std::getline(in, line);) {
    if (line == "events {") {
      events.emplace_back();
      inside = true;
    } else if (line == "}") {
      inside = false;
    } else if (inside) {
      const size_t begin = line.find_first_not_of(' ');
      const size_t colon = line.find(": ");
      if (colon != std::string::npos) events.back().emplace(line.substr(begin, colon - begin), line.substr(colon + 2));
    }
  }
  return events;
}

std::string field(const Fields& fields, const std::string& name) {
  const auto found = fields.lower_bound(name);
  return found == fields.end() || found->first != name ? "" : found->second;
}

uint64_t as_u32(int32_t value) { return static_cast<uint32_t>(value); }

/// Return the same description for our record and for quipper's fields, by record type.
std::string describe(const Record& record) {
  std::string out = number(record.type) + " " + number(record.misc) + " " + number(record.size_bytes);
  const auto add = [&out](const std::string& text) { out += " " + text; };
  const SampleId& id = record.sample_id;
  if (record.type < kRecordUserStart) add("time " + number(id.time) + " id " + number(id.id));
  if (const auto* m = std::get_if<MmapRecord>(&record.payload)) {
    add(number(as_u32(m->pid)) + " " + number(as_u32(m->tid)) + " " + number(m->addr) + " " + number(m->size_bytes) + " " +
        number(m->file_offset_bytes) + " \"" + m->path + "\"");
    if (record.type == kRecordMmap2)
      add(number(m->maj) + " " + number(m->min) + " " + number(m->inode) + " " + number(m->inode_generation));
  } else if (const auto* c = std::get_if<CommRecord>(&record.payload)) {
    add(number(as_u32(c->pid)) + " " + number(as_u32(c->tid)) + " \"" + c->comm + "\"");
  } else if (const auto* t = std::get_if<TaskRecord>(&record.payload)) {
    add(number(as_u32(t->pid)) + " " + number(as_u32(t->ppid)) + " " + number(as_u32(t->tid)) + " " + number(as_u32(t->ptid)));
  } else if (const auto* s = std::get_if<SwitchRecord>(&record.payload)) {
    add(std::string(s->out ? "true" : "false") + " " + number(as_u32(s->next_prev_pid)) + " " + number(as_u32(s->next_prev_tid)) + " cpu " +
        number(as_u32(id.cpu)) + " pid " + number(as_u32(id.pid)));
  } else if (const auto* a = std::get_if<AuxRecord>(&record.payload)) {
    add(number(a->aux_offset_bytes) + " " + number(a->aux_size_bytes));
  } else if (const auto* x = std::get_if<AuxtraceRecord>(&record.payload)) {
    add(number(x->size_bytes) + " " + number(x->offset_bytes) + " " + number(x->reference) + " " + number(x->idx) + " " +
        number(as_u32(x->tid)) + " " + number(as_u32(x->cpu)));
  } else if (const auto* v = std::get_if<TimeConvRecord>(&record.payload)) {
    add(number(v->time_shift) + " " + number(v->time_mult) + " " + number(v->time_zero));
  } else if (const auto* i = std::get_if<AuxtraceInfoRecord>(&record.payload)) {
    for (const uint64_t word : i->priv) add(number(word));
  }
  return out;
}

std::string describe(const Fields& f) {
  const std::string type = field(f, "type");
  std::string out;
  // header.type comes first; AUXTRACE_INFO has a field of that name too
  const std::string record_type = f.lower_bound("type")->second;
  out = record_type + " " + field(f, "misc") + " " + field(f, "size");
  const auto add = [&out, &f](std::initializer_list<const char*> names) {
    for (const char* name : names) out += " " + field(f, name);
  };
  const uint64_t number_of_type = std::stoull(record_type);
  if (number_of_type < kRecordUserStart) out += " time " + field(f, "sample_time_ns") + " id " + field(f, "id");
  switch (number_of_type) {
    case kRecordMmap:
      add({"pid", "tid", "start", "len", "pgoff", "filename"});
      break;
    case kRecordMmap2:
      add({"pid", "tid", "start", "len", "pgoff", "filename", "maj", "min", "ino", "ino_generation"});
      break;
    case kRecordComm:
      add({"pid", "tid", "comm"});
      break;
    case kRecordExit:
    case kRecordFork:
      add({"pid", "ppid", "tid", "ptid"});
      break;
    case kRecordSwitchCpuWide:
      add({"is_out", "next_prev_pid", "next_prev_tid"});
      out += " cpu " + field(f, "cpu") + " pid " + field(f, "pid");
      break;
    case kRecordAux:
      add({"aux_offset", "aux_size"});
      break;
    case kRecordTimeConv:
      add({"time_shift", "time_mult", "time_zero"});
      break;
    case kRecordAuxtraceInfo: {
      const auto [first, last] = f.equal_range("unparsed_binary_blob_priv_data");
      for (auto it = first; it != last; ++it) out += " " + it->second;
      break;
    }
    default:
      break;
  }
  return out;
}

TEST(Corpus, SkylakeEqualsQuipper) {
  const std::string path = corpus(kSkylake);
  PTD_NEEDS_CORPUS(path);
  auto reader = PerfReader::open(path + "/perf.data");
  ASSERT_TRUE(reader.ok()) << reader.error().message;
  std::vector<std::string> got;
  ASSERT_TRUE((*reader)
                  ->read([&got](const Record& record) {
                    got.push_back(describe(record));
                    return true;
                  })
                  .ok());
  std::vector<std::string> want;
  for (const Fields& event : quipper_events(test::run("gzip -dc " + path + "/expected/upstream.pb_text.gz"))) {
    std::string line = describe(event);
    if (line.starts_with("71 ")) {  // size is a name of header and event
      std::vector<std::string> sizes;
      const auto [first, last] = event.equal_range("size");
      for (auto it = first; it != last; ++it) sizes.push_back(it->second);
      ASSERT_EQ(sizes.size(), 2U);
      line += " " + sizes[1] + " " + field(event, "offset") + " " + field(event, "reference") + " " + field(event, "idx") + " " +
              field(event, "tid") + " " + field(event, "cpu");
    }
    want.push_back(std::move(line));
  }
  ASSERT_EQ(want.size(), 257U);
  std::sort(got.begin(), got.end());
  std::sort(want.begin(), want.end());
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i], want[i]);
}

/// Returns "type time" of each record as `perf script -D` prints them, in its order.
const std::map<std::string, uint32_t> kPerfNames = {{"MMAP", 1},
                                                    {"COMM", 3},
                                                    {"EXIT", 4},
                                                    {"FORK", 7},
                                                    {"SAMPLE", 9},
                                                    {"MMAP2", 10},
                                                    {"AUX", 11},
                                                    {"ITRACE_START", 12},
                                                    {"SWITCH_CPU_WIDE", 15},
                                                    {"FINISHED_ROUND", 68},
                                                    {"AUXTRACE_INFO", 70},
                                                    {"AUXTRACE", 71},
                                                    {"TIME_CONV", 79}};

TEST(Corpus, SkylakeOrderEqualsPerf) {
  const std::string path = corpus(kSkylake);
  PTD_NEEDS_CORPUS(path);
  std::vector<std::string> want;
  std::istringstream in(test::run("gzip -dc " + path + "/expected/perf-script-D.txt.gz"));
  for (std::string line; std::getline(in, line);) {
    const size_t at = line.find("PERF_RECORD_");
    if (at == std::string::npos) continue;
    const size_t begin = at + 12;
    size_t end = begin;
    while (end < line.size() &&
           (std::isupper(static_cast<unsigned char>(line[end])) || line[end] == '_' || std::isdigit(static_cast<unsigned char>(line[end]))))
      ++end;
    std::istringstream words(line);
    std::string cpu, time, offset;
    words >> cpu >> time >> offset;
    const auto type = kPerfNames.find(line.substr(begin, end - begin));
    ASSERT_NE(type, kPerfNames.end()) << line;
    want.push_back(number(type->second) + " " + time + " " + offset);
  }
  ASSERT_EQ(want.size(), 257U);
  auto reader = PerfReader::open(path + "/perf.data");
  ASSERT_TRUE(reader.ok());
  std::vector<std::string> got;
  ASSERT_TRUE((*reader)
                  ->read([&got](const Record& record) {
                    char offset[32];
                    std::snprintf(offset, sizeof(offset), "%#llx", static_cast<unsigned long long>(record.file_offset_bytes));
                    got.push_back(number(record.type) + " " + number(record.sample_id.time) + " " + offset);
                    return true;
                  })
                  .ok());
  EXPECT_EQ(got, want);
}

TEST(Corpus, SkylakePayloadsFeaturesAndPt) {
  const std::string path = corpus(kSkylake);
  PTD_NEEDS_CORPUS(path);
  auto reader = PerfReader::open(path + "/perf.data");
  ASSERT_TRUE(reader.ok());
  std::map<int32_t, std::vector<std::byte>> aux;
  AuxtraceInfoRecord info_record;
  ASSERT_TRUE((*reader)
                  ->read([&](const Record& record) {
                    if (const auto* a = std::get_if<AuxtraceRecord>(&record.payload))
                      aux[a->cpu].insert(aux[a->cpu].end(), a->payload.begin(), a->payload.end());
                    if (const auto* i = std::get_if<AuxtraceInfoRecord>(&record.payload)) info_record = *i;
                    return true;
                  })
                  .ok());
  EXPECT_EQ(aux.size(), 2U);
  EXPECT_EQ(aux[0], test::load(path + "/aux-cpu0.bin"));
  EXPECT_EQ(aux[3], test::load(path + "/aux-cpu3.bin"));

  const Features& features = (*reader)->features();  // expected/perf-header.txt
  EXPECT_EQ(features.hostname, "localhost");
  EXPECT_EQ(features.os_release, "4.14.18");
  EXPECT_EQ(features.arch, "x86_64");
  EXPECT_EQ(features.cpus_online, 4U);
  EXPECT_EQ(features.cpus_available, 4U);
  EXPECT_EQ(features.cpu_desc, "Intel(R) Core(TM) m7-6Y75 CPU @ 1.20GHz");
  EXPECT_EQ(features.cpuid, "GenuineIntel,6,78,3");
  EXPECT_EQ(features.total_mem_kb, 16299868U);
  EXPECT_EQ(features.pmu_types.at("intel_pt"), 6U);
  EXPECT_EQ(features.pmu_types.size(), 13U);
  ASSERT_EQ(features.cmdline.size(), 11U);
  EXPECT_EQ(features.cmdline[4], "-e");
  EXPECT_EQ(features.cmdline[5], "intel_pt//");
  ASSERT_EQ((*reader)->attrs().size(), 4U);
  EXPECT_EQ((*reader)->attrs()[0].name, "intel_pt//");
  EXPECT_EQ((*reader)->attrs()[3].ids, (std::vector<uint64_t>{136, 137, 138, 139}));
  EXPECT_TRUE((*reader)->attrs()[2].exclude_kernel);

  const IntelPtInfo info = parse_intel_pt_info(info_record);  // expected/perf-script-D.txt, PERF_RECORD_AUXTRACE_INFO
  EXPECT_TRUE(info.valid);
  EXPECT_EQ(info.pmu_type, 6U);
  EXPECT_EQ(info.time_shift, 31);
  EXPECT_EQ(info.time_mult, 1789569706U);
  EXPECT_EQ(info.time_zero, 18446744041015200657ULL);
  EXPECT_TRUE(info.cap_user_time_zero);
  EXPECT_EQ(info.have_sched_switch, 3U);
  EXPECT_FALSE(info.snapshot_mode);
  EXPECT_TRUE(info.per_cpu_mmaps);
  EXPECT_EQ(info.tsc_ctc_ratio_n, 100U);
  EXPECT_EQ(info.tsc_ctc_ratio_d, 2U);
  EXPECT_EQ(info.max_nonturbo_ratio, 12);
  EXPECT_EQ(info.filter, "");
  const IntelPtConfig config = intel_pt_config(info, (*reader)->attrs());  // case.json: mtc_freq 3, tsc, cyc, mtc
  EXPECT_TRUE(config.valid && config.tsc && config.mtc && config.return_compression && config.branch);
  EXPECT_EQ(config.mtc_period, 3);
  EXPECT_EQ((*reader)->damage().messages.size(), 0U);
}

TEST(Corpus, SimpleperfContainersOpen) {
  struct Case {
    const char* name;
    size_t auxtrace, aux;
  };
  for (const Case& c : {Case{"cs-simpleperf-etm", 1, 1}, Case{"cs-simpleperf-missing-aux", 0, 1}}) {
    const std::string path = corpus(std::string(c.name) + "/perf.data");
    PTD_NEEDS_CORPUS(path);
    auto reader = PerfReader::open(path);
    ASSERT_TRUE(reader.ok()) << reader.error().message;
    size_t auxtrace = 0, aux = 0, info = 0;
    ASSERT_TRUE((*reader)
                    ->read([&](const Record& record) {
                      auxtrace += std::holds_alternative<AuxtraceRecord>(record.payload);
                      aux += std::holds_alternative<AuxRecord>(record.payload);
                      if (const auto* i = std::get_if<AuxtraceInfoRecord>(&record.payload)) info += i->type == kAuxtraceCsEtm;
                      return true;
                    })
                    .ok());
    EXPECT_EQ(info, 1U) << c.name;
    EXPECT_GE(auxtrace, c.auxtrace) << c.name;
    EXPECT_GE(aux, c.aux) << c.name;
    EXPECT_EQ((*reader)->features().arch, "aarch64") << c.name;
    EXPECT_EQ((*reader)->damage().messages.size(), 0U) << c.name;
  }
}

}  // namespace
}  // namespace ptd::perfio
