// SourceLines: source lines and inlined functions of one ELF file, from its DWARF. Private to the module.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ptdecode/symbols.h"

struct Dwfl_Module;

namespace ptd {

struct DebugFile;
class SharedTables;
class SourceWarnings;

/// Addresses are the file's own (p_vaddr). Units are read on first use; thread-safe. Names live as long as the object. A file whose debug
/// information exceeds a limit (debug_limits.h) has no lines from then on, and `warnings` gets a sentence. Names of
/// another file (.gnu_debugaltlink) are empty if that file is missing, which is a sentence too.
class SourceLines {
 public:
  /// Returns null if the file has no DWARF line information. `starts`: see ScopeSource; it is called while units are read.
  static std::unique_ptr<SourceLines> open(const std::string& elf_path, std::shared_ptr<SourceWarnings> warnings,
                                           std::function<bool(uint64_t)> starts = {});
  /// Opens a relocatable file, with the addresses of libdwfl's layout. `wanted` checks the layout before lines are read; null if it returns
  /// false. A compressed file (.ko.xz) is not opened.
  static std::unique_ptr<SourceLines> open_relocatable(const std::string& elf_path, std::shared_ptr<SourceWarnings> warnings,
                                                       const std::function<bool(Dwfl_Module*)>& wanted);
  ~SourceLines();
  SourceLines(const SourceLines&) = delete;
  SourceLines& operator=(const SourceLines&) = delete;

  /// Returns the line at `address` and the call lines of its inlined functions, at any time.
  [[nodiscard]] SourcePlace place(uint64_t address);
  /// Returns the line of `address` as profiles name it, as Symbolizer::profile_frames_at().
  [[nodiscard]] std::vector<ProfileFrame> profile_frames(uint64_t address);
  /// Returns the functions inlined at `address`, at any time.
  [[nodiscard]] InlinedPlace inlined(uint64_t address);
  /// Visits every statement of the file, unit by unit. Returns false if the file exceeds a limit; not every unit is visited then.
  bool visit(const SourceVisitor& visitor);

 private:
  struct Unit;
  SourceLines(std::unique_ptr<DebugFile> file, std::string path, std::shared_ptr<SourceWarnings> warnings);
  static std::unique_ptr<SourceLines> of(std::unique_ptr<DebugFile> file, const std::string& elf_path,
                                         std::shared_ptr<SourceWarnings> warnings, std::function<bool(uint64_t)> starts);
  void within_limits(const std::function<void()>& work);
  bool spend_units(DebugFile& file);
  void index();
  std::string_view file_of(uint64_t unit_offset, uint32_t number);
  struct Reach;
  /// Returns the range of code around the address that a unit describes; null if there is none.
  [[nodiscard]] const Reach* reach_of(uint64_t address) const;
  Unit* unit_at(uint64_t address, bool all = true);
  void load(Unit& unit);
  void load_scopes(Unit& unit);
  std::string_view kept(std::string_view text);
  std::string_view kept_path(const char* path, const char* folder);
  std::string_view readable(const char* text);
  [[nodiscard]] static size_t next_address(const Unit& unit, size_t at);
  [[nodiscard]] static bool has_code(const Unit& unit, size_t at, size_t next);
  [[nodiscard]] static size_t past_line_0(const Unit& unit, size_t next);
  [[nodiscard]] static size_t statement_end(const Unit& unit, size_t at, size_t next);
  [[nodiscard]] SourceUnit statements(Unit& unit);

  std::mutex mutex_;
  std::string path_;
  std::shared_ptr<SourceWarnings> warnings_;
  std::unique_ptr<DebugFile> file_;
  std::unique_ptr<SharedTables> tables_;
  std::function<bool(uint64_t)> starts_;
  std::string exceeded_;  // the exceeded limit; empty: none
  struct Reach {
    uint64_t first = 0, end = 0;
    uint32_t unit = 0;
  };
  std::vector<Reach> reaches_;  // by address
  std::vector<Unit> units_;
  std::unordered_map<std::string_view, std::string_view> texts_;
  std::unordered_map<const char*, std::string_view> readable_;             // maps libdw's text of a name to ours
  std::map<std::pair<uint64_t, uint32_t>, std::string_view> other_files_;  // by the offset of the unit, and number: see file_of()
  struct OtherUnit;
  [[nodiscard]] const OtherUnit& other_unit(uint64_t unit_offset);
  std::map<uint64_t, OtherUnit> other_units_;  // by offset
  std::map<uint64_t, bool> other_tables_;      // by the offset of the line table: it can be read
  std::deque<std::string> storage_;
};

}  // namespace ptd
