// Writes a bundle: opens the recording with a log, decodes it, and stores what decoding read.
#include <algorithm>
#include <filesystem>

#include "image/base/read_files.h"
#include "image/base/shrunk_files.h"
#include "image/code_limits.h"
#include "image/guest_tracks.h"
#include "image/timeline_access.h"
#include "ptdecode/bundle.h"
#include "ptdecode/guest.h"
#include "recording/bundle/bundle_arm.h"
#include "recording/bundle/bundle_container.h"
#include "recording/bundle/bundle_events.h"
#include "recording/bundle/bundle_image.h"
#include "recording/bundle/bundle_scan.h"
#include "recording/bundle/bundle_windows.h"
#include "recording/bundle/kept_lines.h"
#include "recording/bundle/plan.h"
#include "recording/bundle/plan_wire.h"
#include "recording/bundle/requested_bundle.h"
#include "recording/data/recording_data.h"

namespace ptd {
namespace {

/// The bytes [first, end) of a stream.
struct StreamCut {
  uint64_t first = 0, end = 0;
};

/// Path and build id of sections.
using SectionName = std::pair<std::string, std::string>;

class Writer {
 public:
  Writer(const Recording& recording, const ImageLog& log, BundleReport& report)
      : data_(data_of(recording)), recording_(recording), log_(log), report_(report) {}

  /// Writes a plan: all code and names, and of the trace only what is in no file.
  void set_plan(const PlanData& plan) { plan_ = &plan; }
  void cut(Interval time);
  /// Whether something was traced at the time that is kept. (One segment of each stream before and after it is kept too.)
  [[nodiscard]] bool has_trace() const;
  Status scan(const Recording& recording) { return scan_flow(recording, spans_, scan_); }
  Status write(BundleFileWriter& file);
  /// Lists what it is made of, after write(). `input`: the recording.
  void list_parts(const std::string& input, const BundleFileWriter& file);

 private:
  void collect_lines();
  void name_special_places();
  Status write_info(BundleFileWriter& file) const;
  Status write_config(BundleFileWriter& file) const;
  Status write_streams(BundleFileWriter& file) const;
  Status write_samples(BundleFileWriter& file) const;
  Status write_aux(BundleFileWriter& file);
  Status write_contexts(BundleFileWriter& file) const;
  Status write_guests(BundleFileWriter& file) const;
  Status write_notes(BundleFileWriter& file) const;
  Status write_code(BundleFileWriter& file);
  Status write_names(BundleFileWriter& file);
  Status write_pokes(BundleFileWriter& file) const;
  Status write_spans(BundleFileWriter& file) const;
  Status write_arm(BundleFileWriter& file) const;
  Status write_plan_parts(BundleFileWriter& file) const;

  const RecordingData& data_;
  const Recording& recording_;
  const ImageLog& log_;
  BundleReport& report_;
  const PlanData* plan_ = nullptr;  // null: a bundle
  Interval time_, part_;            // what was asked for; the recording may itself be a part
  std::vector<SegmentSpan> spans_;
  std::vector<StreamCut> cuts_;
  ScanResult scan_;
  CodeLines lines_;
  BundleCodeWriter code_;
  std::map<SectionName, uint64_t> symbols_of_;
};

void Writer::cut(Interval time) {
  time_ = time;
  part_ = intersect(time, data_.part);
  for (uint32_t s = 0; s < data_.streams.size(); ++s) {
    const SegmentSpan span = spans_of(recording_, s, time);
    const bool at_start = time.first == kTimeMin;
    StreamCut bytes;
    bytes.first = at_start || span.first == Recording::kStreamEnd ? data_.streams[s].begin_offset() : span.first;
    bytes.end = std::min(span.end, data_.streams[s].end_offset());
    if (!at_start && span.segments == 0) bytes.end = bytes.first;
    spans_.push_back(span);
    cuts_.push_back(bytes);
    report_.segments += span.segments;
    report_.segments_total += span.segments_total;
    report_.aux_total_bytes += data_.streams[s].size_bytes();
  }
}

bool Writer::has_trace() const {
  std::vector<std::byte> scratch;
  AuxSegment segment;
  for (uint32_t stream = 0; stream < cuts_.size(); ++stream) {
    uint64_t at = cuts_[stream].first;
    while (at < cuts_[stream].end && recording_.next_segment(stream, at, segment, scratch)) {
      if (segment.time.overlaps(time_)) return true;
    }
  }
  return false;
}

// Everything that was fetched, and everything that edits touch: the builder reads it. A flow of an unknown space fetches, too, but has no
// code.
void Writer::collect_lines() {
  for (const auto& [space, lines] : log_.fetches->lines()) {
    for (const uint64_t line : lines) lines_[space].insert(line);
  }
  const auto add = [this](SpaceId space, Ip ip, uint64_t size) {
    if (size == 0) return;
    space = space_at(space, ip);
    const uint64_t last = ip.value + std::min(size - 1, ~ip.value);
    lines_[space.value].insert(ip.value >> kCodeLineBits, last >> kCodeLineBits);
  };
  const Timeline& timeline = data_.timeline;
  for (SiteId id = 0; id < timeline.site_count(); ++id) add(timeline.site(id).space, timeline.site(id).ip, timeline.site(id).size_bytes);
  for (const ImageOp& op : log_.ops) {
    if (const auto* edit = std::get_if<Edit>(&op)) add(edit->space, edit->ip, std::max(edit->old_bytes.size(), edit->new_bytes.size()));
  }
  std::erase_if(lines_, [&timeline](const auto& list) { return !TimelineAccess::has_space(timeline, SpaceId{list.first}); });
}

// Names that commands look for, whatever was decoded.
void Writer::name_special_places() {
  const auto name_place = [this](SpaceId space, Ip ip) { scan_.named[space_at(space, ip).value].insert(ip.value); };
  for (const auto& [space, ips] : log_.fetches->ips()) {
    for (const uint64_t ip : ips) name_place(SpaceId{space}, Ip{ip});
  }
  std::vector<const char*> names(std::begin(kSwitchFunctions), std::end(kSwitchFunctions));
  names.insert(names.end(), {"do_sync_core", "perf_event_text_poke_output"});
  for (const char* name : names) {
    for (const Ip ip : data_.symbolizer->addresses_of(name)) name_place(kKernelSpace, ip);
  }
  const Timeline& timeline = data_.timeline;
  for (SiteId id = 0; id < timeline.site_count(); ++id) name_place(timeline.site(id).space, timeline.site(id).ip);
  for (const Finding& finding : timeline.findings()) name_place(finding.space, finding.ip);
}

Status Writer::write_info(BundleFileWriter& file) const {
  ByteWriter out;
  out.number(static_cast<uint64_t>(data_.kind));
  out.text(data_.description);
  out.interval(part_);
  return file.add(chunk::kInfo, out.bytes());
}

Status Writer::write_config(BundleFileWriter& file) const {
  const pt::DecoderOptions& decoder = data_.decoder;
  const pt::Config& config = decoder.config;
  ByteWriter out;
  for (const uint64_t value : {uint64_t{config.cpu.family}, uint64_t{config.cpu.model}, uint64_t{config.cpu.stepping}}) out.number(value);
  out.number(static_cast<uint64_t>(config.return_compression));
  out.number(config.mtc_period);
  out.number(config.tsc_ctc_ratio_n);
  out.number(config.tsc_ctc_ratio_d);
  out.number(config.max_nonturbo_ratio);
  for (const bool value : {config.has_tsc, config.has_mtc, config.has_cyc, config.address_filter}) out.flag(value);
  out.number(static_cast<uint64_t>(config.initial_mode));
  out.number(config.time.time_shift);
  out.number(config.time.time_mult);
  for (const uint64_t value : {config.time.time_zero, config.time.time_cycles, config.time.time_mask}) out.number(value);
  out.flag(config.time.cap_user_time_short);
  out.number(decoder.filter.size());
  for (const pt::IpRange& range : decoder.filter) {
    out.number(range.first.value);
    out.number(range.last.value);
  }
  out.number(decoder.default_space.value);
  out.number(decoder.breakpoint_entry.value);
  out.number(static_cast<uint64_t>(config.tip_order));
  out.flag(decoder.image_is_of_root);
  if (!config.has_flow) out.flag(config.has_flow);  // readers that do not know it must refuse the bundle
  return file.add(chunk::kConfig, out.bytes());
}

Status Writer::write_streams(BundleFileWriter& file) const {
  ByteWriter out;
  out.number(data_.streams.size());
  for (size_t s = 0; s < data_.streams.size(); ++s) {
    const AuxStream& stream = data_.streams[s];
    const StreamCut cut = cuts_[s];
    out.signed_number(stream.cpu);
    out.signed_number(stream.tid);
    out.number(stream.idx);
    std::vector<StreamCut> chunks;
    for (const AuxChunk& chunk : stream.chunks()) {
      const StreamCut part{std::max(chunk.offset_bytes, cut.first), std::min(chunk.end(), cut.end)};
      if (part.first < part.end || plan_ != nullptr) chunks.push_back(part);
    }
    out.number(chunks.size());
    for (const StreamCut& chunk : chunks) {
      out.number(chunk.first);
      out.number(chunk.end - chunk.first);
    }
    const auto within = [&](const Seam& seam) { return cut.first <= seam.offset_bytes && seam.offset_bytes <= cut.end; };
    out.number(static_cast<uint64_t>(std::count_if(stream.seams().begin(), stream.seams().end(), within)));
    for (const Seam& seam : stream.seams()) {
      if (!within(seam)) continue;
      out.number(seam.offset_bytes);
      out.number(static_cast<uint64_t>(seam.why));
    }
    out.number(stream.written().size());
    uint64_t end = 0;
    for (const AuxStream::Written& record : stream.written()) {
      out.number(record.end_offset_bytes - end);
      out.time(record.time);
      end = record.end_offset_bytes;
    }
  }
  return file.add(chunk::kStreams, out.bytes());
}

Status Writer::write_samples(BundleFileWriter& file) const {
  if (data_.sample_names.empty()) return {};
  const auto is_kept = [this](size_t stream, const AuxSample& sample) {
    return sample.last_bytes > cuts_[stream].first && sample.first_bytes < cuts_[stream].end;
  };
  ByteWriter out;
  write_windows(data_, is_kept, out);
  return file.add(chunk::kWindows, out.bytes());
}

Status Writer::write_aux(BundleFileWriter& file) {
  ByteWriter out;
  for (size_t s = 0; s < data_.streams.size(); ++s) {
    const std::vector<AuxChunk>& chunks = data_.streams[s].chunks();
    for (size_t i = 0; i < chunks.size(); ++i) {
      const AuxChunk& chunk = chunks[i];
      if (plan_ != nullptr && plan_->pieces[s][i].first != 0) continue;
      const uint64_t first = std::max(chunk.offset_bytes, cuts_[s].first), end = std::min(chunk.end(), cuts_[s].end);
      if (first < end) out.raw(chunk.bytes.subspan(first - chunk.offset_bytes, end - first));
    }
  }
  report_.aux_bytes = out.bytes().size();
  return file.add(chunk::kAux, out.bytes());
}

void write_switches(const std::vector<ContextTrack::Switch>& switches, ByteWriter& out) {
  out.number(switches.size());
  uint64_t time = 0;
  for (const ContextTrack::Switch& change : switches) {
    out.number(change.time.value - time);
    out.signed_number(change.to.pid);
    out.signed_number(change.to.tid);
    out.number(uint64_t{change.to.space.value} + 1);
    time = change.time.value;
  }
}

Status Writer::write_contexts(BundleFileWriter& file) const {
  ByteWriter out;
  const auto track = [&out](int32_t key, const std::vector<ContextTrack::Switch>& switches) {
    out.signed_number(key);
    write_switches(switches, out);
  };
  const std::vector<int32_t> cpus = data_.contexts.cpus(), threads = data_.contexts.threads();
  out.number(cpus.size());
  for (const int32_t cpu : cpus) track(cpu, data_.contexts.switches(cpu));
  out.number(threads.size());
  for (const int32_t tid : threads) track(tid, data_.contexts.thread_changes(tid));
  out.number(data_.thread_names.size());
  for (const auto& [tid, name] : data_.thread_names) {
    out.signed_number(tid);
    out.text(name);
  }
  out.number(data_.comms.size());
  for (const auto& [tid, names] : data_.comms) {
    out.signed_number(tid);
    out.number(names.size());
    for (const auto& [time, name] : names) {
      out.time(time);
      out.text(name);
    }
  }
  if (const Status status = file.add(chunk::kContexts, out.bytes()); !status.ok()) return status;
  const Status status = add_leaves(data_.contexts, file);
  return status.ok() ? add_given_comms(data_, file) : status;
}

// Which guests there are, which threads of the host run their cpus, and what these run.
Status Writer::write_guests(BundleFileWriter& file) const {
  const std::vector<Guest> guests = guests_of(data_.contexts), cpus = guest_cpus(data_.contexts);
  const std::vector<GuestCpuThread> threads = guest_cpu_threads(data_.contexts);
  if (guests.empty()) return {};
  ByteWriter out;
  out.number(guests.size());
  for (const Guest& guest : guests) {
    out.number(guest.machine);
    out.signed_number(guest.pid);
  }
  out.number(threads.size());
  for (const auto& [tid, guest] : threads) {
    out.signed_number(tid);
    out.number(guest.machine);
    out.signed_number(guest.pid);
    out.signed_number(guest.vcpu);
  }
  out.number(cpus.size());
  for (const Guest& cpu : cpus) {
    out.number(cpu.machine);
    out.signed_number(cpu.vcpu);
    write_switches(guest_switches(data_.contexts, cpu), out);
  }
  return file.add(chunk::kGuests, out.bytes());
}

Status Writer::write_notes(BundleFileWriter& file) const {
  ByteWriter out;
  out.number(data_.warnings.size());
  for (const std::string& warning : data_.warnings) out.text(warning);
  out.number(data_.missing.size());
  for (const MissingImage& missing : data_.missing) {
    out.text(missing.path);
    out.text(missing.build_id);
    out.text(missing.reason);
  }
  const LostRecords& lost = data_.lost;
  for (const uint64_t value : {lost.lost_records, lost.records, lost.aux_truncated, lost.aux_partial, lost.aux_collision})
    out.number(value);
  return file.add(chunk::kNotes, out.bytes());
}

Status Writer::write_code(BundleFileWriter& file) {
  const CodeLimits* limits = data_.timeline.code_limits();
  if (plan_ == nullptr) collect_lines();
  if (plan_ != nullptr && limits != nullptr) {  // of a bundle: what it has
    limits->for_each([this](SpaceId space, uint64_t first, uint64_t last) {
      lines_[space.value].insert(first >> kCodeLineBits, last >> kCodeLineBits);
    });
  }
  if (plan_ == nullptr || limits != nullptr) {
    (void)keep_lines(log_.ops, lines_, code_);
  } else {
    keep_all(log_.ops, code_);
  }
  ByteWriter code, image, lines;
  code_.write(code);
  report_.code_bytes = code_.kept_bytes();
  report_.code_total_bytes = code_.source_bytes();
  write_image(log_, code_, image);
  write_lines(lines_, lines);
  if (Status status = file.add(chunk::kCode, code.bytes()); !status.ok()) return status;
  if (Status status = file.add(chunk::kImage, image.bytes()); !status.ok()) return status;
  return file.add(chunk::kLines, lines.bytes());
}

Status Writer::write_names(BundleFileWriter& file) {
  if (plan_ == nullptr) name_special_places();
  ByteWriter out;
  std::map<uint32_t, std::vector<uint64_t>> named;
  for (auto& [space, addresses] : scan_.named) named.emplace(space, addresses.take());
  const SymbolPick pick = plan_ == nullptr ? data_.symbolizer->pick(named) : data_.symbolizer->pick_all();
  write_symbols(pick, out);
  report_.symbols = pick.ranges.size();
  for (const FileSymbolPick& symbols : pick.files) {
    report_.symbols += symbols.symbols.size();
    symbols_of_[{symbols.section_path, symbols.build_id}] += symbols.symbols.size();
  }
  report_.instructions = scan_.instructions;
  for (const auto& [type, write] : {std::pair(chunk::kSymbolPlaces, &write_places), std::pair(chunk::kAliases, &write_aliases),
                                    std::pair(chunk::kRangePlaces, &write_range_places), std::pair(chunk::kRangeLines, &write_range_lines),
                                    std::pair(chunk::kFrames, &write_frames), std::pair(chunk::kSites, &write_sites)}) {
    ByteWriter content;
    if (!write(pick, content)) continue;
    if (Status status = file.add(type, content.bytes()); !status.ok()) return status;
  }
  return file.add(chunk::kSymbols, out.bytes());
}

Status Writer::write_pokes(BundleFileWriter& file) const {
  ByteWriter out;
  out.number(data_.pokes.size());
  for (const PokeStamp& poke : data_.pokes) {
    out.time(poke.time);
    out.signed_number(poke.cpu);
  }
  return file.add(chunk::kPokes, out.bytes());
}

// The order of pokes is found by counting over whole traces; a part of them cannot be counted again.
Status Writer::write_spans(BundleFileWriter& file) const {
  if (plan_ == nullptr ? part_ == Interval{} : data_.anchors.empty()) return {};
  ByteWriter out;
  out.number(data_.anchors.size());
  for (size_t s = 0; s < data_.anchors.size(); ++s) {
    const auto& points = data_.anchors[s];
    const auto after = [](uint64_t offset, const pt::SyncPoint& point) { return offset < point.stream_offset_bytes; };
    auto first = std::upper_bound(points.begin(), points.end(), cuts_[s].first, after);
    if (first != points.begin()) --first;
    const auto end = std::upper_bound(first, points.end(), cuts_[s].end, after);
    out.number(static_cast<uint64_t>(end - first));
    for (; first != end; ++first) {
      out.number(first->stream_offset_bytes);
      out.interval(first->time);
    }
  }
  return file.add(chunk::kSpans, out.bytes());
}

Status Writer::write_arm(BundleFileWriter& file) const {
  if (data_.arm.empty()) return {};
  ByteWriter out;
  write_arm_sources(data_, out);
  return file.add(chunk::kArm, out.bytes());
}

Status Writer::write(BundleFileWriter& file) {
  Status status = write_info(file);
  if (status.ok()) status = write_config(file);
  if (status.ok()) status = write_streams(file);
  if (status.ok()) status = write_samples(file);
  if (status.ok()) status = write_aux(file);
  if (status.ok()) status = write_contexts(file);
  if (status.ok()) status = write_guests(file);
  if (status.ok()) status = write_notes(file);
  if (status.ok()) status = write_code(file);
  if (status.ok()) status = write_names(file);
  if (status.ok()) status = write_pokes(file);
  if (status.ok()) status = write_spans(file);
  if (status.ok()) status = write_arm(file);
  if (status.ok() && plan_ != nullptr) status = write_plan_parts(file);
  return status;
}

Status Writer::write_plan_parts(BundleFileWriter& file) const {
  ByteWriter plan, index;
  write_plan_part(data_, *plan_, plan);
  write_index_part(data_, index);
  if (Status status = file.add(chunk::kPlan, plan.bytes()); !status.ok()) return status;
  return file.add(chunk::kIndex, index.bytes());
}

void Writer::list_parts(const std::string& input, const BundleFileWriter& file) {
  std::map<SectionName, std::vector<Bytes>> pieces;
  std::set<SectionName> copies;
  for (const ImageOp& op : log_.ops) {
    if (const auto* section = std::get_if<Section>(&op)) pieces[{section->path, section->build_id}].push_back(section->code.bytes);
    const auto* copy = std::get_if<DatedCopy>(&op);
    if (copy == nullptr) continue;
    pieces[{copy->path, copy->build_id}].push_back(copy->code.bytes);
    copies.insert({copy->path, copy->build_id});
  }
  std::map<std::pair<std::string, std::string>, BundlePart> parts;  // by file and reason
  for (const auto& [name, bytes] : pieces) {
    const auto origin = log_.origins.find(name);
    const bool known = origin != log_.origins.end();
    const std::string path = known ? origin->second.file : name.first.empty() ? "[unnamed mapping]" : name.first;
    const std::string why = known ? origin->second.why : copies.contains(name) ? "a copy of the kernel's text" : "in the recording";
    const auto symbols = symbols_of_.find(name);
    BundlePart& part = parts[{path, why}];
    part.file = path;
    part.why = why;
    part.bytes += code_.kept_of(bytes);
    part.symbols += symbols == symbols_of_.end() ? 0 : symbols->second;
  }
  report_.parts.push_back({input, "the recording: trace, records, names", file.raw_bytes() - report_.code_bytes, 0});
  for (auto& [key, part] : parts) {
    if (part.bytes != 0 || part.symbols != 0) report_.parts.push_back(std::move(part));
  }
  std::stable_sort(report_.parts.begin() + 1, report_.parts.end(),
                   [](const BundlePart& a, const BundlePart& b) { return a.bytes > b.bytes; });
  std::map<SectionName, uint64_t> gaps;
  for (const auto& [id, count] : scan_.gaps) gaps[{data_.timeline.section(id).path, data_.timeline.section(id).build_id}] += count;
  report_.missing = data_.missing;
  for (MissingImage& missing : report_.missing) missing.gaps = std::exchange(gaps[{missing.path, missing.build_id}], 0);
  report_.warnings = data_.warnings;
}

// The names of perf's events are columns of listings.
// Samples of other events are listed beside the flow.
Status write_events(const std::string& path, Interval time, BundleFileWriter& file, BundleReport& report) {
  constexpr size_t kMostEvents = 500'000;
  const Result<OtherEvents> events = read_other_events(path, time == Interval{} ? std::vector<Interval>{} : std::vector{time}, kMostEvents);
  if (!events) report.events_trouble = events.error().message;
  if (!events || events->events.empty()) return {};
  ByteWriter out;
  write_other_events(*events, out);
  return file.add(chunk::kEvents, out.bytes());
}

// Returns whether `output` is a file of the recording, under any name: it is still needed when its bundle is written. The recording is a
// file, or a folder of files, of which a bundle is none.
bool is_of_recording(const std::string& recording, const std::string& output) {
  namespace fs = std::filesystem;
  constexpr size_t kMaxFiles = 1U << 16;
  std::error_code error;
  if (fs::equivalent(recording, output, error)) return true;
  if (!fs::is_directory(recording, error) || !fs::exists(output, error) || file_kind(output) == FileKind::bundle) return false;
  fs::recursive_directory_iterator at(recording, fs::directory_options::skip_permission_denied, error);
  for (size_t files = 0; !error && at != fs::recursive_directory_iterator() && files < kMaxFiles; at.increment(error), ++files) {
    std::error_code gone;
    if (fs::equivalent(at->path(), output, gone)) return true;
  }
  return false;
}

}  // namespace

Result<BundleReport> write_bundle(const OpenOptions& options, const BundleOptions& bundle) {
  std::vector<OpenRequest> also;
  for (const OpenOptions& variant : bundle.also) also.emplace_back(variant);
  return write_requested_bundle(OpenRequest(options), bundle, also);
}

Result<BundleReport> write_requested_bundle(const OpenRequest& options, const BundleOptions& bundle, std::span<const OpenRequest> also) {
  const ReadFilesScope noted;
  const std::string& input = bundle.raw != nullptr ? trace_path(*bundle.raw) : options.path;
  if (!bundle.dry_run && is_of_recording(input, bundle.output_path))
    return Error{ErrorCode::bad_output, bundle.output_path + " is the recording itself, or part of it: name another file for the bundle",
                 0};
  const auto log = std::make_shared<ImageLog>();
  const auto open = [&bundle](OpenRequest wanted, std::shared_ptr<ImageLog> image_log) {
    wanted.image_log = std::move(image_log);
    wanted.image_log->share = true;
    return bundle.raw != nullptr ? open_raw_recording(*bundle.raw, wanted) : open_recording(wanted);
  };
  auto recording = open(options, log);
  if (!recording.ok()) return recording.error();
  if (Status status = bundle.dry_run ? Status() : check_output(bundle.output_path, {0600, FileKind::bundle}); !status)
    return status.error();
  BundleReport report;
  Writer writer(**recording, *log, report);
  writer.cut(bundle.time);
  if (bundle.time != Interval{} && !writer.has_trace())
    return Error{ErrorCode::bad_time_window, "the recording has no trace at that time", 0};
  if (Status status = writer.scan(**recording); !status.ok()) return status.error();
  for (const OpenRequest& variant : also) {
    const auto other_log = std::make_shared<ImageLog>();
    other_log->fetches = log->fetches;
    const auto other = open(variant, other_log);
    if (!other.ok()) return other.error();
    if (Status status = writer.scan(**other); !status.ok()) return status.error();
  }
  auto file = bundle.dry_run ? BundleFileWriter::measure() : BundleFileWriter::create(bundle.output_path);
  if (!file.ok()) return file.error();
  if (Status status = writer.write(**file); !status.ok()) return status.error();
  if (Status status = write_origin(data_of(**recording), **file); !status.ok()) return status.error();
  if (bundle.raw == nullptr) {
    if (Status status = write_events(options.path, bundle.time, **file, report); !status.ok()) return status.error();
  }
  if (Status status = (*file)->finish(); !status.ok()) return status.error();
  report.file_bytes = (*file)->size_bytes();
  writer.list_parts(input, **file);
  return report;
}

Result<PlanReport> write_plan(const OpenRequest& options, const PlanOptions& wanted) {
  const ReadFilesScope noted;
  const uint64_t shrunk_before = shrunk_file_count();
  const std::string& input = wanted.raw != nullptr ? trace_path(*wanted.raw) : options.path;
  if (is_of_recording(input, wanted.output_path))
    return Error{ErrorCode::bad_output, wanted.output_path + " is the recording itself, or part of it: name another file for the plan", 0};
  const auto log = std::make_shared<ImageLog>();  // not for others: it has what a decode on this machine would read
  OpenRequest opening = options;
  opening.image_log = log;
  auto recording = wanted.raw != nullptr ? open_raw_recording(*wanted.raw, opening) : open_recording(opening);
  if (!recording.ok()) return recording.error();
  if (Status status = check_output(wanted.output_path, {0600, FileKind::bundle}); !status) return status.error();
  const RecordingData& data = data_of(**recording);
  PlanReport report;
  for (const AuxStream& stream : data.streams) report.trace_bytes += stream.size_bytes();
  const uint64_t by_count = wanted.units == 0 ? 0 : std::max<uint64_t>(1, (report.trace_bytes + wanted.units - 1) / wanted.units);
  PlanData plan;
  make_plan(options, by_count != 0 ? by_count : wanted.unit_bytes != 0 ? wanted.unit_bytes : kUnitBytes, data, plan);
  plan.findings = (*recording)->findings();
  plan.findings.erase(plan.findings.begin(), plan.findings.begin() + static_cast<std::ptrdiff_t>(data.timeline.findings().size()));
  plan.wall_offset_ns = data.origin.wall_offset_ns;
  plan.frozen = options.freeze || (data.plan && data.plan->frozen);
  auto file = BundleFileWriter::create(wanted.output_path);
  if (!file.ok()) return file.error();
  (*file)->set_fast();
  BundleReport parts;
  Writer writer(**recording, *log, parts);
  writer.set_plan(plan);
  writer.cut({});
  if (Status status = writer.write(**file); !status.ok()) return status.error();
  if (Status status = write_origin(data_of(**recording), **file); !status.ok()) return status.error();
  if (const auto error = shrunk_error(shrunk_before)) return *error;
  if (Status status = (*file)->finish(); !status.ok()) return status.error();
  report.file_bytes = (*file)->size_bytes();
  report.embedded_bytes = parts.aux_bytes;
  report.segments = parts.segments_total;
  report.units = static_cast<uint32_t>(plan.units.size());
  report.files = plan.files;
  report.warnings = data.warnings;
  return report;
}

}  // namespace ptd
