// Converts the plugin's files to a recording.
#include "capture/emulate/user_recording.h"

#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <set>

#include "capture/emulate/announce_log.h"
#include "capture/emulate/aux_samples.h"
#include "capture/emulate/etm/etm_records.h"
#include "capture/emulate/etm/etm_stream.h"
#include "capture/emulate/lost_privileges.h"
#include "capture/emulate/shared/mapped_log.h"
#include "capture/emulate/shared/pt_config.h"
#include "capture/emulate/user_sideband.h"
#include "image/base/whole_file.h"
#include "perfio/announce/announce_event.h"
#include "perfio/emulated.h"
#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/wire.h"
#include "perfio/perf_writer.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/packet_writer.h"

namespace ptd::emulate {
namespace {

constexpr uint32_t kPtType = 8, kSoftwareType = 1;
constexpr uint64_t kDummyConfig = 9;
constexpr uint32_t kPtAttr = 0, kDummyAttr = 1;
// Of perf_event_attr: disabled, mmap, comm, task, mmap2, comm_exec.
constexpr uint64_t kDummyFlags = 1ULL << 0 | 1ULL << 8 | 1ULL << 9 | 1ULL << 13 | 1ULL << 23 | 1ULL << 24;
constexpr uint64_t kPtId = 1, kDummyId = 2, kAnnounceId = 3, kFirstSampleId = 4;  // one for each thread
constexpr uint64_t kAuxTruncated = 1, kAuxOverwrite = 2;                          // PERF_AUX_FLAG_*
constexpr uint64_t kAuxPieceBytes = uint64_t{4} << 20;                            // at least; a piece ends before a PSB

/// All packets of one thread id: of one program after the other.
struct Stream {
  int32_t pid = -1, tid = -1;
  struct Piece {
    size_t image = 0;
    const UserThreadOutput* thread = nullptr;
    LogData packets;
    uint64_t base_bytes = 0;
    LogData truth;                ///< raw log
    bool cut = false;             ///< the logs end early
    bool broken = false;          ///< more ran after the packets
    std::vector<std::byte> tail;  ///< packets that date the end, after a break if there is one
    [[nodiscard]] uint64_t bytes() const { return packets.bytes.size() + tail.size(); }
    [[nodiscard]] uint64_t end_tsc() const { return std::max(thread->last_tsc, thread->events.back().tsc); }
  };
  std::vector<Piece> pieces;
  uint64_t size_bytes = 0;
};

perfio::EventAttr attr_of(uint32_t index, const RecordingOptions& options) {
  perfio::EventAttr attr;
  const bool pt = index == kPtAttr;
  attr.type = pt ? kPtType : kSoftwareType;
  attr.config = pt ? pt_config(options.config.pt, options.psb_period) : kDummyConfig;
  attr.flags = pt ? 1 : kDummyFlags;
  attr.name = pt ? "intel_pt//u" : "dummy:u";
  if (pt && options.aarch64) attr = etm_attr();
  attr.sample_period = 1;
  attr.sample_type = perfio::kSampleIp | perfio::kSampleTid | perfio::kSampleTime | perfio::kSampleIdentifier;
  if (options.aarch64) attr.sample_type |= perfio::kSampleCpu;
  attr.read_format = perfio::kFormatId;
  attr.sample_id_all = true;
  attr.exclude_kernel = attr.exclude_hv = true;
  attr.ids = {pt ? kPtId : kDummyId};
  attr.use_clockid = !options.config.work_clock;  // the records' times are CLOCK_MONOTONIC's, as those of jitdumps
  attr.clockid = attr.use_clockid ? CLOCK_MONOTONIC : 0;
  return attr;
}

// The event whose samples hold trace.
perfio::EventAttr sample_attr(const RecordingOptions& options, size_t streams) {
  constexpr uint64_t kCpuClock = 0;
  perfio::EventAttr attr = attr_of(kDummyAttr, options);
  attr.config = kCpuClock;
  attr.name = "cpu-clock:u";
  attr.flags = 1;
  attr.sample_type |= perfio::kSampleAux;
  attr.aux_sample_bytes = static_cast<uint32_t>(options.config.aux_sample_bytes);
  attr.ids.clear();
  for (size_t i = 0; i < streams; ++i) attr.ids.push_back(kFirstSampleId + i);
  return attr;
}

perfio::AuxtraceInfoRecord auxtrace_info(const RecordingOptions& options) {
  const PtEncoderOptions& pt = options.config.pt;
  perfio::AuxtraceInfoRecord info;
  info.type = perfio::kAuxtraceIntelPt;
  constexpr uint64_t kNoSwitches = 0, kNoSnapshot = 0, kPerThread = 0, kCapTimeZero = 1, kNoFilter = 0, kNoEventTrace = 0;
  info.priv = {kPtType,
               options.time.time_shift,
               options.time.time_mult,
               options.time.time_zero,
               kCapTimeZero,
               kConfigTsc,
               kConfigNoRetcomp,
               kNoSwitches,
               kNoSnapshot,
               kPerThread,
               kConfigMtc,
               kMtcFreqBits,
               pt.tsc_per_ctc,
               1,
               kConfigCyc,
               pt.bus_ratio,
               kNoFilter,
               kNoEventTrace};
  return info;
}

// Options given for Intel PT packets, which an ETMv4 trace has no counterpart of.
std::string unused_options(const PtEncoderOptions& pt) {
  const PtEncoderOptions usual;
  std::string names;
  const auto add = [&](bool given, const char* name) {
    if (given) names += (names.empty() ? "" : ", ") + std::string(name);
  };
  add(pt.cyc, "--cyc");
  add(pt.cyc_threshold != usual.cyc_threshold, "--cyc-thresh");
  add(pt.mtc_period != usual.mtc_period, "--mtc-period");
  add(!pt.tsc, "--no-tsc");
  add(pt.tsc && !pt.mtc, "--no-mtc");
  add(!pt.return_compression, "--no-retcomp");
  add(!pt.long_tnt, "--short-tnt");
  return names;
}

// A file that was written whole.
Result<LogData> whole_file(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file) return file.error();
  return LogData{*file, (*file)->bytes(), false};
}

// The packets of aarch64 are made from the ground truth.
Status encode_piece(const std::vector<UserImage>& images, bool ete, Stream::Piece& piece) {
  const std::string stem = piece.thread->truth_path;
  const LogData log = read_log(stem);
  const EtmFiles files{stem + ".etm", stem + ".etm_truth"};
  const auto lookup = [&](uint64_t number) { return find_block(images, piece.image, number); };
  if (Status status = encode_etm(log.bytes, lookup, piece.thread->tid, files, release_pages, {.ete = ete}); !status) return status;
  auto packets = whole_file(files.packets), truth = whole_file(files.truth);
  if (!packets || !truth) return packets ? truth.error() : packets.error();
  piece.packets = std::move(*packets);
  piece.truth = std::move(*truth);
  piece.cut = log.cut || read_log(piece.thread->packet_path).cut;
  return {};
}

// The last packet may be long before the end: of a thread that waited, or that could not be recorded any more. What follows a break starts
// when the packets end, so that the time in which nothing was recorded is lost time.
void date_end(Stream::Piece& piece) {
  if (!piece.broken && !piece.thread->silent_end) return;
  pt::PacketWriter packets(piece.tail);
  const uint64_t last = piece.thread->end.moment.totals.tsc;
  if (piece.broken) {
    packets.psb();
    packets.tsc(last);
    packets.psbend();
  }
  if (piece.end_tsc() > last) packets.tsc(piece.end_tsc());
  constexpr size_t kAlign = 8;  // AUXTRACE records are of as many bytes; a PAD packet is a zero
  piece.tail.resize((piece.tail.size() + kAlign - 1) / kAlign * kAlign);
}

Result<std::vector<Stream>> streams_of(const std::vector<UserImage>& images, const RecordingOptions& options) {
  const bool aarch64 = options.aarch64;
  std::vector<Stream> streams;
  for (size_t i = 0; i < images.size(); ++i) {
    for (const UserThreadOutput& thread : images[i].threads) {
      auto known = std::find_if(streams.begin(), streams.end(), [&](const Stream& s) { return s.tid == thread.tid; });
      if (known == streams.end()) {
        streams.push_back({thread.pid, thread.tid, {}, 0});
        known = streams.end() - 1;
      }
      Stream::Piece piece{i, &thread, {}, known->size_bytes, {}, false, false, {}};
      if (aarch64) {
        if (Status status = encode_piece(images, options.config.ete, piece); !status) return status.error();
      } else {
        piece.packets = read_log(thread.packet_path);
        piece.truth = read_log(thread.truth_path);
        piece.cut = piece.packets.cut;
      }
      piece.broken = piece.cut || thread.end.unknown;
      if (!aarch64 && options.config.pt.tsc) date_end(piece);
      known->size_bytes += piece.bytes();
      known->pieces.push_back(std::move(piece));
    }
  }
  return streams;
}

Status write_truth(const RecordingOptions& options, const std::vector<UserImage>& images, const Stream& stream, size_t index) {
  const std::string whose = options.aarch64 ? "cpu" + std::to_string(index) : "tid" + std::to_string(stream.tid);
  const std::string path = options.truth_folder + "/truth." + whose + ".ptt";
  auto writer = TruthFileWriter::create(path);
  if (!writer) return writer.error();
  for (const Stream::Piece& piece : stream.pieces) {
    const auto lookup = [&](uint64_t number) { return find_block(images, piece.image, number); };
    if (Status status = (*writer)->append(piece.truth.bytes, lookup, piece.base_bytes, release_pages); !status) return status;
  }
  return (*writer)->finish();
}

/// Indices of events in the recording's list, and ids of those that differ by thread.
struct EventPlaces {
  uint32_t announce_attr = 0, sample_attr = 0;
  std::map<int32_t, uint64_t> sample_ids;  ///< by thread
};

/// Writes records in order and keeps the first error.
class Writer {
 public:
  Writer(perfio::PerfWriter& writer, const TimeConversion& time, const EventPlaces& places)
      : writer_(writer), time_(time), places_(places) {}
  void put(const TimedRecord& record) {
    perfio::RecordContext context;
    const bool pt =
        std::holds_alternative<perfio::ItraceStartRecord>(record.payload) || std::holds_alternative<perfio::AuxRecord>(record.payload);
    const auto* sample = std::get_if<perfio::OtherSample>(&record.payload);
    const bool announced = sample != nullptr && sample->aux.empty();
    context.attr_index = pt ? kPtAttr : announced ? places_.announce_attr : sample != nullptr ? places_.sample_attr : kDummyAttr;
    context.misc = perfio::kMiscUser;
    context.sample_id.pid = record.pid;
    context.sample_id.tid = record.tid;
    context.sample_id.time = time_.to_ns(Tsc{record.tsc}).value;
    context.sample_id.has_time = true;
    context.sample_id.id = pt ? kPtId : announced ? kAnnounceId : sample != nullptr ? places_.sample_ids.at(record.tid) : kDummyId;
    context.sample_id.cpu = record.cpu;
    perfio::Payload payload = record.payload;
    if (auto* task = std::get_if<perfio::TaskRecord>(&payload)) task->time = context.sample_id.time;
    if (auto* error = std::get_if<perfio::AuxtraceErrorRecord>(&payload)) error->time = context.sample_id.time;
    check(writer_.add(payload, context));
  }
  void check(Status status) {
    if (status_.ok() && !status.ok()) status_ = std::move(status);
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  perfio::PerfWriter& writer_;
  const TimeConversion& time_;
  const EventPlaces& places_;
  Status status_;
};

void write_head(perfio::PerfWriter& writer, Writer& out, const RecordingOptions& options, const std::vector<Stream>& streams,
                const EventPlaces& places) {
  std::vector<perfio::IdIndexEntry> ids{{kPtId, 0, -1, -1}, {kDummyId, 0, -1, -1}};
  for (const auto& [tid, id] : places.sample_ids) ids.push_back({id, id - kFirstSampleId, -1, tid});
  out.check(writer.add_id_index(ids));
  out.check(writer.add_auxtrace_info(options.aarch64 ? etm_auxtrace_info(static_cast<uint32_t>(streams.size()), options.config.ete)
                                                     : auxtrace_info(options)));
  perfio::TimeConvRecord conversion;
  conversion.time_shift = options.time.time_shift;
  conversion.time_mult = options.time.time_mult;
  conversion.time_zero = options.time.time_zero;
  conversion.cap_user_time_zero = true;
  out.check(writer.add_time_conv(conversion));
}

// An AUXTRACE record of the packets of stream `index`, and of those in `tail`.
void write_piece(perfio::PerfWriter& writer, Writer& out, const Stream& stream, size_t index, uint64_t offset_bytes, uint64_t reference,
                 Bytes packets, Bytes tail, bool aarch64) {
  perfio::AuxtraceRecord record;
  record.offset_bytes = offset_bytes;
  record.reference = reference;
  record.idx = static_cast<uint32_t>(index);
  record.tid = aarch64 ? -1 : stream.tid;
  record.cpu = aarch64 ? static_cast<int32_t>(index) : -1;
  record.payload = packets;
  out.check(writer.add_auxtrace(record, tail));
}

// CoreSight: one buffer per cpu, and each thread has its own cpu. Intel PT: one buffer per thread.
void write_packets(perfio::PerfWriter& writer, Writer& out, const std::vector<Stream>& streams, bool aarch64) {
  for (size_t index = 0; index < streams.size(); ++index) {
    for (const Stream::Piece& piece : streams[index].pieces) {
      const Bytes packets = piece.packets.bytes;
      // Like a kernel's records, which are written while tracing is off, none ends within a packet: perf reads each record separately.
      for (uint64_t at = 0, end = 0; at < packets.size(); at = end) {
        end = packets.size() - at > kAuxPieceBytes && !aarch64
                  ? std::min<uint64_t>(pt::find_psb(packets, at + kAuxPieceBytes), packets.size())
                  : packets.size();
        const bool whole = end == packets.size() && !piece.broken;  // the tail goes on where the packets end
        write_piece(writer, out, streams[index], index, piece.base_bytes + at, piece.thread->first_tsc + 1 + at,
                    packets.subspan(at, end - at), whole ? Bytes(piece.tail) : Bytes(), aarch64);
        release_pages(packets.first(end));
      }
      if (!piece.tail.empty() && (piece.broken || packets.empty()))
        write_piece(writer, out, streams[index], index, piece.base_bytes + packets.size(), piece.thread->first_tsc + 1 + packets.size(),
                    piece.tail, {}, aarch64);
    }
  }
}

void write_not_recorded(perfio::PerfWriter& writer, Writer& out, int32_t pid, std::string why) {
  perfio::AuxtraceErrorRecord error;
  error.type = perfio::kAuxtraceErrorItrace;
  error.code = perfio::kNotRecordedCode;
  error.pid = error.tid = pid;
  error.message = "process " + std::to_string(pid) + " " + std::move(why);
  out.check(writer.add_auxtrace_error(error));
}

// A record for each process that was not recorded at all, or of which threads or programs were not.
void write_missing(perfio::PerfWriter& writer, Writer& out, const RecordingOptions& options, const std::vector<UserImage>& images,
                   const std::vector<UserSideband::Escape>& escapes) {
  const std::vector<uint64_t> pids = SharedCount::details(options.work_folder + "/" + kMissingFile);
  for (const uint64_t pid : std::set<uint64_t>(pids.begin(), pids.end())) {
    const bool seen =
        std::any_of(images.begin(), images.end(), [&](const UserImage& image) { return image.pid == static_cast<int32_t>(pid); });
    write_not_recorded(writer, out, static_cast<int32_t>(pid), seen ? "is not recorded to its end" : "is not recorded");
  }
  // The program's name is at the end, because the record holds 63 letters.
  for (const UserSideband::Escape& escape : escapes)
    write_not_recorded(writer, out, escape.pid, "left the emulator for " + escape.path.substr(escape.path.rfind('/') + 1));
}

/// What the programs announced, as samples; they view `samples`.
struct Announcements {
  std::deque<std::vector<std::byte>> samples;
  std::vector<TimedRecord> records;
};

Announcements announcements_of(const RecordingOptions& options, const std::vector<UserImage>& images) {
  Announcements result;
  const AnnounceLog log = read_announce_log(options.work_folder);
  for (const LoggedAnnouncement& entry : log.entries) {
    const auto image = std::find_if(images.begin(), images.end(), [&](const UserImage& known) { return known.pid == entry.pid; });
    if (image == images.end()) continue;
    result.samples.push_back(perfio::announce_sample(entry.tid, entry.record));
    // The counter that an emulated x86 program reads is the host's, as is that of the trace; aarch64's is another one.
    const uint64_t tsc = options.aarch64 ? options.time.to_tsc(TimeNs{entry.mono_ns}).value : entry.ticks;
    result.records.push_back({std::max(tsc, image->first_tsc + 1), entry.pid, entry.tid, perfio::OtherSample{0, result.samples.back()}, 0});
  }
  return result;
}

perfio::Features features_of(const RecordingOptions& options, const UserSideband& sideband) {
  perfio::Features features;
  utsname system{};
  (void)uname(&system);
  features.hostname = system.nodename;
  features.os_release = system.release;
  features.version = "ptdecode";
  features.arch = options.aarch64 ? "aarch64" : "x86_64";
  features.cpu_desc = perfio::kEmulatedCpu;
  if (!options.aarch64) features.cpuid = "GenuineIntel,6,94,3";
  features.cpus_online = features.cpus_available = static_cast<uint32_t>(std::max(1L, sysconf(_SC_NPROCESSORS_ONLN)));
  features.cmdline = options.command_line;
  features.pmu_types = {{options.aarch64 ? "cs_etm" : "intel_pt", kPtType}, {"software", kSoftwareType}};
  for (const auto& [path, ids] : sideband.build_ids()) {  // a table by path: right only for a path that named one file
    if (ids.size() == 1 && !ids.begin()->empty()) features.build_ids.push_back({path, *ids.begin(), -1, perfio::kMiscUser});
  }
  return features;
}

RecordingSummary summary_of(const std::vector<UserImage>& images, const std::vector<Stream>& streams, const UserSideband& sideband,
                            uint64_t missing) {
  uint64_t cut = 0;
  RecordingSummary summary;
  summary.threads = streams.size();
  summary.programs = sideband.programs();
  summary.code_loads = sideband.code_loads();
  summary.warnings = sideband.warnings();
  for (std::string& lost : lost_privileges(sideband.paths())) summary.warnings.push_back(std::move(lost));
  std::vector<int32_t> pids;
  for (const UserImage& image : images) {
    pids.push_back(image.pid);
    for (const UserThreadOutput& thread : image.threads) {
      summary.instructions += thread.end.moment.step.insns;
      summary.irregular += thread.end.moment.totals.irregular;
      summary.overflows += thread.end.moment.totals.overflows;
    }
  }
  std::sort(pids.begin(), pids.end());
  summary.processes = static_cast<uint64_t>(std::unique(pids.begin(), pids.end()) - pids.begin());
  for (const Stream& stream : streams) {
    summary.packet_bytes += stream.size_bytes;
    for (const Stream::Piece& piece : stream.pieces) {
      cut += piece.cut ? 1 : 0;
      summary.killed_threads += piece.thread->end.unknown && !piece.cut ? 1 : 0;
    }
  }
  if (cut != 0) {
    summary.warnings.push_back("the disk of the working folder was nearly full, or a limit was reached (--max-size, ulimit -f): " +
                               std::to_string(cut) + (cut == 1 ? " thread is" : " threads are") + " not recorded to the end");
  }
  if (missing != 0) {
    summary.warnings.push_back(
        std::to_string(missing) + (missing == 1 ? " thread or program is" : " threads or programs are") +
        " not in the recording: the disk of the working folder was nearly full, or the folder was moved, or was not accessible after a "
        "change of root, user or limits");
  }
  return summary;
}

// What the kernel says of each piece of a trace.
void put_aux_records(const std::vector<Stream>& streams, const RecordingOptions& options, std::vector<TimedRecord>& records) {
  const bool aarch64 = options.aarch64, sampled = options.config.aux_sample_bytes != 0;
  for (const Stream& stream : streams) {
    for (const Stream::Piece& piece : stream.pieces) {
      perfio::AuxRecord aux;
      aux.aux_offset_bytes = piece.base_bytes;
      aux.aux_size_bytes = piece.packets.bytes.size();
      if (aarch64) aux.flags = perfio::kAuxFormatRaw;
      if (sampled) aux.flags |= kAuxOverwrite;
      if (piece.broken) aux.flags |= kAuxTruncated;
      if (aux.aux_size_bytes != 0 || piece.broken)
        records.push_back(
            {piece.tail.empty() ? piece.thread->last_tsc : piece.thread->end.moment.totals.tsc, stream.pid, stream.tid, aux, 0});
      if (piece.tail.empty()) continue;
      aux.aux_offset_bytes += aux.aux_size_bytes;
      aux.aux_size_bytes = piece.tail.size();
      aux.flags &= ~kAuxTruncated;
      records.push_back({piece.end_tsc(), stream.pid, stream.tid, aux, 0});
    }
  }
}

// The trace as samples; the records view `samplers`.
void put_samples(const std::vector<Stream>& streams, const RecordingOptions& options, std::deque<AuxSampler>& samplers,
                 std::vector<TimedRecord>& records) {
  for (const Stream& stream : streams) {
    AuxSampler& sampler = samplers.emplace_back(options.config);
    for (const Stream::Piece& piece : stream.pieces) {
      sampler.add(piece.packets.bytes, piece.thread->first_tsc, piece.end_tsc());
      release_pages(piece.packets.bytes);
    }
    for (const TakenSample& sample : sampler.samples())
      records.push_back({sample.tsc, stream.pid, stream.tid, perfio::OtherSample{sample.ip, {}, sample.window}, 0});
  }
}

RecordingSummary with_samples(RecordingSummary summary, const std::deque<AuxSampler>& samplers, const RecordingOptions& options) {
  summary.sampled = options.config.aux_sample_bytes != 0;
  for (const AuxSampler& sampler : samplers) summary.samples += sampler.samples().size();
  if (summary.sampled) summary.packet_bytes = summary.samples * options.config.aux_sample_bytes;
  return summary;
}

// Each thread has a cpu of its own, on which the kernel writes its records.
void put_cpus(const std::vector<Stream>& streams, std::vector<TimedRecord>& records) {
  std::map<int32_t, uint32_t> cpu_of;
  for (size_t index = 0; index < streams.size(); ++index) cpu_of.emplace(streams[index].tid, static_cast<uint32_t>(index));
  for (TimedRecord& record : records) {
    const auto cpu = cpu_of.find(record.tid);
    if (cpu != cpu_of.end()) record.cpu = cpu->second;
  }
}

// Why there is nothing to write.
Error no_images(const RecordingOptions& options, bool missing) {
  rlimit files{};  // also of this process, which reads what the emulator wrote
  constexpr rlim_t kFewFiles = 64;
  const bool few = ::getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < kFewFiles;
  if (!missing && !few) return {ErrorCode::no_trace, "the emulator left no trace: the program did not start, or its logs were removed", 0};
  const uint64_t most = options.config.most_log_bytes;
  const bool limited = most != 0 && SharedCount::read(options.work_folder + "/" + kSpaceFile) > most;
  const std::string why = limited ? "the logs of one thread need more than " + std::to_string(most) + " bytes; raise --max-size"
                          : few   ? "a process may open only " + std::to_string(files.rlim_cur) + " files; raise the limit (ulimit -n)"
                                  : "the disk of the working folder " + options.work_folder + " is full, or the folder is not accessible";
  return {ErrorCode::no_space, "nothing was recorded: " + why, 0};
}

}  // namespace

Result<RecordingSummary> write_recording(const RecordingOptions& options) {
  const std::vector<UserImage> images = read_user_output(options.work_folder);
  const uint64_t missing = SharedCount::read(options.work_folder + "/" + kMissingFile);
  if (images.empty()) return no_images(options, missing != 0);
  const Result<std::vector<Stream>> made = streams_of(images, options);
  if (!made) return made.error();
  const std::vector<Stream>& streams = *made;
  const std::string program = options.command_line.empty() ? "" : options.command_line.front();
  UserSideband sideband(images, {options.work_folder, options.config.ran_code, options.output + ".jit"},
                        program.substr(program.rfind('/') + 1).substr(0, 15));
  if (Status status = sideband.run(); !status) return status.error();
  put_aux_records(streams, options, sideband.records());
  const bool sampled = options.config.aux_sample_bytes != 0;
  std::deque<AuxSampler> samplers;
  if (sampled) put_samples(streams, options, samplers, sideband.records());
  const Announcements announcements = announcements_of(options, images);
  for (const TimedRecord& record : announcements.records) sideband.records().push_back(record);
  if (options.aarch64) put_cpus(streams, sideband.records());
  std::stable_sort(sideband.records().begin(), sideband.records().end(), [](const auto& a, const auto& b) { return a.tsc < b.tsc; });

  perfio::WriterOptions writer_options;
  writer_options.attrs = {attr_of(kPtAttr, options), attr_of(kDummyAttr, options)};
  EventPlaces places;
  const auto add_event = [&](perfio::EventAttr attr) {
    writer_options.attrs.push_back(std::move(attr));
    return static_cast<uint32_t>(writer_options.attrs.size() - 1);
  };
  if (!announcements.records.empty())
    places.announce_attr = add_event(perfio::announce_attr(writer_options.attrs[kDummyAttr], kAnnounceId));
  if (sampled) places.sample_attr = add_event(sample_attr(options, streams.size()));
  for (size_t i = 0; sampled && i < streams.size(); ++i) places.sample_ids[streams[i].tid] = kFirstSampleId + i;
  auto output = WholeFile::open(options.output, kRecordingOutput);
  if (!output) return output.error();
  writer_options.fd = (*output)->fd();
  auto created = perfio::PerfWriter::create(options.output, writer_options);
  if (!created) return created.error();
  Writer out(**created, options.time, places);
  write_head(**created, out, options, streams, places);
  for (const TimedRecord& record : sideband.records()) out.put(record);
  if (!sampled) write_packets(**created, out, streams, options.aarch64);
  write_missing(**created, out, options, images, sideband.escapes());
  out.check((*created)->add_finished_round());
  (*created)->set_features(features_of(options, sideband));
  if (!announcements.records.empty()) (*created)->set_feature_bytes(perfio::kFeatureTracingData, perfio::announce_tracing_data());
  out.check((*created)->finish());
  // On a full disk, the logs are kept, and an incomplete recording is of no use.
  const bool written = out.status().ok() || out.status().error().kind() != ErrorKind::file_open;
  if (const Status placed = written ? (*output)->finish() : Status(); !placed) return placed.error();
  if (!out.status().ok()) return out.status().error();
  if (!options.truth_folder.empty()) {
    std::error_code error;
    std::filesystem::create_directories(options.truth_folder, error);
    for (size_t i = 0; i < streams.size(); ++i) {
      if (Status status = write_truth(options, images, streams[i], i); !status) return status.error();
    }
  }
  RecordingSummary summary = with_samples(summary_of(images, streams, sideband, missing), samplers, options);
  const std::string unused = options.aarch64 ? unused_options(options.config.pt) : "";
  if (!unused.empty()) summary.warnings.push_back("options of Intel PT that an aarch64 program's CoreSight trace does not have: " + unused);
  return summary;
}

}  // namespace ptd::emulate
