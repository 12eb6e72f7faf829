// Kernel modules through libdwfl, which lays relocatable files out and relocates their debug information.
#include "image/symbols/module_file.h"

#include <elfutils/libdwfl.h>
#include <gelf.h>

#include <algorithm>
#include <filesystem>
#include <unordered_map>

#include "image/symbols/kernel_debug.h"
#include "image/symbols/source_lines.h"

namespace ptd {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 1U << 17;

// A section of the file with functions in it, and where the kernel put it.
struct LoadedSection {
  uint64_t address = 0, size_bytes = 0;  // in libdwfl's layout
  uint64_t loaded_at = 0;
};

// The functions' sections by number; empty if a function does not lie where the others of its section say.
std::unordered_map<GElf_Word, LoadedSection> align(Dwfl_Module* module, const std::vector<const NamedRange*>& loaded) {
  std::unordered_map<std::string_view, const NamedRange*> by_name;  // null: several have that name
  for (const NamedRange* range : loaded) {
    const auto [known, is_new] = by_name.emplace(range->name, range);
    if (!is_new && known->second != nullptr && known->second->ip != range->ip) known->second = nullptr;
  }
  struct Place {
    uint64_t address = 0, offset = 0;
    GElf_Word section = 0;
    bool several = false;
  };
  std::unordered_map<std::string_view, Place> functions;
  const int count = dwfl_module_getsymtab(module);
  for (int i = 0; i < count; ++i) {
    GElf_Sym symbol;
    GElf_Addr address = 0;
    GElf_Word section = 0;
    const char* name = dwfl_module_getsym_info(module, i, &symbol, &address, &section, nullptr, nullptr);
    if (name == nullptr || GELF_ST_TYPE(symbol.st_info) != STT_FUNC || section == SHN_UNDEF || section >= SHN_LORESERVE) continue;
    const auto [known, is_new] = functions.emplace(name, Place{address, symbol.st_value, section, false});
    known->second.several = known->second.several || !is_new;
  }
  std::unordered_map<GElf_Word, LoadedSection> sections;
  GElf_Addr bias = 0;
  Elf* elf = dwfl_module_getelf(module, &bias);
  for (const auto& [name, place] : functions) {
    const auto range = by_name.find(name);
    if (place.several || range == by_name.end() || range->second == nullptr) continue;
    GElf_Shdr header;
    if (elf == nullptr || gelf_getshdr(elf_getscn(elf, place.section), &header) == nullptr) return {};
    const LoadedSection told{place.address - place.offset, header.sh_size, range->second->ip.value - place.offset};
    const auto [known, is_new] = sections.emplace(place.section, told);
    if (!is_new && known->second.loaded_at != told.loaded_at) return {};
  }
  return sections;
}

// "virtio_ring" of "virtio-ring.ko.xz": what the kernel calls it.
std::string module_name(const fs::path& path) {
  std::string name = path.filename().string();
  const size_t suffix = name.find(".ko");
  if (suffix == std::string::npos || suffix == 0) return {};
  name.resize(suffix);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

ModuleFile::ModuleFile(std::string path, std::vector<Stretch> stretches, std::unique_ptr<SourceLines> lines)
    : path_(std::move(path)), stretches_(std::move(stretches)), lines_(std::move(lines)) {}
ModuleFile::~ModuleFile() = default;

std::unique_ptr<ModuleFile> ModuleFile::open(const std::string& path, const std::vector<const NamedRange*>& loaded) {
  std::vector<Stretch> stretches;
  auto lines = SourceLines::open_relocatable(path, [&](Dwfl_Module* module) {
    for (const auto& [number, section] : align(module, loaded)) {
      stretches.push_back({section.loaded_at, section.size_bytes, section.address});
    }
    return !stretches.empty();
  });
  if (!lines) return nullptr;
  return std::unique_ptr<ModuleFile>(new ModuleFile(path, std::move(stretches), std::move(lines)));
}

std::optional<uint64_t> ModuleFile::address_of(Ip ip) const {
  for (const Stretch& stretch : stretches_) {
    if (ip.value - stretch.first < stretch.size_bytes) return stretch.address + (ip.value - stretch.first);
  }
  return std::nullopt;
}

void ModuleFiles::list_folders() {
  if (std::exchange(listed_, true)) return;
  size_t files = 0;
  for (const std::string& folder : folders_) {
    std::error_code error;
    fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
    for (; !error && at != fs::recursive_directory_iterator() && files < kMostFiles; at.increment(error), ++files) {
      const std::string name = module_name(at->path());
      if (!name.empty() && at->is_regular_file(error)) paths_["[" + name + "]"].push_back(at->path().string());
    }
  }
}

ModuleFile* ModuleFiles::find(std::string_view section_path, const std::function<std::vector<const NamedRange*>()>& loaded) {
  const std::lock_guard lock(mutex_);
  if (const auto known = by_section_.find(section_path); known != by_section_.end()) return known->second.get();
  list_folders();
  std::unique_ptr<ModuleFile>& file = by_section_[std::string(section_path)];
  const auto paths = paths_.find(section_path);
  for (size_t i = 0; paths != paths_.end() && i < paths->second.size() && !file; ++i) file = ModuleFile::open(paths->second[i], loaded());
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
