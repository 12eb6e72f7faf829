// SidebandRecorder: see sideband_recorder.h.
#include "capture/live/sideband_recorder.h"

#include "capture/live/kernel/bpf_programs.h"
#include "capture/live/kernel/start_scan.h"
#include "perfio/format/auxtrace_pt.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr uint32_t kDummyAttr = 1;    // 0 is the trace's
constexpr uint64_t kTraceIds = 1000;  // ids of the trace's events, which this recorder does not open

RecordContext at_start(uint16_t misc) {
  RecordContext context;
  context.attr_index = kDummyAttr;
  context.misc = misc;
  context.sample_id.pid = context.sample_id.tid = context.sample_id.cpu = 0;
  return context;
}

}  // namespace

Result<std::unique_ptr<SidebandRecorder>> SidebandRecorder::start(const RecorderOptions& options) {
  std::unique_ptr<SidebandRecorder> recorder(new SidebandRecorder(options));
  Result<std::unique_ptr<KernelMemory>> memory = KernelMemory::open();
  if (!memory) return memory.error();
  // The watch of modules switches static keys: before anybody listens.
  std::unique_ptr<ModuleWatch> modules = ModuleWatch::start(static_cast<int32_t>(online_cpus().size()));
  std::unique_ptr<TextWatch> text = options.watch_text ? TextWatch::start(static_cast<int32_t>(online_cpus().size())) : nullptr;
  recorder->capture_ = std::make_unique<KernelCapture>(std::move(*memory), std::move(modules), recorder->capture_sink());
  if (Status status = recorder->open_events(); !status) return status.error();
  const Result<std::string> kallsyms = read_text_file("/proc/kallsyms");
  if (!kallsyms) return kallsyms.error();
  if (Status status = recorder->write_start(*kallsyms); !status) return status.error();
  if (Status status = recorder->capture_->watch_text(std::move(text), *kallsyms); !status) return status.error();
  if (Status status = copy_kernel(*recorder->capture_->memory(), *kallsyms, options.path + "/kcore_dir"); !status) return status.error();
  return recorder;
}

SidebandRecorder::~SidebandRecorder() = default;

Status SidebandRecorder::open_events() {
  dummy_ = sideband_attr();
  trace_ = trace_attr(options_.trace_type, options_.trace_config);
  for (const int32_t cpu : online_cpus()) {
    Result<LiveEvent> event = LiveEvent::open_sideband(cpu);
    if (!event) return event.error();
    Result<std::unique_ptr<EventRing>> ring = EventRing::map(event->fd(), options_.ring_pages);
    if (!ring) return ring.error();
    dummy_.ids.push_back(event->id());
    trace_.ids.push_back(kTraceIds + static_cast<uint64_t>(cpu));
    rings_.push_back({cpu, std::move(*event), std::move(*ring), {}});
  }
  return {};
}

Status SidebandRecorder::write_start(const std::string& kallsyms) {
  WriterOptions options;
  options.attrs = {trace_, dummy_};
  options.directory = true;
  Result<std::unique_ptr<PerfWriter>> writer = PerfWriter::create(options_.path, options);
  if (!writer) return writer.error();
  writer_ = std::move(*writer);
  std::vector<IdIndexEntry> index;
  for (size_t i = 0; i < rings_.size(); ++i) index.push_back({trace_.ids[i], i, rings_[i].cpu, -1});
  for (size_t i = 0; i < rings_.size(); ++i) index.push_back({dummy_.ids[i], i, rings_[i].cpu, -1});
  if (Status status = writer_->add_id_index(index); !status) return status;
  if (const std::optional<TimeConvRecord> clock = rings_.front().ring->time_conversion()) {
    if (Status status = writer_->add_time_conv(*clock); !status) return status;
  }
  const auto add_map = [this](const MmapRecord& map) { return writer_->add_mmap(map, at_start(kMiscKernel)); };
  if (Status status = scan_kernel_maps(kallsyms, add_map); !status) return status;
  const auto add = [this](const Payload& payload, RecordContext context) {
    context.attr_index = kDummyAttr;
    return writer_->add(payload, context);
  };
  for (const int32_t pid : list_processes()) {
    if (Status status = scan_process(pid, add); !status) return status;
  }
  if (Status status = capture_->note_loaded_programs(); !status) return status;
  for (const BpfProgInfo& program : programs_) {
    if (Status status = tell_program(program, add); !status) return status;
  }
  return writer_->add_finished_init();
}

void SidebandRecorder::on_record(RingLosses& losses, Bytes record) {
  const RecordHeader header = read_record_header(record);
  ++counts_.records;
  if (header.type == kRecordLost) {
    Cursor body(record.subspan(kRecordHeaderBytes));
    (void)body.u64();
    counts_.lost += losses.on_record(body.u64());
  }
  capture_->on_record(record, dummy_);
  if (Status status = writer_->add_raw(record); !status && first_error_.ok()) first_error_ = status;
}

CaptureSink SidebandRecorder::capture_sink() {
  CaptureSink sink;
  sink.add_code = [this](const TextPokeRecord& poke, const SampleId& when) {
    RecordContext context;
    context.attr_index = kDummyAttr;
    context.misc = kMiscKernel;
    context.sample_id = when;
    if (when.cpu >= 0 && static_cast<size_t>(when.cpu) < dummy_.ids.size())
      context.sample_id.id = dummy_.ids[static_cast<size_t>(when.cpu)];
    return writer_->add_text_poke(poke, context);
  };
  sink.add_unknown_code = [this](const SampleId& when) {
    RecordContext context;
    context.attr_index = kDummyAttr;
    context.sample_id = when;
    context.sample_id.id = dummy_.ids.front();
    return writer_->add_lost({dummy_.ids.front(), 1}, context);
  };
  sink.add_program = [this](const BpfProgInfo& program) {
    programs_.push_back(program);
    return Status();
  };
  return sink;
}

void SidebandRecorder::wait(uint32_t timeout_ms) const { capture_->wait(timeout_ms); }

Status SidebandRecorder::drain() {
  capture_->look();
  uint64_t records = 0;
  for (CpuRing& ring : rings_) records += ring.ring->drain([&](Bytes record) { on_record(ring.losses, record); });
  if (!first_error_.ok()) return first_error_;
  if (Status status = capture_->end_round(); !status) return status;
  static_cast<CaptureCounts&>(counts_) = capture_->counts();
  return records == 0 ? Status() : writer_->add_finished_round();
}

/// What the rings lost after their last record: LOST records that the kernel had no opportunity to write.
Status SidebandRecorder::tell_losses() {
  LiveClock clock;
  clock.update(*rings_.front().ring);
  bool told = false;
  for (CpuRing& ring : rings_) {
    const std::optional<uint64_t> total = ring.event.lost();
    const uint64_t lost = total ? ring.losses.on_total(*total) : 0;
    if (lost == 0) continue;
    RecordContext context;
    context.attr_index = kDummyAttr;
    context.sample_id.cpu = ring.cpu;
    context.sample_id.id = ring.event.id();
    context.sample_id.time = clock.now_ns();
    if (Status status = writer_->add_lost({ring.event.id(), lost}, context); !status) return status;
    counts_.lost += lost;
    told = true;
  }
  return told ? writer_->add_finished_round() : Status();
}

Status SidebandRecorder::stop() {
  for (CpuRing& ring : rings_) ring.event.disable();
  if (Status status = drain(); !status) return status;
  if (Status status = tell_losses(); !status) return status;
  Features features = machine_features();
  features.cpus_online = features.cpus_available = static_cast<uint32_t>(rings_.size());
  features.bpf_progs = programs_;
  writer_->set_features(features);
  return writer_->finish();
}

}  // namespace ptd::live
