// Modules of a Windows process: from a list of PE files to sections and symbols.
#include "recording/windows/windows_modules.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>

#include "image/base/interrupt.h"
#include "image/base/mapped_file.h"
#include "image/placed_name.h"
#include "recording/image/words.h"
#include "recording/windows/function_reach.h"

namespace ptd {
namespace {

// As outputs show it: C:/Windows/System32/ntdll.dll.
std::string shown_path(std::string path) {
  std::replace(path.begin(), path.end(), '\\', '/');
  return path;
}

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    std::string part = path.substr(at, end - at);
    if (!part.empty() && part != "." && part != ".." && part != "?" && part != "??") parts.push_back(std::move(part));
    at = end + 1;
  }
  return parts;
}

// Where a file may be below a root: at its path with and without the drive, and by its name.
std::vector<std::vector<std::string>> places_of(const std::string& path) {
  std::vector<std::string> parts = parts_of(path);
  if (parts.empty()) return {};
  std::vector<std::vector<std::string>> places{parts};
  const bool has_drive = parts[0].size() == 2 && parts[0][1] == ':';
  if (has_drive) places[0][0].resize(1);
  const bool is_system = lower_case(parts[0]) == "systemroot";
  const size_t before = has_drive || is_system ? 1 : lower_case(parts[0]) == "device" ? 2 : 0;  // \Device\HarddiskVolume3\Windows
  if (before != 0 && parts.size() > before) {
    std::vector<std::string> rest(parts.begin() + static_cast<std::ptrdiff_t>(before), parts.end());
    if (is_system) rest.insert(rest.begin(), "Windows");
    places.insert(places.begin(), std::move(rest));
  }
  places.push_back({parts.back()});
  return places;
}

}  // namespace

void WindowsModules::report(FindingKind kind, uint64_t address, std::string what) {
  Finding finding;
  finding.kind = kind;
  finding.space = is_kernel_half(Ip{address}) ? kKernelSpace : user_;
  finding.ip = Ip{address};
  finding.what = std::move(what);
  image_.builder.add_finding(std::move(finding));
}

void WindowsModules::add(const std::vector<ListedModule>& modules) {
  size_t programs = 0;
  for (const ListedModule& module : modules) {
    check_interrupt();
    const std::string path = shown_path(module.path);
    if (module.base < end_) {
      report(FindingKind::section_overlap, module.base,
             path + " and " + last_path_ + " overlap in the list of modules: " + path + " is not used");
      continue;
    }
    end_ = module.base + module.size_bytes;
    last_path_ = path;
    if (lower_case(path).ends_with(".exe") && ++programs == 1) program_ = base_name(path);
    add_module(module);
  }
  if (programs != 1) program_.clear();
}

void WindowsModules::add_module(const ListedModule& module) {
  const std::string path = shown_path(module.path);
  const Found found = find(module);
  std::string why = "file not found";
  std::vector<std::string> refused = found.refused;
  if (found.file != nullptr) {
    auto code = found.file->code_at(module.base, budget_);
    if (code.ok() && code->size() <= sections_left_) return add_code(module, path, found, *code);
    refused.push_back(found.file->file().path() + " " +
                      (code.ok() ? "has more sections than the limit of all modules" : code.error().message));
  }
  for (const std::string& sentence : refused) report(FindingKind::file_changed, module.base, sentence + ": not used");
  if (refused.empty()) {
    report(FindingKind::file_missing, module.base,
           path + " was not found: supply it at its path or as " + base_name(path) + " below ROOT with --symfs ROOT");
  } else {
    why = "not the listed file";
  }
  Section section;
  section.space = is_kernel_half(Ip{module.base}) ? kKernelSpace : user_;
  section.ip = Ip{module.base};
  section.size_bytes = module.size_bytes;
  section.path = path;
  image_.add_missing(path, {}, why);
  image_.builder.add_section(std::move(section));
}

void WindowsModules::add_code(const ListedModule& module, const std::string& path, const Found& found, const std::vector<PeCode>& code) {
  sections_left_ -= code.size();
  const std::string key = found.file->key();
  for (const PeCode& piece : code) {
    Section section;
    section.ip = Ip{module.base + piece.address};
    section.space = is_kernel_half(section.ip) ? kKernelSpace : user_;
    section.size_bytes = piece.size_bytes;
    section.code = piece.bytes;
    section.path = path;
    section.build_id = key;
    section.file_offset_bytes = piece.address;
    image_.add_section(std::move(section));
  }
  image_.note_mode(path, key, found.file->is_64bit() ? ExecMode::bits64 : ExecMode::bits32);
  const bool is_own = found.root == roots_.back();
  image_.note_origin(path, key, found.file->file().path(), is_own ? "in the folder of the list of modules" : "below --symfs");
  pick_symbols(path, *found.file);
}

// Offsets of the sections are RVAs, and so are those of the symbols.
void WindowsModules::pick_symbols(const std::string& path, const PeFile& file) {
  const auto [known, is_new] = picks_.try_emplace({path, file.key()});
  if (!is_new) return;
  FileSymbolPick& pick = known->second;
  pick.section_path = path;
  pick.build_id = file.key();
  pick.module = base_name(path);
  const auto [same, is_first] = picked_.try_emplace(&file, known->first);
  if (!is_first) {  // the file has another path in the list
    const FileSymbolPick& other = picks_.at(same->second);
    const uint64_t taken = other.frames.size() + other.symbols.size();
    if (taken > symbols_left_) return;
    symbols_left_ -= taken;
    pick.frames = other.frames;
    pick.symbols = other.symbols;
    return;
  }
  const std::vector<PeFunction> functions = file.functions(symbols_left_);
  symbols_left_ -= functions.size();
  std::vector<PeSymbol> symbols = file.symbols(symbols_left_);
  symbols_left_ -= symbols.size();
  std::optional<FunctionReach> reach;
  for (const PeFunction& function : functions) pick.frames.push_back({function.first, function.end - function.first, !function.is_part});
  for (size_t i = 0, end = 0; i < symbols.size(); i = end) {
    const uint64_t start = symbols[i].address;
    for (end = i + 1; end < symbols.size() && symbols[end].address == start;) ++end;
    FixedSymbol& symbol = pick.symbols.emplace_back();
    symbol.file_offset_bytes = start;
    symbol.name = demangle(symbols[i].name);
    for (size_t alias = i + 1; alias < end && alias - i < Symbolizer::kMostNames; ++alias)
      symbol.aliases.push_back(demangle(symbols[alias].name));
    uint64_t limit = file.file().bytes().size() + start;
    if (const PeSection* section = file.code_of(start); section != nullptr) limit = uint64_t{section->address} + section->size_bytes;
    if (end < symbols.size()) limit = std::min<uint64_t>(limit, symbols[end].address);
    // .pdata has all functions but those that call nothing and change no register. It ends a symbol, whose size COFF does not have.
    const auto function = std::lower_bound(functions.begin(), functions.end(), start,
                                           [](const PeFunction& each, uint64_t value) { return each.first < value; });
    if (function != functions.end() && function->first == start && !function->is_part) {
      symbol.size_bytes = std::min<uint64_t>(limit, function->end) - start;
      limit = start + symbol.size_bytes;
    } else {
      if (function != functions.end()) limit = std::min<uint64_t>(limit, function->first);
      if (function != functions.begin() && std::prev(function)->end > start) limit = std::min<uint64_t>(limit, std::prev(function)->end);
      if (!reach) reach.emplace(file, symbols, functions);
      limit = reach->end_of(symbols[i].address, limit);
    }
    symbol.reach_bytes = limit - start;
  }
}

void WindowsModules::add_symbols(Symbolizer& symbolizer) {
  for (auto& [key, pick] : picks_) symbolizer.add_fixed_file(std::move(pick));
  picks_.clear();
}

WindowsModules::Found WindowsModules::find(const ListedModule& module) {
  Found found;
  const std::vector<std::vector<std::string>> places = places_of(shown_path(module.path));
  for (const std::string& root : roots_) {
    std::set<std::string> tried;
    for (const std::vector<std::string>& parts : places) {
      for (const std::string& name : resolve(root, parts)) {
        if (!tried.insert(name).second) continue;
        try_file(module, root, name, found);
        if (found.file == nullptr) continue;
        found.refused.clear();
        return found;
      }
    }
  }
  return found;
}

void WindowsModules::try_file(const ListedModule& module, const std::string& root, const std::string& name, Found& found) {
  const std::string path = root + (root.ends_with('/') ? "" : "/") + name;
  const auto refuse = [&](const std::string& why) { found.refused.push_back(path + " " + why); };
  const RegularFile regular = open_beneath(root, name);
  auto mapped = MappedFile::open(regular, path);
  if (!mapped.ok()) return refuse("cannot be read (" + (regular.fd.ok() ? mapped.error().message : regular.why()) + ")");
  auto known = files_.find((*mapped)->identity());
  if (known == files_.end()) known = files_.emplace((*mapped)->identity(), PeFile::open(*mapped)).first;
  if (!known->second.ok()) return refuse(known->second.error().message);
  const PeFile& file = **known->second;
  const std::string listed = " for " + shown_path(module.path);
  if (file.image_bytes() != module.size_bytes)
    return refuse("has an image of " + hex_text(file.image_bytes()) + " bytes, but the list says " + hex_text(module.size_bytes) + listed);
  if (module.timestamp && *module.timestamp != file.timestamp())
    return refuse("has TimeDateStamp " + hex_text(file.timestamp()) + ", but the list says " + hex_text(*module.timestamp) + listed);
  found.file = *known->second;
  found.root = root;
}

// Returns the paths below the root that are equal to the listed one but for case; the exact one is first.
std::vector<std::string> WindowsModules::resolve(const std::string& root, const std::vector<std::string>& parts) {
  constexpr size_t kMostPaths = 64;
  std::vector<std::string> paths{""};
  for (const std::string& part : parts) {
    std::vector<std::string> longer;
    for (const std::string& path : paths) {
      std::vector<std::string> names = names_in(root + "/" + path, lower_case(part));
      std::stable_partition(names.begin(), names.end(), [&](const std::string& name) { return name == part; });
      for (const std::string& name : names) {
        if (longer.size() < kMostPaths) longer.push_back(path + (path.empty() ? "" : "/") + name);
      }
    }
    paths = std::move(longer);
  }
  return paths;
}

const std::vector<std::string>& WindowsModules::names_in(const std::string& folder, const std::string& lower_name) {
  static const std::vector<std::string> kNone;
  const auto [known, is_new] = folders_.try_emplace(folder);
  if (is_new) {
    constexpr size_t kMostEntries = 1U << 20;
    std::error_code error;
    size_t entries = 0;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end && entries < kMostEntries;
         at.increment(error), ++entries) {
      const std::string name = at->path().filename().string();
      known->second[lower_case(name)].push_back(name);
    }
    for (auto& [key, names] : known->second) std::sort(names.begin(), names.end());
  }
  const auto names = known->second.find(lower_name);
  return names == known->second.end() ? kNone : names->second;
}

}  // namespace ptd
