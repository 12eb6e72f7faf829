// Opens a perf.data file, pipe or directory.
#include <sys/stat.h>
#include <sys/utsname.h>

#include <algorithm>
#include <charconv>

#include "perfio/format/auxtrace_etm.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/perf_reader.h"
#include "perfio/recording_file.h"
#include "ptdecode/pt/packet_reader.h"
#include "recording/data/own_files.h"
#include "recording/data/recording_data.h"
#include "recording/image/image_build.h"
#include "recording/image/stashed_code.h"
#include "recording/perf/arm_perf.h"
#include "recording/perf/perf_texts.h"
#include "recording/perf/perf_time.h"
#include "recording/perf/sideband_fold.h"

namespace ptd {
namespace {

constexpr int32_t kClockMonotonic = 1;
constexpr uint64_t kCheckedRecords = 4096;  // between two checks of a cancellation

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

void report_info(const std::string& what, ImageBuild& image, RecordingData& data) {
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {kTimeMin, kTimeMax};
  finding.what = "AUXTRACE_INFO " + what;
  data.warnings.push_back(finding.what);
  image.builder.add_finding(std::move(finding));
}

// Contradictions inside AUXTRACE_INFO, and with the events.
void correct_info(const perfio::PerfReader& reader, perfio::IntelPtInfo& info, ImageBuild& image, RecordingData& data) {
  const auto report = [&](const std::string& what) { report_info(what, image, data); };
  const uint32_t type = info.pmu_type, n = info.tsc_ctc_ratio_n, d = info.tsc_ctc_ratio_d;
  if (perfio::correct_pmu_type(reader.attrs(), reader.features().pmu_types, info)) {
    report("names PMU type " + std::to_string(type) + ", which is not that of the Intel PT event: " +
           (info.pmu_type != type ? "that has type " + std::to_string(info.pmu_type) : "decoded without the config of the Intel PT event"));
  }
  if (perfio::correct_masks(info)) report("has other masks of timing bits than the intel_pt PMU: those of the PMU are used");
  if (n < d || (n != 0 && d == 0)) {  // [SDM] "CPUID.15H": the TSC is a multiple of the crystal clock
    report("contains an impossible ratio of TSC and crystal clock, " + std::to_string(n) + ":" + std::to_string(d) +
           ": times between TSC packets are wrong");
  }
  const perfio::IntelPtConfig event = perfio::intel_pt_config(info, reader.attrs());
  if (event.mtc && n == 0 && d == 0) {  // perf before 4.3, or a damaged record
    report(
        "does not contain the ratio of TSC and crystal clock: MTC packets are not used, and times between TSC packets are those of the TSC "
        "packet before");
  }
}

void fill_config(const perfio::PerfReader& reader, perfio::IntelPtInfo& info, ImageBuild& image, RecordingData& data) {
  if (!data.streams.empty()) correct_info(reader, info, image, data);
  pt::Config& config = data.decoder.config;
  const perfio::Features& features = reader.features();
  if (!parse_cpuid(features.cpuid, config.cpu)) {
    data.warnings.push_back("the recording does not name the cpu model: only errata common to all models are worked around");
  }
  config.errata = pt::errata_of(config.cpu);
  config.tsc_ctc_ratio_n = info.tsc_ctc_ratio_n;
  config.tsc_ctc_ratio_d = info.tsc_ctc_ratio_d;
  config.max_nonturbo_ratio = info.max_nonturbo_ratio;
  config.address_filter = !info.filter.empty();
  const perfio::IntelPtConfig event = perfio::intel_pt_config(info, reader.attrs());
  if (event.valid) {
    config.has_tsc = event.tsc;
    config.has_mtc = event.mtc;
    config.has_cyc = event.cyc;
    config.mtc_period = event.mtc_period;
    config.return_compression = event.return_compression ? pt::ReturnCompression::on : pt::ReturnCompression::off;
    constexpr uint64_t kDisRetc = 1U << 11;  // [SDM] "IA32_RTIT_CTL MSR", DisRETC; the event's config has the same bit
    if (event.return_compression != ((event.config & kDisRetc) == 0)) {
      config.return_compression = pt::ReturnCompression::unknown;
      data.warnings.push_back(
          "the recording contradicts itself on return compression: the noretcomp bit that AUXTRACE_INFO names is not DisRETC of "
          "the event's config; decoded by the packets");
    }
  }
}

// A recording without a host name is taken for this machine's.
bool from_this_host(const perfio::Features& features) {
  struct utsname own {};
  return features.hostname.empty() || (::uname(&own) == 0 && features.hostname == own.nodename);
}

bool uses_monotonic_clock(const perfio::PerfReader& reader) {
  for (const perfio::EventAttr& attr : reader.attrs()) {
    if (attr.use_clockid && attr.clockid == kClockMonotonic) return true;
  }
  return false;
}

void fill_time(const perfio::PerfReader& reader, const perfio::IntelPtInfo& info, const perfio::TimeConvRecord& record,
               ClockWitness& witness, ImageBuild& image, RecordingData& data) {
  witness.finish(reader);
  ChosenTime chosen = choose_time(info, record, witness);
  data.decoder.config.time = chosen.time;
  for (Finding& finding : chosen.findings) {
    data.warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
  }
  if (!chosen.time.valid()) {
    data.warnings.push_back("the recording contains no conversion from trace time to perf time: decoded without time");
  }
}

/// Counts packets near the start of the trace that the event excludes: any of the flow, or, with branch packets, TNT packets.
size_t count_excluded(const AuxStream& stream, bool with_branches) {
  constexpr uint64_t kSearchedBytes = 64U << 10;
  std::vector<std::byte> scratch;
  const Bytes bytes = stream.read(stream.begin_offset(), stream.begin_offset() + kSearchedBytes, scratch);
  pt::PacketReader reader(bytes, pt::find_psb(bytes, 0));
  size_t count = 0;
  for (pt::Packet packet; reader.next(packet) == pt::PacketReader::Status::ok;) {
    using enum pt::PacketKind;
    const bool is_tnt = packet.kind == tnt_short || packet.kind == tnt_long;
    const bool is_tip = packet.kind == tip || packet.kind == tip_pge || packet.kind == tip_pgd;
    if (is_tnt || (is_tip && !with_branches)) ++count;
  }
  return count;
}

/// Trace that was recorded without the packets that give the flow.
void check_flow(const perfio::PerfReader& reader, const perfio::IntelPtInfo& info, RecordingData& data) {
  const perfio::IntelPtConfig event = perfio::intel_pt_config(info, reader.attrs());
  if (!event.valid || (event.branch && !event.tnt_disabled)) return;
  const std::string without = event.branch ? "without TNT packets (intel_pt/notnt/)" : "without branch packets (intel_pt/branch=0/)";
  constexpr size_t kMostDamaged = 8;  // bytes of damaged packets may look like others
  size_t excluded = 0;
  for (const AuxStream& stream : data.streams) excluded += count_excluded(stream, event.branch);
  if (excluded > kMostDamaged) {
    data.warnings.push_back("the recording contradicts itself: by the event's config it was made " + without +
                            ", but the trace has such packets: decoded with them");
    return;
  }
  data.decoder.config.has_flow = false;
  data.warnings.push_back(
      "recorded " + without + ": no flow is decoded, " +
      (event.branch
           ? "as nothing tells which way conditional branches went. Events are; `ptdecode packets` lists the targets of other branches"
           : "but events are: PTWRITE, power, frequency"));
}

void warn_of_other_clock(const perfio::PerfReader& reader, RecordingData& data) {
  if (uses_other_clock(reader) && !data.streams.empty())
    data.warnings.push_back("the recording uses another clock (-k): trace times and record times may not agree");
}

// What contradicts the clocks: the period of MTC packets, and timestamps of CoreSight, counts of the system counter that TIME_CONV
// converts.
void report_clocks(const ClockWitness& witness, bool use_time, ImageBuild& image, RecordingData& data) {
  if (!data.period_contradicts.empty()) {
    Finding finding;
    finding.kind = FindingKind::clock_contradicts;
    finding.what = data.period_contradicts;
    image.builder.add_finding(std::move(finding));
  }
  for (size_t i = 0; i < data.streams.size() && use_time && !data.arm.empty(); ++i) {
    if (!witness.is_far(data.infos[i].time)) continue;
    Finding finding;
    finding.kind = FindingKind::clock_contradicts;
    finding.what = name_of(data.streams[i]) + ": by the conversion of TIME_CONV, the trace is " + witness.told_apart(data.infos[i].time);
    data.warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
  }
}

// Records that cannot be read and that the reader skipped: what they said of the code is missing. Records whose size was wrong.
void add_bad_records(const perfio::ReadDamage& damage, ImageBuild& image) {
  if (damage.bad_records == 0 && damage.oversized_records == 0) return;
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.time = {kTimeMin, kTimeMax};
  const auto records = [](uint64_t count) { return std::to_string(count) + (count == 1 ? " record" : " records"); };
  if (damage.bad_records != 0) finding.what = records(damage.bad_records) + (damage.bad_records == 1 ? " is skipped" : " are skipped");
  if (damage.oversized_records != 0)
    finding.what += (finding.what.empty() ? "" : ", ") + records(damage.oversized_records) + " of a wrong size with others in it";
  if (!damage.messages.empty()) finding.what += "; the first message: " + damage.messages.front();
  image.builder.add_finding(std::move(finding));
}

void report_damage(const perfio::ReadDamage& damage, const SidebandFold& fold, ImageBuild& image, RecordingData& data) {
  add_bad_records(damage, image);
  for (const std::string& message : damage.messages) data.warnings.push_back(message);
  if (std::string unknown = damage.unknown_text(); !unknown.empty()) data.warnings.push_back(std::move(unknown));
  if (fold.guest_records() != 0) {
    data.warnings.push_back(std::to_string(fold.guest_records()) +
                            " records of virtual machine guests are ignored: they do not say which guest");
  }
  if (fold.refused_guest_records() != 0) {
    data.warnings.push_back(std::to_string(fold.refused_guest_records()) +
                            " records of virtual machine guests are ignored: they are of more than " + std::to_string(kMostGuests) +
                            " guests");
  }
}

/// The copies of the kernel's text that come with the recording or that the options name.
KernelImage::Copies kernel_copies(const perfio::PerfReader& reader, const OpenRequest& options) {
  KernelImage::Copies copies;
  for (const std::string& dir : reader.kcore_dirs()) {
    if (base_name(dir) == "kcore_dir") copies.kcore_dir = dir;
    if (base_name(dir) == "kcore_dir_after") copies.after_dirs.push_back(dir);  // of ptdecode record --kcore
  }
  copies.after_dirs.insert(copies.after_dirs.end(), options.kcore_after.begin(), options.kcore_after.end());
  if (from_this_host(reader.features())) copies.running = options.running_kernel;
  return copies;
}

// What the AUXTRACE_INFO records say. A recording has one; of several, the last one counts, as for perf.
struct TraceInfo {
  perfio::IntelPtInfo pt;
  perfio::EtmInfo etm;
  uint32_t other_trace = 0;
  std::vector<std::byte> first{};
  bool differ = false;

  void add(const perfio::AuxtraceInfoRecord& record, SidebandFold& fold) {
    if (first.empty()) first = record.raw;
    differ = differ || record.raw != first;
    if (record.type == perfio::kAuxtraceIntelPt) {
      pt = perfio::parse_intel_pt_info(record);
      fold.set_filter(pt.filter);
    } else {
      other_trace = record.type;
      etm = perfio::parse_etm_info(record);
    }
    fold.set_snapshot_word(pt.valid ? pt.snapshot_word : etm.snapshot_word);
    fold.set_per_cpu(pt.has_cpu_rings());
  }
};

Error other_trace_error(const std::string& path, uint32_t type) {
  return {ErrorCode::unsupported_trace,
          perfio::input_name(path) + ": contains a hardware trace of type " + std::to_string(type) + ", neither Intel PT nor CoreSight", 0};
}

void find_places(RecordingData& data) {
  find_kernel_places(data);
  if (!data.decoder.time_switches || !data.decoder.config.has_flow) return;
  data.warnings.emplace_back(
      "no names of the kernel tell where __switch_to is: in the kernel, the thread changes at the first timing packet after its switch "
      "record");
}

/// Checks for a cancellation and releases pages while records are read.
struct PassingRecords {
  const OpenRequest& options;
  const PageRelease& pages;
  PassedRecords passed = {};
  uint64_t count = 0;

  void on_record(const perfio::Record& record) {
    if (count++ % kCheckedRecords != 0) return;
    if (options.check) options.check();
    passed.at(pages, record.file, record.file_offset_bytes);
  }
};

}  // namespace

Status load_perf(const OpenRequest& options, RecordingData& data) {
  auto opened = perfio::PerfReader::open(options.path, read_limits(options));
  if (!opened.ok()) return opened.error();
  const std::shared_ptr<perfio::PerfReader> reader(std::move(opened).value());
  data.owners.push_back(reader);
  for (const Bytes mapping : reader->mappings()) data.pages.add_mapping(mapping);
  ImageBuild image(options, written_at_ns(options.path));
  SidebandFold fold(options, image, data);
  fold.set_attrs(reader->attrs());
  fold.set_guests(reader->kcore_dirs());
  ArmPerf arm;
  arm.set_attrs(reader->attrs());
  TraceInfo announced;
  perfio::IntelPtInfo& info = announced.pt;
  perfio::EtmInfo& etm = announced.etm;
  perfio::TimeConvRecord time;
  ClockWitness witness;
  fold.watch_holes(reader->damage().holes);
  PassingRecords passing{options, data.pages};
  const Status status = reader->read([&](const perfio::Record& record) {
    passing.on_record(record);
    if (const auto* one = std::get_if<perfio::AuxtraceInfoRecord>(&record.payload)) announced.add(*one, fold);
    if (const auto* conversion = std::get_if<perfio::TimeConvRecord>(&record.payload)) time = *conversion;
    witness.on_record(record);
    fold.on_record(record);
    arm.on_record(record);
    return true;
  });
  if (!status.ok()) return status.error();
  if (!info.valid && !etm.valid) {
    if (announced.other_trace != 0) return other_trace_error(options.path, announced.other_trace);
    if (!data.streams.empty())
      report_info(
          "is missing, so that the settings of the trace unit are not known: MTC packets are not used, and times between TSC packets are "
          "those of the TSC packet before",
          image, data);
  }
  if (announced.differ) report_info("is there twice, and the two differ: the settings of the trace unit may be wrong", image, data);
  if (info.valid || etm.valid || !data.streams.empty()) {  // else there is nothing to decode
    if (!etm.valid) fill_config(*reader, info, image, data);
    fill_time(*reader, info, time, witness, image, data);
  }
  warn_of_other_clock(*reader, data);
  fold.set_other_clock(uses_other_clock(*reader));
  image.source.set_family(etm.valid ? CodeFamily::arm : info.valid ? CodeFamily::x86 : CodeFamily::unknown);
  image.source.set_same_host(from_this_host(reader->features()));
  image.source.set_saved(StashedCode::open(options.stashes, recording_identity(*reader)));
  fold.on_damage(reader->damage(), reader->mappings());
  if (etm.valid) image.builder.set_word_bytes(4);  // A64 and, of ETMv3 and PTM, A32; two T32 instructions of one word change as one
  fold.finish(reader->features(), kernel_copies(*reader, options), uses_monotonic_clock(*reader));
  report_damage(reader->damage(), fold, image, data);
  data.event_names = event_names_of(reader->attrs(), etm.valid ? etm.pmu_type : info.pmu_type);
  if (std::string pauses = pauses_text(reader->attrs()); !pauses.empty()) data.warnings.push_back(std::move(pauses));
  data.origin = origin_of(*reader);
  data.description = describe(data.origin, options.path);
  etm.snapshot_mode = fold.is_snapshot();
  if (etm.valid) arm.finish(etm, options.use_time, data);
  for (Finding& finding : arm.findings()) image.builder.add_finding(std::move(finding));
  OpenRequest indexing = options;
  indexing.use_time = etm.valid ? data.arm_follow.use_time : options.use_time && data.decoder.config.time.valid();
  indexing.use_written = options.use_time;
  index_streams(indexing, data);
  report_clocks(witness, indexing.use_time, image, data);
  if (!etm.valid) check_flow(*reader, info, data);
  image.finish(data);
  if (etm.valid) return {};
  find_places(data);
  add_anchors(indexing, data);
  return {};
}

}  // namespace ptd
