// Recorder: see recorder.h.
#include "capture/live/recorder.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "capture/live/kernel/map_build_ids.h"
#include "capture/live/kernel/start_scan.h"
#include "image/base/system_error.h"
#include "image/base/whole_file.h"
#include "perfio/announce/announce_event.h"
#include "perfio/format/oversized_record.h"
#include "perfio/format/record_parse.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;
namespace fs = std::filesystem;

constexpr uint64_t kLargeRecordBytes = 8192;  // a record that does not fit in this is none that is common
constexpr uint64_t kLookMs = 250;             // who looks at memory that changes wants rounds without a wake-up

/// What perf takes as the moment of an AUX payload: the processor's counter where there is one; never 0.
uint64_t aux_reference() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc() | 1;
#else
  timespec now{};
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (static_cast<uint64_t>(now.tv_sec) * 1000000000U + static_cast<uint64_t>(now.tv_nsec)) | 1;
#endif
}

/// Recordings hold kernel addresses and the flow of programs: only their owner may read them.
class PrivateFiles {
 public:
  PrivateFiles() : before_(umask(0077)) {}
  ~PrivateFiles() { umask(before_); }
  PrivateFiles(const PrivateFiles&) = delete;
  PrivateFiles& operator=(const PrivateFiles&) = delete;

 private:
  mode_t before_;
};

}  // namespace

Result<std::unique_ptr<Recorder>> Recorder::start(RecordChoice choice) {
  std::unique_ptr<Recorder> recorder(new Recorder(std::move(choice)));
  RecordChoice& asked = recorder->choice_;
  if (!asked.command.empty()) {
    if (asked.announcements) {
      if (auto socket = announce::AnnounceSocket::create(); socket.ok()) recorder->offers_ = std::move(*socket);
    }
    Result<Workload> workload = Workload::prepare(asked.command, recorder->offers_ ? recorder->offers_->variable() : std::string());
    if (!workload) return workload.error();
    if (!asked.target.everything) asked.target.waiting_command = workload->pid();
    recorder->workload_ = std::move(*workload);
  }
  if (Status status = recorder->open_events(); !status) return status.error();
  Result<ProgramStore> programs = ProgramStore::create();
  if (!programs) return programs.error();
  recorder->programs_ = std::move(*programs);
  recorder->make_capture(true);
  if (asked.announcements) recorder->make_tap(false);
  if (asked.kcore && recorder->capture_->memory() == nullptr) {
    return Error{ErrorCode::bad_option, "--kcore: the kernel's memory cannot be read (needs root and /proc/kcore)", 0};
  }
  Status status = recorder->open_file();
  if (status.ok()) status = recorder->start_backup();
  if (status.ok()) status = recorder->write_start();
  if (!status.ok()) {
    recorder->give_up_file();
    return status.error();
  }
  if (recorder->commit_ != nullptr) recorder->commit_->publish(recorder->progress());
  return recorder;
}

Recorder::~Recorder() = default;

Status Recorder::open_events() {
  EventChoice events;
  events.target = choice_.target;
  events.trace = choice_.trace;
  choice_.wishes.trace = choice_.trace.has_value();
  choice_.wishes.rings = static_cast<uint32_t>(choice_.target.cpus.empty() ? online_cpus().size() : choice_.target.cpus.size());
  const Result<RingSizes> sizes = choose_ring_sizes(read_limits(), choice_.wishes);
  if (!sizes) return sizes.error();
  events.sizes = *sizes;
  Result<EventSet> set = EventSet::open(events);
  if (!set) return set.error();
  events_ = std::move(*set);
  report_.notes = events_->without();
  return {};
}

/// In the process that records, or in the one that takes over, which has no mappings of the watch for modules.
void Recorder::make_capture(bool first) {
  CaptureSink sink;
  sink.add_code = [this](const TextPokeRecord& poke, const SampleId& when) {
    RecordContext context;
    context.attr_index = static_cast<uint32_t>(events_->attr_of(RingRole::kernel));
    context.misc = kMiscKernel;
    context.sample_id = when;
    return writer_->add_text_poke(poke, context);
  };
  sink.add_program = [this](const BpfProgInfo& program) { return programs_->add(program); };
  const bool kernel = events_->attr_of(RingRole::kernel) >= 0;
  Result<std::unique_ptr<KernelMemory>> memory = kernel ? KernelMemory::open() : Error{};
  std::unique_ptr<ModuleWatch> modules;
  if (kernel && first && memory.ok()) modules = ModuleWatch::start(static_cast<int32_t>(online_cpus().size()));
  capture_ = std::make_unique<KernelCapture>(memory.ok() ? std::move(*memory) : nullptr, std::move(modules), std::move(sink));
}

void Recorder::make_tap(bool continues) {
  const auto sink = [this](const OtherSample& sample, const SampleId& when) {
    RecordContext context;
    context.attr_index = static_cast<uint32_t>(events_->attrs().size());  // after those of the kernel
    context.misc = kMiscUser;
    context.sample_id = when;
    if (Status status = writer_->add_sample(sample, context); !status && first_error_.ok()) first_error_ = status;
  };
  clock_.see_own_record();
  tap_ = std::make_unique<AnnounceTap>(clock_, sink, offers_.get(), continues);
  if (workload_) tap_->add_process(workload_->pid());
  for (const int32_t pid : recorded_processes()) tap_->add_process(pid);
  const int32_t command = choice_.target.waiting_command;
  if (!continues || command < 0) return;
  for (const int32_t pid : list_tree(command)) tap_->add_process(pid);  // that the killed recorder knew
}

/// The processes to record: those that are named, with what descends from them if that is recorded too, or all.
std::vector<int32_t> Recorder::recorded_processes() const {
  if (choice_.target.everything) return list_processes();
  std::vector<int32_t> pids = choice_.target.pids;
  for (const int32_t tid : choice_.target.tids) pids.push_back(process_of(tid));
  for (size_t i = 0, given = pids.size(); choice_.target.tree && i < given; ++i) {
    const std::vector<int32_t> tree = list_tree(pids[i]);
    if (!tree.empty()) pids.insert(pids.end(), tree.begin() + 1, tree.end());
  }
  return pids;
}

/// A forked process, and a program that it starts, may announce too.
void Recorder::follow(Bytes record) {
  if (tap_ == nullptr) return;
  const uint32_t type = read_record_header(record).type;
  const int32_t pid = Cursor(record.subspan(kRecordHeaderBytes)).i32();
  if (type == kRecordFork) tap_->add_process(pid);
  if (type == kRecordComm) tap_->look_soon(pid);
}

Status Recorder::open_file() {
  const PrivateFiles private_files;
  WriterOptions options;
  options.attrs = events_->attrs();
  if (choice_.announcements) options.attrs.push_back(announce_attr(attr_of(RingRole::target), AnnounceTap::kEventId));
  options.pipe = choice_.output == "-";
  options.fd = options.pipe ? 1 : -1;
  options.directory = !options.pipe && (choice_.directory || choice_.kcore);
  options.compression_level = choice_.compression_level;
  if (!options.pipe) {
    const Result<bool> moved = keep_old_recording(choice_.output);
    if (!moved) return moved.error();
    output_begun_ = true;
    output_moved_ = *moved;
  }
  Result<std::unique_ptr<PerfWriter>> writer = PerfWriter::create(options.pipe ? "standard output" : choice_.output, options);
  if (!writer) return writer.error();
  writer_ = std::move(*writer);
  return {};
}

/// Removes what was begun, and gives the earlier recording its name back: on a full disk, or if the program cannot be executed.
void Recorder::give_up_file() {
  backup_.reset();
  writer_.reset();
  if (!output_begun_) return;
  std::error_code ignored;
  const fs::file_status status = fs::symlink_status(choice_.output, ignored);
  if (fs::is_regular_file(status) || fs::is_directory(status)) fs::remove_all(choice_.output, ignored);
  if (output_moved_) fs::rename(choice_.output + ".old", choice_.output, ignored);
}

Status Recorder::write_start() {
  const std::optional<TimeConvRecord> clock = events_->rings().front().ring->time_conversion();
  if (choice_.make_info) {
    const Result<AuxtraceInfoRecord> info = choice_.make_info(clock ? &*clock : nullptr);
    if (!info) return info.error();
    if (Status status = writer_->add_auxtrace_info(*info); !status) return status;
  }
  std::vector<IdIndexEntry> index;
  for (size_t i = 0; i < events_->rings().size(); ++i) {
    const EventRings& rings = events_->rings()[i];
    for (const uint64_t id : rings.ids()) index.push_back({id, i, rings.cpu, rings.tid});
  }
  if (Status status = writer_->add_id_index(index); !status) return status;
  if (clock) {
    if (Status status = writer_->add_time_conv(*clock); !status) return status;
  }
  const Result<std::string> kallsyms = read_text_file("/proc/kallsyms");
  if (kallsyms.ok()) {
    RecordContext context;
    context.attr_index = static_cast<uint32_t>(events_->attr_of(RingRole::target));
    context.misc = kMiscKernel;
    context.sample_id.pid = context.sample_id.tid = context.sample_id.cpu = 0;
    // Hidden addresses: the recording is without the kernel's map.
    const Status maps = scan_kernel_maps(*kallsyms, [&](const MmapRecord& map) { return writer_->add_mmap(map, context); });
    if (!maps.ok()) report_.notes.push_back(maps.error().message);
  }
  MapBuildIds build_ids;
  const auto add = [&](const Payload& payload, RecordContext context) {
    context.attr_index = static_cast<uint32_t>(events_->attr_of(RingRole::target));
    const auto* map = std::get_if<MmapRecord>(&payload);
    if (map == nullptr) return writer_->add(payload, context);
    if (choice_.saver.on_mapping) choice_.saver.on_mapping(*map, context.sample_id.has_time ? context.sample_id.time : 0);
    MmapRecord named = *map;
    named.build_id = build_ids.of(*map);
    return writer_->add(named, context);
  };
  for (const int32_t pid : recorded_processes()) {
    if (Status status = scan_process(pid, add); !status) return status;
  }
  if (Status status = capture_->note_loaded_programs(); !status) return status;
  Features loaded;
  programs_->take(loaded);
  for (const BpfProgInfo& program : loaded.bpf_progs) {
    if (Status status = tell_program(program, add); !status) return status;
  }
  if (Status status = writer_->add_finished_init(); !status) return status;
  if (Status status = writer_->flush(); !status) return status;
  if (!choice_.kcore) return {};
  if (!kallsyms.ok()) return kallsyms.error();
  const PrivateFiles private_files;
  return copy_kernel(*capture_->memory(), *kallsyms, choice_.output + "/kcore_dir");
}

Progress Recorder::progress() const {
  Progress progress{writer_->size_bytes(), programs_->size_bytes(), {}};
  const std::vector<EventRings>& all = events_->rings();
  for (const EventRings& rings : all) progress.positions.push_back(rings.ring->position());
  for (const EventRings& rings : all) progress.positions.push_back(rings.aux == nullptr ? 0 : rings.aux->position());
  for (const EventRings& rings : all) progress.positions.insert(progress.positions.end(), {rings.losses.by_kernel, rings.losses.told});
  return progress;
}

Status Recorder::start_backup() {
  if (choice_.output == "-") return {};  // what a reader has taken cannot be taken back
  if (commit_ == nullptr) {
    Result<std::unique_ptr<CommitPage>> page = CommitPage::create(4 * events_->rings().size());
    if (!page) return page.error();
    commit_ = std::move(*page);
    commit_->publish(progress());
  }
  BackupProcess::Duties duties;
  duties.adopt = [this] {
    if (workload_) workload_->forget();
    if (tap_ != nullptr) tap_->abandon();
    if (offers_ != nullptr) offers_->forget();
    capture_.reset();  // its mappings did not come along; their places are free for the rings
    return events_->map_again();
  };
  duties.take_over = [this] { take_over(); };
  Result<BackupProcess> backup = BackupProcess::start(duties);
  if (!backup) return backup.error();
  backup_ = std::move(*backup);
  return {};
}

/// In the backup process: completes the file from where the first one had come to.
void Recorder::take_over() {
  const Progress done = commit_->read();
  const size_t count = events_->rings().size();
  for (size_t i = 0; i < count; ++i) {
    EventRings& rings = events_->rings()[i];
    rings.ring->seek(done.positions[i]);
    if (rings.aux != nullptr) rings.aux->read_to(done.positions[count + i]);
    rings.losses = {done.positions[2 * count + 2 * i], done.positions[2 * count + 2 * i + 1]};
  }
  programs_->continue_from(done.store_bytes);
  if (choice_.saver.take_over) choice_.saver.take_over();
  make_capture(false);
  if (offers_ != nullptr) offers_->own();
  if (choice_.announcements) make_tap(true);
  backup_.reset();
  if (writer_->continue_from(done.file_bytes).ok() && stop_and_write().ok() && choice_.saver.on_taken_over) choice_.saver.on_taken_over();
  tap_.reset();
  offers_.reset();  // its folder
}

const EventAttr& Recorder::attr_of(RingRole role) const { return events_->attrs()[static_cast<size_t>(events_->attr_of(role))]; }

void Recorder::on_record(EventRings& rings, Bytes record) {
  const RecordHeader header = read_record_header(record);
  if (rings.role == RingRole::kernel) record = without_excess(record, attr_of(RingRole::kernel), scratch_);
  ++report_.records;
  if (!clock_.is_exact()) note_time(rings, record);
  Cursor body(record.subspan(kRecordHeaderBytes));
  if (header.type == kRecordLost) {
    body.skip(8);
    report_.lost_records += rings.losses.on_record(body.u64());
    tell_lost(rings);
  } else if (says_trace_was_cut(record)) {
    ++report_.aux_truncated;
    revival_.was_cut(static_cast<size_t>(&rings - events_->rings().data()));
  } else if (header.type == kRecordMmap2 && rings.role == RingRole::target) {
    tell_mapping(rings, record);
  } else if (rings.role == RingRole::target) {
    follow(record);
  } else if (rings.role == RingRole::kernel) {
    ++kernel_records_;
    capture_->on_record(record, attr_of(RingRole::kernel));
  }
  if (Status status = writer_->add_raw(record); !status && first_error_.ok()) first_error_ = status;
}

/// To who keeps code: what was mapped may be among them.
void Recorder::tell_lost(const EventRings& rings) const {
  if (rings.role == RingRole::target && choice_.saver.on_lost) choice_.saver.on_lost();
}

void Recorder::note_time(const EventRings& rings, Bytes record) {
  if (read_record_header(record).type == kRecordSample) return;  // no trailer
  const SampleId id = trailer_of(attr_of(rings.role), record);
  if (id.has_time) clock_.saw(id.time);
}

void Recorder::tell_mapping(const EventRings& rings, Bytes record) {
  const EventAttr& attr = events_->attrs()[static_cast<size_t>(events_->attr_of(rings.role))];
  const uint64_t trailer = trailer_bytes(attr);
  if (!choice_.saver.on_mapping || record.size() < kRecordHeaderBytes + trailer) return;
  const Bytes body = record.subspan(kRecordHeaderBytes, record.size() - kRecordHeaderBytes - trailer);
  const SampleId id = trailer_of(attr, record);
  Payload payload;
  if (!parse_body(read_record_header(record), body, payload)) return;
  if (const auto* map = std::get_if<MmapRecord>(&payload)) choice_.saver.on_mapping(*map, id.has_time ? id.time : 0);
}

/// The AUX bytes of a ring. Records of 8 bytes' multiples need no padding in the middle of a stream; the rest waits for the next round.
Status Recorder::take_aux(EventRings& rings, size_t index, bool all) {
  if (choice_.trace->sampled) return {};  // the samples hold it
  RingPart part = rings.aux->mode() == AuxMode::full ? rings.aux->pending() : all ? rings.aux->snapshot() : RingPart{};
  if (rings.aux->mode() == AuxMode::full && !all) part.end -= part.size_bytes() % 8;
  if (part.size_bytes() == 0) return {};
  const size_t first = std::min<size_t>(part.first.size(), part.size_bytes());
  AuxtraceRecord record;
  record.offset_bytes = part.begin;
  record.reference = aux_reference();
  record.idx = static_cast<uint32_t>(index);
  record.cpu = rings.cpu;
  record.tid = rings.tid;
  record.payload = part.first.first(first);
  if (Status status = writer_->add_auxtrace(record, part.second.first(static_cast<size_t>(part.size_bytes()) - first)); !status)
    return status;
  report_.aux_bytes += part.size_bytes();
  rings.aux->read_to(part.end);
  return {};
}

Status Recorder::drain(bool all) {
  const uint64_t begun_ns = monotonic_ns();
  capture_->look();
  clock_.update(*events_->rings().front().ring);
  const uint64_t before = writer_->size_bytes(), records = report_.records;
  for (size_t i = 0; i < events_->rings().size(); ++i) {
    EventRings& rings = events_->rings()[i];
    const uint64_t waiting = rings.ring->pending_bytes();
    if (waiting != 0) rings.nearly_full = waiting + kLargeRecordBytes > rings.ring->capacity_bytes();
    if (waiting != 0 && rings.nearly_full) tell_lost(rings);  // the kernel reports it only with the next record
    (void)rings.ring->read([&](Bytes record) { on_record(rings, record); });
    if (!first_error_.ok()) return first_error_;
    if (rings.aux == nullptr) continue;
    if (Status status = take_aux(rings, i, all); !status) return status;
  }
  if (tap_ != nullptr) report_.records += tap_->drain();
  if (!first_error_.ok()) return first_error_;
  if (Status status = capture_->end_round(); !status) return status;
  if (choice_.saver.on_round) {
    const uint64_t slack_ns = clock_.is_exact() ? 0 : kLookMs * 1'000'000;
    choice_.saver.on_round({[clock = clock_] { return clock.now_ns(); }, slack_ns, begun_ns, report_.file_bytes});
  }
  report_.kernel = capture_->counts();
  if (records == report_.records && before == writer_->size_bytes()) return {};
  if (Status status = writer_->add_finished_round(); !status) return status;
  if (Status status = writer_->flush(); !status) return status;
  report_.file_bytes = writer_->size_bytes();
  if (commit_ != nullptr) commit_->publish(progress());
  if (tap_ != nullptr) tap_->release();
  for (size_t i = 0; i < events_->rings().size(); ++i) {
    EventRings& rings = events_->rings()[i];
    rings.ring->release();
    if (rings.aux != nullptr && rings.aux->mode() == AuxMode::full && rings.aux->release()) revival_.was_full(i);
  }
  return {};
}

Status Recorder::run() {
  constexpr int kFlushMs = 1000;
  if (workload_) {
    if (choice_.target.everything) events_->enable_trace();
    if (Status status = workload_->start(); !status) {
      refused_ = true;
      return status;
    }
  } else {
    events_->enable_trace();
  }
  const bool whole_machine = choice_.target.everything;
  std::vector<bool> ready;
  int resume_ms = kFlushMs;
  for (;;) {
    std::vector<int> more = {choice_.stop_fd, workload_ ? workload_->fd() : -1, backup_ ? backup_->fd() : -1, offers_ ? offers_->fd() : -1};
    for (const int fd : capture_->wake_fds()) more.push_back(fd);
    int round_ms = choice_.saver.on_round ? static_cast<int>(kLookMs) : kFlushMs;
    if (tap_ != nullptr) {
      const int look_ms = tap_->look_ms();
      round_ms = tap_->pause_ms(look_ms < 0 ? round_ms : std::min(round_ms, look_ms));
    }
    (void)events_->wait(more, ready, std::min(round_ms, resume_ms));
    if (Status status = drain(false); !status) return status;
    if (choice_.trace) resume_ms = revival_.look(*events_, monotonic_ns());
    if (workload_) report_.exit_status = workload_->ended();
    if (ready[0] || report_.exit_status >= 0 || (!whole_machine && events_->target_ended())) return {};
    wants_backup_ |= ready[2];  // it was killed: another one
    if (!wants_backup_) continue;
    if (Status status = restart_backup(); !status) return status;
  }
}

/// As soon as no thread is within an operation that a child would inherit half done.
Status Recorder::restart_backup() {
  backup_.reset();
  if (choice_.saver.pause && !choice_.saver.pause()) return {};
  wants_backup_ = false;
  const Status status = start_backup();
  if (choice_.saver.go_on) choice_.saver.go_on();
  return status;
}

/// Rounds go on until what was mapped is read: only a later round tells whether something else was mapped there meanwhile.
Status Recorder::wait_for_keeping() {
  constexpr int kRoundMs = 10;
  constexpr uint64_t kPatienceNs = 60'000'000'000;
  if (!choice_.saver.is_settled) return {};
  const uint64_t until_ns = monotonic_ns() + kPatienceNs;
  std::vector<bool> ready;
  do {
    if (Status status = drain(false); !status) return status;
    if (choice_.saver.is_settled()) break;
    (void)events_->wait({}, ready, kRoundMs);
  } while (monotonic_ns() < until_ns);
  return {};
}

/// The kernel's code as it is at the end, too: whatever records of changes were lost shows. Copied while changes are still recorded, and
/// once more where one was, so that the copy is of after the last record.
void Recorder::copy_kernel_after() {
  constexpr int kTries = 3;
  const PrivateFiles private_files;
  const std::string part = choice_.output + "/copy.part";  // whoever is killed leaves no half of a copy under its name
  std::error_code error;
  Status status = Error{ErrorCode::read_failed, "/proc/kallsyms cannot be read", 0};
  for (int i = 0; i < kTries; ++i) {
    const uint64_t seen = kernel_records_;
    const Result<std::string> kallsyms = read_text_file("/proc/kallsyms");
    if (kallsyms.ok()) status = copy_kernel(*capture_->memory(), *kallsyms, part);
    if (!status.ok() || !drain(false).ok() || kernel_records_ == seen) break;
  }
  if (status.ok()) fs::rename(part, choice_.output + "/kcore_dir_after", error);
  if (status.ok() && error) status = Error{code_of_errno(error.value(), ErrorCode::write_failed), error.message(), 0};
  fs::remove_all(part, error);
  if (!status.ok()) report_.notes.push_back("no copy of the kernel's code at the end: " + status.error().message);
}

RecordContext Recorder::lost_context(const EventRings& rings) const {
  RecordContext context;
  context.attr_index = static_cast<uint32_t>(events_->attr_of(rings.role));
  context.sample_id.pid = context.sample_id.tid = rings.tid;
  context.sample_id.cpu = rings.cpu;
  context.sample_id.id = rings.events.front().id();
  context.sample_id.time = clock_.now_ns();
  return context;
}

/// What the rings lost after their last record: LOST records that the kernel had no opportunity to write.
Status Recorder::tell_losses() {
  clock_.update(*events_->rings().front().ring);
  bool told = false;
  for (EventRings& rings : events_->rings()) {
    const std::optional<uint64_t> total = rings.lost_total();
    if (!total && rings.nearly_full)
      report_.notes.emplace_back(
          "a buffer was nearly full when it was last read: records may have been lost after that (Linux 6.0 counts them)");
    const uint64_t lost = total ? rings.losses.on_total(*total) : 0;
    if (lost == 0) continue;
    if (Status status = writer_->add_lost({rings.events.front().id(), lost}, lost_context(rings)); !status) return status;
    report_.lost_records += lost;
    tell_lost(rings);
    told = true;
  }
  return told ? writer_->add_finished_round() : Status();
}

Status Recorder::stop_and_write() {
  events_->disable_trace();
  if (Status status = wait_for_keeping(); !status) return status;
  if (choice_.kcore && capture_->memory() != nullptr) copy_kernel_after();
  events_->disable_all();
  if (Status status = drain(true); !status) return status;
  if (tap_ != nullptr) {
    tap_->stop();
    for (const std::string& trouble : tap_->troubles()) report_.notes.push_back(trouble);
  }
  if (!first_error_.ok()) return first_error_;
  if (Status status = tell_losses(); !status) return status;
  Features features = machine_features();
  features.cmdline = choice_.cmdline;
  programs_->take(features);
  writer_->set_features(features);
  if (tap_ != nullptr && choice_.output != "-") writer_->set_feature_bytes(kFeatureTracingData, announce_tracing_data());
  return writer_->finish();
}

Status Recorder::finish() {
  Status status = stop_and_write();
  if (!status.ok() && commit_ != nullptr) {  // a full disk: what was complete stays, and the file says how long it is
    const Progress done = commit_->read();
    if (writer_->continue_from(done.file_bytes).ok()) (void)writer_->finish();
  }
  backup_.reset();
  // The events of a program end a moment before its status is there.
  constexpr int kPatienceMs = 2000;
  const bool over = !choice_.target.everything && events_->target_ended();
  if (workload_) report_.exit_status = workload_->ended(over ? kPatienceMs : 0);
  if (refused_) give_up_file();
  return status;
}

}  // namespace ptd::live
