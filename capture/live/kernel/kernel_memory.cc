// KernelMemory: see kernel_memory.h.
#include "capture/live/kernel/kernel_memory.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <map>
#include <sstream>

#include "image/base/system_error.h"
#include "image/source/elf_header.h"
#include "perfio/output_file.h"

namespace ptd::live {
namespace {

constexpr uint64_t kKernelHalf = 1ULL << 63;
#if defined(__aarch64__)
constexpr uint16_t kMachine = EM_AARCH64;
constexpr uint64_t kMappedBegin = 0xffff000000000000, kMappedEnd = 0xffff800000000000;  // of the linear map, 48-bit addresses
#else
constexpr uint16_t kMachine = EM_X86_64;
constexpr uint64_t kMappedBegin = 0xffffffff80000000, kMappedEnd = ~uint64_t{0};  // of the kernel's text mapping
#endif

/// The pages that a list of extents touches, as extents that do not touch each other.
std::vector<MemoryExtent> whole_pages(std::vector<MemoryExtent> extents) {
  std::sort(extents.begin(), extents.end(), [](const MemoryExtent& a, const MemoryExtent& b) { return a.address < b.address; });
  std::vector<MemoryExtent> out;
  for (const MemoryExtent& extent : extents) {
    const uint64_t first = extent.address & ~(kPage - 1);
    const uint64_t last = (extent.address + extent.size_bytes + kPage - 1) & ~(kPage - 1);
    if (!out.empty() && first <= out.back().address + out.back().size_bytes) {
      out.back().size_bytes = std::max(out.back().size_bytes, last - out.back().address);
    } else {
      out.push_back({first, last - first});
    }
  }
  return out;
}

Status save_text(const std::string& path, const std::string& text) {
  Result<std::unique_ptr<perfio::OutputFile>> file = perfio::OutputFile::create(path);
  if (!file) return file.error();
  if (Status status = (*file)->append(std::as_bytes(std::span(text))); !status) return status;
  return (*file)->close();
}

template <class T>
Bytes bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

Status save_core(const KernelMemory& memory, const std::vector<MemoryExtent>& extents, const std::string& path) {
  Result<std::unique_ptr<perfio::OutputFile>> file = perfio::OutputFile::create(path);
  if (!file) return file.error();
  perfio::OutputFile& out = **file;
  if (Status status = out.append(bytes_of(elf_header(ET_CORE, kMachine, extents.size()))); !status) return status;
  const uint64_t headers = sizeof(Elf64_Ehdr) + extents.size() * sizeof(Elf64_Phdr);
  uint64_t offset = (headers + kPage - 1) & ~(kPage - 1);
  std::vector<std::byte> padding(offset - headers);
  for (const MemoryExtent& extent : extents) {
    Elf64_Phdr segment{};
    segment.p_type = PT_LOAD;
    segment.p_flags = PF_R | PF_W | PF_X;
    segment.p_offset = offset;
    segment.p_vaddr = extent.address;
    segment.p_filesz = segment.p_memsz = extent.size_bytes;
    segment.p_align = kPage;
    if (Status status = out.append(bytes_of(segment)); !status) return status;
    offset += extent.size_bytes;
  }
  if (Status status = out.append(padding); !status) return status;
  for (const MemoryExtent& extent : extents) {
    std::vector<std::byte> bytes = memory.read(extent);
    bytes.resize(extent.size_bytes);
    if (Status status = out.append(bytes); !status) return status;
  }
  return out.close();
}

}  // namespace

Result<std::unique_ptr<KernelMemory>> KernelMemory::open() {
  const int fd = ::open("/proc/kcore", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error("/proc/kcore");
  std::unique_ptr<KernelMemory> memory(new KernelMemory(fd));
  if (Status status = memory->read_segments(); !status) return status.error();
  return memory;
}

KernelMemory::~KernelMemory() { close(fd_); }

Status KernelMemory::read_segments() {
  segments_.clear();
  Elf64_Ehdr header{};
  const Error bad{ErrorCode::unknown_format, "/proc/kcore is not an ELF core of 64 bits", 0};
  if (pread(fd_, &header, sizeof(header), 0) != static_cast<ssize_t>(sizeof(header))) return bad;
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phentsize != sizeof(Elf64_Phdr)) return bad;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment{};
    const uint64_t at = header.e_phoff + i * sizeof(segment);
    if (pread(fd_, &segment, sizeof(segment), static_cast<off_t>(at)) != static_cast<ssize_t>(sizeof(segment))) return bad;
    if (segment.p_type == PT_LOAD) segments_.push_back({segment.p_vaddr, segment.p_memsz, segment.p_offset});
    if (segment.p_type == PT_NOTE) {
      constexpr uint64_t kMostNotes = 1 << 20;
      notes_.resize(std::min<uint64_t>(segment.p_filesz, kMostNotes));
      const ssize_t got = pread(fd_, notes_.data(), notes_.size(), static_cast<off_t>(segment.p_offset));
      notes_.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
    }
  }
  return {};
}

std::optional<uint64_t> KernelMemory::number(std::string_view name) const { return vmcoreinfo_number(notes_, name); }

std::optional<uint64_t> vmcoreinfo_number(std::string_view text, std::string_view name) {
  const std::string begin = "\nNUMBER(" + std::string(name) + ")=0x";
  const size_t at = text.find(begin);
  uint64_t value = 0;
  if (at == std::string_view::npos) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + at + begin.size(), text.data() + text.size(), value, 16);
  return error == std::errc() ? std::optional(value) : std::nullopt;
}

std::vector<std::byte> KernelMemory::read(MemoryExtent extent) const {
  std::vector<std::byte> bytes;
  const auto holds = [&](const Segment& segment) {
    return extent.address >= segment.address && extent.address - segment.address < segment.size_bytes;
  };
  const auto segment = std::find_if(segments_.begin(), segments_.end(), holds);
  if (segment == segments_.end()) return bytes;
  const uint64_t into = extent.address - segment->address;
  bytes.resize(std::min(extent.size_bytes, segment->size_bytes - into));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = pread(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(segment->offset_bytes + into + done));
    if (got <= 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

std::vector<std::byte> KernelMemory::read_mapped(MemoryExtent extent) const {
  std::vector<std::byte> bytes;
  const auto holds = [&](const Segment& segment) {
    return extent.address >= segment.address && extent.address - segment.address < segment.size_bytes;
  };
  const auto in = std::find_if(segments_.begin(), segments_.end(), holds);
  const auto other = std::find_if(segments_.begin(), segments_.end(), [&](const Segment& segment) {
    return !holds(segment) && segment.address >= kMappedBegin && segment.address < kMappedEnd && segment.size_bytes >= kPage;
  });
  if (in == segments_.end() || other == segments_.end()) return bytes;
  std::vector<std::byte> known(kPage), page(kPage);
  while (bytes.size() < extent.size_bytes) {
    const uint64_t address = extent.address + bytes.size(), into = address - in->address;
    const size_t wanted = std::min<size_t>(kPage - address % kPage, extent.size_bytes - bytes.size());
    const auto got_known = pread(fd_, known.data(), wanted, static_cast<off_t>(other->offset_bytes));
    const auto got = pread(fd_, page.data(), wanted, static_cast<off_t>(in->offset_bytes + into));
    if (got_known != static_cast<ssize_t>(wanted) || got != got_known || std::equal(page.begin(), page.begin() + got, known.begin()))
      return {};
    bytes.insert(bytes.end(), page.begin(), page.begin() + got);
  }
  return bytes;
}

std::string first_line(const std::string& path) {
  const Result<std::string> text = read_text_file(path);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

Result<std::string> read_text_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return system_error(path);
  std::string text;
  char buffer[1 << 16];
  ssize_t got = 0;
  while ((got = ::read(fd, buffer, sizeof(buffer))) > 0) text.append(buffer, static_cast<size_t>(got));
  close(fd);
  return text;
}

std::vector<ModuleLine> list_modules() {
  std::vector<ModuleLine> modules;
  const Result<std::string> text = read_text_file("/proc/modules");
  if (!text) return modules;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    char name[128] = "";
    unsigned long long size = 0, address = 0;
    if (std::sscanf(line.c_str(), "%127s %llu %*s %*s %*s %llx", name, &size, &address) == 3 && address != 0) {
      modules.push_back({name, {address, size}});
    }
  }
  return modules;
}

namespace {

/// Where a module's code ends, by its symbols: its data follows, in separate pages ([Linux] kernel/module/strict_rwx.c), and changes
/// without a record.
class ModuleCode {
 public:
  void take(std::string_view name, char type, uint64_t address) {
    const size_t bracket = name.find("\t[");
    if (bracket == std::string_view::npos || !name.ends_with(']')) return;
    Bounds& bounds = bounds_[std::string(name.substr(bracket + 2, name.size() - bracket - 3))];
    if (std::strchr("tTwW", type) != nullptr) {
      bounds.last_code = std::max(bounds.last_code, address);
    } else if (std::strchr("dDbBrR", type) != nullptr) {
      bounds.data.push_back(address);
    }
  }
  [[nodiscard]] MemoryExtent of(const ModuleLine& module) const {
    MemoryExtent extent = module.extent;
    const auto known = bounds_.find(module.name);
    if (known == bounds_.end()) return extent;
    for (const uint64_t address : known->second.data) {
      const uint64_t page = address / kPage * kPage;
      if (page > known->second.last_code && page > extent.address && page < extent.address + extent.size_bytes)
        extent.size_bytes = page - extent.address;
    }
    return extent;
  }

 private:
  struct Bounds {
    uint64_t last_code = 0;
    std::vector<uint64_t> data;
  };
  std::map<std::string, Bounds> bounds_;
};

}  // namespace

Result<KernelText> find_kernel_text(std::string_view kallsyms) {
  constexpr uint64_t kMaxMadeBytes = kPage;  // of a name that no module has: its size is unknown
  uint64_t first = 0, last = 0;
  std::vector<MemoryExtent> others;
  ModuleCode module_code;
  // "ADDRESS TYPE NAME[\t[MODULE]]", a hundred thousand of them.
  while (!kallsyms.empty()) {
    const size_t end = std::min(kallsyms.find('\n'), kallsyms.size());
    const std::string_view line = kallsyms.substr(0, end);
    kallsyms.remove_prefix(std::min(end + 1, kallsyms.size()));
    const size_t type_at = line.find(' ') + 1, name_at = type_at + 2;
    if (type_at == 0 || name_at >= line.size()) continue;
    const char type = line[type_at];
    const std::string_view name = line.substr(name_at);
    if (name.ends_with(']')) {
      uint64_t place = 0;
      (void)std::from_chars(line.data(), line.data() + type_at - 1, place, 16);
      module_code.take(name, type, place);
    }
    const bool bound = name == "_stext" || name == "_etext";  // arm64: the end has the type of the data that follows
    if (type != 't' && type != 'T' && !bound) continue;
    const bool made = name.ends_with("\t[bpf]") || name.find("\t[__builtin__") != std::string_view::npos;
    if (!made && !bound) continue;
    uint64_t address = 0;
    (void)std::from_chars(line.data(), line.data() + type_at - 1, address, 16);
    if (bound) (name == "_stext" ? first : last) = address;
    if (made && address >= kKernelHalf) others.push_back({address, kMaxMadeBytes});
  }
  if (first == 0 || last <= first)
    return Error{ErrorCode::invalid_argument, "/proc/kallsyms hides the addresses of the kernel (kptr_restrict)", 0};
  for (const ModuleLine& module : list_modules()) others.push_back(module_code.of(module));
  KernelText text;
  text.text = whole_pages({{first, last - first}}).front();
  text.others = whole_pages(std::move(others));
  return text;
}

Status copy_kernel(const KernelMemory& memory, const std::string& kallsyms, const std::string& dir) {
  if (mkdir(dir.c_str(), 0755) != 0 && errno != EEXIST) return system_error(dir);
  const Result<KernelText> text = find_kernel_text(kallsyms);
  if (!text) return text.error();
  std::vector<MemoryExtent> extents = text->others;
  extents.insert(std::find_if(extents.begin(), extents.end(), [&](const MemoryExtent& e) { return e.address > text->text.address; }),
                 text->text);
  if (Status status = save_core(memory, extents, dir + "/kcore"); !status) return status;
  if (Status status = save_text(dir + "/kallsyms", kallsyms); !status) return status;
  const Result<std::string> modules = read_text_file("/proc/modules");
  return modules ? save_text(dir + "/modules", *modules) : Status(modules.error());
}

}  // namespace ptd::live
