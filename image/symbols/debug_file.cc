// DebugFile: see debug_file.h.
#include "image/symbols/debug_file.h"

#include <elf.h>
#include <elfutils/libdwelf.h>
#include <gelf.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <new>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "image/base/regular_file.h"
#include "image/base/shrunk_files.h"
#include "image/source/build_id.h"
#include "image/source/build_id_note.h"
#include "image/source/packed/unpack.h"

namespace ptd {
namespace {

/// Returns the claimed uncompressed size of a section.
uint64_t unpacked_bytes(Elf_Scn* section, const char* name) {
  GElf_Chdr packed;
  if (gelf_getchdr(section, &packed) != nullptr) return packed.ch_size;
  constexpr size_t kSizeAt = 4, kDataAt = 12;  // GNU's older form: "ZLIB", then the size as a big-endian number
  const Elf_Data* data = name != nullptr && std::string_view(name).starts_with(".zdebug") ? elf_rawdata(section, nullptr) : nullptr;
  if (data == nullptr || data->d_buf == nullptr || data->d_size < kDataAt) return 0;
  uint64_t size = 0;
  for (size_t i = kSizeAt; i < kDataAt; ++i) size = size << 8 | static_cast<const uint8_t*>(data->d_buf)[i];
  return size;
}

/// Returns whether the compressed sections of the file have a plausible uncompressed size: libdw uncompresses any claimed size, up to a
/// thousand times the file's.
bool unpacks_within_reason(Elf* elf, uint64_t file_bytes, bool relocatable) {
  size_t names = 0;
  const bool named = elf != nullptr && elf_getshdrstrndx(elf, &names) == 0;
  const uint64_t most = most_unpacked_bytes(file_bytes);
  uint64_t all = 0;
  bool within = true;
  for (Elf_Scn* section = named ? elf_nextscn(elf, nullptr) : nullptr; section != nullptr && within; section = elf_nextscn(elf, section)) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr) continue;
    const char* name = elf_strptr(elf, names, header.sh_name);
    // libdwfl uncompresses symbols of a relocatable file from .gnu_debugdata, whose size is stored nowhere. Modules have none.
    if (relocatable && name != nullptr && std::string_view(name) == ".gnu_debugdata") within = false;
    const uint64_t size = unpacked_bytes(section, name);
    within = within && size <= most - all;
    all += within ? size : 0;
  }
  return within;
}

/// Copies a kernel module into memory. libdwfl maps its files itself, so a file that shrinks later would end the process.
Fd copy_of(int fd) {
  constexpr size_t kPieceBytes = 1U << 20;
  constexpr uint64_t kMostBytes = uint64_t{1} << 30;  // the largest modules with debug information have a third
  Fd copy(::memfd_create("ptdecode-module", MFD_CLOEXEC));
  std::vector<char> piece(kPieceBytes);
  for (uint64_t all = 0; copy.ok();) {
    const ssize_t got = ::read(fd, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got == 0) break;
    all += static_cast<uint64_t>(std::max<ssize_t>(got, 0));
    if (got < 0 || all > kMostBytes || !write_all(copy.get(), piece.data(), static_cast<size_t>(got))) return {};
  }
  return copy;
}

/// An ELF file in memory with one byte of .debug_info: no offset into its debug information is valid.
struct EmptyFile {
  Elf64_Ehdr header{};
  std::array<Elf64_Shdr, 3> sections{};
  std::array<char, 24> names{"\0.debug_info\0.shstrtab"};
  std::array<char, 1> info{};

  EmptyFile() {
    constexpr Elf64_Word kInfoName = 1, kNamesName = 13;
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = ELFCLASS64;
    header.e_ident[EI_DATA] = std::endian::native == std::endian::little ? ELFDATA2LSB : ELFDATA2MSB;
    header.e_ident[EI_VERSION] = EV_CURRENT;
    header.e_type = ET_DYN;
    header.e_machine = EM_X86_64;
    header.e_version = EV_CURRENT;
    header.e_shoff = offsetof(EmptyFile, sections);
    header.e_ehsize = sizeof header;
    header.e_shentsize = sizeof(Elf64_Shdr);
    header.e_shnum = 3;
    header.e_shstrndx = 2;
    sections[1] = {kInfoName, SHT_PROGBITS, 0, 0, offsetof(EmptyFile, info), info.size(), 0, 0, 1, 0};
    sections[2] = {kNamesName, SHT_STRTAB, 0, 0, offsetof(EmptyFile, names), names.size(), 0, 0, 1, 0};
  }
};

__attribute__((noreturn)) void report_no_memory() { throw std::bad_alloc(); }

std::span<const std::byte> contents(Elf_Scn* section) {
  const Elf_Data* data = elf_getdata(section, nullptr);
  if (data == nullptr || data->d_buf == nullptr) return {};
  return {static_cast<const std::byte*>(data->d_buf), data->d_size};
}

void find_sections(Elf* elf, LineSections& lines, TableSections& tables) {
  GElf_Ehdr header;
  size_t names = 0;
  if (gelf_getehdr(elf, &header) == nullptr || elf_getshdrstrndx(elf, &names) != 0) return;
  lines.big_endian = tables.big_endian = header.e_ident[EI_DATA] == ELFDATA2MSB;
  const std::pair<std::string_view, std::span<const std::byte>*> wanted[] = {
      {"line", &lines.lines},     {"line_str", &lines.line_strings}, {"str", &lines.strings}, {"abbrev", &tables.abbreviations},
      {"ranges", &tables.ranges}, {"rnglists", &tables.range_lists},
  };
  for (Elf_Scn* section = elf_nextscn(elf, nullptr); section != nullptr; section = elf_nextscn(elf, section)) {
    GElf_Shdr about;
    const char* text = gelf_getshdr(section, &about) == nullptr ? nullptr : elf_strptr(elf, names, about.sh_name);
    if (text == nullptr || about.sh_type == SHT_NOBITS) continue;
    std::string_view name = text;
    const std::string_view prefix = name.starts_with(".zdebug_") ? ".zdebug_" : ".debug_";
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(prefix.size());
    for (const auto& [own_name, place] : wanted)
      if (name == own_name) *place = contents(section);
  }
}

/// Returns where the other file of a debug file may be: the linked path, which is relative to the debug file or within a tree that contains
/// both, and the tree's folder of build ids.
std::vector<std::string> alternate_paths(const std::string& path, const std::string& name, const std::string& build_id) {
  const std::string id = hex_of(std::string_view(build_id));
  std::vector<std::string> paths;
  std::error_code error;
  const std::filesystem::path here = std::filesystem::absolute(path, error), real = std::filesystem::canonical(path, error);
  const bool is_absolute = name.starts_with('/');
  if (!is_absolute) paths = {(here.parent_path() / name).string(), (real.parent_path() / name).string()};
  for (std::filesystem::path folder = here.parent_path(); !folder.empty(); folder = folder.parent_path()) {
    const std::string tree = folder == folder.root_path() ? std::string() : folder.string();
    if (is_absolute) paths.push_back(tree + name);
    if (std::string by_id = debug_path(tree.empty() ? "/" : tree, id); !by_id.empty()) paths.push_back(std::move(by_id));
    if (folder == folder.parent_path()) break;
  }
  return paths;
}

}  // namespace

DebugFile::~DebugFile() {
  if (layout != nullptr) dwfl_end(layout);
  if (layout == nullptr && dwarf != nullptr) dwarf_end(dwarf);
  if (empty != nullptr) dwarf_end(empty);
  if (empty_elf != nullptr) elf_end(empty_elf);
  if (!mapping.empty()) unwatch_mapping(mapping);
  if (elf != nullptr) elf_end(elf);
}

void DebugFile::open_alternate(const std::string& path) {
  const char* name = nullptr;
  const void* id = nullptr;
  const ssize_t id_bytes = dwelf_dwarf_gnu_debugaltlink(dwarf, &name, &id);
  if (id_bytes <= 0 || name == nullptr || *name == 0) return;
  const std::string build_id(static_cast<const char*>(id), static_cast<size_t>(id_bytes));
  missing_alternate = name;
  for (const std::string& place : alternate_paths(path, name, build_id)) {
    auto other = open_checked(place, false);
    if (!other || read_build_id(other->fd.get()) != build_id) continue;
    other->dwarf = dwarf_begin_elf(other->elf, DWARF_C_READ, nullptr);
    if (other->dwarf == nullptr || !other->prepare()) continue;
    limits = DebugLimits(file_bytes + other->file_bytes);
    alternate = std::move(other);
    return missing_alternate.clear();
  }
}

// Must be called before the first use of `dwarf`: libdw searches for the alternate file at the first reference to it.
bool DebugFile::prepare() {
  static EmptyFile image;
  empty_elf = elf_memory(reinterpret_cast<char*>(&image), sizeof image);
  empty = empty_elf == nullptr ? nullptr : dwarf_begin_elf(empty_elf, DWARF_C_READ, nullptr);
  if (empty == nullptr) return false;
  dwarf_setalt(dwarf, alternate ? alternate->dwarf : empty);
  (void)dwarf_new_oom_handler(dwarf, report_no_memory);
  (void)dwarf_new_oom_handler(empty, report_no_memory);
  find_sections(dwarf_getelf(dwarf), sections, tables);
  return true;
}

std::unique_ptr<DebugFile> DebugFile::open_checked(const std::string& path, bool relocatable) {
  auto file = std::make_unique<DebugFile>();
  file->fd = open_regular(path).fd;
  struct stat info {};
  (void)elf_version(EV_CURRENT);
  if (!file->fd.ok() || ::fstat(file->fd.get(), &info) != 0) return nullptr;
  note_size({info.st_dev, info.st_ino}, static_cast<uint64_t>(info.st_size));
  file->file_bytes = written_bytes(file->fd.get());
  if (relocatable) file->fd = copy_of(file->fd.get());
  auto unpacked = file->fd.ok() ? unpack_zstd_sections(file->fd.get(), path) : Result<Fd>(Fd());
  if (!unpacked.ok()) return nullptr;
  const bool is_copy = relocatable || unpacked->ok();
  if (unpacked->ok()) file->fd = std::move(*unpacked);
  file->elf = file->fd.ok() ? elf_begin(file->fd.get(), ELF_C_READ_MMAP, nullptr) : nullptr;
  if (file->elf == nullptr) return nullptr;
  size_t size = 0;
  const char* const content = is_copy ? nullptr : elf_rawfile(file->elf, &size);
  if (content != nullptr && size != 0) {
    file->mapping = Bytes(reinterpret_cast<const std::byte*>(content), size);
    watch_mapping(file->mapping, path, {info.st_dev, info.st_ino});
  }
  if (!unpacks_within_reason(file->elf, file->file_bytes, relocatable)) return nullptr;
  file->limits = DebugLimits(file->file_bytes);
  return file;
}

std::unique_ptr<DebugFile> DebugFile::open(const std::string& path) {
  auto file = open_checked(path, false);
  if (!file) return nullptr;
  file->dwarf = dwarf_begin_elf(file->elf, DWARF_C_READ, nullptr);
  if (file->dwarf == nullptr) return nullptr;
  file->open_alternate(path);
  return file->prepare() ? std::move(file) : nullptr;
}

std::unique_ptr<DebugFile> DebugFile::open_relocatable(const std::string& path, const std::function<bool(Dwfl_Module*)>& wanted) {
  static const auto kNoOtherFile = [](Dwfl_Module*, void**, const char*, Dwarf_Addr, const char*, const char*, GElf_Word, char**) {
    return -1;
  };
  static const Dwfl_Callbacks kCallbacks = {nullptr, kNoOtherFile, dwfl_offline_section_address, nullptr};
  auto file = open_checked(path, true);
  // libdwfl would uncompress any compressed file, to any size.
  std::array<char, SELFMAG> magic{};
  if (!file || ::pread(file->fd.get(), magic.data(), magic.size(), 0) != SELFMAG || std::memcmp(magic.data(), ELFMAG, SELFMAG) != 0)
    return nullptr;
  file->layout = dwfl_begin(&kCallbacks);
  if (file->layout == nullptr) return nullptr;
  dwfl_report_begin(file->layout);
  Dwfl_Module* module = dwfl_report_offline(file->layout, "module", path.c_str(), file->fd.get());
  if (module != nullptr) (void)file->fd.release();  // owned by libdwfl from here on
  if (dwfl_report_end(file->layout, nullptr, nullptr) != 0 || module == nullptr) return nullptr;
  Dwarf_Addr bias = 0;
  file->dwarf = dwfl_module_getdwarf(module, &bias);
  if (file->dwarf == nullptr || bias != 0 || !file->prepare() || !wanted(module)) return nullptr;
  return file;
}

}  // namespace ptd
