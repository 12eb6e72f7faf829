// FileSymbols: the symbols of one mapped ELF file and its separate debug files. Private to the module.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "image/source/debuginfod.h"
#include "image/source/elf_file.h"
#include "image/source/saved_files.h"
#include "image/symbols/dwarf/frame_extents.h"
#include "image/symbols/dwarf/landing_pads.h"
#include "ptdecode/symbols.h"

namespace ptd {

class SourceLines;
class SourceWarnings;

inline constexpr uint64_t kMaxGuessedBytes = 1U << 20;  ///< maximum assumed size of a symbol without a size

/// A symbol found in a file: its address is in the file's own address space.
struct FileSymbol {
  std::string_view name;  ///< demangled; lives as long as the FileSymbols
  uint64_t address = 0;
  uint64_t size_bytes = 0;
  std::string_view place;  ///< as Symbol::place; lives as long as the FileSymbols
};

/// Loads on first use; thread-safe.
class FileSymbols {
 public:
  /// `module`: the name of the file in warnings. `debuginfod`, if not null, is queried for debug information that none of the files has;
  /// `saved`, if not null, for symbols of files that it provided. `warnings` gets what SourceLines adds to it.
  FileSymbols(std::string module, std::vector<std::string> elf_paths, std::shared_ptr<SourceWarnings> warnings,
              std::shared_ptr<Debuginfod> debuginfod, std::shared_ptr<SavedFiles> saved);
  ~FileSymbols();
  /// Uses previously selected symbols instead of a file's.
  FileSymbols(std::vector<FixedSymbol> fixed, std::vector<FrameSpan> frames, std::vector<CallSite> sites = {});

  /// Returns the symbol that contains a file offset of the mapped file; sets `offset_bytes` to the distance from its start.
  std::optional<FileSymbol> find(uint64_t file_offset_bytes, uint64_t& offset_bytes);
  /// Same for storing, without aliases; nothing if no symbol contains the offset.
  std::optional<FixedSymbol> pick(uint64_t file_offset_bytes);
  /// Adds what pick(), frame_at() and landing_of() return for any offset, and the aliases of the symbols.
  void pick_all(FileSymbolPick& out);
  /// Same as Symbolizer::frame_at(), with the file offset of the start.
  std::optional<FrameSpan> frame_at(uint64_t file_offset_bytes);
  /// Same as Symbolizer::landing_of() and is_landing(), with file offsets.
  std::optional<uint64_t> landing_of(uint64_t file_offset_bytes);
  bool is_landing(uint64_t file_offset_bytes);
  /// Returns the call sites whose landing pad is at a file offset, with file offsets.
  std::vector<CallSite> sites_of(uint64_t file_offset_bytes);
  /// Same as Symbolizer::names_at().
  std::vector<std::string> names_at(uint64_t file_offset_bytes);
  /// Returns the file offsets of all symbols with a name, as Symbolizer::addresses_of().
  std::vector<uint64_t> offsets_of(std::string_view name);
  /// Visits the functions with a unique name, with the names as in the file, and their addresses.
  void visit_functions(const std::function<void(std::string_view, uint64_t)>& visitor);
  /// Returns the address (p_vaddr) of a file offset; nothing if no segment contains it.
  std::optional<uint64_t> address_of(uint64_t file_offset_bytes);
  /// Returns the file offset of an address; nothing if no segment with bytes in the file contains it.
  std::optional<uint64_t> offset_of(uint64_t address);
  /// Returns the build id in hex; empty if the file has none or is not available.
  std::string build_id();
  /// Returns the source lines, read on the first call; null if none of the files has them.
  SourceLines* source();

 private:
  struct Place {
    size_t index = 0;           // of the best name
    uint64_t offset_bytes = 0;  // from the symbol's start
    uint64_t reach_bytes = 0;
  };
  enum class NameIs { other, old_version, same };
  void load();
  void set_places();
  [[nodiscard]] bool begins_function(uint64_t address);
  void fetch_debug_file();
  std::string note_damage(const ElfFile& elf);
  [[nodiscard]] std::optional<Place> locate(uint64_t file_offset_bytes);
  [[nodiscard]] const FixedSymbol* find_fixed(uint64_t file_offset_bytes) const;
  std::string_view readable(size_t index);
  [[nodiscard]] std::vector<std::string> names_from(size_t first);
  [[nodiscard]] static NameIs compare_names(std::string_view own, std::string_view name);
  [[nodiscard]] NameIs compare(size_t index, std::string_view name);
  [[nodiscard]] std::optional<uint64_t> offset_of_address(uint64_t address) const;
  const FrameExtents& frames();
  const LandingPads& pads();
  [[nodiscard]] uint64_t guessed_size(uint64_t address, std::optional<uint64_t> next_symbol);
  [[nodiscard]] uint64_t reach_of(size_t first, size_t end);

  std::mutex mutex_;
  bool loaded_ = false, is_fixed_ = false, source_sought_ = false;
  std::unique_ptr<SourceLines> source_;
  std::string module_;
  std::vector<std::string> elf_paths_;
  std::shared_ptr<SourceWarnings> warnings_;
  std::shared_ptr<Debuginfod> debuginfod_;
  std::shared_ptr<SavedFiles> saved_;
  std::shared_ptr<const ElfFile> mapped_;     // maps between file offsets and addresses
  std::vector<ElfSymbol> symbols_;            // sorted by address, followed by the labels within them
  size_t outer_count_ = 0;                    // symbols before the labels
  std::vector<const std::string*> readable_;  // demangled on demand
  std::deque<std::string> names_;
  std::vector<FixedSymbol> fixed_;      // by offset
  std::optional<FrameExtents> frames_;  // read at the first question
  std::optional<LandingPads> pads_;     // likewise; of a fixed file, with file offsets
};

}  // namespace ptd
