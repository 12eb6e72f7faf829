// Symbolizer: (space, ip, time) -> name and offset.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/timeline.h"

namespace ptd {

class Debuginfod;
class KeptFiles;

struct Symbol {
  std::string_view name;      ///< demangled; lives as long as the Symbolizer
  std::string_view module;    ///< short file name, "[kernel]", "[virtio]", "[bpf]", "[vdso]"
  uint64_t offset_bytes = 0;  ///< of the ip in the symbol
  Ip start;                   ///< the symbol's address
  uint64_t size_bytes = 0;    ///< 0 if not recorded
  Interval valid;             ///< moments at which the same ip surely has this same answer; for caches
};

/// A named address range that lives for some time: kallsyms lines, KSYMBOL records, JIT functions.
struct NamedRange {
  SpaceId space = kKernelSpace;
  Ip ip;
  uint64_t size_bytes = 0;  ///< 0: up to the next name
  Interval live;
  std::string name;
  std::string module;
};

/// A symbol of a file as it was found: addressed by the offset of its start in the mapped file.
struct FixedSymbol {
  uint64_t file_offset_bytes = 0;
  uint64_t reach_bytes = 0;  ///< up to where it answers; its size, or a guess where that is not recorded
  uint64_t size_bytes = 0;   ///< as Symbol::size_bytes
  std::string name;          ///< demangled
};

/// Symbols of the sections with one path and build id.
struct FileSymbolPick {
  std::string section_path, build_id, module;
  std::vector<FixedSymbol> symbols;  ///< by offset, one each
};

/// A line of source and the function that it is in; its callers follow if it was inlined.
struct SourceFrame {
  std::string_view function;  ///< demangled; empty if not told
  std::string_view file;      ///< as the compiler wrote it, with the folder that it ran in
  uint32_t line = 0;          ///< 0: none
};

/// What a file's debug information says of one address. Views live as long as the Symbolizer.
struct SourcePlace {
  std::vector<SourceFrame> frames;  ///< innermost first; empty: nothing is told
  Interval valid;                   ///< moments at which the same address surely has this answer
};

/// Code of one statement: [first, end) in the file's own address space (p_vaddr).
struct SourceStatement {
  uint64_t first = 0, end = 0;
  std::string_view file;
  uint32_t line = 0;
  uint32_t scope = 0;  ///< a number for the function, or the one inlined call of it, that the code is of; within a unit
};
struct SourceFunction {
  std::string_view name, file;
  uint32_t line = 0;   ///< of its declaration
  uint64_t entry = 0;  ///< address of its first instruction
};
/// One compilation.
struct SourceUnit {
  std::vector<SourceStatement> statements;  ///< by address
  std::vector<SourceFunction> functions;    ///< those with code of their own
};
using SourceVisitor = std::function<bool(const SourceUnit&)>;

/// An address of a mapped file.
struct FilePlace {
  std::string_view path, build_id;  ///< of the section; live as long as the timeline
  uint64_t address = 0;             ///< in the file's own address space (p_vaddr)
  uint64_t file_offset_bytes = 0;   ///< of that address in the file
  bool relocatable = false;  ///< a kernel module: the file has no addresses of its own, `address` and offset are of a layout made here
};

/// What answers questions about some addresses: a Symbolizer made of it gives the same answers to these.
struct SymbolPick {
  std::vector<NamedRange> ranges;  ///< in the order in which they must be added; sizes are settled
  std::vector<FileSymbolPick> files;
};

/// A name for people: Itanium C++ and legacy Rust mangling undone; anything else as it is.
[[nodiscard]] PTD_API std::string demangle(const std::string& name);

/// Thread-safe for look-ups once built; ELF symbol tables load lazily behind a lock. add_* must be done before the first look-up.
class PTD_API Symbolizer {
 public:
  explicit Symbolizer(Timeline timeline);
  /// Who is asked, at a file's first look-up, for debug information that is not at hand; before the first look-up.
  void use_debuginfod(std::shared_ptr<Debuginfod> debuginfod);
  /// Asked for symbols of files that it gave. Before the first look-up.
  void use_kept(std::shared_ptr<KeptFiles> kept);
  ~Symbolizer();
  Symbolizer(Symbolizer&&) noexcept;
  Symbolizer& operator=(Symbolizer&&) noexcept;

  void add_range(NamedRange range);
  /// Symbols of sections with this path (and, if given, this build id) come from this ELF file. The mapped file itself comes first; further
  /// calls add separate debug files. Files are opened at the first look-up that needs them; one that cannot be read gives no symbols.
  void add_debug_file(const std::string& section_path, const std::string& elf_path, const std::string& build_id = {});

  /// Where files of kernel modules are looked for, below and best first, when their lines of source are asked for. A file is taken only if
  /// its functions lie as the kernel's names of that module do.
  void add_module_folder(std::string folder);

  /// `valid`, if given, gets what Symbol::valid is, also if there is no symbol.
  [[nodiscard]] std::optional<Symbol> find(SpaceId space, Ip ip, TimeNs when, Interval* valid = nullptr) const;
  /// Lines of source through DWARF, inlined functions told apart. Reads debug information at the first look-up of a file.
  [[nodiscard]] SourcePlace source_at(SpaceId space, Ip ip, TimeNs when) const;
  /// Every statement of the file that sections with this path and build id show, one compilation after the other until the visitor returns
  /// false; views live as long as the Symbolizer. False if the file has no debug information.
  bool visit_source(std::string_view path, std::string_view build_id, const SourceVisitor& visitor) const;
  /// Where in which file the code at an address came from; nothing for code without a file that is an ELF one.
  [[nodiscard]] std::optional<FilePlace> file_place(SpaceId space, Ip ip, TimeNs when) const;
  /// Addresses of the symbol `name` in the kernel or any section (first match first); empty if none.
  [[nodiscard]] std::vector<Ip> addresses_of(std::string_view name) const;
  /// Everything that find() may answer with at one of `ips` (by space value) at any time.
  [[nodiscard]] SymbolPick pick(const std::map<uint32_t, std::set<uint64_t>>& ips) const;
  /// Symbols of sections with this path and build id are these, and no others.
  void add_fixed_file(FileSymbolPick file);
  /// Number of named ranges added.
  [[nodiscard]] size_t range_count() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
