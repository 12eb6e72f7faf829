// KernelCapture: see kernel_capture.h.
#include "capture/live/kernel/kernel_capture.h"

#include <poll.h>

#include <algorithm>

#include "capture/live/kernel/bpf_programs.h"
#include "capture/live/kernel/image_code.h"
#include "perfio/format/sample_id.h"
#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

using namespace perfio;

constexpr uint16_t kKsymbolBpf = 1;

}  // namespace

Status KernelCapture::note_loaded_programs() {
  for (const uint32_t id : list_bpf_programs()) {
    const std::optional<BpfProgInfo> program = read_bpf_program(id);
    if (!program || !program_ids_.insert(id).second) continue;
    if (Status status = sink_.add_program(*program); !status) return status;
  }
  return {};
}

void KernelCapture::look() {
  if (modules_ != nullptr && memory_ != nullptr) modules_->look(*memory_);
}

void KernelCapture::wait(uint32_t timeout_ms) const {
  std::vector<pollfd> files;
  for (const int fd : wake_fds()) files.push_back({fd, POLLIN, 0});
  (void)poll(files.data(), files.size(), static_cast<int>(timeout_ms));
}

void KernelCapture::on_record(Bytes record, const EventAttr& attr) {
  const RecordHeader header = read_record_header(record);
  Cursor body(record.subspan(kRecordHeaderBytes));
  if (header.type == kRecordTextPoke) {
    ++counts_.text_pokes;
    TextPokeRecord poke;
    poke.addr = body.u64();
    const uint16_t old_size = body.u16(), new_size = body.u16();
    const Bytes old_bytes = body.take(old_size), new_bytes = body.take(new_size);
    poke.old_bytes.assign(old_bytes.begin(), old_bytes.end());
    poke.new_bytes.assign(new_bytes.begin(), new_bytes.end());
    if (modules_ != nullptr && body.ok()) modules_->on_poke(trailer_of(attr, record).time, poke);
  } else if (header.type == kRecordBpfEvent) {
    constexpr uint16_t kLoad = 1, kUnload = 2;
    const uint16_t type = body.u16();
    (void)body.u16();
    const uint32_t id = body.u32();
    if (type == kLoad && body.ok()) on_bpf_load(id);
    if (type == kUnload) program_ids_.erase(id);  // numbers come round again only after very many, but the set stays small
  } else if (header.type == kRecordKsymbol) {
    on_ksymbol(record, attr);
  }
}

uint32_t KernelCapture::taken_bytes(const Image& image) { return image.program ? image.size_bytes : 1; }

void KernelCapture::on_ksymbol(Bytes record, const EventAttr& attr) {
  constexpr uint64_t kFixedBytes = kRecordHeaderBytes + 16;
  Cursor body(record.subspan(kRecordHeaderBytes));
  Image image;
  image.address = body.u64();
  image.size_bytes = body.u32();
  const uint16_t type = body.u16(), flags = body.u16();
  const uint64_t trailer_size = trailer_bytes(attr);
  if (!body.ok() || record.size() < trailer_size + kFixedBytes || type != kKsymbolBpf) return;
  const std::string name = Cursor::text_of(record.subspan(kFixedBytes, record.size() - trailer_size - kFixedBytes));
  image.when = trailer_of(attr, record);
  image.when.pid = image.when.tid = 0;
  image.program = name.starts_with("bpf_prog_");
  const bool unregister = (flags & 1) != 0;
  // The memory of a program that went is cleared a grace period later only; then others may come to lie there.
  std::erase_if(images_, [&](const Image& known) {
    if (unregister) return known.address == image.address && !known.program;
    return known.address < image.address + taken_bytes(image) && image.address < known.address + taken_bytes(known);
  });
  if (!unregister) images_.push_back(image);
}

void KernelCapture::on_bpf_load(uint32_t id) {
  if (!program_ids_.insert(id).second) return;
  std::optional<BpfProgInfo> program = read_bpf_program(id);
  if (program) {
    ++counts_.bpf_programs;
    addresses_.insert(addresses_.end(), program->jited_ksyms.begin(), program->jited_ksyms.end());
    programs_.push_back(std::move(*program));
  } else {
    ++counts_.bpf_gone;  // unloaded before its load was read
  }
}

Status KernelCapture::read_images() {
  constexpr uint32_t kMaxImageBytes = 32768;  // a record holds less than 65,536 bytes
  constexpr unsigned kMostReads = 1000;
  std::vector<Image> unread;
  for (Image& image : images_) {
    if (image.program && std::find(addresses_.begin(), addresses_.end(), image.address) != addresses_.end()) continue;
    TextPokeRecord poke;
    poke.addr = image.address;
    poke.new_bytes = image_code(memory_->read_mapped({image.address, std::min(image.size_bytes, kMaxImageBytes)}), image.program);
    // The record of a trampoline comes before its code is written.
    if (poke.new_bytes.empty() && !image.program && ++image.reads < kMostReads) unread.push_back(image);
    if (poke.new_bytes.empty()) continue;
    if (Status status = sink_.add_code(poke, image.when); !status) return status;
    ++counts_.images_read;
  }
  images_ = std::move(unread);
  return {};
}

Status KernelCapture::watch_text(std::unique_ptr<TextWatch> text, std::string_view kallsyms) {
  text_ = std::move(text);
  if (text_ == nullptr || memory_ == nullptr) return {};
  if (Status status = text_->begin(*memory_, kallsyms); !status) return status;
  return add_change(text_->writes().first_change());
}

Status KernelCapture::add_change(const CodeChange& change) {
  SampleId when;
  when.pid = when.tid = 0;
  when.time = change.time_ns;
  when.has_time = true;
  when.cpu = change.cpu;
  return sink_.add_code(change.poke, when);
}

Status KernelCapture::take_text() {
  Status status;
  const auto on_unknown = [&](uint64_t since_ns, int32_t cpu) {
    SampleId when;
    when.pid = when.tid = 0;
    when.time = since_ns;
    when.has_time = true;
    when.cpu = cpu;
    if (status.ok() && sink_.add_unknown_code) status = sink_.add_unknown_code(when);
  };
  for (const CodeChange& change : text_->take(*memory_, on_unknown)) {
    if (modules_ != nullptr) modules_->on_poke(change.time_ns, change.poke);
    if (status.ok()) status = add_change(change);
  }
  counts_.text = text_->writes().counts();
  return status;
}

Status KernelCapture::end_round() {
  Status status;
  for (const BpfProgInfo& program : programs_) {
    if (status.ok()) status = sink_.add_program(program);
  }
  if (status.ok() && memory_ != nullptr) status = read_images();
  if (status.ok() && memory_ != nullptr && text_ != nullptr) status = take_text();
  if (memory_ == nullptr) images_.clear();
  programs_.clear();
  addresses_.clear();
  if (modules_ == nullptr) return status;
  for (const CodeChange& change : modules_->take()) {
    const MemoryExtent extent{change.poke.addr, std::max(change.poke.old_bytes.size(), change.poke.new_bytes.size())};
    if (text_ != nullptr && memory_ != nullptr) text_->on_code(*memory_, extent, change.poke.new_bytes);
    if (status.ok()) status = add_change(change);
  }
  counts_.modules = modules_->counts();
  return status;
}

}  // namespace ptd::live
