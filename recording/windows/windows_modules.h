// WindowsModules: finds the PE files of listed modules, and adds their code and symbols to an image.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "image/source/pe/pe_file.h"
#include "ptdecode/symbols.h"
#include "recording/image/image_build.h"
#include "recording/windows/module_list.h"

namespace ptd {

/// Files are searched below roots: at the listed path (C:\a\b.dll: ROOT/a/b.dll, ROOT/C/a/b.dll), then by name (ROOT/b.dll), without regard
/// to case. No link leads out of a root. A file is used only if its SizeOfImage, and its TimeDateStamp if the list has it, are those of the
/// list. A module without a file is a section without bytes.
class WindowsModules {
 public:
  /// `roots`: existing folders, in order; the last one is the folder of the list.
  WindowsModules(std::vector<std::string> roots, SpaceId user, ImageBuild& image) : roots_(std::move(roots)), user_(user), image_(image) {}

  void add(const std::vector<ListedModule>& modules);
  /// Moves the symbols of the added modules to the symbolizer. Call after ImageBuild::finish().
  void add_symbols(Symbolizer& symbolizer);
  /// Returns the file name of the program, "" if the list has no or several .exe.
  [[nodiscard]] const std::string& program() const { return program_; }

 private:
  using Opened = Result<std::shared_ptr<const PeFile>>;
  struct Found {
    std::shared_ptr<const PeFile> file;  ///< null: none
    std::string root;
    std::vector<std::string> refused;  ///< a sentence for each file that is not the listed one
  };
  void add_module(const ListedModule& module);
  void add_code(const ListedModule& module, const std::string& path, const Found& found, const std::vector<PeCode>& code);
  void pick_symbols(const std::string& path, const PeFile& file);
  [[nodiscard]] Found find(const ListedModule& module);
  void try_file(const ListedModule& module, const std::string& root, const std::string& name, Found& found);
  [[nodiscard]] std::vector<std::string> resolve(const std::string& root, const std::vector<std::string>& parts);
  [[nodiscard]] const std::vector<std::string>& names_in(const std::string& folder, const std::string& lower_name);
  void report(FindingKind kind, uint64_t address, std::string what);

  std::vector<std::string> roots_;
  SpaceId user_;
  ImageBuild& image_;
  PeBudget budget_;
  uint64_t sections_left_ = 1U << 18, symbols_left_ = 4U << 20;
  uint64_t end_ = 0;  // of the modules before
  std::string last_path_, program_;
  std::map<std::string, std::map<std::string, std::vector<std::string>>> folders_;  // names by their lower case
  std::map<std::pair<uint64_t, uint64_t>, Opened> files_;                           // by identity
  std::map<std::pair<std::string, std::string>, FileSymbolPick> picks_;             // by path and key
  std::map<const PeFile*, std::pair<std::string, std::string>> picked_;             // where in picks_ a file is
};

}  // namespace ptd
