// Recording: the facade over the data from the loaders.
#include "ptdecode/recording.h"

#include <sys/stat.h>

#include <algorithm>
#include <numeric>

#include "decoder/arm/decoder.h"
#include "decoder/arm/legacy_decoder.h"
#include "image/base/interrupt.h"
#include "image/base/mapped_file.h"
#include "image/stash/stash.h"
#include "perfio/emulated.h"
#include "perfio/recording_file.h"
#include "ptdecode/bundle.h"
#include "ptdecode/guest.h"
#include "ptdecode/pt/packet_reader.h"
#include "ptdecode/pt/pt_clock.h"
#include "recording/context_findings.h"
#include "recording/data/aux_windows.h"
#include "recording/data/json_form.h"
#include "recording/data/miscounts.h"
#include "recording/data/recording_data.h"
#include "recording/parallel.h"
#include "recording/period_watch.h"
#include "recording/rename_places.h"
#include "recording/trace/clock_survey.h"
#include "recording/trace/guest_entries.h"
#include "recording/trace/lost_trace.h"
#include "recording/trace/ratio_check.h"
#include "recording/trace/timestamp_findings.h"

namespace ptd {

struct Recording::State {
  RecordingData data;
  std::vector<PassedPages> passed;                     ///< one a stream
  std::shared_ptr<const std::vector<Rename>> renames;  ///< of all threads

  /// All data is loaded.
  void finish() {
    passed = std::vector<PassedPages>(data.streams.size());
    renames = std::make_shared<const std::vector<Rename>>(renames_of(data));
  }
};

namespace {

constexpr uint64_t kProgressBytes = 16ULL << 20;
constexpr size_t kStretches = 64;      // of a long trace this many stretches of all streams together are looked through when it is opened,
constexpr size_t kLeastStretches = 2;  // and of each stream this many

/// How coarse a stream's clock is: what all TSCs of its PSBs are multiples of, 0 if there are too few of them to tell. A processor's are
/// multiples of 1 or little more; a hypervisor or a filter may have rounded them down, and then each is wrong by up to that much.
class ClockStep {
 public:
  void add(const PsbEntry& entry) {
    if (!entry.has_tsc || entry.tsc == before_) return;
    before_ = entry.tsc;
    step_ = std::gcd(step_, entry.tsc);
    ++different_;
  }
  [[nodiscard]] uint64_t step() const { return different_ < kEnough ? 0 : step_; }

 private:
  static constexpr size_t kEnough = 32;  // different values
  uint64_t step_ = 0, before_ = 0;
  size_t different_ = 0;
};

/// Widens all times if some stream's clock is too coarse to be taken as it is.
void allow_for_coarse_clocks(const std::vector<ClockStep>& clocks, RecordingData& data) {
  constexpr uint64_t kCoarseNs = 10'000;
  uint64_t coarsest_ns = 0;
  for (const ClockStep& clock : clocks) {
    if (!data.timing.use_time || clock.step() == 0) continue;
    coarsest_ns = std::max(coarsest_ns, data.timing.time.duration_ns(clock.step()));
  }
  if (coarsest_ns < kCoarseNs || coarsest_ns > kTimeMax.value / 4) return;
  data.timing.slack_ns += coarsest_ns;
  data.decoder.slack_ns += coarsest_ns;
  data.warnings.push_back("the trace's clock has a resolution of " + std::to_string(coarsest_ns) +
                          " ns: all times are widened by this "
                          "much");
}

/// Looks for a TNT that is not full, a TIP and a TNT with only cycle counts between them: a processor that defers TIPs would have
/// gone on filling the first TNT ([SDM] "Deferred TIPs").
class TipWatch {
 public:
  void look_behind(const AuxStream& stream, const PsbEntry& psb) {
    if (prompt_ || looks_ >= kMostLooks) return;
    ++looks_;
    pt::PacketReader reader(stream.read(psb.offset_bytes, psb.offset_bytes + kLookBytes, scratch_));
    pt::Packet packet;
    enum { nothing, room, tip } seen = nothing;
    while (!prompt_ && reader.next(packet) == pt::PacketReader::Status::ok) {
      switch (packet.kind) {
        case pt::PacketKind::tnt_short:
        case pt::PacketKind::tnt_long:
          prompt_ = seen == tip;
          seen = packet.bits < (packet.kind == pt::PacketKind::tnt_short ? kShortTntBits : kLongTntBits) ? room : nothing;
          break;
        case pt::PacketKind::tip:
          seen = seen == room ? tip : nothing;
          break;
        case pt::PacketKind::cyc:
        case pt::PacketKind::pad:
          break;
        default:
          seen = nothing;
      }
    }
  }
  [[nodiscard]] pt::TipOrder order() const { return prompt_ ? pt::TipOrder::prompt : pt::TipOrder::may_be_deferred; }

 private:
  static constexpr size_t kMostLooks = 256;
  static constexpr uint64_t kLookBytes = 4096;
  static constexpr uint8_t kShortTntBits = 6, kLongTntBits = 47;
  bool prompt_ = false;
  size_t looks_ = 0;
  std::vector<std::byte> scratch_;
};

void correct_period(const PeriodWatch& periods, RecordingData& data) {
  pt::Config& config = data.decoder.config;
  if (data.kind == RecordingKind::raw && data.lacks_period) {
    config.mtc_period = periods.found().value_or(0);
    if (!periods.has_mtcs() || (config.has_mtc && periods.found())) return;
    const bool lacks_ratio = !config.has_mtc;
    config.has_mtc = false;
    config.tsc_ctc_ratio_n = config.tsc_ctc_ratio_d = 0;
    if (config.time.valid()) {
      data.warnings.push_back(
          std::string("MTC packets are not used, because ") +
          (lacks_ratio ? "the ratio of their clock is not known (--tsc-ctc)" : "their period is not known (--mtc-freq)") +
          ": times between TSC packets are those of the TSC packet before");
    }
    return;
  }
  const std::optional<uint8_t> found = periods.other_than(config.mtc_period);
  if (!found) return;
  data.period_contradicts = "by the settings of the trace, an MTC packet comes each 2^" + std::to_string(config.mtc_period) +
                            " ticks of the crystal clock, but the packets count 2^" + std::to_string(*found) +
                            ": times are computed with that";
  data.warnings.push_back(data.period_contradicts);
  config.mtc_period = *found;
}

void warn_of_times(size_t contradicted, RecordingData& data) {
  const bool is_arm = !data.arm.empty();
  data.warnings.push_back(std::to_string(contradicted) + (is_arm ? " timestamp" : " TSC") + " packets contradict the rest of the trace" +
                          (is_arm ? "" : " or are missing") + ": it is damaged or the " + (is_arm ? "clock" : "TSC") +
                          " was set; 'ptdecode check' lists them");
}

// Builds the index of stream `i` of Arm trace.
SegmentIndex index_arm(size_t i, const SegmentIndex::Passed& passed, const RecordingData& data, StreamInfo& info) {
  const ArmSource& source = data.arm[i];
  info.source = source.name;
  info.core = source.core;
  info.protocol = source.config.protocol;
  info.trace_id = source.config.trace_id;
  return {data.streams[i], source.config, passed};
}

// Times of a stream as a whole are the likeliest ones, which slack does not move.
SegmentTiming without_slack(SegmentTiming timing) {
  timing.slack_ns = 0;
  return timing;
}

// The first known time of a stream: the first PSBs may have no TSC, or one that contradicts the rest of the trace.
TimeNs first_time(const SegmentIndex& index, const PsbEntry& first, const SegmentTiming& timing) {
  constexpr size_t kMostSearched = 64;
  std::optional<PsbEntry> psb = first;
  for (size_t steps = 0; timing.use_time && psb && steps < kMostSearched; ++steps) {
    if (const TimeNs time = index.time_of(*psb, without_slack(timing)).first; time != kTimeMin) return time;
    psb = index.next(psb->offset_bytes + 1);
  }
  return kTimeMin;
}

// When the stream of `last`, its last PSB, ends: by its AUX records, or by the last timing packet.
TimeNs last_time(const AuxStream& stream, const SegmentIndex& index, const PsbEntry& last, const RecordingData& data) {
  constexpr uint64_t kMostBytes = 4U << 20;  // that are read for it
  const Interval time = index.time_of(last, without_slack(data.timing));
  const bool is_cut = data.part != Interval{} && data.arm.empty();  // the records say when more was written than this part has
  const std::vector<AuxSample>& samples = stream.samples();
  const TimeNs sampled = samples.empty() || samples.back().time == kTimeMin ? kTimeMax : samples.back().time;
  if ((time.last != kTimeMax && !is_cut) || !data.timing.use_time || time.first == kTimeMin) return std::min(time.last, sampled);
  std::vector<std::byte> scratch;
  const Bytes bytes = stream.read(last.offset_bytes, std::min(stream.end_offset(), last.offset_bytes + kMostBytes), scratch);
  pt::PacketReader reader(bytes);
  reader.set_errata(data.decoder.config.errata);
  pt::PtClock clock(data.decoder.config);
  pt::Packet packet;
  for (uint64_t at = 0; data.arm.empty() && reader.next(packet) == pt::PacketReader::Status::ok; at = reader.offset())
    clock.on_packet(packet, at);
  return clock.known() ? std::clamp(data.timing.time.to_ns(clock.now()), time.first, time.last) : time.first;
}

/// Finds guests whose TSC has an offset: in the trace of one cpu, a guest's time is less than an earlier one of the host, or the other way
/// round.
class GuestClocks {
 public:
  void begin_stream() { has_host_ = has_guest_ = false; }
  void add(const PsbEntry& psb) {
    if (!psb.has_tsc) return;
    const bool guest = psb.in_guest && !psb.in_root;
    differ_ = differ_ || (guest ? has_host_ && psb.tsc < host_ : has_guest_ && psb.tsc < guest_);
    (guest ? guest_ : host_) = psb.tsc;
    (guest ? has_guest_ : has_host_) = true;
    if (!guest) has_guest_ = false;
  }
  void report(std::vector<std::string>& warnings) const {
    if (!differ_) return;
    warnings.emplace_back(
        "guests have a TSC of their own, so times, threads and versions of code are unreliable around them: correct the recording with "
        "'perf inject --vm-time-correlation'");
  }

 private:
  uint64_t host_ = 0, guest_ = 0;
  bool has_host_ = false, has_guest_ = false, differ_ = false;
};

/// Returns how many parts of each stream are looked through for what must be known before decoding: all of a short trace.
size_t sampled_stretches(const RecordingData& data) {
  uint64_t total = 0;
  for (const AuxStream& stream : data.streams) total += stream.size_bytes();
  return total <= kWholeTraceBytes || data.streams.empty() ? SIZE_MAX : std::max<size_t>(kLeastStretches, kStretches / data.streams.size());
}

/// Says so if options name processes and the recording has none whose mappings it says.
void report_unused_processes(const OpenRequest& options, RecordingData& data) {
  if (data.kind == RecordingKind::perf || (options.path != "-" && looks_like_bundle(options.path))) return;
  for (const auto& [name, given] :
       {std::pair("--map", !options.assumed.empty()), std::pair("--symfs PID=ROOT", !options.process_symfs.empty())}) {
    if (given) data.warnings.push_back(std::string(name) + " has no effect: only recordings in perf's format have mappings of processes");
  }
}

/// Says so if options name code of guests and there are no guests that could use it.
void report_unused_guests(const OpenRequest& options, RecordingData& data) {
  std::string named;
  for (const auto& [name, value] :
       {std::pair("--guestmount", &options.guestmount), std::pair("--guestkallsyms", &options.guestkallsyms),
        std::pair("--guestmodules", &options.guestmodules), std::pair("--guestvmlinux", &options.guestvmlinux)}) {
    if (!value->empty()) named += (named.empty() ? "" : ", ") + std::string(name);
  }
  if (named.empty()) return;
  const bool one = named.find(',') == std::string::npos;
  named += one ? " has no effect" : " have no effect";
  const size_t stretches = sampled_stretches(data);
  const auto has_guests = [&](const SegmentIndex& index) {
    return runs_guests(index, data.timing, data.decoder.config, stretches, options.check);
  };
  if (options.path != "-" && looks_like_bundle(options.path)) {
    data.warnings.push_back("a bundle is complete: " + named);
  } else if (data.kind != RecordingKind::perf || !data.arm.empty()) {
    data.warnings.push_back(named + ": only an Intel PT recording of a host has guests");
  } else if (std::ranges::none_of(data.indexes, has_guests)) {
    data.warnings.push_back(stretches == SIZE_MAX
                                ? "no virtual machine runs in this trace (no PIP packet with NR): " + named
                                : "no virtual machine was found in a sample of this trace (no PIP packet with NR): without one, " + named);
  }
}

// All that runs on a cpu of a guest whose threads are not known is named after the host thread.
std::string guest_comm(const Recording& recording, int32_t tid, TimeNs when) {
  const uint32_t machine = machine_of_thread(tid);
  const int32_t host = own_number(tid);
  const Guest guest = guest_run_by(recording.contexts(), {-1, host, kNoSpace});
  std::string name = "VM";
  for (const Guest& each : guests_of(recording.contexts())) {
    if (each.machine == machine && each.pid > 0) name += ":" + std::to_string(each.pid);
  }
  if (name == "VM" && guest.pid > 0) name += ":" + std::to_string(guest.pid);
  return name + " " + (host == 0 ? "swapper" : recording.comm_at(host, when));
}

std::unique_ptr<FlowDecoder> plain_decoder(const Recording& recording, const RecordingData& data, uint32_t stream) {
  if (stream < data.arm.size()) {
    const arm::TraceConfig& config = data.arm[stream].config;
    if (config.protocol != arm::Protocol::etmv4 && config.protocol != arm::Protocol::ete) {
      return std::make_unique<arm::LegacyDecoder>(recording.timeline(), recording.contexts(), config, data.arm_follow);
    }
    arm::DecoderOptions options;
    options.config = config;
    options.follow = data.arm_follow;
    return std::make_unique<arm::Decoder>(recording.timeline(), recording.contexts(), options);
  }
  pt::DecoderOptions options = recording.decoder_options();
  if (stream < data.anchors.size()) options.sync_points = &data.anchors[stream];
  return std::make_unique<pt::Decoder>(recording.timeline(), recording.contexts(), options);
}

}  // namespace

void index_streams(const OpenRequest& options, RecordingData& data) {
  data.timing = {data.decoder.config.time, options.slack_ns, options.use_time, options.use_written};
  // Timeless: no packet then narrows what the segment says, and the segment says nothing.
  data.decoder.exact_only = data.arm_follow.exact_only = options.exact_only;
  data.decoder.slack_ns = options.use_time ? options.slack_ns : kTimeMax.value;
  uint64_t total = 0, done = 0;
  const bool has_guests = !guests_of(data.contexts).empty();
  GuestClocks guest_clocks;
  for (AuxStream& stream : data.streams) {
    stream.finish();
    total += stream.size_bytes();
  }
  // Properties needed before decoding come from all PSBs of a short trace and from a sample of those of a long one.
  const size_t stretches = sampled_stretches(data);
  std::vector<ClockStep> clocks(data.streams.size());
  ClockSurvey survey(data.decoder.config, data.streams.size(), stretches != SIZE_MAX);
  TipWatch tips;
  PeriodWatch periods;
  bool decodable = false;
  for (size_t i = 0; i < data.streams.size(); ++i) {
    const AuxStream& stream = data.streams[i];
    const auto on_passed = [&](uint64_t first, uint64_t last) {
      data.pages.release(stream, first, last);
      done += last - first;
      if (options.check) options.check();
      if (options.progress && (done / kProgressBytes != (done - (last - first)) / kProgressBytes || done == total))
        options.progress(done, total);
    };
    StreamInfo info;
    guest_clocks.begin_stream();
    SegmentIndex index = i < data.arm.size() ? index_arm(i, on_passed, data, info) : SegmentIndex(stream);
    const auto on_psb = [&](const PsbEntry& psb) {
      clocks[i].add(psb);
      survey.add(i, stream, psb);
      guest_clocks.add(psb);
      if (data.arm.empty()) tips.look_behind(stream, psb), periods.look(stream, psb);
      if (data.kind == RecordingKind::perf && (psb.in_root || has_guests)) data.decoder.image_is_of_root = true;
    };
    index.sample(stretches, on_psb, i < data.arm.size() ? nullptr : SegmentIndex::Passed(on_passed));
    info.cpu = stream.cpu;
    info.tid = stream.tid;
    info.idx = stream.idx;
    info.size_bytes = stream.size_bytes();
    data.infos.push_back(info);
    data.indexes.push_back(std::move(index));
  }
  size_t contradicted = 0;
  for (size_t i = 0; i < data.streams.size(); ++i) {
    SegmentIndex& index = data.indexes[i];
    if (data.timing.use_time) contradicted += index.set_clock(survey.clock_of(i, data.streams[i], index));
    const auto first = index.next(0);
    if (!first) continue;
    data.infos[i].time.first = first_time(index, *first, data.timing);
    decodable = true;
  }
  if (contradicted != 0) warn_of_times(contradicted, data);
  if (options.use_time) guest_clocks.report(data.warnings);
  allow_for_coarse_clocks(clocks, data);
  if (data.decoder.config.has_mtc || data.lacks_period) correct_period(periods, data);
  for (size_t i = 0; i < data.streams.size(); ++i) {
    const auto last = data.indexes[i].previous(data.streams[i].end_offset());
    if (last) data.infos[i].time.last = last_time(data.streams[i], data.indexes[i], *last, data);
  }
  if (data.decoder.config.tip_order == pt::TipOrder::unknown) data.decoder.config.tip_order = tips.order();
  for (std::string& sentence : tell_limits(data.arm)) data.warnings.push_back(std::move(sentence));
  if (total != 0 && !decodable) {
    data.warnings.push_back(std::string(data.arm.empty() ? "no PSB" : "no A-Sync") + " packet in the " + std::to_string(total) +
                            " bytes of trace: none of it can be decoded");
  }
}

Recording::Recording() : state_(std::make_unique<State>()) {}
Recording::~Recording() = default;

Result<std::unique_ptr<Recording>> Recording::open(const OpenOptions& options) { return open_recording(OpenRequest(options)); }
Result<std::unique_ptr<Recording>> Recording::open_raw(const RawOptions& raw, const OpenOptions& options) {
  return open_raw_recording(raw, OpenRequest(options));
}

Status check_options_of_perf(const OpenOptions& options) {
  const std::string only = perfio::input_name(options.path) + ": only a raw capture or CoreSight snapshot takes ";
  if (!options.images.empty())
    return Error{
        ErrorCode::contradictory_options,
        only +
            "files with code by address (--image); a recording of perf takes mappings (--map), and a bundle has the code with which it was "
            "made",
        0};
  if (options.clock_hz != 0)
    return Error{ErrorCode::contradictory_options, only + "a frequency of the clock; a bundle has that with which it was made", 0};
  return {};
}

Result<std::unique_ptr<Recording>> open_recording(const OpenRequest& options) {
  if (options.raw) return open_raw_recording(*options.raw, options);
  std::unique_ptr<Recording> recording(new Recording());
  RecordingData& data = recording->state_->data;
  const auto load = [&] {
    const std::string snapshot = options.path == "-" ? std::string{} : snapshot_directory(options.path);
    if (!snapshot.empty()) return load_snapshot(options, snapshot, data);
    if (Status status = check_options_of_perf(options); !status) return status;
    if (options.path != "-" && looks_like_bundle(options.path)) return load_bundle(options, data);
    if (options.path != "-" && looks_like_json(options.path)) return load_lldb_bundle(options, data);
    return load_perf(options, data);
  };
  const InterruptScope interrupt(options.check);
  const Status status = load();
  if (!status.ok()) return status.error();
  report_unused_guests(options, data);
  report_unused_processes(options, data);
  recording->state_->finish();
  return recording;
}

Result<std::unique_ptr<Recording>> open_raw_recording(const RawOptions& raw, const OpenRequest& options) {
  std::unique_ptr<Recording> recording(new Recording());
  const InterruptScope interrupt(options.check);
  const Status status = load_raw(raw, options, recording->state_->data);
  if (!status.ok()) return status.error();
  report_unused_guests(options, recording->state_->data);
  report_unused_processes(options, recording->state_->data);
  recording->state_->finish();
  return recording;
}

const RecordingData& data_of(const Recording& recording) { return recording.state_->data; }

const std::vector<StreamInfo>& Recording::streams() const { return state_->data.infos; }
std::vector<AuxWindow> aux_windows(const Recording& recording, uint32_t stream) {
  std::vector<AuxWindow> windows;
  const RecordingData& data = data_of(recording);
  if (stream >= data.streams.size()) return windows;
  const std::vector<std::string>& names = data.sample_names;
  for (const AuxSample& sample : data.streams[stream].samples()) {
    AuxWindow& window = windows.emplace_back();
    window.first_bytes = sample.first_bytes;
    window.last_bytes = sample.last_bytes;
    if (sample.event < names.size()) window.event = names[sample.event];
    window.time = sample.time;
    window.ip = sample.ip;
    window.pid = sample.pid;
    window.tid = sample.tid;
    window.cpu = sample.cpu;
  }
  return windows;
}
const Timeline& Recording::timeline() const { return state_->data.timeline; }
const ContextTrack& Recording::contexts() const { return state_->data.contexts; }
const Symbolizer& Recording::symbolizer() const { return *state_->data.symbolizer; }
const arm::TraceConfig* Recording::arm_config(uint32_t stream) const {
  return stream < state_->data.arm.size() ? &state_->data.arm[stream].config : nullptr;
}
uint64_t Recording::buffer_offset(uint32_t stream, uint64_t offset_bytes) const {
  return stream < state_->data.arm.size() ? state_->data.arm[stream].place_of(offset_bytes) : offset_bytes;
}
std::vector<std::string> usual_stashes() { return stash::stash_paths(); }

const pt::DecoderOptions& Recording::decoder_options() const { return state_->data.decoder; }
bool Recording::has_time_conversion() const { return state_->data.decoder.config.time.valid(); }
const std::map<int32_t, std::string>& Recording::thread_names() const { return state_->data.thread_names; }
const std::vector<MissingImage>& Recording::missing_images() const { return state_->data.missing; }
std::vector<Finding> Recording::findings() const {
  std::vector<Finding> findings = timeline().findings();
  const RecordingData& data = state_->data;
  if (data.plan) {
    findings.insert(findings.end(), data.plan->findings.begin(), data.plan->findings.end());
    return findings;
  }
  for (const AuxStream& stream : data.streams) {
    for (Finding& finding : lost_trace_findings(stream, perfio::is_emulated(data.description))) findings.push_back(std::move(finding));
  }
  for (size_t i = 0; i < data.streams.size(); ++i) {
    for (Finding& finding : begin_findings(data.streams[i], data.indexes[i], data.arm.empty() ? "PSB" : "A-Sync"))
      findings.push_back(std::move(finding));
  }
  RatioCheck ratio(data.decoder.config);
  for (size_t i = 0; i < data.streams.size(); ++i) {
    PassedPages passed;
    const auto visit = [&](uint64_t offset) { passed.at(data.pages, data.streams[i], offset); };
    for (Finding& finding : clock_findings(data.streams[i], data.indexes[i], data.timing, visit)) findings.push_back(std::move(finding));
    if (!data.arm.empty()) continue;
    for (Finding& finding : order_findings(data.streams[i], data.indexes[i], data.timing, visit)) findings.push_back(std::move(finding));
    ratio.add(data.streams[i], data.indexes[i], visit);
  }
  for (Finding& finding : ratio.findings()) findings.push_back(std::move(finding));
  return findings;
}
std::vector<Finding> miscount_findings(const Recording& recording) {
  std::vector<Finding> findings;
  const RecordingData& data = data_of(recording);
  for (size_t i = 0; !data.plan && i < data.streams.size(); ++i) {
    PassedPages passed;
    const auto visit = [&](uint64_t offset) { passed.at(data.pages, data.streams[i], offset); };
    for (Finding& finding : i < data.arm.size()
                                ? timestamp_findings(data.streams[i], data.indexes[i], data.timing, data.arm[i].config, visit)
                                : count_findings(data.streams[i], data.indexes[i], data.timing, data.decoder.config, visit))
      findings.push_back(std::move(finding));
    if (i >= data.arm.size()) continue;
    for (Finding& finding : context_findings(data, i, visit)) findings.push_back(std::move(finding));
  }
  return findings;
}
const LostRecords& Recording::lost() const { return state_->data.lost; }
const std::vector<std::string>& Recording::warnings() const { return state_->data.warnings; }
bool Recording::from_perf() const { return state_->data.kind == RecordingKind::perf; }
std::string Recording::description() const { return state_->data.description; }

std::string Recording::comm_at(int32_t tid, TimeNs when, Interval* valid) const {
  if (valid != nullptr) *valid = {};
  const auto found = state_->data.comms.find(tid);
  if (found == state_->data.comms.end() && machine_of_thread(tid) != 0) return guest_comm(*this, tid, when);
  if (found == state_->data.comms.end()) return tid == 0 ? "swapper" : "";  // the idle threads are never named by a record
  const auto& names = found->second;
  auto name = std::upper_bound(names.begin(), names.end(), when, [](TimeNs value, const auto& entry) { return value < entry.first; });
  if (name == names.begin()) ++name;  // the first name is also that before it
  if (valid != nullptr) {
    if (name != std::next(names.begin())) valid->first = std::prev(name)->first;
    if (name != names.end()) valid->last = TimeNs{name->first.value - 1};
  }
  return std::prev(name)->second;
}

bool Recording::next_segment(uint32_t stream, uint64_t& at, AuxSegment& segment, std::vector<std::byte>& scratch) const {
  const RecordingData& data = state_->data;
  if (stream >= data.indexes.size()) return false;
  const std::optional<PsbEntry> entry = data.indexes[stream].next(at);
  if (!entry) return false;
  state_->passed[stream].at(data.pages, data.streams[stream], entry->offset_bytes);
  segment = data.indexes[stream].segment(*entry, data.timing, scratch);
  segment.stream = stream;
  at = entry->offset_bytes + 1;
  return true;
}

std::vector<uint64_t> Recording::segment_starts(uint32_t stream) const {
  std::vector<uint64_t> starts;
  const RecordingData& data = state_->data;
  if (stream >= data.indexes.size()) return starts;
  PassedPages passed;
  for (auto entry = data.indexes[stream].next(0); entry; entry = data.indexes[stream].next(entry->offset_bytes + 1)) {
    passed.at(data.pages, data.streams[stream], entry->offset_bytes);
    starts.push_back(entry->offset_bytes);
  }
  return starts;
}

uint64_t Recording::segment_at(uint32_t stream, TimeNs t) const {
  return stream < state_->data.indexes.size() ? state_->data.indexes[stream].at(t, state_->data.timing) : 0;
}

Status Recording::decode(uint32_t stream, uint64_t first_offset, uint64_t last_offset, const Sink& sink) const {
  return decode_parallel(stream, first_offset, last_offset, 1, sink);
}

std::unique_ptr<FlowDecoder> Recording::make_decoder(uint32_t stream) const {
  if (stream >= state_->data.streams.size()) return nullptr;
  std::unique_ptr<FlowDecoder> decoder = plain_decoder(*this, state_->data, stream);
  const int32_t cpu = state_->data.infos[stream].cpu, tid = state_->data.infos[stream].tid;
  const auto renames = cpu >= 0 ? state_->renames : std::make_shared<const std::vector<Rename>>(renames_of(state_->data, tid));
  if (renames->empty()) return decoder;
  return std::make_unique<RenamePlaces>(std::move(decoder), renames, contexts());
}

Status Recording::decode_parallel(uint32_t stream, uint64_t first_offset, uint64_t last_offset, unsigned threads, const Sink& sink) const {
  const auto decode = start_decode(*this, {stream, first_offset, last_offset, threads});
  if (!decode) return decode.error();
  DecodedBatch next;
  while ((*decode)->next(next) && sink(*next.batch, *next.decoder, *next.segment)) {
  }
  return {};
}

Result<std::unique_ptr<ParallelDecode>> start_decode(const Recording& recording, const StreamPart& part) {
  const RecordingData& data = data_of(recording);
  const uint32_t stream = part.stream;
  if (stream >= data.streams.size()) return Error{ErrorCode::no_such_stream, "no stream " + std::to_string(stream), 0};
  ParallelJob job;
  job.first_offset = part.first_offset;
  job.last_offset = part.last_offset;
  job.threads = part.threads;
  job.batch_blocks = part.batch_blocks;
  job.held_bytes = Recording::kHeldBytes;
  job.find = [&data, stream](uint64_t at) {
    const std::optional<PsbEntry> entry = data.indexes[stream].next(at);
    return entry ? entry->offset_bytes : Recording::kStreamEnd;
  };
  job.segment = [&recording, stream](uint64_t at, std::vector<std::byte>& scratch) {
    AuxSegment segment;
    (void)recording.next_segment(stream, at, segment, scratch);
    return segment;
  };
  job.make_decoder = [&recording, stream] { return recording.make_decoder(stream); };
  return std::make_unique<ParallelDecode>(std::move(job));
}

}  // namespace ptd
