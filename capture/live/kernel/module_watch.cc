// ModuleWatch: see module_watch.h.
#include "capture/live/kernel/module_watch.h"

#include <dirent.h>
#include <poll.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <iterator>

#include "perfio/format/wire.h"

namespace ptd::live {
namespace {

constexpr const char* kEvents = "/sys/kernel/tracing/events/module/";
constexpr uint32_t kModuleRingPages = 8;
constexpr uint64_t kMaxCodeBytes = 4U << 20;    // of one module
constexpr size_t kMaxPokeBytes = 32768;         // a record holds less than 65,536 bytes
constexpr size_t kMaxPokes = 1U << 16;          // of one round
constexpr uint64_t kLoadingNs = 1'000'000'000;  // between the first patch of a module and the word of its load, at most
constexpr size_t kMaxLeft = 256;                // places remembered

uint64_t number_of(std::string_view text, int base) {
  uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

/// Returns the number after `key` in a text, or 0.
uint64_t number_behind(const std::string& text, std::string_view key) {
  const size_t at = text.find(key);
  return at == std::string::npos ? 0 : number_of(std::string_view(text).substr(at + key.size()), 10);
}

struct SectionAddress {
  std::string name;
  uint64_t address = 0;
};

bool is_init(const SectionAddress& section) { return section.name.starts_with(".init"); }

/// /sys/module/NAME/sections, those of init and the others in order of address.
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
  // Init code first: it is there for a moment only.
  std::sort(sections.begin(), sections.end(), [](const SectionAddress& a, const SectionAddress& b) {
    return std::pair(!is_init(a), a.address) < std::pair(!is_init(b), b.address);
  });
  return sections;
}

/// The area of /proc/vmallocinfo that holds an address, without its guard page; empty if nothing is mapped there any more, or addresses are
/// hidden (kptr_restrict 0 does that, 1 shows them to root).
MemoryExtent area_of(uint64_t address) {
  const Result<std::string> text = read_text_file("/proc/vmallocinfo");
  if (!text) return {};
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const size_t dash = line.find('-');
    if (!line.starts_with("0x") || line.find("unpurged") != std::string_view::npos ||  // freed, not yet given to others
        dash == std::string_view::npos || dash + 3 > line.size())
      continue;
    const uint64_t first = number_of(line.substr(2), 16), last = number_of(line.substr(dash + 3), 16);
    if (first <= address && address < last && last - first > kPage) return {first, last - first - kPage};
  }
  return {};
}

bool is_text(const SectionAddress& section) { return section.name.find("text") != std::string::npos; }

/// What the module's own files say of it: of init code only while it runs.
MemoryExtent area_by_name(const std::string& module, const SectionAddress& section) {
  if (is_init(section)) {
    const Result<std::string> size = read_text_file("/sys/module/" + module + "/initsize");
    return {section.address & ~(kPage - 1), size ? number_of(*size, 10) : 0};
  }
  for (const ModuleLine& line : list_modules()) {
    if (line.name == module && section.address - line.extent.address < line.extent.size_bytes) return line.extent;
  }
  return {};
}

MemoryExtent find_area(const std::string& module, const SectionAddress& section) {
  const MemoryExtent area = area_by_name(module, section);
  return area.size_bytes != 0 ? area : area_of(section.address);
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

bool ModuleWatch::open(const char* event, bool load, int32_t cpus) {
  const Result<std::string> id = read_text_file(std::string(kEvents) + event + "/id");
  const Result<std::string> format = read_text_file(std::string(kEvents) + event + "/format");
  if (!id || !format) return false;
  const auto name_offset = static_cast<uint32_t>(number_behind(*format, "__data_loc char[] name;\toffset:"));
  for (int32_t cpu = 0; cpu < cpus; ++cpu) {
    Result<perfio::LiveEvent> opened = perfio::LiveEvent::open_tracepoint(cpu, number_of(*id, 10));
    if (!opened) return false;
    Result<std::unique_ptr<perfio::EventRing>> ring = perfio::EventRing::map(opened->fd(), kModuleRingPages);
    if (!ring) return false;
    rings_.push_back({cpu, load, name_offset, std::move(*opened), std::move(*ring)});
  }
  return true;
}

std::unique_ptr<ModuleWatch> ModuleWatch::start(int32_t cpus) {
  std::unique_ptr<ModuleWatch> watch(new ModuleWatch);
  if (!watch->open("module_load", true, cpus) || !watch->open("module_free", false, cpus)) return nullptr;
  return watch;
}

void ModuleWatch::wait(uint32_t timeout_ms) const {
  std::vector<pollfd> files;
  for (const Ring& ring : rings_) files.push_back({ring.event.fd(), POLLIN, 0});
  (void)poll(files.data(), files.size(), static_cast<int>(timeout_ms));
}

std::vector<int> ModuleWatch::fds() const {
  std::vector<int> fds;
  for (const Ring& ring : rings_) fds.push_back(ring.event.fd());
  return fds;
}

void ModuleWatch::look(const KernelMemory& memory) {
  for (Ring& ring : rings_) ring.ring->drain([&](Bytes record) { on_sample(record, ring, memory); });
}

void ModuleWatch::on_sample(Bytes record, const Ring& ring, const KernelMemory& memory) {
  if (perfio::read_record_header(record).type != perfio::kRecordSample) return;
  perfio::Cursor body(record.subspan(perfio::kRecordHeaderBytes));
  const uint64_t time = body.u64();
  const Bytes raw = body.take(body.u32());
  perfio::Cursor place(raw.subspan(std::min<size_t>(ring.name_offset, raw.size())));
  const uint32_t where = place.u32(), offset = where & 0xffff;
  if (!place.ok() || offset >= raw.size()) return;
  std::string name = perfio::Cursor::text_of(raw.subspan(offset));
  if (ring.load) {
    read_module(name, time, ring.cpu, memory);
  } else {
    gone_.push_back({std::move(name), time, ring.cpu});
  }
}

void ModuleWatch::read_module(const std::string& name, uint64_t time_ns, int32_t cpu, const KernelMemory& memory) {
  if (name.empty() || name.find('/') != std::string::npos) return;
  ++counts_.loaded;
  const std::vector<SectionAddress> sections = sections_of(name);
  std::vector<MemoryExtent> seen;
  bool init_gone = false;
  for (const SectionAddress& section : sections) {
    const auto holds = [&](const MemoryExtent& extent) { return section.address - extent.address < extent.size_bytes; };
    if (!is_text(section) || (init_gone && is_init(section)) || std::any_of(seen.begin(), seen.end(), holds)) continue;
    const MemoryExtent area = find_area(name, section), extent = code_in(area, sections, section.address);
    if (area.size_bytes != 0) seen.push_back(area);
    Code code{name, extent.address, time_ns, cpu, memory.read_mapped(extent)};
    const bool still = find_area(name, section).address == area.address;  // else it was freed meanwhile
    if (area.size_bytes == 0 || code.bytes.empty() || !still) {
      ++counts_.gone;
      init_gone = init_gone || is_init(section);
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

// The kernel patches a module's code (calls of ftrace) before it tells of the load: the code came before that.
void ModuleWatch::go_back(Code& code) const {
  uint64_t free_since = 0;  // its place
  for (const Left& old : left_) {
    const bool same = old.extent.address < code.address + code.bytes.size() && code.address < old.extent.address + old.extent.size_bytes;
    if (same && old.time_ns < code.time_ns) free_since = std::max(free_since, old.time_ns);
  }
  for (const Gone& free : frees_) {  // it may have been here before without having been read
    if (free.module == code.module && free.time_ns < code.time_ns) free_since = std::max(free_since, free.time_ns);
  }
  const uint64_t told = code.time_ns;
  for (const std::vector<Poke>* pokes : {&pokes_, &past_pokes_}) {
    for (auto poke = pokes->rbegin(); poke != pokes->rend(); ++poke) {
      const uint64_t at = poke->poke.addr - code.address;
      if (poke->time_ns > told || poke->time_ns <= free_since + 1 || at >= code.bytes.size()) continue;
      put(code.bytes, code.address, poke->poke.addr, poke->poke.old_bytes);
      code.time_ns = std::min(code.time_ns, poke->time_ns - 1);
    }
  }
}

void ModuleWatch::leave(const Code& code, uint64_t time_ns, int32_t cpu, std::vector<CodeChange>& changes) {
  add_pieces(code.address, code.bytes, false, {time_ns, cpu, {}}, changes);
  if (left_.size() >= kMaxLeft) left_.erase(left_.begin());
  left_.push_back({{code.address, code.bytes.size()}, time_ns});
}

void ModuleWatch::come(Code code, std::vector<CodeChange>& changes) {
  const auto covered = [&](const Code& old) {
    return old.address < code.address + code.bytes.size() && code.address < old.address + old.bytes.size();
  };
  for (auto poke = pokes_.rbegin(); poke != pokes_.rend() && poke->time_ns > code.time_ns; ++poke) {
    put(code.bytes, code.address, poke->poke.addr, poke->poke.old_bytes);
  }
  go_back(code);
  // What lay at its place went without a word: init code.
  for (const Code& old : known_) {
    if (covered(old)) leave(old, code.time_ns - 1, code.cpu, changes);
  }
  std::erase_if(known_, covered);
  add_pieces(code.address, code.bytes, true, {code.time_ns, code.cpu, {}}, changes);
  known_.push_back(std::move(code));
}

std::vector<CodeChange> ModuleWatch::take() {
  const auto earlier = [](const auto& a, const auto& b) { return a.time_ns < b.time_ns; };
  std::stable_sort(pokes_.begin(), pokes_.end(), earlier);
  std::stable_sort(found_.begin(), found_.end(), earlier);
  std::stable_sort(gone_.begin(), gone_.end(), earlier);
  std::vector<CodeChange> changes;
  size_t found = 0, gone = 0;
  // What is known is brought up to the time of each change.
  size_t poked = 0;
  const auto poke_until = [&](uint64_t time_ns) {
    for (; poked < pokes_.size() && pokes_[poked].time_ns <= time_ns; ++poked) {
      for (Code& code : known_) put(code.bytes, code.address, pokes_[poked].poke.addr, pokes_[poked].poke.new_bytes);
    }
  };
  while (found < found_.size() || gone < gone_.size()) {
    if (gone == gone_.size() || (found < found_.size() && found_[found].time_ns < gone_[gone].time_ns)) {
      poke_until(found_[found].time_ns);
      come(std::move(found_[found++]), changes);
      continue;
    }
    const Gone& went = gone_[gone++];
    if (frees_.size() >= kMaxLeft) frees_.erase(frees_.begin());
    frees_.push_back(went);
    poke_until(went.time_ns);
    const auto is_its = [&](const Code& code) { return code.module == went.module; };
    for (const Code& code : known_) {
      if (is_its(code)) leave(code, went.time_ns, went.cpu, changes);
    }
    std::erase_if(known_, is_its);
  }
  poke_until(~uint64_t{0});
  found_.clear();
  gone_.clear();
  past_pokes_.insert(past_pokes_.end(), std::make_move_iterator(pokes_.begin()), std::make_move_iterator(pokes_.end()));
  pokes_.clear();
  const uint64_t newest = past_pokes_.empty() ? 0 : past_pokes_.back().time_ns;
  std::erase_if(past_pokes_, [&](const Poke& poke) { return newest - std::min(newest, poke.time_ns) > kLoadingNs; });
  return changes;
}

}  // namespace ptd::live
