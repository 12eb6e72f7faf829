// TextWatch: see text_watch.h.
#include "capture/live/kernel/text_watch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <string>

#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

constexpr const char* kProbes = "/sys/kernel/tracing/kprobe_events";
constexpr const char* kEvent = "/sys/kernel/tracing/events/ptdecode_text/write/id";
constexpr uint32_t kRingPages = 64;
constexpr unsigned kMostRounds = 100;  // between a write to a module that is loaded and the reading of its code
constexpr uint64_t kPage = 4096, kWordBytes = 4;

bool append_line(const char* path, const std::string& line) {
  const int fd = ::open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (fd < 0) return false;
  const bool done = ::write(fd, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  (void)::close(fd);
  return done;
}

/// The physical address of the kernel's code, which /proc/iomem shows to root; 0 if it does not.
uint64_t physical_code() {
  const Result<std::string> text = read_text_file("/proc/iomem");
  const size_t at = text ? text->find(" : Kernel code") : std::string::npos;
  if (at == std::string::npos) return 0;
  const size_t line = text->rfind('\n', at);
  const size_t begin = text->find_first_not_of(" \n", line == std::string::npos ? 0 : line);
  uint64_t value = 0;
  (void)std::from_chars(text->data() + begin, text->data() + at, value, 16);
  return value;
}

}  // namespace

std::unique_ptr<TextWatch> TextWatch::start(int32_t cpus) {
#if defined(__aarch64__)
  std::string probe = "p:ptdecode_text/write __set_fixmap index=%x0:x64 place=%x1:x64";
  for (size_t i = 0; i < kStackWords; ++i) probe += " s" + std::to_string(i) + "=+" + std::to_string(8 * i) + "($stack):x64";
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
    rings_.push_back({cpu, std::move(*event), std::move(*ring), 0});
  }
  return id != 0;
}

Status TextWatch::begin(const KernelMemory& memory, std::string_view kallsyms) {
  const Result<KernelText> text = find_kernel_text(kallsyms);
  if (!text) return text.error();
  image_ = text->text.address;
  image_bytes_ = text->text.size_bytes;
  image_place_ = physical_code();
  for (Ring& ring : rings_) ring.ring->drain([](Bytes) {});
  std::vector<MemoryExtent> extents = text->others;
  extents.push_back(text->text);
  for (const MemoryExtent& extent : extents) {
    const std::vector<std::byte> bytes = memory.read(extent);
    on_code(extent.address, bytes);
  }
  return {};
}

CodeChange TextWatch::first_change() const {
  CodeChange change{1, 0, {}};
  change.poke.addr = image_;
  const auto extent = code_.upper_bound(image_);
  if (extent != code_.end()) change.poke.old_bytes.assign(extent->second.bytes.begin(), extent->second.bytes.begin() + kWordBytes);
  change.poke.new_bytes = change.poke.old_bytes;
  return change;
}

void TextWatch::on_code(uint64_t address, Bytes code) {
  if (code.empty()) return;
  unplaced_.clear();  // the code was read after they were made
  for (auto it = code_.upper_bound(address); it != code_.end() && it->second.address < address + code.size();) it = code_.erase(it);
  code_[address + code.size()] = {address, {code.begin(), code.end()}};
}

std::vector<int> TextWatch::fds() const {
  std::vector<int> fds;
  for (const Ring& ring : rings_) fds.push_back(ring.event.fd());
  return fds;
}

void TextWatch::on_sample(Bytes record, Ring& ring) {
  constexpr size_t kFieldsAt = 16;  // after the common fields and the address of the probe
  const perfio::RecordHeader header = perfio::read_record_header(record);
  perfio::Cursor body(record.subspan(perfio::kRecordHeaderBytes));
  if (header.type == perfio::kRecordLost) {
    (void)body.u64();
    ring.lost += body.u64();
    return;
  }
  if (header.type != perfio::kRecordSample) return;
  Sample sample;
  sample.time_ns = body.u64();
  sample.cpu = ring.cpu;
  const Bytes raw = body.take(body.u32());
  perfio::Cursor fields(raw.subspan(std::min(kFieldsAt, raw.size())));
  sample.index = fields.u64();
  sample.place = fields.u64();
  for (uint64_t& word : sample.stack) word = fields.u64();
  if (fields.ok()) samples_.push_back(sample);
}

std::byte* TextWatch::known(uint64_t address) {
  const auto extent = code_.upper_bound(address);
  if (extent == code_.end() || address < extent->second.address || extent->first - address < kWordBytes) return nullptr;
  return extent->second.bytes.data() + (address - extent->second.address);
}

/// The place is that of the word itself, not of its page.
uint64_t TextWatch::address_of(const Sample& sample) const {
  if (image_place_ != 0 && sample.place >= image_place_ && sample.place - image_place_ < image_bytes_) return image_ + (sample.place - image_place_);
  for (const uint64_t word : sample.stack) {  // a module: a caller's address of it
    const auto extent = code_.upper_bound(word);
    const bool inside = extent != code_.end() && word >= extent->second.address && extent->second.address != image_;
    if (inside && word % kPage == sample.place % kPage) return word;
  }
  return 0;
}

/// Pairs the samples of each cpu: writes disable interrupts, so that no other comes between.
std::vector<TextWatch::Write> TextWatch::writes() {
  std::vector<Write> writes;
  std::stable_sort(samples_.begin(), samples_.end(), [](const Sample& a, const Sample& b) { return a.time_ns < b.time_ns; });
  for (const Sample& sample : samples_) {
    const auto begun = open_.find(sample.cpu);
    if (sample.place == 0) {
      if (begun == open_.end() || begun->second.index != sample.index) continue;
      Write write{begun->second, sample.time_ns, address_of(begun->second)};
      if (write.address != 0 && write.begin.place - image_place_ < image_bytes_) poke_index_ = sample.index;
      open_.erase(begun);
      if (write.address != 0 || write.begin.index == poke_index_) writes.push_back(write);
    } else {
      open_[sample.cpu] = sample;
    }
  }
  samples_.clear();
  return writes;
}

/// Narrows the places on the stack: a word that was written last is what memory holds.
void TextWatch::calibrate(const std::vector<Write>& writes, const KernelMemory& memory) {
  std::set<uint64_t> seen;
  for (auto write = writes.rbegin(); write != writes.rend(); ++write) {
    if (write->address == 0 || !seen.insert(write->address).second) continue;
    const std::vector<std::byte> now = memory.read({write->address, kWordBytes});
    uint32_t fits = 0, word = 0;
    if (now.size() != kWordBytes) continue;
    std::memcpy(&word, now.data(), sizeof(word));
    for (uint32_t i = 0; i < 2 * kStackWords; ++i) {
      if (static_cast<uint32_t>(write->begin.stack[i / 2] >> (32 * (i % 2))) == word) fits |= 1U << i;
    }
    if ((places_ & fits) == 0) continue;  // it was written again since
    places_ &= fits;
    ++confirmed_;
  }
}

std::vector<CodeChange> TextWatch::take(const KernelMemory& memory, const std::function<void(uint64_t, int32_t)>& on_unknown) {
  std::vector<CodeChange> changes;
  for (Ring& ring : rings_) ring.ring->drain([&](Bytes record) { on_sample(record, ring); });
  const std::vector<Write> all = writes();
  if (!all.empty()) calibrate(all, memory);
  for (Unplaced& write : unplaced_) {
    if (++write.rounds < kMostRounds) continue;
    ++counts_.unknown;
    on_unknown(write.time_ns, write.cpu);
  }
  std::erase_if(unplaced_, [](const Unplaced& write) { return write.rounds >= kMostRounds; });
  for (const Write& write : all) {
    if (write.address == 0) {
      unplaced_.push_back({write.begin.time_ns, write.begin.cpu, 0});
      continue;
    }
    std::byte* old = known(write.address);
    if (old == nullptr || !has_word()) {
      ++counts_.unknown;
      on_unknown(write.begin.time_ns, write.begin.cpu);
      continue;
    }
    uint32_t place = 0;
    while ((places_ >> place & 1) == 0) ++place;
    const auto word = static_cast<uint32_t>(write.begin.stack[place / 2] >> (32 * (place % 2)));
    CodeChange change{write.begin.time_ns, write.begin.cpu, {}};
    change.poke.addr = write.address;
    change.poke.old_bytes.assign(old, old + kWordBytes);
    change.poke.new_bytes.resize(kWordBytes);
    std::memcpy(change.poke.new_bytes.data(), &word, kWordBytes);
    std::memcpy(old, &word, kWordBytes);
    changes.push_back(change);
    change.time_ns = write.end_ns;
    change.poke.old_bytes = change.poke.new_bytes;
    changes.push_back(change);
    ++counts_.changes;
  }
  for (Ring& ring : rings_) {
    if (ring.lost == 0) continue;
    counts_.unknown += ring.lost;
    ring.lost = 0;
    on_unknown(all.empty() ? 0 : all.front().begin.time_ns, ring.cpu);
  }
  return changes;
}

}  // namespace ptd::live
