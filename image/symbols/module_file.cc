// Kernel modules through libdwfl, which lays out relocatable files and relocates their debug information.
#include "image/symbols/module_file.h"

#include <elfutils/libdwfl.h>
#include <gelf.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "image/base/directory.h"
#include "image/source/build_id.h"
#include "image/symbols/kernel_debug.h"
#include "image/symbols/source_lines.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 1U << 17;
constexpr size_t kFewestNames = 2, kProvingNames = 8;  // functions with equal offsets that prove that two files are the same

// A section of the file that contains functions, and its address in the running kernel.
struct LoadedSection {
  uint64_t address = 0, size_bytes = 0;  // in libdwfl's layout
  uint64_t loaded_at = 0;
  bool is_text = false;  // .text
  uint64_t file_offset_bytes = 0;
};
using LoadedSections = std::unordered_map<GElf_Word, LoadedSection>;

// The symbols of a file. Names are libdwfl's, demangled in the same way as the kernel's.
struct FileNames {
  struct Place {
    uint64_t address = 0, offset = 0;
    GElf_Word section = 0;
    bool several = false;
  };
  std::map<std::string, Place, std::less<>> functions;
  std::set<std::tuple<GElf_Word, uint64_t, std::string>> all;  // section, offset in it, name
};

FileNames names_of(Dwfl_Module* module) {
  FileNames names;
  const int count = dwfl_module_getsymtab(module);
  for (int i = 0; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr address = 0;
    GElf_Word section = 0;
    const char* text = dwfl_module_getsym_info(module, i, &symbol, &address, &section, nullptr, nullptr);
    if (text == nullptr || *text == 0 || section == SHN_UNDEF || section >= SHN_LORESERVE) continue;
    std::string name = demangle(text);
    names.all.emplace(section, symbol.st_value, name);
    if (GELF_ST_TYPE(symbol.st_info) != STT_FUNC) continue;
    const auto [known, is_new] = names.functions.emplace(std::move(name), FileNames::Place{address, symbol.st_value, section, false});
    known->second.several = known->second.several || !is_new;
  }
  return names;
}

// Returns the names in `loaded` that occur once.
std::unordered_map<std::string_view, const NamedRange*> unique_names(const std::vector<const NamedRange*>& loaded) {
  std::unordered_map<std::string_view, const NamedRange*> by_name;
  for (const NamedRange* range : loaded) {
    const auto [known, is_new] = by_name.emplace(range->name, range);
    if (!is_new && known->second != nullptr && known->second->ip != range->ip) known->second = nullptr;
  }
  std::erase_if(by_name, [](const auto& named) { return named.second == nullptr; });
  return by_name;
}

// Returns the sections with functions by number; empty if a function contradicts the load address of its section.
LoadedSections align(Dwfl_Module* module, const FileNames& names, const std::vector<const NamedRange*>& loaded) {
  const auto by_name = unique_names(loaded);
  LoadedSections sections;
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  size_t names_section = 0;
  const bool has_names = elf != nullptr && elf_getshdrstrndx(elf, &names_section) == 0;
  for (const auto& [name, place] : names.functions) {
    const auto range = by_name.find(name);
    if (place.several || range == by_name.end()) continue;
    GElf_Shdr header;
    if (elf == nullptr || gelf_getshdr(elf_getscn(elf, place.section), &header) == nullptr) return {};
    const char* section = has_names ? elf_strptr(elf, names_section, header.sh_name) : nullptr;
    const LoadedSection told{place.address - place.offset, header.sh_size, range->second->ip.value - place.offset,
                             section != nullptr && std::string_view(section) == ".text", header.sh_offset};
    const auto [known, is_new] = sections.emplace(place.section, told);
    if (!is_new && known->second.loaded_at != told.loaded_at) return {};
  }
  return sections;
}

// Returns whether the names alone prove that the kernel loaded this file: in the sections found by align(), both sides have the same names
// at the same offsets, and these are enough of the kernel's names.
bool is_proven(const LoadedSections& sections, const FileNames& names, const std::vector<const NamedRange*>& loaded) {
  const auto by_name = unique_names(loaded);
  for (const auto& [name, place] : names.functions) {
    const auto section = sections.find(place.section);
    if (place.several || section == sections.end()) continue;
    const auto range = by_name.find(name);
    if (range == by_name.end() || range->second->ip.value - place.offset != section->second.loaded_at) return false;
  }
  std::set<std::string_view> proven;
  for (const auto& [number, section] : sections) {
    for (const NamedRange* range : loaded) {
      const uint64_t offset = range->ip.value - section.loaded_at;
      if (offset >= section.size_bytes) continue;
      if (!names.all.contains({number, offset, range->name.str()})) return false;
      if (by_name.contains(range->name)) proven.insert(range->name);
    }
  }
  return proven.size() >= kFewestNames && proven.size() >= std::min(kProvingNames, by_name.size());
}

std::string build_id_of(Dwfl_Module* module) {
  GElf_Addr bias = 0, address = 0;
  const unsigned char* bits = nullptr;
  if (dwfl_module_getelf(module, &bias) == nullptr) return {};
  const int size = dwfl_module_build_id(module, &bits, &address);
  return size > 0 ? hex_of(std::string_view(reinterpret_cast<const char*>(bits), static_cast<size_t>(size))) : std::string();
}

// Compressed files are ignored, because their uncompressed size is unbounded.
std::string section_path_of(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.ends_with(".ko") || name.ends_with(".ko.debug") ? module_section_path(name) : std::string();
}

}  // namespace

ModuleFile::ModuleFile(std::string path, std::string build_id, std::vector<Stretch> stretches, Text text,
                       std::unique_ptr<SourceLines> lines)
    : path_(std::move(path)), build_id_(std::move(build_id)), stretches_(std::move(stretches)), text_(text), lines_(std::move(lines)) {}
ModuleFile::~ModuleFile() = default;

std::unique_ptr<ModuleFile> ModuleFile::open(const std::string& path, const std::string& build_id,
                                             const std::vector<const NamedRange*>& loaded, std::shared_ptr<SourceWarnings> warnings) {
  std::vector<Stretch> stretches;
  Text text;
  std::string own_id;
  auto lines = SourceLines::open_relocatable(path, std::move(warnings), [&](Dwfl_Module* module) {
    own_id = build_id_of(module);
    if (!build_id.empty() && !same_build_id(own_id, build_id)) return false;
    const FileNames names = names_of(module);
    const LoadedSections sections = align(module, names, loaded);
    if (sections.empty() || (build_id.empty() && !is_proven(sections, names, loaded))) return false;
    for (const auto& [number, section] : sections) {
      stretches.push_back({section.loaded_at, section.size_bytes, section.address});
      if (section.is_text) text = {section.address, section.size_bytes, section.file_offset_bytes};
    }
    return true;
  });
  if (!lines) return nullptr;
  return std::unique_ptr<ModuleFile>(new ModuleFile(path, std::move(own_id), std::move(stretches), text, std::move(lines)));
}

std::optional<ProfilePlace> ModuleFile::text_place(uint64_t address) const {
  const uint64_t at = address - text_.address;
  return at < text_.size_bytes ? std::optional(ProfilePlace{at, text_.file_offset_bytes + at}) : std::nullopt;
}

std::optional<uint64_t> ModuleFile::address_of(Ip ip) const {
  for (const Stretch& stretch : stretches_) {
    if (ip.value - stretch.first < stretch.size_bytes) return stretch.address + (ip.value - stretch.first);
  }
  return std::nullopt;
}

void ModuleFiles::list_folders() {
  if (std::exchange(listed_, true)) return;
  size_t files_left = kMostFiles;
  std::vector<std::string> waiting(folders_.rbegin(), folders_.rend());
  while (!waiting.empty() && files_left != 0) {
    const std::string folder = std::move(waiting.back());
    waiting.pop_back();
    std::error_code error;
    for (const DirectoryEntry& entry : entries_of(folder, files_left)) {
      --files_left;
      const std::string path = folder + "/" + entry.name;
      if (entry.is_folder) waiting.push_back(path);
      const std::string section_path = section_path_of(path);
      if (!section_path.empty() && fs::is_regular_file(path, error)) paths_[section_path].push_back(path);
    }
  }
}

ModuleFile* ModuleFiles::find(const std::string& section_path, const std::string& build_id,
                              const std::function<std::vector<const NamedRange*>()>& loaded) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = by_section_.try_emplace({section_path, build_id});
  std::unique_ptr<ModuleFile>& file = known->second;
  if (!is_new) return file.get();
  list_folders();
  const auto paths = paths_.find(section_path);
  if (paths == paths_.end()) return nullptr;
  const std::vector<const NamedRange*> names = loaded();
  for (size_t i = 0; i < paths->second.size() && !file; ++i) file = ModuleFile::open(paths->second[i], build_id, names, warnings_);
  return file.get();
}

ModuleFile* ModuleFiles::found_at(std::string_view path) {
  const std::lock_guard lock(mutex_);
  for (const auto& [section, file] : by_section_) {
    if (file && file->path() == path) return file.get();
  }
  return nullptr;
}

}  // namespace ptd
