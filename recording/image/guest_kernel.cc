// KernelImage of a guest: its code comes from files that the user gives, because a recording of the host has none of it.
#include <sys/stat.h>

#include <algorithm>

#include "image/source/code_bytes.h"
#include "ptdecode/guest.h"
#include "recording/image/kernel_image.h"

namespace ptd {
namespace {

/// A guest's own /proc/kcore, mounted: as large as the address space.
bool is_whole_memory(const std::string& path) {
  constexpr uint64_t kLargestCopy = 1ULL << 40;
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && (static_cast<uint64_t>(info.st_size) > kLargestCopy || info.st_size == 0);
}

std::vector<std::pair<Ip, uint64_t>> text_of(const std::vector<KernelSymbol>& symbols, const std::vector<KernelModule>& modules) {
  std::vector<std::pair<Ip, uint64_t>> wanted;
  const uint64_t first = address_of(symbols, "_stext"), end = address_of(symbols, "_etext");
  if (first != 0 && end > first) wanted.emplace_back(Ip{first}, end - first);
  for (const KernelModule& module : modules) wanted.emplace_back(Ip{module.address}, module.size_bytes);
  return wanted;
}

}  // namespace

void KernelImage::set_guest(uint32_t machine, std::string suffix) {
  machine_ = machine;
  suffix_ = std::move(suffix);
}

bool KernelImage::add_guest_vmlinux(ImageBuild& image, const GuestFiles& files, const std::vector<KernelSymbol>& symbols,
                                    std::vector<std::string>& warnings) {
  const auto file = MappedFile::open(files.vmlinux);
  if (!file.ok()) {
    warnings.push_back(file.error().message);
    return false;
  }
  const auto elf = ElfFile::open(*file);
  if (!elf.ok()) {
    warnings.push_back(elf.error().message);
    return false;
  }
  if (const std::string other = other_machine(image.source.family(), (*elf)->machine()); !other.empty()) {
    warnings.push_back(files.vmlinux + " " + other + ": not used");
    return false;
  }
  const std::vector<ElfSymbol> own = (*elf)->read_symbols();
  const auto reference = std::ranges::find(own, "_stext", &ElfSymbol::name);
  const uint64_t running = address_of(symbols, "_stext");
  const uint64_t delta = reference != own.end() && running != 0 ? running - reference->address : 0;
  bool any_added = false;
  for (const ElfSegment& segment : (*elf)->segments()) {
    Section section;
    section.space = kernel_of_machine(machine_);
    section.ip = Ip{segment.address + delta};
    section.size_bytes = segment.file_size_bytes;
    if (!segment.executable || section.size_bytes == 0 || !is_kernel_half(section.ip) || section.size_bytes > ~section.ip.value) continue;
    section.code = piece_of(*file, segment.file_offset_bytes, segment.file_size_bytes);
    section.path = text_path();
    section.build_id = (*elf)->build_id();
    section.file_offset_bytes = segment.file_offset_bytes;
    section.assumed = true;
    any_added = true;
    image.add_section(std::move(section));
  }
  if (any_added && symbols.empty()) image.add_symbol_file(text_path(), files.vmlinux, (*elf)->build_id());
  if (any_added) {
    warnings.push_back(
        "code of the guest's kernel is read from " + files.vmlinux +
        " and marked assumed, because a kernel patches itself at boot (a copy of the guest's /proc/kcore beside its kallsyms has the code "
        "that ran)");
  }
  return any_added;
}

bool KernelImage::add_guest_to(ImageBuild& image, const GuestFiles& files, std::vector<std::string>& warnings) {
  CutLine cut_line;
  std::vector<KernelSymbol> symbols = read_kallsyms(files.kallsyms, &cut_line);
  if (!are_of_this_boot(image, files.kallsyms, symbols, warnings)) return false;
  const std::vector<KernelModule> modules = read_modules(files.modules);
  report_modules(image, files.modules, files.kallsyms, compare_modules(modules, symbols), warnings);
  std::vector<MemoryRange> copied;
  bool has_code = false;
  struct stat info {};
  if (!files.kcore.empty() && ::stat(files.kcore.c_str(), &info) == 0) {
    const CodeFamily traced = image.source.family();
    auto ranges =
        is_whole_memory(files.kcore) ? read_running_kcore(files.kcore, traced, text_of(symbols, modules)) : read_kcore(files.kcore, traced);
    has_code = ranges.ok() && !ranges->empty();
    if (has_code) copied = *ranges;
    if (has_code) add_copies(image, std::move(*ranges), files.kcore, modules, {}, {kTimeMin, kTimeMax});
    if (!ranges.ok()) warnings.push_back(ranges.error().message);
  }
  has_copy_ = has_code;
  if (!has_code && !files.vmlinux.empty()) has_code = add_guest_vmlinux(image, files, symbols, warnings);
  bound_names(image, files.kallsyms, symbols, cut_line, modules, copied, warnings);
  add_symbols(image, std::move(symbols), false);
  add_ksymbols_and_removals(image, {});
  return has_code;
}

}  // namespace ptd
