// SidebandRecorder: see sideband_recorder.h.
#include "recording/live/sideband_recorder.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "perfio/auxtrace_pt.h"
#include "perfio/sample_id.h"
#include "perfio/wire.h"
#include "recording/live/bpf_programs.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr uint32_t kTraceAttr = 0, kDummyAttr = 1;
constexpr uint16_t kKsymbolBpf = 1;
constexpr uint64_t kTraceIds = 1000;  // ids of the trace's events, which this recorder does not open

int32_t online_cpus() { return static_cast<int32_t>(sysconf(_SC_NPROCESSORS_ONLN)); }

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
  recorder->memory_ = std::move(*memory);
  if (Status status = recorder->open_events(); !status) return status.error();
  const Result<std::string> kallsyms = read_text_file("/proc/kallsyms");
  if (!kallsyms) return kallsyms.error();
  if (Status status = recorder->write_start(*kallsyms); !status) return status.error();
  if (Status status = copy_kernel(*recorder->memory_, *kallsyms, options.path + "/kcore_dir"); !status) return status.error();
  return recorder;
}

SidebandRecorder::~SidebandRecorder() = default;

Status SidebandRecorder::open_events() {
  dummy_ = sideband_attr();
  trace_ = trace_attr(options_.trace_type, options_.trace_config);
  for (int32_t cpu = 0; cpu < online_cpus(); ++cpu) {
    Result<LiveEvent> event = LiveEvent::open_sideband(cpu);
    if (!event) return event.error();
    Result<std::unique_ptr<EventRing>> ring = EventRing::map(event->fd(), options_.ring_pages);
    if (!ring) return ring.error();
    dummy_.ids.push_back(event->id());
    trace_.ids.push_back(kTraceIds + static_cast<uint64_t>(cpu));
    rings_.push_back({cpu, std::move(*event), std::move(*ring)});
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
  if (Status status = write_kernel_maps(kallsyms); !status) return status;
  if (Status status = write_tasks(); !status) return status;
  if (Status status = write_bpf_at_start(); !status) return status;
  return writer_->add_finished_init();
}

Status SidebandRecorder::write_kernel_maps(const std::string& kallsyms) {
  const Result<KernelText> text = find_kernel_text(kallsyms);
  if (!text) return text.error();
  MmapRecord map;
  map.pid = -1;
  map.tid = 0;
  map.kernel = true;
  map.addr = map.file_offset_bytes = text->text.address;
  map.size_bytes = text->text.size_bytes;
  map.path = "[kernel.kallsyms]_text";
  if (Status status = writer_->add_mmap(map, at_start(kMiscKernel)); !status) return status;
  for (const ModuleLine& module : list_modules()) {
    map.addr = module.extent.address;
    map.size_bytes = module.extent.size_bytes;
    map.file_offset_bytes = 0;
    map.path = "[" + module.name + "]";
    if (Status status = writer_->add_mmap(map, at_start(kMiscKernel)); !status) return status;
  }
  return {};
}

void SidebandRecorder::on_record(Bytes record) {
  const RecordHeader header = read_record_header(record);
  ++counts_.records;
  Cursor body(record.subspan(kRecordHeaderBytes));
  if (header.type == kRecordLost) {
    (void)body.u64();
    counts_.lost += body.u64();
  } else if (header.type == kRecordTextPoke) {
    ++counts_.text_pokes;
  } else if (header.type == kRecordBpfEvent) {
    const uint16_t type = body.u16();
    (void)body.u16();
    if (constexpr uint16_t kLoad = 1; type == kLoad) on_bpf_load(body.u32());
  } else if (header.type == kRecordKsymbol) {
    Image image;
    image.address = body.u64();
    image.size_bytes = body.u32();
    const uint16_t type = body.u16(), flags = body.u16();
    SampleId trailer;
    const uint64_t trailer_size = trailer_bytes(dummy_);
    if (record.size() < trailer_size + kRecordHeaderBytes + 16) return;
    parse_trailer(dummy_, record.last(trailer_size), trailer);
    const std::string name =
        Cursor::text_of(record.subspan(kRecordHeaderBytes + 16, record.size() - trailer_size - kRecordHeaderBytes - 16));
    image.time_ns = trailer.time;
    image.cpu = trailer.cpu;
    image.id = trailer.id;
    std::erase_if(images_, [&](const Image& known) { return known.address == image.address; });
    if (type == kKsymbolBpf && (flags & 1) == 0 && !name.starts_with("bpf_prog_")) images_.push_back(image);
  }
  if (Status status = writer_->add_raw(record); !status && first_error_.ok()) first_error_ = status;
}

void SidebandRecorder::on_bpf_load(uint32_t id) {
  if (!program_ids_.insert(id).second) return;
  std::optional<BpfProgInfo> program = read_bpf_program(id);
  if (program) {
    ++counts_.bpf_programs;
    programs_.push_back(std::move(*program));
  } else {
    ++counts_.bpf_gone;  // unloaded before its load was read
  }
}

Status SidebandRecorder::read_images() {
  constexpr uint32_t kMaxImageBytes = 32768;  // a record holds less than 65,536 bytes
  for (const Image& image : images_) {
    TextPokeRecord poke;
    poke.addr = image.address;
    poke.new_bytes = memory_->read({image.address, std::min(image.size_bytes, kMaxImageBytes)});
    if (poke.new_bytes.empty()) continue;
    RecordContext context = at_start(kMiscKernel);
    context.sample_id.time = image.time_ns;
    context.sample_id.has_time = true;
    context.sample_id.cpu = image.cpu;
    context.sample_id.id = image.id;
    if (Status status = writer_->add_text_poke(poke, context); !status) return status;
    ++counts_.images_read;
  }
  images_.clear();
  return {};
}

Status SidebandRecorder::drain() {
  uint64_t records = 0;
  for (CpuRing& ring : rings_) records += ring.ring->drain([this](Bytes record) { on_record(record); });
  if (!first_error_.ok()) return first_error_;
  if (records == 0) return {};
  if (Status status = read_images(); !status) return status;
  return writer_->add_finished_round();
}

Status SidebandRecorder::stop() {
  for (CpuRing& ring : rings_) ring.event.disable();
  if (Status status = drain(); !status) return status;
  Features features;
  utsname system{};
  if (uname(&system) == 0) {
    features.hostname = system.nodename;
    features.os_release = system.release;
    features.arch = system.machine;
  }
  features.cpus_online = features.cpus_available = static_cast<uint32_t>(rings_.size());
  features.bpf_progs = programs_;
  writer_->set_features(features);
  return writer_->finish();
}

}  // namespace ptd::live
