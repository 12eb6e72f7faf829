// ModuleFile: source lines of a loaded kernel module, from its file. Private to the module.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptdecode/symbols.h"

namespace ptd {

class SourceLines;
class SourceWarnings;

/// A module is a relocatable file: the kernel lays out its sections when it loads it, and the symbols that both contain give the address of
/// each section. The build id proves that it is the loaded file. If none is recorded, the symbols must prove it: in sections with code both
/// must have the same functions at the same offsets. This detects builds with another function layout. Limitation: it does not detect
/// changed lines within functions.
class ModuleFile {
 public:
  /// `build_id`: hex, empty if not recorded; `loaded`: the kernel's symbols of this module. Returns null if the file cannot be read, is
  /// compressed, is another build, or has no lines.
  static std::unique_ptr<ModuleFile> open(const std::string& path, const std::string& build_id,
                                          const std::vector<const NamedRange*>& loaded, std::shared_ptr<SourceWarnings> warnings);
  ~ModuleFile();
  ModuleFile(const ModuleFile&) = delete;
  ModuleFile& operator=(const ModuleFile&) = delete;

  /// Maps an address of the loaded module to the file's layout (libdwfl's); nothing outside its sections with functions.
  [[nodiscard]] std::optional<uint64_t> address_of(Ip ip) const;
  /// Maps an address of that layout; nothing outside the section .text.
  [[nodiscard]] std::optional<ProfilePlace> text_place(uint64_t address) const;
  /// Uses addresses of that layout.
  [[nodiscard]] SourceLines& lines() { return *lines_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// In hex; empty if the file has none.
  [[nodiscard]] const std::string& build_id() const { return build_id_; }

 private:
  struct Stretch {
    uint64_t first = 0, size_bytes = 0;  // as loaded
    uint64_t address = 0;                // of `first` in the file's layout
  };
  struct Text {
    uint64_t address = 0, size_bytes = 0;  // in that layout
    uint64_t file_offset_bytes = 0;
  };
  ModuleFile(std::string path, std::string build_id, std::vector<Stretch> stretches, Text text, std::unique_ptr<SourceLines> lines);
  std::string path_, build_id_;
  std::vector<Stretch> stretches_;
  Text text_;
  std::unique_ptr<SourceLines> lines_;
};

/// The files of a kernel's modules, searched on demand. Thread-safe.
class ModuleFiles {
 public:
  explicit ModuleFiles(std::shared_ptr<SourceWarnings> warnings) : warnings_(std::move(warnings)) {}
  /// Adds a folder in which modules are searched, best first: /usr/lib/debug/lib/modules/RELEASE, /lib/modules/RELEASE.
  void add_folder(std::string folder) { folders_.push_back(std::move(folder)); }
  /// Returns the file of the module `section_path` ("[virtio]") that open() accepts for this build id and the kernel's symbols, which are
  /// requested once; null if there is none.
  ModuleFile* find(const std::string& section_path, const std::string& build_id,
                   const std::function<std::vector<const NamedRange*>()>& loaded);
  /// Returns the module file that was found at this path, or null.
  ModuleFile* found_at(std::string_view path);

 private:
  void list_folders();
  std::mutex mutex_;
  std::shared_ptr<SourceWarnings> warnings_;
  std::vector<std::string> folders_;
  bool listed_ = false;
  std::map<std::string, std::vector<std::string>> paths_;                                  // by section path
  std::map<std::pair<std::string, std::string>, std::unique_ptr<ModuleFile>> by_section_;  // by path and build id; null: no file matches
};

}  // namespace ptd
