// Survey: the records of a recording, counted.
#include "ptdecode/survey.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "image/base/mapped_file.h"
#include "image/source/build_id.h"
#include "image/source/jitdump.h"
#include "perfio/announce/announce_event.h"
#include "perfio/emulated.h"
#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/wire.h"
#include "perfio/perf_reader.h"
#include "ptdecode/bundle.h"
#include "recording/arm_ends.h"
#include "recording/data/absent_trace.h"
#include "recording/data/event_names.h"
#include "recording/data/json_form.h"
#include "recording/data/own_files.h"
#include "recording/data/part_of_trace.h"
#include "recording/data/recording_data.h"
#include "recording/image/image_build.h"
#include "recording/image/stashed_code.h"
#include "recording/perf/arm_perf.h"
#include "recording/perf/guest_machines.h"
#include "recording/perf/perf_time.h"
#include "recording/perf/ring_index.h"
#include "recording/trace/segments.h"

namespace ptd {
namespace {

using perfio::kAuxCollision, perfio::kAuxPartial, perfio::kAuxTruncated;
constexpr size_t kMostWarnings = 100;

void add_word(std::string& text, const std::string& word) {
  if (text.find(word) == std::string::npos) text += (text.empty() ? "" : ", ") + word;
}

/// Protocols and timing packets of trace sources. [ETMv4] "TRCCONFIGR": TS bit 11, CCI bit 4; [ETMv3], [PFT] "ETMCR": bits 28 and 12.
void take_sources(const std::vector<arm::TraceConfig>& sources, Survey& survey) {
  std::string protocols;
  for (const arm::TraceConfig& config : sources) {
    add_word(protocols, arm::name(config.protocol));
    const bool old = config.protocol == arm::Protocol::etmv3 || config.protocol == arm::Protocol::ptm;
    const bool own = config.protocol == arm::Protocol::etmv4 || config.protocol == arm::Protocol::ete;
    if ((own && (config.configr & 1U << 11) != 0) || (old && (config.configr & 1U << 28) != 0)) add_word(survey.timing, "timestamps");
    if ((own && (config.configr & 1U << 4) != 0) || (old && (config.configr & 1U << 12) != 0)) add_word(survey.timing, "cycle counts");
  }
  survey.trace = protocols.empty() ? "Intel PT" : "CoreSight " + protocols;
}

// A recording without a host name is taken for this machine's.
bool recorded_here(const std::string& hostname) {
  struct utsname own {};
  return hostname.empty() || (::uname(&own) == 0 && hostname == own.nodename);
}

void widen(Interval& span, bool& any, TimeNs time) {
  span = any ? Interval{std::min(span.first, time), std::max(span.last, time)} : Interval{time, time};
  any = true;
}

// Collects what the records say.
class SurveyCollector {
 public:
  SurveyCollector(const perfio::PerfReader& reader, const OpenRequest& options, Survey& survey) : reader_(reader), survey_(survey) {
    guests_.add_sources(options, reader.kcore_dirs(), survey.warnings);
  }

  void take(const perfio::Record& record) {
    if (record.sample_id.has_time) {
      widen(survey_.time, timed_, TimeNs{record.sample_id.time});
      times_.add(record.sample_id.time);
    }
    witness_.on_record(record);
    if (etm_.valid) arm_ends_.on_record(record);
    rings_.add(record);
    const auto* lost = std::get_if<perfio::LostRecord>(&record.payload);
    if (lost != nullptr) ++survey_.lost.lost_records, survey_.lost.records += lost->count;
    if (const RingIndex::Ring* ring = rings_.find(record.sample_id.id); ring != nullptr && ring->machine_pid > 0)
      return take_guest(record, *ring);
    std::visit([&](const auto& payload) { on(record, payload); }, record.payload);
    if (record.type == perfio::kRecordSample) note_sample(record);
    *survey_.switches += record.type == perfio::kRecordSwitch || record.type == perfio::kRecordSwitchCpuWide ? 1 : 0;
  }
  void finish(const OpenRequest& options, int64_t recorded_at_ns, bool same_host);
  [[nodiscard]] const perfio::IntelPtInfo& info() const { return info_; }
  [[nodiscard]] const perfio::EtmInfo& etm() const { return etm_; }
  [[nodiscard]] uint32_t other_trace() const { return other_trace_; }

 private:
  // Threads of guests have the numbers that other commands give them.
  void take_guest(const perfio::Record& record, const RingIndex::Ring& ring) {
    const GuestMachine* machine = guests_.of(ring.machine_pid);
    if (machine == nullptr) return;
    const auto number = [machine](int32_t own) { return thread_of_machine(machine->guest.machine, own); };
    if (const auto* comm = std::get_if<perfio::CommRecord>(&record.payload))
      on(record, perfio::CommRecord{number(comm->pid), number(comm->tid), guest_thread_name(ring.machine_pid, comm->comm), comm->exec});
    if (const auto* task = std::get_if<perfio::TaskRecord>(&record.payload)) {
      perfio::TaskRecord own = *task;
      own.pid = number(task->pid), own.tid = number(task->tid), own.ptid = number(task->ptid);
      on(record, own);
    }
    guest_pokes_[machine->guest.machine] += std::holds_alternative<perfio::TextPokeRecord>(record.payload) ? 1 : 0;
  }
  template <typename Other>
  void on(const perfio::Record&, const Other&) {}
  void on(const perfio::Record&, const perfio::AuxtraceInfoRecord& info) {
    if (info.type == perfio::kAuxtraceIntelPt) {
      info_ = perfio::parse_intel_pt_info(info);
    } else {
      other_trace_ = info.type;
      etm_ = perfio::parse_etm_info(info);
    }
  }
  void on(const perfio::Record&, const perfio::AuxtraceRecord& aux) {
    const StreamKey key = aux.cpu >= 0 ? std::pair(aux.cpu, -1) : std::pair(-1, aux.tid);
    streams_[key].size_bytes += aux.payload.size();
    survey_.trace_bytes += aux.payload.size();
    traces_[key].add_payload(aux.offset_bytes, aux.size_bytes, aux.payload, info_.snapshot_mode, aux.idx);
  }
  // Windows may repeat bytes, so the index of the whole stream is not that of their payloads: the first one has the first PSB.
  void on(const perfio::Record& record, const perfio::OtherSample& sample) {
    const auto& attrs = reader_.attrs();
    if (record.attr_index >= attrs.size() || !attrs[record.attr_index].holds_trace()) return;
    SurveyWindows& windows = survey_.windows[event_name(attrs[record.attr_index])];
    ++windows.samples;
    if (sample.aux.empty()) ++windows.without_trace;
    const StreamKey key = rings_.stream_of(record.sample_id, info_.has_cpu_rings());
    if (sample.aux.empty() || (key.first < 0 && key.second < 0)) return;
    windows.trace_bytes += sample.aux.size();
    SurveyStream& stream = streams_[key];
    if (stream.size_bytes == 0 && !sample.transient) traces_[key].add_payload(0, sample.aux.size(), sample.aux, false);
    stream.size_bytes += sample.aux.size();
    survey_.trace_bytes += sample.aux.size();
    if (record.sample_id.has_time) aux_times_.push_back({key.first, key.second, TimeNs{record.sample_id.time}, sample.aux.size()});
  }
  void on(const perfio::Record&, const perfio::TimeConvRecord& record) { time_conversion_ = record; }
  void on(const perfio::Record& record, const perfio::AuxRecord& aux) {
    survey_.lost.aux_truncated += (aux.flags & kAuxTruncated) != 0 ? 1 : 0;
    survey_.lost.aux_partial += (aux.flags & kAuxPartial) != 0 ? 1 : 0;
    survey_.lost.aux_collision += (aux.flags & kAuxCollision) != 0 ? 1 : 0;
    if (record.sample_id.has_time)
      aux_times_.push_back(
          {record.sample_id.cpu, record.sample_id.tid, TimeNs{record.sample_id.time}, aux.aux_offset_bytes + aux.aux_size_bytes});
  }
  void on(const perfio::Record&, const perfio::AuxtraceErrorRecord& error) {
    if (error.code == perfio::kRewrittenCode) rewritten_.push_back(error);
    if (error.code == perfio::kNotRecordedCode && survey_.warnings.size() < kMostWarnings)
      survey_.warnings.push_back(absence_of(error.message));
  }
  void on(const perfio::Record& record, const perfio::ItraceStartRecord& start) {
    if (record.sample_id.has_time) started_.try_emplace(start.tid, TimeNs{record.sample_id.time});
  }
  void on(const perfio::Record&, const perfio::CommRecord& comm) { threads_[comm.tid] = {comm.pid, comm.tid, comm.comm}; }
  void on(const perfio::Record&, const perfio::TaskRecord& task) {
    if (task.exit || threads_.contains(task.tid)) return;
    const auto parent = threads_.find(task.ptid);
    threads_[task.tid] = {task.pid, task.tid, parent == threads_.end() ? std::string() : parent->second.comm};
  }
  void on(const perfio::Record&, const perfio::TextPokeRecord&) { ++*survey_.text_pokes; }
  void on(const perfio::Record& record, const perfio::MmapRecord& map) {
    if (map.guest && map.kernel) (void)guests_.of(std::max(map.pid, 0));
    if (!map.executable || map.kernel || map.guest || map.path.empty()) return;
    const std::string id = map.build_id.empty() ? std::string() : normalize_build_id(perfio::build_id_hex(map.build_id));
    Mapped& mapped = mapped_[{map.path, id}];
    ++mapped.mappings;
    if (map.size_bytes <= mapped.size_bytes) return;
    mapped.size_bytes = map.size_bytes;
    mapped.file_offset_bytes = map.file_offset_bytes;
    mapped.pid = map.pid;
    mapped.address = map.addr;
    mapped.file_id = {map.maj, map.min, map.inode};
    mapped.shared = (map.flags & MAP_SHARED) != 0;
    mapped.time_ns = record.sample_id.has_time ? record.sample_id.time : 0;
  }
  void note_sample(const perfio::Record& record) {
    const auto& attrs = reader_.attrs();
    if (record.attr_index >= attrs.size()) return;
    const perfio::EventAttr& attr = attrs[record.attr_index];
    if (std::holds_alternative<perfio::SchedSwitchSample>(record.payload) || perfio::is_announcement(attr) || attr.holds_trace()) return;
    ++survey_.other_events[event_name(attr)];
  }

  using StreamKey = RingIndex::StreamKey;
  void widen_by_trace(std::set<StreamKey>& dated);

  struct Mapped {
    uint64_t mappings = 0, size_bytes = 0, file_offset_bytes = 0;
    int32_t pid = -1;  // of the largest, with its address and time
    uint64_t address = 0, time_ns = 0;
    FileId file_id;
    bool shared = false;
  };
  struct AuxTime {
    int32_t cpu = -1, tid = -1;
    TimeNs time;
    uint64_t end_offset_bytes = 0;
  };
  const perfio::PerfReader& reader_;
  Survey& survey_;
  bool timed_ = false;
  RecordTimes times_;
  std::vector<perfio::AuxtraceErrorRecord> rewritten_;
  perfio::IntelPtInfo info_;
  perfio::EtmInfo etm_;
  perfio::TimeConvRecord time_conversion_;
  ClockWitness witness_;
  uint32_t other_trace_ = 0;
  RingIndex rings_;
  std::map<StreamKey, SurveyStream> streams_;
  std::map<StreamKey, AuxStream> traces_;
  ArmEnds arm_ends_;
  std::vector<AuxTime> aux_times_;
  std::map<int32_t, TimeNs> started_;  // tid -> its first ITRACE_START
  std::map<int32_t, ThreadInfo> threads_;
  GuestMachines guests_;
  std::map<uint32_t, uint64_t> guest_pokes_;  // by machine
  std::map<std::pair<std::string, std::string>, Mapped> mapped_;
};

// The first and the last sync point of each stream have the time; an AUX record comes after the bytes that it announces.
void SurveyCollector::widen_by_trace(std::set<StreamKey>& dated) {
  const SegmentTiming timing{choose_time(info_, time_conversion_, witness_).time, 0, true};
  if (!timing.time.valid()) return;
  if (etm_.valid) {
    for (const ArmEnds::StreamTime& found : arm_ends_.times(etm_, timing.time)) {
      const auto stream = streams_.find({found.cpu, found.tid});
      if (stream == streams_.end()) continue;
      bool any = !dated.insert(stream->first).second;
      for (const TimeNs time : {found.time.first, found.time.last}) {
        widen(stream->second.time, any, time);
        widen(survey_.time, timed_, time);
      }
    }
  }
  if (!info_.valid) return;
  for (auto& [key, trace] : traces_) {
    trace.finish();
    const SegmentIndex index(trace);
    for (const auto& psb : {index.next(0), index.previous(trace.end_offset())}) {
      if (!psb || !psb->has_tsc) continue;
      bool any = !dated.insert(key).second;
      widen(streams_[key].time, any, timing.time.to_ns(Tsc{psb->tsc}));
      widen(survey_.time, timed_, timing.time.to_ns(Tsc{psb->tsc}));
    }
  }
}

void SurveyCollector::finish(const OpenRequest& options, int64_t recorded_at_ns, bool same_host) {
  witness_.finish(reader_);
  std::set<StreamKey> dated;
  for (const AuxTime& aux : aux_times_) {
    auto stream = streams_.find({aux.cpu, -1});
    if (stream == streams_.end()) stream = streams_.find({-1, aux.tid});
    if (stream == streams_.end()) continue;
    bool any = !dated.insert(stream->first).second;
    // The first record comes after the bytes that it announces: their thread was traced from ITRACE_START on.
    const auto start = any || aux.end_offset_bytes == 0 ? started_.end() : started_.find(aux.tid);
    if (start != started_.end() && start->second < aux.time) widen(stream->second.time, any, start->second);
    widen(stream->second.time, any, aux.time);
  }
  widen_by_trace(dated);
  for (auto& [key, stream] : streams_) {
    stream.cpu = key.first;
    stream.tid = key.second;
    for (const perfio::EtmCpu& cpu : etm_.cpus) {
      if (cpu.cpu == stream.cpu) stream.source = arm::name(arm_config(cpu).protocol);
    }
    survey_.streams.push_back(stream);
  }
  for (auto& [tid, thread] : threads_) survey_.threads.push_back(std::move(thread));
  std::sort(survey_.threads.begin(), survey_.threads.end(),
            [](const ThreadInfo& a, const ThreadInfo& b) { return std::pair(a.pid, a.tid) < std::pair(b.pid, b.tid); });
  for (uint32_t machine = 1; const GuestMachine* guest = guests_.find(machine); ++machine)
    survey_.guests.push_back({guest->guest.pid, guest_pokes_[machine], guest->is_named});
  std::map<std::string, std::string> build_ids;
  for (const perfio::BuildIdEntry& entry : reader_.features().build_ids)
    build_ids.emplace(entry.path, normalize_build_id(perfio::build_id_hex(entry.build_id)));
  ImageBuild image(options, recorded_at_ns);
  image.source.set_family(etm_.valid ? CodeFamily::arm : info_.valid ? CodeFamily::x86 : CodeFamily::unknown);
  image.source.set_same_host(same_host);
  if (!perfio::is_emulated(reader_.features().cpu_desc)) image.source.set_record_times(times_);
  for (const auto& error : rewritten_) image.source.add_rewritten(error.pid, error.ip, error.time);
  image.source.set_saved(StashedCode::open(options.stashes, recording_identity(reader_)));
  for (const auto& [key, mapped] : mapped_) {
    SurveyImage line{key.first, key.second, mapped.mappings, mapped.size_bytes, false, {}, {}, {}, false};
    if (const auto known = build_ids.find(line.path); line.build_id.empty() && known != build_ids.end()) line.build_id = known->second;
    // The mapping of a jitdump only marks it: its offset and size need not be within the file.
    const bool is_dump = is_jitdump_path(line.path);
    const uint64_t offset = is_dump ? 0 : mapped.file_offset_bytes, size = is_dump ? 1 : mapped.size_bytes;
    const auto own = options.process_symfs.find(mapped.pid);
    const FoundCode code =
        image.source.find({line.path, line.build_id, offset, size, own == options.process_symfs.end() ? nullptr : &own->second, mapped.pid,
                           mapped.address, mapped.time_ns, mapped.file_id, mapped.shared});
    line.found = code.status == CodeStatus::found;
    line.reason = line.found ? "" : sentence(code.status);
    line.from = line.found ? name(code.place) : "";
    line.file = line.found ? code.file_path : "";
    line.by_id_alone = line.found && code.by_id_alone;
    survey_.images.push_back(std::move(line));
  }
  if (const auto& saved = image.source.options().saved) {
    for (std::string& trouble : saved->troubles()) survey_.warnings.push_back(std::move(trouble));
  }
  std::stable_sort(survey_.images.begin(), survey_.images.end(), [](const SurveyImage& a, const SurveyImage& b) {
    return std::tuple(a.found, b.size_bytes, a.path) < std::tuple(b.found, a.size_bytes, b.path);
  });
}

void take_origin(const Origin& origin, Survey& survey) {
  survey.hostname = origin.hostname;
  survey.kernel = origin.kernel;
  survey.cpu = origin.cpu;
  survey.cpuid = origin.cpuid;
  survey.perf_version = origin.perf_version;
  survey.command = origin.command;
  survey.cpus_online = origin.cpus_online;
  survey.clock = origin.clock;
  survey.has_wall_clock = origin.wall_offset_ns.has_value();
  survey.wall_offset_ns = origin.wall_offset_ns.value_or(0);
}

void take_event(perfio::IntelPtInfo info, const perfio::PerfReader& reader, Survey& survey) {
  survey.snapshot = info.snapshot_mode;
  survey.filter = info.filter;
  (void)perfio::correct_masks(info);
  (void)perfio::correct_pmu_type(reader.attrs(), reader.features().pmu_types, info);
  const perfio::IntelPtConfig config = perfio::intel_pt_config(info, reader.attrs());
  if (!config.valid) return;
  for (const auto& [on, name] : {std::pair(config.tsc, "TSC"), std::pair(config.mtc, "MTC"), std::pair(config.cyc, "CYC")}) {
    if (on) survey.timing += (survey.timing.empty() ? "" : ", ") + std::string(name);
  }
  survey.traces_user = !reader.attrs()[config.attr_index].exclude_user;
  survey.traces_kernel = !reader.attrs()[config.attr_index].exclude_kernel;
}

void take_etm_event(const perfio::EtmInfo& info, const perfio::PerfReader& reader, Survey& survey) {
  survey.snapshot = info.snapshot_mode;
  std::vector<arm::TraceConfig> sources;
  for (const perfio::EtmCpu& cpu : info.cpus) sources.push_back(arm_config(cpu));
  take_sources(sources, survey);
  for (const perfio::EventAttr& attr : reader.attrs()) {
    if (attr.type != info.pmu_type) continue;
    survey.traces_user = !attr.exclude_user;
    survey.traces_kernel = !attr.exclude_kernel;
    return;
  }
}

Result<Survey> survey_perf(const OpenRequest& options) {
  auto opened = perfio::PerfReader::open(options.path, read_limits(options));
  if (!opened.ok()) return opened.error();
  perfio::PerfReader& reader = **opened;
  Survey survey;
  SurveyCollector collector(reader, options, survey);
  const Status status = reader.read([&](const perfio::Record& record) {
    collector.take(record);
    return true;
  });
  if (!status.ok()) return status.error();
  struct stat info {};
  const bool directory = ::stat(options.path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  survey.form = directory ? "perf.data directory" : "perf.data file";
  survey.file_bytes = reader.size_bytes();
  survey.kernel_copy = std::ranges::any_of(
      reader.kcore_dirs(), [](const std::string& dir) { return !dir.substr(dir.rfind('/') + 1).starts_with("kcore_dir__"); });
  take_origin(origin_of(reader), survey);
  if (collector.etm().valid) {
    take_etm_event(collector.etm(), reader, survey);
  } else {
    take_event(collector.info(), reader, survey);
    if (collector.info().valid) survey.trace = "Intel PT";
  }
  if (survey.trace.empty())
    survey.warnings.push_back(collector.other_trace() != 0 ? "the trace is of type " + std::to_string(collector.other_trace()) +
                                                                 ", neither Intel PT nor a known version of CoreSight"
                                                           : "the recording contains no AUXTRACE_INFO of Intel PT or CoreSight");
  collector.finish(options, written_at_ns(options.path), recorded_here(survey.hostname));
  if (std::string pauses = pauses_text(reader.attrs()); !pauses.empty()) survey.warnings.push_back(std::move(pauses));
  for (const std::string& message : reader.damage().messages) survey.warnings.push_back(message);
  if (std::string unknown = reader.damage().unknown_text(); !unknown.empty()) survey.warnings.push_back(std::move(unknown));
  return survey;
}

}  // namespace

namespace {

// The process of each thread, from the last record that names both.
std::map<int32_t, int32_t> pids_of(const ContextTrack& contexts) {
  std::map<int32_t, int32_t> pids;
  const auto take = [&pids](const std::vector<ContextTrack::Switch>& track) {
    for (const ContextTrack::Switch& each : track) {
      if (each.to.pid >= 0 && each.to.tid >= 0) pids[each.to.tid] = each.to.pid;
    }
  };
  for (const int32_t cpu : contexts.cpus()) take(contexts.switches(cpu));
  for (const int32_t tid : contexts.threads()) take(contexts.thread_changes(tid));
  return pids;
}

bool has_kernel_code(const Timeline& timeline, uint32_t machine) {
  for (SectionId id = 0; id < timeline.section_count(); ++id) {
    const Section& section = timeline.section(id);
    if (section.space == kernel_of_machine(machine) && !section.code.bytes.empty()) return true;
  }
  return false;
}

}  // namespace

Survey survey_of(const Recording& recording) {
  Survey survey;
  survey.text_pokes = survey.switches = std::nullopt;
  survey.kernel_copy = has_kernel_code(recording.timeline(), 0);
  bool timed = false;
  std::vector<arm::TraceConfig> sources;
  for (const StreamInfo& stream : recording.streams()) {
    std::string source;
    if (const arm::TraceConfig* config = recording.arm_config(static_cast<uint32_t>(survey.streams.size()))) {
      sources.push_back(*config);
      source = std::string(arm::name(config->protocol)) + " of " + (stream.core.empty() ? "an unknown core" : stream.core);
      if (stream.source != source) source = stream.source + " " + source;
    }
    const Interval time = recording.has_time_conversion() ? stream.time : Interval{};
    survey.streams.push_back({stream.cpu, stream.tid, source, stream.size_bytes, time});
    survey.trace_bytes += stream.size_bytes;
    if (time.first != kTimeMin) widen(survey.time, timed, time.first);
    if (time.last != kTimeMax) widen(survey.time, timed, time.last);
  }
  const std::map<int32_t, int32_t> pids = pids_of(recording.contexts());
  std::map<int32_t, std::string> threads = recording.thread_names();
  for (const StreamInfo& stream : recording.streams()) {
    if (stream.tid >= 0) threads.try_emplace(stream.tid);
  }
  for (const auto& [tid, name] : threads) {
    const auto pid = pids.find(tid);
    survey.threads.push_back({pid == pids.end() ? -1 : pid->second, tid, name});
  }
  for (const Guest& guest : guests_of(recording.contexts()))
    survey.guests.push_back({guest.pid, {}, has_kernel_code(recording.timeline(), guest.machine)});
  const pt::Config& config = recording.decoder_options().config;
  for (const auto& [on, name] : {std::pair(config.has_tsc, "TSC"), std::pair(config.has_mtc, "MTC"), std::pair(config.has_cyc, "CYC")}) {
    if (on && sources.empty()) survey.timing += (survey.timing.empty() ? "" : ", ") + std::string(name);
  }
  take_sources(sources, survey);
  const EventNames& names = event_names(recording);
  survey.traces_user = (names.width_columns != 0 && names.trace('u')) || data_of(recording).kind == RecordingKind::lldb;
  survey.traces_kernel = names.width_columns != 0 && names.trace('k');
  for (const MissingImage& image : recording.missing_images())
    survey.images.push_back({image.path, image.build_id, 0, 0, false, image.reason, {}, {}});
  survey.lost = recording.lost();
  survey.warnings = recording.warnings();
  for (const Finding& finding : recording.findings()) {
    if (is_absence(finding) && survey.warnings.size() < kMostWarnings) survey.warnings.push_back(finding.what);
  }
  if (is_part_of_trace(recording)) survey.warnings.emplace_back(kPartOfTrace);
  take_origin(origin_of(recording), survey);
  if (survey.command.empty()) survey.command = {recording.description()};
  return survey;
}

Result<Survey> survey(const OpenOptions& wanted) {
  const OpenRequest options(wanted);
  const bool json = options.path != "-" && looks_like_json(options.path);
  const bool bundle = looks_like_bundle(options.path);
  const bool snapshot = !bundle && !snapshot_directory(options.path).empty();
  if (!json && !bundle && !snapshot) {
    const Status status = check_options_of_perf(options);
    return status ? survey_perf(options) : Result<Survey>(status.error());
  }
  Result<std::unique_ptr<Recording>> opened = Recording::open(options);
  if (!opened) return opened.error();
  Survey result = survey_of(**opened);
  result.form = bundle ? "bundle" : snapshot ? "CoreSight snapshot" : "LLDB trace bundle";
  struct stat info {};
  if (::stat(options.path.c_str(), &info) == 0 && !S_ISDIR(info.st_mode)) result.file_bytes = static_cast<uint64_t>(info.st_size);
  return result;
}

std::optional<int64_t> wall_clock_offset(const Recording& recording) { return origin_of(recording).wall_offset_ns; }

}  // namespace ptd
