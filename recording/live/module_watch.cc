// ModuleWatch: see module_watch.h.
#include "recording/live/module_watch.h"

#include <dirent.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "perfio/wire.h"

namespace ptd::live {
namespace {

constexpr const char* kEvent = "/sys/kernel/tracing/events/module/module_load/";
constexpr uint32_t kRingPages = 8;
constexpr uint64_t kPage = 4096;
constexpr uint64_t kMaxCodeBytes = 4U << 20;  // of one module
constexpr size_t kMaxPokeBytes = 32768;       // a record holds less than 65,536 bytes
constexpr size_t kMaxPokes = 1U << 16;        // of one round

uint64_t number_of(std::string_view text, int base) {
  uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

/// The number behind `key` in a text, or 0.
uint64_t number_behind(const std::string& text, std::string_view key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : number_of(std::string_view(text).substr(at + key.size()), 10);
}

struct SectionAddress {
  std::string name;
  uint64_t address = 0;
};

/// /sys/module/NAME/sections, in order of address.
std::vector<SectionAddress> sections_of(const std::string& module) {
  std::vector<SectionAddress> sections;
  const std::string folder = "/sys/module/" + module + "/sections/";
  DIR* dir = opendir(folder.c_str());
  if (dir == nullptr) return sections;
  while (const dirent* entry = readdir(dir)) {
    if (entry->d_name[0] == '.' && (entry->d_name[1] == 0 || std::strcmp(entry->d_name, "..") == 0)) continue;
    const Result<std::string> text = read_text_file(folder + entry->d_name);
    const uint64_t address = text && text->starts_with("0x") ? number_of(std::string_view(*text).substr(2), 16) : 0;
    if (address != 0) sections.push_back({entry->d_name, address});
  }
  closedir(dir);
  std::sort(sections.begin(), sections.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return sections;
}

/// The area of /proc/vmallocinfo that holds an address, without its guard page; empty if nothing is mapped there any more.
MemoryExtent area_of(uint64_t address) {
  const Result<std::string> text = read_text_file("/proc/vmallocinfo");
  if (!text) return {};
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t dash = line.find('-');
    if (!line.starts_with("0x") || dash == std::string_view::npos || dash + 3 > line.size()) continue;
    const uint64_t first = number_of(line.substr(2), 16), last = number_of(line.substr(dash + 3), 16);
    if (first <= address && address < last && last - first > kPage) return {first, last - first - kPage};
  }
  return {};
}

bool is_text(const SectionAddress& section) { return section.name.find("text") != std::string::npos; }

/// The same without vmallocinfo (kptr_restrict 0 hides its addresses): what the module's own files say, while it runs its init function.
MemoryExtent area_by_name(const std::string& module, const SectionAddress& section) {
  if (section.name.starts_with(".init")) {
    const Result<std::string> size = read_text_file("/sys/module/" + module + "/initsize");
    return {section.address & ~(kPage - 1), size ? number_of(*size, 10) : 0};
  }
  for (const ModuleLine& line : list_modules()) {
    if (line.name == module && section.address - line.extent.address < line.extent.size_bytes) return line.extent;
  }
  return {};
}

MemoryExtent find_area(const std::string& module, const SectionAddress& section) {
  const MemoryExtent area = area_of(section.address);
  return area.size_bytes != 0 ? area : area_by_name(module, section);
}

/// From the area's begin to its first section that is no code. `text_at` is the address of a section of code in it.
MemoryExtent code_in(MemoryExtent area, const std::vector<SectionAddress>& sections, uint64_t text_at) {
  for (const SectionAddress& section : sections) {
    if (section.address > text_at && section.address - area.address < area.size_bytes && !is_text(section)) {
      area.size_bytes = section.address - area.address;
      break;
    }
  }
  area.size_bytes = std::min(area.size_bytes, kMaxCodeBytes);
  return area;
}

}  // namespace

std::unique_ptr<ModuleWatch> ModuleWatch::start(int32_t cpus) {
  const Result<std::string> id = read_text_file(std::string(kEvent) + "id");
  const Result<std::string> format = read_text_file(std::string(kEvent) + "format");
  if (!id || !format) return nullptr;
  std::unique_ptr<ModuleWatch> watch(new ModuleWatch);
  watch->name_offset_ = static_cast<uint32_t>(number_behind(*format, "__data_loc char[] name;\toffset:"));
  for (int32_t cpu = 0; cpu < cpus; ++cpu) {
    Result<perfio::LiveEvent> event = perfio::LiveEvent::open_tracepoint(cpu, number_of(*id, 10));
    if (!event) return nullptr;
    Result<std::unique_ptr<perfio::EventRing>> ring = perfio::EventRing::map(event->fd(), kRingPages);
    if (!ring) return nullptr;
    watch->rings_.push_back({cpu, std::move(*event), std::move(*ring)});
  }
  return watch;
}

void ModuleWatch::look(const KernelMemory& memory) {
  for (Ring& ring : rings_) ring.ring->drain([&](Bytes record) { on_sample(record, ring.cpu, memory); });
}

void ModuleWatch::on_sample(Bytes record, int32_t cpu, const KernelMemory& memory) {
  if (perfio::read_record_header(record).type != perfio::kRecordSample) return;
  perfio::Cursor body(record.subspan(perfio::kRecordHeaderBytes));
  const uint64_t time = body.u64();
  const Bytes raw = body.take(body.u32());
  perfio::Cursor place(raw.subspan(std::min<size_t>(name_offset_, raw.size())));
  const uint32_t where = place.u32(), offset = where & 0xffff;
  if (!place.ok() || offset >= raw.size()) return;
  read_module(perfio::Cursor::text_of(raw.subspan(offset)), time, cpu, memory);
}

void ModuleWatch::read_module(const std::string& name, uint64_t time_ns, int32_t cpu, const KernelMemory& memory) {
  if (name.empty() || name.find('/') != std::string::npos) return;
  ++counts_.loaded;
  const std::vector<SectionAddress> sections = sections_of(name);
  uint64_t read_to = 0;
  for (const SectionAddress& section : sections) {
    if (!is_text(section) || section.address < read_to) continue;
    const MemoryExtent area = find_area(name, section);
    if (area.size_bytes == 0) {
      counts_.gone += section.address >= read_to ? 1 : 0;
      read_to = section.address + 1;
      continue;
    }
    const MemoryExtent extent = code_in(area, sections, section.address);
    Code code{extent.address, time_ns, cpu, memory.read(extent)};
    read_to = area.address + area.size_bytes;
    if (find_area(name, section).address != area.address || code.bytes.empty()) {  // freed meanwhile
      ++counts_.gone;
      continue;
    }
    ++counts_.read;
    found_.push_back(std::move(code));
  }
}

void ModuleWatch::on_poke(uint64_t time_ns, const perfio::TextPokeRecord& poke) {
  if (poke.old_bytes.size() == poke.new_bytes.size() && pokes_.size() < kMaxPokes) pokes_.push_back({time_ns, poke});
}

namespace {

/// Puts bytes into code, if they lie in it as a whole.
void put(std::vector<std::byte>& code, uint64_t code_address, uint64_t address, const std::vector<std::byte>& bytes) {
  if (address < code_address || address - code_address > code.size() || bytes.size() > code.size() - (address - code_address)) return;
  std::copy(bytes.begin(), bytes.end(), code.begin() + static_cast<ptrdiff_t>(address - code_address));
}

void add_pieces(uint64_t address, const std::vector<std::byte>& bytes, bool came, CodeChange change, std::vector<CodeChange>& changes) {
  for (size_t at = 0; at < bytes.size(); at += kMaxPokeBytes) {
    const auto begin = bytes.begin() + static_cast<ptrdiff_t>(at);
    const std::vector<std::byte> piece(begin, begin + static_cast<ptrdiff_t>(std::min(kMaxPokeBytes, bytes.size() - at)));
    change.poke.addr = address + at;
    change.poke.old_bytes = came ? std::vector<std::byte>() : piece;
    change.poke.new_bytes = came ? piece : std::vector<std::byte>();
    changes.push_back(change);
  }
}

}  // namespace

/// What lies at the place of `by` is gone by its time.
void ModuleWatch::retire(const Code& by, std::vector<CodeChange>& changes) {
  const auto gone = [&](const Code& code) {
    return code.address < by.address + by.bytes.size() && by.address < code.address + code.bytes.size();
  };
  for (const Code& code : known_) {
    if (gone(code)) add_pieces(code.address, code.bytes, false, {by.time_ns - 1, by.cpu, {}}, changes);
  }
  std::erase_if(known_, gone);
}

std::vector<CodeChange> ModuleWatch::take() {
  std::stable_sort(pokes_.begin(), pokes_.end(), [](const Poke& a, const Poke& b) { return a.time_ns < b.time_ns; });
  std::vector<CodeChange> changes;
  for (Code& code : known_) {
    for (const Poke& poke : pokes_) put(code.bytes, code.address, poke.poke.addr, poke.poke.new_bytes);
  }
  for (Code& code : found_) {
    retire(code, changes);
    for (auto poke = pokes_.rbegin(); poke != pokes_.rend() && poke->time_ns > code.time_ns; ++poke) {
      put(code.bytes, code.address, poke->poke.addr, poke->poke.old_bytes);
    }
    add_pieces(code.address, code.bytes, true, {code.time_ns, code.cpu, {}}, changes);
    for (const Poke& poke : pokes_) {
      if (poke.time_ns > code.time_ns) put(code.bytes, code.address, poke.poke.addr, poke.poke.new_bytes);
    }
    known_.push_back(std::move(code));
  }
  found_.clear();
  pokes_.clear();
  return changes;
}

}  // namespace ptd::live
