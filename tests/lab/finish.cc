// `lab_finish GUEST TRACE OUT`: joins what the guest recorded (GUEST/recording, and announcements that perf recorded: GUEST/announced.data)
// with what the plugin wrote (TRACE/cpuN.pt, cpuN.truth, summary) into a recording OUT/recording with AUX data, and makes of the ground
// truth checkpoints OUT/truth.cpuN.txt and complete files OUT/truth.cpuN.ptt.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "capture/emulate/etm/truth_file.h"
#include "capture/emulate/system/system_recording.h"
#include "perfio/announce/announce_event.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/wire.h"
#include "perfio/perf_reader.h"
#include "perfio/perf_writer.h"
#include "perfio/ring/live_event.h"
#include "tests/lab/truth_stream.h"

namespace ptd::lab {
namespace {

namespace fs = std::filesystem;
using namespace perfio;

constexpr uint64_t kChunkBytes = 4 << 20;  // of one AUXTRACE record

std::vector<std::byte> read_bytes(const fs::path& path) {
  std::ifstream in(path, std::ios::binary | std::ios::ate);
  std::vector<std::byte> bytes(in ? static_cast<size_t>(in.tellg()) : 0);
  in.seekg(0);
  in.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

/// A part of a cpu's trace, from one PSB to another.
struct Chunk {
  int32_t cpu = 0;
  uint64_t offset_bytes = 0, size_bytes = 0, end_ns = 0;
};

struct Trace {
  std::vector<std::byte> packets;
  TruthSummary truth;
};

std::vector<Chunk> cut(int32_t cpu, const Trace& trace, const TimeConvRecord& clock) {
  std::vector<Chunk> chunks;
  uint64_t begin = 0;
  for (const TruthPsb& psb : trace.truth.psbs) {
    if (psb.offset_bytes - begin < kChunkBytes) continue;
    chunks.push_back({cpu, begin, psb.offset_bytes - begin, emulate::to_ns(clock, psb.tsc)});
    begin = psb.offset_bytes;
  }
  if (begin < trace.packets.size()) {
    const uint64_t last = trace.truth.psbs.empty() ? 0 : trace.truth.psbs.back().tsc;
    chunks.push_back({cpu, begin, trace.packets.size() - begin, emulate::to_ns(clock, last)});
  }
  return chunks;
}

AuxtraceInfoRecord info_of(std::map<std::string, uint64_t> summary, const TimeConvRecord& clock, uint32_t pmu_type) {
  AuxtraceInfoRecord info;
  info.type = kAuxtraceIntelPt;
  constexpr uint64_t kSwitchCpuWide = 3;
  info.priv = {pmu_type,
               clock.time_shift,
               clock.time_mult,
               clock.time_zero,
               1,
               0x400,
               0x800,
               kSwitchCpuWide,
               0,
               1,
               0x200,
               0x3c000,
               summary["tsc_per_ctc"],
               1,
               2,
               summary["bus_ratio"],
               0,
               0};
  return info;
}

int fail(const Error& error) {
  (void)std::fprintf(stderr, "lab_finish: %s\n", error.message.c_str());
  return 1;
}

/// Announcements of code that stock perf recorded in the guest, as samples of user_events:ptd_code.
struct Announced {
  SampleId when;
  std::vector<std::byte> raw;
};

Result<std::vector<Announced>> read_announced(const std::string& path) {
  Result<std::unique_ptr<PerfReader>> reader = PerfReader::open(path);
  if (!reader) return reader.error();
  const std::vector<EventAttr> attrs = (*reader)->attrs();
  std::vector<Announced> samples;
  Status status = (*reader)->read([&](const Record& record) {
    const auto* sample = std::get_if<OtherSample>(&record.payload);
    if (sample != nullptr && record.sample_id.has_time) samples.push_back({record.sample_id, {sample->raw.begin(), sample->raw.end()}});
    return true;
  });
  if (!status.ok()) return status.error();
  std::stable_sort(samples.begin(), samples.end(), [](const Announced& a, const Announced& b) { return a.when.time < b.when.time; });
  return samples;
}

/// Copies the guest's records in order of time, with an AUX record at the end of each chunk's time, and announcements, whose event is the
/// last one.
class Joiner {
 public:
  Joiner(PerfWriter& writer, const std::vector<EventAttr>& attrs, std::vector<Chunk> chunks, std::vector<Announced> announced)
      : writer_(writer), attrs_(attrs), chunks_(std::move(chunks)), announced_(std::move(announced)) {
    std::stable_sort(chunks_.begin(), chunks_.end(), [](const Chunk& a, const Chunk& b) { return a.end_ns < b.end_ns; });
  }
  bool on_record(const Record& record) {
    if (record.type == kRecordFinishedRound || record.type == kRecordFinishedInit) return true;
    if (record.sample_id.has_time) {
      while (next_ < chunks_.size() && chunks_[next_].end_ns < record.sample_id.time) add_aux();
      while (next_announced_ < announced_.size() && announced_[next_announced_].when.time < record.sample_id.time) add_announced();
    }
    status_ = writer_.add_raw(record.raw);
    return status_.ok();
  }
  void finish() {
    while (next_ < chunks_.size()) add_aux();
    while (next_announced_ < announced_.size()) add_announced();
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const std::vector<Chunk>& chunks() const { return chunks_; }

 private:
  void add_aux() {
    const Chunk& chunk = chunks_[next_++];
    AuxRecord aux;
    aux.aux_offset_bytes = chunk.offset_bytes;
    aux.aux_size_bytes = chunk.size_bytes;
    RecordContext context;
    context.sample_id.pid = context.sample_id.tid = 0;
    context.sample_id.time = chunk.end_ns;
    context.sample_id.has_time = true;
    context.sample_id.cpu = chunk.cpu;
    context.sample_id.id = attrs_[0].ids[static_cast<size_t>(chunk.cpu)];
    if (status_.ok()) status_ = writer_.add_aux(aux, context);
  }
  void add_announced() {
    const Announced& sample = announced_[next_announced_++];
    RecordContext context;
    context.attr_index = static_cast<uint32_t>(attrs_.size() - 1);
    context.misc = kMiscUser;
    context.sample_id = sample.when;
    context.sample_id.id = attrs_.back().ids[0];
    if (status_.ok()) status_ = writer_.add_sample(OtherSample{0, sample.raw}, context);
  }
  PerfWriter& writer_;
  const std::vector<EventAttr>& attrs_;
  std::vector<Chunk> chunks_;
  std::vector<Announced> announced_;
  size_t next_ = 0, next_announced_ = 0;
  Status status_;
};

// The whole truth, for comparison with a recording without all its records.
Status write_truth(Bytes log, const std::string& path) {
  auto writer = emulate::TruthFileWriter::create(path);
  if (!writer) return writer.error();
  if (Status status = (*writer)->append(
          log, [](uint64_t) { return nullptr; }, 0, [](Bytes) {});
      !status)
    return status;
  return (*writer)->finish();
}

// Adds the event of the trace, if the guest's recorder knows nothing of it, before all others.
void add_trace_event(std::vector<EventAttr>& attrs, size_t cpus) {
  constexpr uint32_t kTraceType = 8;
  constexpr uint64_t kTraceConfig = 0xe601, kTraceIds = 1000;  // as SidebandRecorder has them
  if (!attrs.empty() && attrs[0].type == kTraceType) return;
  EventAttr trace = trace_attr(kTraceType, kTraceConfig);
  for (size_t cpu = 0; cpu < cpus; ++cpu) trace.ids.push_back(kTraceIds + cpu);
  attrs.insert(attrs.begin(), trace);
}

int run(const fs::path& guest, const fs::path& traced, const fs::path& out) {
  fs::create_directories(out);
  Result<std::unique_ptr<PerfReader>> reader = PerfReader::open((guest / "recording").string());
  if (!reader) return fail(reader.error());
  TimeConvRecord clock;
  if (Status status = (*reader)->read([&](const Record& record) {
        if (const auto* found = std::get_if<TimeConvRecord>(&record.payload)) clock = *found;
        return clock.time_mult == 0;
      });
      !status) {
    return fail(status.error());
  }
  if (clock.time_mult == 0) return fail({ErrorCode::missing_part, "the guest's recording has no TIME_CONV: its clock was not stable", 0});
  const std::map<std::string, uint64_t> summary = emulate::read_summary(traced / "summary");
  std::vector<Trace> traces;
  std::vector<Chunk> chunks;
  for (int32_t cpu = 0;; ++cpu) {
    const std::string name = "cpu" + std::to_string(cpu);
    if (!fs::exists(traced / (name + ".pt"))) break;
    Trace& trace = traces.emplace_back();
    trace.packets = read_bytes(traced / (name + ".pt"));
    const std::vector<std::byte> truth = read_bytes(traced / (name + ".truth"));
    if (!write_checkpoints(truth, (out / ("truth." + name + ".txt")).string(), trace.truth)) {
      return fail({ErrorCode::bad_format, name + ".truth is damaged", 0});
    }
    if (Status status = write_truth(truth, (out / ("truth." + name + ".ptt")).string()); !status) return fail(status.error());
    for (const Chunk& chunk : cut(cpu, trace, clock)) chunks.push_back(chunk);
    std::printf("%s: %llu instructions, %llu in the kernel, %zu PSBs, %zu bytes of trace\n", name.c_str(),
                static_cast<unsigned long long>(trace.truth.insns), static_cast<unsigned long long>(trace.truth.kernel_insns),
                trace.truth.psbs.size(), trace.packets.size());
  }
  reader = PerfReader::open((guest / "recording").string());
  if (!reader) return fail(reader.error());
  WriterOptions options;
  options.attrs = (*reader)->attrs();
  add_trace_event(options.attrs, traces.size());
  std::vector<Announced> announced;
  if (const fs::path file = guest / "announced.data"; fs::exists(file)) {
    auto samples = read_announced(file.string());
    if (!samples) return fail(samples.error());
    announced = std::move(*samples);
    constexpr uint64_t kAnnouncedId = 900;
    options.attrs.push_back(announce_attr(options.attrs[0], kAnnouncedId));
    std::printf("%zu announcements recorded by perf\n", announced.size());
  }
  options.directory = true;
  Result<std::unique_ptr<PerfWriter>> writer = PerfWriter::create((out / "recording").string(), options);
  if (!writer) return fail(writer.error());
  if (Status status = (*writer)->add_auxtrace_info(info_of(summary, clock, options.attrs[0].type)); !status) return fail(status.error());
  Joiner joiner(**writer, options.attrs, std::move(chunks), std::move(announced));
  if (Status status = (*reader)->read([&](const Record& record) { return joiner.on_record(record); }); !status) return fail(status.error());
  joiner.finish();
  if (!joiner.status().ok()) return fail(joiner.status().error());
  for (const Chunk& chunk : joiner.chunks()) {
    AuxtraceRecord aux;
    aux.offset_bytes = chunk.offset_bytes;
    aux.reference = chunk.end_ns;
    aux.idx = static_cast<uint32_t>(chunk.cpu);
    aux.cpu = chunk.cpu;
    aux.tid = -1;
    aux.payload = Bytes(traces[static_cast<size_t>(chunk.cpu)].packets).subspan(chunk.offset_bytes, chunk.size_bytes);
    if (Status status = (*writer)->add_auxtrace(aux); !status) return fail(status.error());
  }
  (*writer)->set_features((*reader)->features());
  if (Status status = (*writer)->add_kcore_dir((guest / "recording/kcore_dir").string()); !status) return fail(status.error());
  if (Status status = (*writer)->finish(); !status) return fail(status.error());
  return 0;
}

}  // namespace
}  // namespace ptd::lab

int main(int argc, char** argv) {
  if (argc != 4) {
    (void)std::fprintf(stderr, "usage: lab_finish GUEST TRACE OUT\n");
    return 2;
  }
  return ptd::lab::run(argv[1], argv[2], argv[3]);
}
