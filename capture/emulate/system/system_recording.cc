// Joins the machine's records and its trace.
#include "capture/emulate/system/system_recording.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>

#include "capture/emulate/etm/etm_records.h"
#include "capture/emulate/etm/etm_stream.h"
#include "capture/emulate/etm/truth_file.h"
#include "capture/emulate/shared/pt_config.h"
#include "capture/emulate/shared/user_config.h"
#include "capture/emulate/system/boot_code.h"
#include "capture/emulate/system/trace_chunks.h"
#include "image/base/mapped_file.h"
#include "perfio/emulated.h"
#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/wire.h"
#include "perfio/perf_reader.h"
#include "perfio/perf_writer.h"
#include "ptdecode/time_conversion.h"

namespace ptd::emulate {
namespace {

namespace fs = std::filesystem;
using namespace perfio;

constexpr uint64_t kChunkBytes = 4 << 20;  // of one AUXTRACE record
constexpr uint32_t kTraceAttr = 0, kSystemDummyAttr = 1, kSoftwarePmu = 1;

/// One cpu's files.
struct Trace {
  std::shared_ptr<const MappedFile> packets;
  std::vector<uint64_t> psbs;  ///< offset and time of each
};

AuxtraceInfoRecord info_of(std::map<std::string, uint64_t> summary, const TimeConvRecord& clock, uint32_t pmu_type) {
  constexpr uint64_t kSwitchCpuWide = 3, kNoSnapshot = 0, kPerCpu = 1, kCapTimeZero = 1, kNoFilter = 0, kNoEventTrace = 0;
  AuxtraceInfoRecord info;
  info.type = kAuxtraceIntelPt;
  info.priv = {pmu_type,
               clock.time_shift,
               clock.time_mult,
               clock.time_zero,
               kCapTimeZero,
               kConfigTsc,
               kConfigNoRetcomp,
               kSwitchCpuWide,
               kNoSnapshot,
               kPerCpu,
               kConfigMtc,
               kMtcFreqBits,
               summary["tsc_per_ctc"],
               1,
               kConfigCyc,
               summary["bus_ratio"],
               kNoFilter,
               kNoEventTrace};
  return info;
}

/// The host's numbers of a file that the machine has mapped, whose own device and inode mean nothing here. Files that the machine has
/// changed, and those of its own file systems, stay as they are.
class HostFiles {
 public:
  explicit HostFiles(const std::string& changed_files) {
    std::ifstream in(changed_files);
    for (std::string line; std::getline(in, line);) changed_.insert(line);
  }
  bool translate(MmapRecord& map) const {
    if (map.path.empty() || map.path.front() != '/' || map.path.front() == '[' || changed_.count(map.path) != 0) return false;
    for (const char* own : {"/dev/", "/proc/", "/sys/", "//"}) {
      if (map.path.starts_with(own)) return false;
    }
    const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(map.path);
    if (!file) return false;
    const FileId id = (*file)->mapped_id();
    map.maj = id.maj;
    map.min = id.min;
    map.inode = id.inode;
    map.inode_generation = 0;
    return true;
  }

 private:
  std::set<std::string> changed_;
};

/// Copies the guest's records in order of time, with an AUX record at the end of each chunk's time.
class Joiner {
 public:
  /// `aux_flags`: of each AUX record.
  Joiner(PerfWriter& writer, const std::vector<EventAttr>& attrs, std::vector<TraceChunk> chunks, const HostFiles& files, BootCode& boot,
         uint64_t aux_flags)
      : writer_(writer), attrs_(attrs), chunks_(std::move(chunks)), files_(files), boot_(boot), aux_flags_(aux_flags) {
    std::stable_sort(chunks_.begin(), chunks_.end(), [](const TraceChunk& a, const TraceChunk& b) { return a.end_ns < b.end_ns; });
  }
  bool on_record(const Record& record) {
    if (record.type == kRecordFinishedRound || record.type == kRecordFinishedInit) return true;
    if (record.sample_id.has_time) {
      add_boot_code(record.sample_id.time);
      while (next_ < chunks_.size() && chunks_[next_].end_ns < record.sample_id.time) add_aux();
    }
    if (!status_.ok()) return false;
    status_ = add(record);
    return status_.ok();
  }
  void finish() {
    add_boot_code(UINT64_MAX);
    while (next_ < chunks_.size()) add_aux();
  }
  [[nodiscard]] const Status& status() const { return status_; }
  [[nodiscard]] const std::vector<TraceChunk>& chunks() const { return chunks_; }
  [[nodiscard]] uint64_t lost_records() const { return lost_; }
  [[nodiscard]] uint64_t text_pokes() const { return pokes_; }

 private:
  Status add(const Record& record) {
    if (const auto* lost = std::get_if<LostRecord>(&record.payload)) lost_ += lost->count;
    if (const auto* poke = std::get_if<TextPokeRecord>(&record.payload)) {
      ++pokes_;
      boot_.on_poke(*poke);
    }
    const auto* map = std::get_if<MmapRecord>(&record.payload);
    if (map == nullptr || map->kernel || record.type != kRecordMmap2 || !map->build_id.empty()) return writer_.add_raw(record.raw);
    MmapRecord translated = *map;
    if (!files_.translate(translated)) return writer_.add_raw(record.raw);
    RecordContext context;
    context.attr_index = kSystemDummyAttr;
    context.misc = record.misc;
    context.sample_id = record.sample_id;
    return writer_.add_mmap2(translated, context);
  }
  void add_boot_code(uint64_t time_ns) {
    if (!status_.ok()) return;
    status_ = boot_.up_to(time_ns, [this](const TextPokeRecord& poke, uint64_t when) {
      RecordContext context;
      context.attr_index = kSystemDummyAttr;
      context.misc = kMiscKernel;
      context.sample_id.pid = context.sample_id.tid = context.sample_id.cpu = 0;
      context.sample_id.time = when;
      context.sample_id.has_time = true;
      context.sample_id.id = attrs_[kSystemDummyAttr].ids.front();
      ++pokes_;
      return writer_.add_text_poke(poke, context);
    });
  }
  void add_aux() {
    const TraceChunk& chunk = chunks_[next_++];
    AuxRecord aux;
    aux.aux_offset_bytes = chunk.offset_bytes;
    aux.aux_size_bytes = chunk.size_bytes;
    aux.flags = aux_flags_;
    RecordContext context;
    context.sample_id.pid = context.sample_id.tid = 0;
    context.sample_id.time = chunk.end_ns;
    context.sample_id.has_time = true;
    context.sample_id.cpu = chunk.cpu;
    context.sample_id.id = attrs_[kTraceAttr].ids[static_cast<size_t>(chunk.cpu)];
    if (status_.ok()) status_ = writer_.add_aux(aux, context);
  }
  PerfWriter& writer_;
  const std::vector<EventAttr>& attrs_;
  std::vector<TraceChunk> chunks_;
  const HostFiles& files_;
  BootCode& boot_;
  const uint64_t aux_flags_;
  size_t next_ = 0;
  uint64_t lost_ = 0, pokes_ = 0;
  Status status_;
};

/// The blocks of an arm64 machine's ground truth, by number: each with its address, number of instructions and bytes.
std::vector<TruthBlock> read_blocks(Bytes file) {
  constexpr size_t kInsnBytes = 4;
  std::vector<TruthBlock> blocks;
  std::array<uint64_t, 2> head{};
  while (file.size() >= sizeof(head)) {
    std::memcpy(head.data(), file.data(), sizeof(head));
    file = file.subspan(sizeof(head));
    if (head[1] > file.size() / kInsnBytes) break;
    const Bytes code = file.first(head[1] * kInsnBytes);
    blocks.push_back({head[0], std::vector<uint8_t>(head[1], kInsnBytes), {code.begin(), code.end()}});
    file = file.subspan(code.size());
  }
  return blocks;
}

Status write_truth(const std::string& log, const std::string& path, const TruthFileWriter::Lookup& lookup) {
  const Result<std::shared_ptr<const MappedFile>> file = MappedFile::open(log);
  if (!file) return file.error();
  auto writer = TruthFileWriter::create(path);
  if (!writer) return writer.error();
  const auto release = [&](Bytes passed) { (void)madvise(const_cast<std::byte*>(passed.data()), passed.size(), MADV_DONTNEED); };
  if (Status status = (*writer)->append((*file)->bytes(), lookup, 0, release); !status) return status;
  return (*writer)->finish();
}

Result<TimeConvRecord> clock_of(const std::string& path) {
  Result<std::unique_ptr<PerfReader>> reader = PerfReader::open(path);
  if (!reader) return reader.error();
  TimeConvRecord clock;
  if (Status status = (*reader)->read([&](const Record& record) {
        if (const auto* found = std::get_if<TimeConvRecord>(&record.payload)) clock = *found;
        return clock.time_mult == 0;
      });
      !status) {
    return status.error();
  }
  if (clock.time_mult == 0)
    return Error{ErrorCode::missing_part, "the emulated machine's clock was not stable: its records cannot be dated", 0};
  return clock;
}

class SystemRecording {
 public:
  explicit SystemRecording(const SystemRecordingOptions& options)
      : options_(options),
        guest_(options.work + "/guest"),
        values_(read_summary(options.work + "/summary")),
        arm64_(values_["arm64"] != 0) {}

  Result<SystemSummary> write() {
    if (values_.empty()) return Error{ErrorCode::missing_part, "the emulator recorded nothing: the program was not started", 0};
    if (values_["failed_writes"] != 0)
      return Error{ErrorCode::no_space,
                   "cannot write the trace to " + options_.work + ": the disk is full, or a limit of the file size is reached", 0};
    const Result<TimeConvRecord> clock = clock_of(guest_ + "/recording");
    if (!clock) return clock.error();
    clock_ = *clock;
    if (Status status = take_traces(); !status) return status.error();
    if (Status status = join(); !status) return status.error();
    return summary_;
  }

 private:
  Status take_traces() {
    for (int32_t cpu = 0;; ++cpu) {
      const std::string name = "cpu" + std::to_string(cpu), path = options_.work + "/" + name;
      std::error_code error;
      if (!fs::exists(path + (arm64_ ? ".log" : ".pt"), error)) break;
      if (Status status = arm64_ ? take_etm(cpu, path) : take_pt(cpu, path); !status) return status;
      summary_.packet_bytes += traces_.back().packets->bytes().size();
      summary_.instructions += values_[name + "_insns"];
      summary_.kernel_instructions += values_[name + "_kernel_insns"];
      summary_.irregular += values_[name + "_irregular"];
      ++summary_.cpus;
      if (options_.truth_folder.empty()) continue;
      if (Status status = write_truth(path + ".truth", options_.truth_folder + "/truth." + name + ".ptt", lookup()); !status) return status;
    }
    return {};
  }

  Status take_pt(int32_t cpu, const std::string& path) {
    Result<std::shared_ptr<const MappedFile>> packets = MappedFile::open(path + ".pt"), psbs = MappedFile::open(path + ".psb");
    if (!packets || !psbs) return packets ? psbs.error() : packets.error();
    Trace trace{*packets, std::vector<uint64_t>((*psbs)->bytes().size() / sizeof(uint64_t))};
    if (!trace.psbs.empty()) std::memcpy(trace.psbs.data(), (*psbs)->bytes().data(), trace.psbs.size() * sizeof(uint64_t));
    const auto in_ns = [this](uint64_t tsc) { return to_ns(clock_, tsc); };
    const CutTrace whole{cpu, trace.packets->bytes().size(), trace.psbs, values_["end_time"]};
    for (const TraceChunk& chunk : trace_chunks(whole, kChunkBytes, in_ns)) chunks_.push_back(chunk);
    traces_.push_back(std::move(trace));
    return {};
  }

  /// The packets of arm64 are made from the ground truth. They are one piece: each AUX record of cs_etm is a capture of its own.
  Status take_etm(int32_t cpu, const std::string& path) {
    if (blocks_.empty()) {
      Result<std::shared_ptr<const MappedFile>> blocks = MappedFile::open(options_.work + "/blocks");
      if (!blocks) return blocks.error();
      blocks_ = read_blocks((*blocks)->bytes());
    }
    Result<std::shared_ptr<const MappedFile>> log = MappedFile::open(path + ".log");
    if (!log) return log.error();
    if (Status status = encode_etm((*log)->bytes(), lookup(), 0, {path + ".etm", path + ".truth"}, [](Bytes) {},
                                   {true, options_.sync_bytes, options_.ete});
        !status)
      return status;
    Result<std::shared_ptr<const MappedFile>> packets = MappedFile::open(path + ".etm");
    if (!packets) return packets.error();
    if (const uint64_t size = (*packets)->bytes().size(); size != 0) chunks_.push_back({cpu, 0, size, to_ns(clock_, values_["end_time"])});
    traces_.push_back({*packets, {}});
    return {};
  }

  [[nodiscard]] TruthFileWriter::Lookup lookup() const {
    return [this](uint64_t number) { return number < blocks_.size() ? &blocks_[number] : nullptr; };
  }

  Status join() {
    Result<std::unique_ptr<PerfReader>> reader = PerfReader::open(guest_ + "/recording");
    if (!reader) return reader.error();
    WriterOptions options;
    options.attrs = (*reader)->attrs();
    options.directory = true;
    if (options.attrs.size() <= kSystemDummyAttr || options.attrs[kTraceAttr].ids.size() < traces_.size())
      return Error{ErrorCode::bad_format, "the records of the emulated machine name fewer cpus than it has", 0};
    AuxtraceInfoRecord info = info_of(values_, clock_, options.attrs[kTraceAttr].type);
    if (arm64_) {
      const EventAttr etm = etm_attr();
      options.attrs[kTraceAttr].type = etm.type;
      options.attrs[kTraceAttr].config = etm.config;
      options.attrs[kTraceAttr].name = "cs_etm//";
      info = etm_auxtrace_info(static_cast<uint32_t>(traces_.size()), options_.ete);
    }
    Result<std::unique_ptr<PerfWriter>> writer = PerfWriter::create(options_.output, options);
    if (!writer) return writer.error();
    if (Status status = (*writer)->add_auxtrace_info(info); !status) return status;
    const HostFiles files(guest_ + "/changed_files");
    Result<BootCode> boot =
        BootCode::open(options_.work + "/code", guest_ + "/recording/kcore_dir/kcore", [this](uint64_t tsc) { return to_ns(clock_, tsc); });
    if (!boot) return boot.error();
    Joiner joiner(**writer, options.attrs, chunks_, files, *boot, arm64_ ? kAuxFormatRaw : 0);
    if (Status status = (*reader)->read([&](const Record& record) { return joiner.on_record(record); }); !status) return status;
    joiner.finish();
    if (!joiner.status().ok()) return joiner.status();
    summary_.lost_records = joiner.lost_records();
    summary_.unknown_mode = values_["unknown_mode"];
    summary_.clock_reads = values_["tsc_reads"];
    summary_.clock_reads_wrong = values_["tsc_reads_wrong"];
    summary_.text_pokes = joiner.text_pokes();
    if (Status status = add_trace(**writer, joiner.chunks()); !status) return status;
    Features features = (*reader)->features();
    features.cmdline = options_.command_line;
    utsname host{};
    if (uname(&host) == 0) features.hostname = host.nodename;  // whose files the machine's programs are
    if (arm64_) features.pmu_types = {{"cs_etm", options.attrs[kTraceAttr].type}, {"software", kSoftwarePmu}};
    features.cpu_desc = std::string(features.cpu_desc) + " (" + kEmulatedCpu + ")";
    (*writer)->set_features(features);
    if (Status status = (*writer)->add_kcore_dir(guest_ + "/recording/kcore_dir"); !status) return status;
    if (Status status = (*writer)->add_kcore_dir(guest_ + "/after/kcore_dir", "kcore_dir_after"); !status) return status;
    return (*writer)->finish();
  }

  Status add_trace(PerfWriter& writer, const std::vector<TraceChunk>& chunks) {
    for (const TraceChunk& chunk : chunks) {
      AuxtraceRecord aux;
      aux.offset_bytes = chunk.offset_bytes;
      aux.reference = chunk.end_ns;
      aux.idx = static_cast<uint32_t>(chunk.cpu);
      aux.cpu = chunk.cpu;
      aux.tid = -1;
      aux.payload = traces_[static_cast<size_t>(chunk.cpu)].packets->bytes().subspan(chunk.offset_bytes, chunk.size_bytes);
      if (Status status = writer.add_auxtrace(aux); !status) return status;
    }
    return {};
  }

  const SystemRecordingOptions& options_;
  const std::string guest_;
  std::map<std::string, uint64_t> values_;
  const bool arm64_;
  std::vector<TruthBlock> blocks_;  ///< of arm64
  TimeConvRecord clock_;
  std::vector<Trace> traces_;
  std::vector<TraceChunk> chunks_;
  SystemSummary summary_;
};

}  // namespace

uint64_t to_ns(const TimeConvRecord& clock, uint64_t tsc) {
  return TimeConversion{static_cast<uint16_t>(clock.time_shift), static_cast<uint32_t>(clock.time_mult), clock.time_zero}
      .to_ns(Tsc{tsc})
      .value;
}

std::map<std::string, uint64_t> read_summary(const std::string& path) {
  std::ifstream in(path);
  return read_values(in);
}

Result<SystemSummary> write_system_recording(const SystemRecordingOptions& options) { return SystemRecording(options).write(); }

}  // namespace ptd::emulate
