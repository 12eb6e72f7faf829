// SidebandRecorder: see sideband_recorder.h.
#include "recording/live/sideband_recorder.h"

#include <cpuid.h>
#include <poll.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

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

SampleId trailer_of(const EventAttr& attr, Bytes record) {
  SampleId trailer;
  const uint64_t size = trailer_bytes(attr);
  if (record.size() >= size) parse_trailer(attr, record.last(size), trailer);
  return trailer;
}

RecordContext at_start(uint16_t misc) {
  RecordContext context;
  context.attr_index = kDummyAttr;
  context.misc = misc;
  context.sample_id.pid = context.sample_id.tid = context.sample_id.cpu = 0;
  return context;
}

/// "VENDOR,family,model,stepping", as perf writes it ([SDM] "CPUID", leaves 0 and 1).
std::string cpuid_text() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  char vendor[13] = "";
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return {};
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  if (__get_cpuid(1, &a, &b, &c, &d) == 0) return {};
  unsigned family = (a >> 8) & 15, model = (a >> 4) & 15;
  if (family == 6 || family == 15) model += ((a >> 16) & 15) << 4;
  if (family == 15) family += (a >> 20) & 255;
  return std::string(vendor) + "," + std::to_string(family) + "," + std::to_string(model) + "," + std::to_string(a & 15);
}

/// The model name of /proc/cpuinfo.
std::string cpu_name() {
  const Result<std::string> text = read_text_file("/proc/cpuinfo");
  const size_t at = text ? text->find("model name\t: ") : std::string::npos;
  if (at == std::string::npos) return {};
  const size_t begin = at + std::strlen("model name\t: ");
  return text->substr(begin, text->find('\n', begin) - begin);
}

}  // namespace

Result<std::unique_ptr<SidebandRecorder>> SidebandRecorder::start(const RecorderOptions& options) {
  std::unique_ptr<SidebandRecorder> recorder(new SidebandRecorder(options));
  Result<std::unique_ptr<KernelMemory>> memory = KernelMemory::open();
  if (!memory) return memory.error();
  recorder->memory_ = std::move(*memory);
  recorder->modules_ = ModuleWatch::start(online_cpus());  // it switches static keys: before anybody listens
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
    TextPokeRecord poke;
    poke.addr = body.u64();
    const uint16_t old_size = body.u16(), new_size = body.u16();
    const Bytes old_bytes = body.take(old_size), new_bytes = body.take(new_size);
    poke.old_bytes.assign(old_bytes.begin(), old_bytes.end());
    poke.new_bytes.assign(new_bytes.begin(), new_bytes.end());
    if (modules_ != nullptr && body.ok()) modules_->on_poke(trailer_of(dummy_, record).time, poke);
  } else if (header.type == kRecordBpfEvent) {
    const uint16_t type = body.u16();
    (void)body.u16();
    if (constexpr uint16_t kLoad = 1; type == kLoad) on_bpf_load(body.u32());
  } else if (header.type == kRecordKsymbol) {
    on_ksymbol(record);
  }
  if (Status status = writer_->add_raw(record); !status && first_error_.ok()) first_error_ = status;
}

void SidebandRecorder::on_ksymbol(Bytes record) {
  constexpr uint64_t kFixedBytes = kRecordHeaderBytes + 16;
  Cursor body(record.subspan(kRecordHeaderBytes));
  Image image;
  image.address = body.u64();
  image.size_bytes = body.u32();
  const uint16_t type = body.u16(), flags = body.u16();
  const uint64_t trailer_size = trailer_bytes(dummy_);
  if (!body.ok() || record.size() < trailer_size + kFixedBytes || type != kKsymbolBpf) return;
  const std::string name = Cursor::text_of(record.subspan(kFixedBytes, record.size() - trailer_size - kFixedBytes));
  const SampleId trailer = trailer_of(dummy_, record);
  image.time_ns = trailer.time;
  image.cpu = trailer.cpu;
  image.id = trailer.id;
  image.program = name.starts_with("bpf_prog_");
  const bool unregister = (flags & 1) != 0;
  // The memory of a program that went is cleared a grace period later only.
  std::erase_if(images_, [&](const Image& known) { return known.address == image.address && !(unregister && known.program); });
  if (!unregister) images_.push_back(image);
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

/// Whether one of this round's programs has code at the address.
bool SidebandRecorder::has_bytes(uint64_t bpf_address) const {
  return std::any_of(programs_.begin() + static_cast<ptrdiff_t>(programs_before_), programs_.end(), [&](const BpfProgInfo& program) {
    return std::find(program.jited_ksyms.begin(), program.jited_ksyms.end(), bpf_address) != program.jited_ksyms.end();
  });
}

Status SidebandRecorder::read_images() {
  constexpr uint32_t kMaxImageBytes = 32768;  // a record holds less than 65,536 bytes
  constexpr std::byte kCleared{0xcc};         // what the kernel puts where a program was
  for (const Image& image : images_) {
    if (image.program && has_bytes(image.address)) continue;
    TextPokeRecord poke;
    poke.addr = image.address;
    poke.new_bytes = memory_->read_mapped({image.address, std::min(image.size_bytes, kMaxImageBytes)});
    const bool cleared = std::all_of(poke.new_bytes.begin(), poke.new_bytes.end(), [](std::byte byte) { return byte == kCleared; });
    if (cleared) continue;
    RecordContext context = at_start(kMiscKernel);
    context.sample_id.time = image.time_ns;
    context.sample_id.has_time = true;
    context.sample_id.cpu = image.cpu;
    context.sample_id.id = image.id;
    if (Status status = writer_->add_text_poke(poke, context); !status) return status;
    ++counts_.images_read;
  }
  images_.clear();
  programs_before_ = programs_.size();
  return {};
}

Status SidebandRecorder::write_module_code() {
  if (modules_ == nullptr) return {};
  for (const CodeChange& change : modules_->take()) {
    RecordContext context = at_start(kMiscKernel);
    context.sample_id.time = change.time_ns;
    context.sample_id.has_time = true;
    context.sample_id.cpu = change.cpu;
    context.sample_id.id = dummy_.ids[static_cast<size_t>(change.cpu)];
    if (Status status = writer_->add_text_poke(change.poke, context); !status) return status;
  }
  counts_.modules = modules_->counts();
  return {};
}

void SidebandRecorder::wait(uint32_t timeout_ms) const {
  if (modules_ != nullptr) {
    modules_->wait(timeout_ms);
  } else {
    (void)poll(nullptr, 0, static_cast<int>(timeout_ms));
  }
}

Status SidebandRecorder::drain() {
  if (modules_ != nullptr) modules_->look(*memory_);
  uint64_t records = 0;
  for (CpuRing& ring : rings_) records += ring.ring->drain([this](Bytes record) { on_record(record); });
  if (!first_error_.ok()) return first_error_;
  if (Status status = write_module_code(); !status) return status;
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
  features.cpuid = cpuid_text();
  features.cpu_desc = cpu_name();
  features.cpus_online = features.cpus_available = static_cast<uint32_t>(rings_.size());
  features.bpf_progs = programs_;
  writer_->set_features(features);
  return writer_->finish();
}

}  // namespace ptd::live
