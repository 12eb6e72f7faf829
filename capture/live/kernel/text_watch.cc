// TextWatch: see text_watch.h.
#include "capture/live/kernel/text_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>
#include <string>

namespace ptd::live {
namespace {

constexpr const char* kProbes = "/sys/kernel/tracing/kprobe_events";
constexpr const char* kEvent = "/sys/kernel/tracing/events/ptdecode_text/write/id";
constexpr uint32_t kRingPages = 64;

bool append_line(const char* path, const std::string& line) {
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  (void)::close(fd);
  return done;
}

/// The physical address of the kernel's text at `address`; 0 if the kernel does not tell. [Linux] arch/arm64/kernel/vmcore_info.c:
/// kimage_voffset is the difference. /proc/iomem, the other source, begins the code at _stext or at _text, depending on the kernel.
uint64_t physical_text(const KernelMemory& memory, uint64_t address) {
  const std::optional<uint64_t> offset = memory.number("kimage_voffset");
  return offset ? address - *offset : 0;
}

}  // namespace

std::unique_ptr<TextWatch> TextWatch::start(int32_t cpus) {
#if defined(__aarch64__)
  std::string probe = "p:ptdecode_text/write __set_fixmap index=%x0:x64 place=%x1:x64";
  for (size_t i = 0; i < TextWrites::kStackWords; ++i) probe += " s" + std::to_string(i) + "=+" + std::to_string(8 * i) + "($stack):x64";
  if (!append_line(kProbes, probe)) return nullptr;
  std::unique_ptr<TextWatch> watch(new TextWatch);
  return watch->open(cpus) ? std::move(watch) : nullptr;
#else
  (void)cpus;
  return nullptr;
#endif
}

TextWatch::~TextWatch() {
  rings_.clear();
  (void)append_line(kProbes, "-:ptdecode_text/write");
}

bool TextWatch::open(int32_t cpus) {
  const Result<std::string> text = read_text_file(kEvent);
  uint64_t id = 0;
  if (text) (void)std::from_chars(text->data(), text->data() + text->size(), id);
  for (int32_t cpu = 0; cpu < cpus && id != 0; ++cpu) {
    Result<perfio::LiveEvent> event = perfio::LiveEvent::open_tracepoint(cpu, id);
    if (!event) return false;
    Result<std::unique_ptr<perfio::EventRing>> ring = perfio::EventRing::map(event->fd(), kRingPages);
    if (!ring) return false;
    rings_.push_back({cpu, std::move(*event), std::move(*ring)});
  }
  return id != 0;
}

Status TextWatch::begin(const KernelMemory& memory, std::string_view kallsyms) {
  const Result<KernelText> text = find_kernel_text(kallsyms);
  if (!text) return text.error();
  writes_ = TextWrites(text->text, physical_text(memory, text->text.address));
  for (Ring& ring : rings_) ring.ring->drain([](Bytes) {});
  std::vector<MemoryExtent> extents = text->others;
  extents.push_back(text->text);
  for (const MemoryExtent& extent : extents) {
    const std::vector<std::byte> bytes = memory.read(extent);
    writes_.on_code(extent.address, bytes);
  }
  return {};
}

void TextWatch::on_code(const KernelMemory& memory, MemoryExtent extent, Bytes code) {
  if (code.empty()) return writes_.on_free(extent);
  const std::vector<std::byte> now = memory.read_mapped(extent);  // none if it was freed again
  writes_.on_code(extent.address, now.empty() ? code : Bytes(now));
}

std::vector<int> TextWatch::fds() const {
  std::vector<int> fds;
  for (const Ring& ring : rings_) fds.push_back(ring.event.fd());
  return fds;
}

std::vector<CodeChange> TextWatch::take(const KernelMemory& memory, const TextWrites::OnUnknown& on_unknown) {
  for (Ring& ring : rings_) ring.ring->drain([&](Bytes record) { writes_.on_record(record, ring.cpu); });
  return writes_.take([&](MemoryExtent extent) { return memory.read(extent); }, on_unknown);
}

}  // namespace ptd::live
