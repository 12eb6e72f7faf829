// Generates the demonstration recording: `make_demo DIR` writes perf.data's directory form and the ground truth, the same bytes each time.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "image/source/elf_header.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/wire.h"
#include "perfio/perf_writer.h"
#include "tests/demo/runner.h"

namespace ptd::demo {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t kPtType = 8, kSoftwareType = 1;
constexpr uint64_t kDummyConfig = 9;
constexpr uint64_t kPtConfig = 0x2e01 | uint64_t{kMtcPeriod} << 14;  // pt, tsc, noretcomp, branch, mtc
// Of perf_event_attr: disabled, mmap, comm, task, mmap2, comm_exec, context_switch, ksymbol, bpf_event, text_poke.
constexpr uint64_t kDummyFlags = 1ULL << 0 | 1ULL << 8 | 1ULL << 9 | 1ULL << 13 | 1ULL << 23 | 1ULL << 24 | perfio::kAttrContextSwitch |
                                 1ULL << 29 | 1ULL << 30 | 1ULL << 33;
constexpr uint64_t kRoundNs = 40'000;
constexpr uint32_t kPtAttr = 0, kDummyAttr = 1;
constexpr uint64_t pt_id(int cpu) { return 1 + static_cast<uint64_t>(cpu); }
constexpr uint64_t dummy_id(int cpu) { return 1 + kCpus + static_cast<uint64_t>(cpu); }

bool save(const fs::path& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  return out.good();
}

std::string kcore_of(const Kernel& kernel) {
  constexpr uint64_t kPage = 4096;
  const KernelSection* sections[] = {&kernel.text, &kernel.module};
  const Elf64_Ehdr header = elf_header(ET_CORE, EM_X86_64, 2);
  std::string file(reinterpret_cast<const char*>(&header), sizeof(header));
  uint64_t offset = kPage;
  for (const KernelSection* section : sections) {
    Elf64_Phdr segment{};
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R | PF_W | PF_X;
    segment.p_offset = offset;
    segment.p_vaddr = section->base;
    segment.p_filesz = segment.p_memsz = section->code.size();
    segment.p_align = kPage;
    file.append(reinterpret_cast<const char*>(&segment), sizeof(segment));
    offset += section->code.size();
  }
  file.resize(kPage);
  for (const KernelSection* section : sections) file.append(reinterpret_cast<const char*>(section->code.data()), section->code.size());
  return file;
}

std::string kallsyms_of(const Kernel& kernel) {
  std::vector<std::pair<uint64_t, std::string>> symbols;
  for (const auto& [name, address] : kernel.labels) {
    if (name.find('.') == std::string::npos) symbols.emplace_back(address, name);
  }
  std::sort(symbols.begin(), symbols.end());
  std::string text;
  for (const auto& [address, name] : symbols) {
    const bool module = address >= kModuleBase;
    char line[128];
    (void)std::snprintf(line, sizeof(line), "%016llx %c %s%s\n", static_cast<unsigned long long>(address), module ? 't' : 'T', name.c_str(),
                        module ? "\t[demo]" : "");
    text += line;
  }
  return text;
}

/// Writes records one by one and remembers the first error.
class Output {
 public:
  explicit Output(perfio::PerfWriter& writer) : writer_(writer) {}
  void put(const perfio::Payload& payload, int cpu, uint32_t attr, int32_t tid, uint64_t time_ns, uint16_t misc) {
    perfio::RecordContext context;
    context.attr_index = attr;
    context.misc = misc;
    context.sample_id.pid = context.sample_id.tid = tid;
    context.sample_id.time = time_ns;
    context.sample_id.has_time = time_ns != 0;
    context.sample_id.cpu = cpu;
    context.sample_id.id = attr == kPtAttr ? pt_id(cpu) : dummy_id(cpu);
    check(writer_.add(payload, context));
  }
  void check(const Status& status) { ok_ = ok_ && status.ok(); }
  [[nodiscard]] bool ok() const { return ok_; }

 private:
  perfio::PerfWriter& writer_;
  bool ok_ = true;
};

perfio::EventAttr attr_of(uint32_t index) {
  perfio::EventAttr attr;
  const bool pt = index == kPtAttr;
  attr.type = pt ? kPtType : kSoftwareType;
  attr.config = pt ? kPtConfig : kDummyConfig;
  attr.sample_period = 1;
  attr.sample_type = perfio::kSampleIp | perfio::kSampleTid | perfio::kSampleTime | perfio::kSampleCpu | perfio::kSampleIdentifier;
  attr.read_format = 4;  // id
  attr.flags = pt ? 1 : kDummyFlags;
  attr.sample_id_all = true;
  attr.exclude_kernel = false;
  attr.name = pt ? "intel_pt//" : "dummy:u";
  for (int cpu = 0; cpu < kCpus; ++cpu) attr.ids.push_back(pt ? pt_id(cpu) : dummy_id(cpu));
  return attr;
}

// The records that perf writes before the first round.
void write_start(perfio::PerfWriter& writer, Output& out, const Runner& runner) {
  std::vector<perfio::IdIndexEntry> ids;
  for (const uint32_t attr : {kPtAttr, kDummyAttr}) {
    for (int cpu = 0; cpu < kCpus; ++cpu)
      ids.push_back({attr == kPtAttr ? pt_id(cpu) : dummy_id(cpu), static_cast<uint64_t>(cpu), cpu, -1});
  }
  out.check(writer.add_id_index(ids));
  perfio::AuxtraceInfoRecord info;
  info.type = perfio::kAuxtraceIntelPt;
  constexpr uint64_t kSwitchCpuWide = 3;
  info.priv = {kPtType, kTimeShift, kTimeMult,  kTimeZero, 1,         0x400, 0x800, kSwitchCpuWide, 0, 1, 0x200,
               0x3c000, kCtcRatioN, kCtcRatioD, 2,         kBusRatio, 0,     0};
  out.check(writer.add_auxtrace_info(info));
  perfio::TimeConvRecord conversion;
  conversion.time_shift = kTimeShift;
  conversion.time_mult = kTimeMult;
  conversion.time_zero = kTimeZero;
  conversion.cap_user_time_zero = true;
  out.check(writer.add_time_conv(conversion));
  const auto map = [&](uint64_t address, uint64_t size, uint64_t offset, const char* path) {
    perfio::MmapRecord record;
    record.pid = -1;
    record.tid = 0;
    record.addr = address;
    record.size_bytes = size;
    record.file_offset_bytes = offset;
    record.path = path;
    record.kernel = true;
    perfio::RecordContext context;
    context.attr_index = kDummyAttr;
    context.misc = perfio::kMiscKernel;
    context.sample_id.pid = context.sample_id.tid = context.sample_id.cpu = 0;
    out.check(writer.add_mmap(record, context));
  };
  map(kTextBase, kTextBytes, kTextBase, "[kernel.kallsyms]_text");
  map(kModuleBase, kModuleBytes, 0, "[demo]");
  for (int cpu = 0; cpu < kCpus; ++cpu) {
    for (const Task& task : runner.tasks(cpu))
      out.put(perfio::CommRecord{task.tid, task.tid, task.comm, false}, cpu, kDummyAttr, task.tid, 0, 0);
  }
}

// In the order in which perf reads rings: round by round, in each the records of one cpu after those of the other, then the new data of the
// trace buffers.
void write_rounds(perfio::PerfWriter& writer, Output& out, const Runner& runner) {
  uint64_t last = 0;
  const auto round_of = [](uint64_t time_ns) { return time_ns / kRoundNs; };
  for (const SidebandRecord& record : runner.sideband()) last = std::max(last, record.time_ns);
  for (int cpu = 0; cpu < kCpus; ++cpu) last = std::max(last, perf_time(runner.pieces(cpu).back().tsc));
  size_t next_piece[kCpus] = {};
  for (uint64_t round = round_of(runner.sideband().front().time_ns); round <= round_of(last); ++round) {
    for (int cpu = 0; cpu < kCpus; ++cpu) {
      for (const SidebandRecord& record : runner.sideband()) {
        if (record.cpu != cpu || round_of(record.time_ns) != round) continue;
        const bool pt = std::holds_alternative<perfio::ItraceStartRecord>(record.payload);
        const bool poke = std::holds_alternative<perfio::TextPokeRecord>(record.payload);
        out.put(record.payload, cpu, pt ? kPtAttr : kDummyAttr, record.tid, record.time_ns, poke ? perfio::kMiscKernel : uint16_t{0});
      }
    }
    for (int cpu = 0; cpu < kCpus; ++cpu) {
      const auto& pieces = runner.pieces(cpu);
      size_t& next = next_piece[cpu];
      for (; next < pieces.size() && round_of(perf_time(pieces[next].tsc)) <= round; ++next) {
        const uint64_t begin = next == 0 ? 0 : pieces[next - 1].end_bytes, size = pieces[next].end_bytes - begin;
        const int32_t tid = runner.tasks(cpu).front().tid;
        out.put(perfio::AuxRecord{begin, size, 0}, cpu, kPtAttr, tid, perf_time(pieces[next].tsc), 0);
        perfio::AuxtraceRecord trace;
        trace.offset_bytes = begin;
        trace.reference = pieces[next].tsc;
        trace.idx = static_cast<uint32_t>(cpu);
        trace.cpu = cpu;
        trace.payload = Bytes(runner.stream(cpu).bytes()).subspan(begin, size);
        out.check(writer.add_auxtrace(trace));
      }
    }
    out.check(writer.add_finished_round());
  }
}

bool write_recording(const fs::path& dir, const Kernel& kernel, const Runner& runner) {
  perfio::WriterOptions options;
  options.attrs = {attr_of(kPtAttr), attr_of(kDummyAttr)};
  options.directory = true;
  auto created = perfio::PerfWriter::create(dir.string(), options);
  if (!created) return false;
  perfio::PerfWriter& writer = **created;
  Output out(writer);
  write_start(writer, out, runner);
  write_rounds(writer, out, runner);
  perfio::Features features;
  features.hostname = "made-by-make_demo";
  features.os_release = "6.1.0-demo";
  features.version = "make_demo";
  features.arch = "x86_64";
  features.cpu_desc = "emulated by make_demo";
  features.cpuid = "GenuineIntel,6,94,3";
  features.cpus_online = features.cpus_available = kCpus;
  features.cmdline = {"make_demo"};
  features.pmu_types = {{"intel_pt", kPtType}, {"software", kSoftwareType}};
  writer.set_features(features);
  out.check(writer.finish());
  const fs::path copy = dir / "kcore_dir";
  std::error_code error;
  fs::create_directories(copy, error);
  return out.ok() && !error && save(copy / "kcore", kcore_of(kernel)) && save(copy / "kallsyms", kallsyms_of(kernel)) &&
         save(copy / "modules", "demo 4096 0 - Live 0xffffffffc0201000\n");
}

int make(const fs::path& dir) {
  Kernel kernel;
  if (!build_kernel(kernel)) return std::fprintf(stderr, "the demonstration's kernel does not assemble\n"), 1;
  Runner runner(kernel);
  if (!runner.run()) return 1;
  if (!write_recording(dir, kernel, runner)) return std::fprintf(stderr, "cannot write %s\n", dir.c_str()), 1;
  for (int cpu = 0; cpu < kCpus; ++cpu) {
    if (!save(dir / ("truth.cpu" + std::to_string(cpu) + ".txt"), runner.truth(cpu).text())) return 1;
    std::printf("cpu %d: %llu instructions, %zu bytes of trace, %llu int3 hits\n", cpu,
                static_cast<unsigned long long>(runner.truth(cpu).count()), runner.stream(cpu).bytes().size(),
                static_cast<unsigned long long>(runner.breakpoints(cpu)));
  }
  const auto pokes = std::count_if(runner.sideband().begin(), runner.sideband().end(), [](const SidebandRecord& record) {
    return std::holds_alternative<perfio::TextPokeRecord>(record.payload);
  });
  std::printf("%lld TEXT_POKE records\n", static_cast<long long>(pokes));
  return 0;
}

}  // namespace
}  // namespace ptd::demo

int main(int argc, char** argv) {
  if (argc != 2) return std::fprintf(stderr, "usage: make_demo DIR\n"), 2;
  return ptd::demo::make(argv[1]);
}
