// Symbolizer: (space, ip, time) -> name and offset.
#pragma once

#include <concepts>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ptdecode/export.h"
#include "ptdecode/timeline.h"

namespace ptd {

class Debuginfod;
class SavedFiles;

struct Symbol {
  std::string_view name;      ///< demangled; lives as long as the Symbolizer
  std::string_view module;    ///< Symbolizer::module_of(), "[kernel]", "[virtio]", "[bpf]", "[vdso]"
  uint64_t offset_bytes = 0;  ///< of the ip in the symbol
  Ip start;                   ///< the symbol's address
  uint64_t size_bytes = 0;    ///< 0 if not recorded
  Interval valid;             ///< times at which the result for this ip is certainly the same; for caches
  /// Set if another function of the file has the same readable name: the function's source file ("a.c"), or its address in the file
  /// ("0x1234") if that is not known.
  std::string_view place = {};
};

/// Source lines of generated code, as its run-time says.
struct GeneratedLines {
  struct Line {
    uint32_t offset_bytes = 0;  ///< of the first byte, from the start of the range
    uint32_t line = 0;
  };
  std::string file;
  std::vector<Line> lines;  ///< by offset
};

/// A named address range that lives for some time: kallsyms lines, KSYMBOL records, JIT functions.
struct NamedRange {
  SpaceId space = kKernelSpace;
  Ip ip;
  uint64_t size_bytes = 0;  ///< 0: up to the next name
  Interval live;
  SharedText name;  ///< empty: it covers the names of ranges that begin before it
  std::string module;
  /// As Symbol::place. If it is empty, the Symbolizer sets it to the address of each function of the kernel whose name another one of its
  /// module has at all times.
  std::string place = {};
  std::shared_ptr<const GeneratedLines> lines = {};  ///< of generated code; null: not known
};

/// A symbol of a file, addressed by the offset of its start in the mapped file.
struct FixedSymbol {
  uint64_t file_offset_bytes = 0;
  uint64_t reach_bytes = 0;               ///< bytes for which find() returns it: its size, or a guess if the size is not recorded
  uint64_t size_bytes = 0;                ///< as Symbol::size_bytes
  std::string name;                       ///< demangled
  std::string place = {};                 ///< as Symbol::place
  std::vector<std::string> aliases = {};  ///< the other names of its address, as Symbolizer::names_at() returns them
};

/// The code that a file's call frame information (.eh_frame) describes as one function, or as a part that a compiler split off one.
struct FrameSpan {
  uint64_t start = 0;  ///< file offset, or address
  uint64_t size_bytes = 0;
  bool is_function = true;  ///< not a part
};

/// Code of a function whose calls an exception leaves to go on at one landing pad, as a table in .gcc_except_table says.
struct CallSite {
  uint64_t start = 0;  ///< file offset, or address
  uint64_t size_bytes = 0;
  uint64_t landing = 0;  ///< likewise
};

/// Symbols of the sections with one path and build id.
struct FileSymbolPick {
  std::string section_path, build_id, module;
  std::vector<FixedSymbol> symbols;    ///< by offset, one each
  std::vector<FrameSpan> frames = {};  ///< by file offset; of code without a symbol
  std::vector<CallSite> sites = {};    ///< by file offset
};

/// A source line and its function. If the function was inlined, its callers follow.
struct SourceFrame {
  std::string_view function;  ///< demangled; empty if unknown
  std::string_view file;      ///< as the compiler wrote it, with the folder that it ran in
  uint32_t line = 0;          ///< 0: none
};

/// The row of the line table that describes an address to GDB.
struct SourceRow {
  std::string_view file;
  uint32_t line = 0;          ///< 0: none
  uint64_t offset_bytes = 0;  ///< of the address, from where the row begins
  bool is_statement = false;  ///< the row is recommended for a breakpoint
  bool is_alone = false;      ///< no other row begins at its address
};

/// The debug information of one address. Views are valid as long as the Symbolizer.
struct SourcePlace {
  std::vector<SourceFrame> frames;  ///< innermost first; empty: no debug information
  Interval valid;                   ///< an interval in which the answer is the same
  SourceRow row;                    ///< its line may not be that of the innermost frame where several rows begin at one address
};

/// A function that is inlined at an address.
struct InlinedFunction {
  std::string_view name;       ///< demangled; empty if unknown. Valid as long as the Symbolizer
  const void* copy = nullptr;  ///< identifies this inlined copy among all of the Symbolizer's files; do not dereference
  bool begins = false;         ///< the address is where the copy is entered (DW_AT_entry_pc; without it, the start of its first range)
};

/// The functions inlined at an address.
struct InlinedPlace {
  std::vector<InlinedFunction> functions;  ///< outermost first; empty: none, or no debug information
  uint64_t same_bytes = ~uint64_t{0};      ///< number of bytes from the address for which the answer is the same, except for `begins`
  Interval valid;                          ///< an interval in which the answer is the same
};

/// A line of a function, as in compilers' sample profiles.
struct ProfileFrame {
  std::string_view function;   ///< the linker's (mangled) name; valid as long as the Symbolizer
  uint32_t line_offset = 0;    ///< line minus the line of the function's declaration; may wrap around
  uint32_t discriminator = 0;  ///< as in the debug information
  bool operator==(const ProfileFrame&) const = default;
};

/// Code of one statement: [first, end), by p_vaddr. A second entry with the same `first` adds code of the line that directly continues it.
struct SourceStatement {
  uint64_t first = 0, end = 0;
  std::string_view file;
  uint32_t line = 0;
  uint32_t scope = 0;  ///< number, within the unit, of the function or of its inlined call
};
/// A function's own code, or one inlined copy of it. Without a name: it has none, or the code belongs to another compilation.
struct SourceFunction {
  std::string_view name, file;
  uint32_t line = 0;     ///< of its declaration; if that is not known, of its first instruction; 0: neither is known
  uint64_t entry = 0;    ///< address of its first instruction
  bool inlined = false;  ///< a copy in another function's code
  /// Split off the function by GCC (-fpartial-inlining), with the symbol NAME.part.N; what enters the function comes first.
  bool part = false;
};
/// One compilation.
struct SourceUnit {
  std::vector<SourceStatement> statements;  ///< by address
  std::vector<SourceFunction> functions;    ///< by their number, as SourceStatement::scope
  /// Returns whether the address is in the code of the function `number`, or of what is inlined in it. Valid during the visit.
  std::function<bool(uint32_t number, uint64_t address)> contains;
};
using SourceVisitor = std::function<bool(const SourceUnit&)>;

/// An address of a mapped file.
struct FilePlace {
  std::string_view path, build_id;  ///< of the section; live as long as the timeline
  uint64_t address = 0;             ///< in the file's own address space (p_vaddr)
  uint64_t file_offset_bytes = 0;   ///< of that address in the file
  bool relocatable = false;  ///< a kernel module: the file has no addresses, so `address` and the offset are those of a layout made here
};

/// Where tools that read profiles find the code at an address of a file.
struct ProfilePlace {
  uint64_t address = 0;       ///< as of the file's symbols. Of a kernel module: in its section .text
  uint64_t offset_bytes = 0;  ///< in the file
};

/// The symbols of some addresses: a Symbolizer built from them gives the same answers for these addresses.
struct SymbolPick {
  std::vector<NamedRange> ranges;  ///< in the order in which they must be added; sizes are final
  std::vector<FileSymbolPick> files;
};

/// Demangles Itanium C++ and legacy Rust names. Returns any other name unchanged.
[[nodiscard]] PTD_API std::string demangle(const std::string& name);

/// Finds names and source lines. Threads: any number of threads may look up at the same time; symbol tables load lazily under a lock. The
/// add_* and use_* functions must be called before the first look-up. Views in its answers are valid as long as the Symbolizer.
class PTD_API Symbolizer {
 public:
  explicit Symbolizer(Timeline timeline);
  /// Sets the source of missing debug information, used at the first look-up of a file.
  void use_debuginfod(std::shared_ptr<Debuginfod> debuginfod);
  /// Sets the source of symbols of saved files.
  void use_saved(std::shared_ptr<SavedFiles> saved);
  ~Symbolizer();
  Symbolizer(Symbolizer&&) noexcept;
  Symbolizer& operator=(Symbolizer&&) noexcept;

  /// Spaces inherit it that are forked from its space while it is live, where they have none of their own.
  void add_range(NamedRange range);
  /// Declares that symbols of sections with this path (and, if given, this build id) come from this ELF file. The mapped file itself comes
  /// first; further calls add separate debug files. Files are opened at the first look-up that needs them; one that cannot be read gives no
  /// symbols.
  void add_debug_file(const std::string& section_path, const std::string& elf_path, const std::string& build_id = {});

  /// Adds a folder in which files of kernel modules are searched for source lines; the first folder has priority. A file is used only if
  /// its functions have the offsets of the kernel's names of that module.
  void add_module_folder(std::string folder);

  /// Returns the symbol at an address. Sets `valid`, if given, as in Symbol::valid, even if there is no symbol.
  [[nodiscard]] std::optional<Symbol> find(SpaceId space, Ip ip, TimeNs when, Interval* valid = nullptr) const;
  /// Returns the short name of the file that a section of the timeline shows, as in Symbol::module. It is the file's name without its
  /// folders. Where several files of the timeline have it, as much of their paths as tells them apart is added ("a/prog"), and of several
  /// builds at one path the first digits of the build id ("cur.so [997d9b91]"). Files with one build id are one file. A path in brackets is
  /// returned as it is. The view is valid as long as the symbolizer and the section.
  [[nodiscard]] std::string_view module_of(const Section& section) const;
  /// Returns what .eh_frame says of the function at an address, which may have no symbol: its address, size and kind.
  [[nodiscard]] std::optional<FrameSpan> frame_at(SpaceId space, Ip ip, TimeNs when) const;
  /// Returns the landing pad at which an exception goes on that leaves a call at `ip`, the address of any byte of the instruction that
  /// calls. Nothing if the function has none for it, or if its file is not known.
  [[nodiscard]] std::optional<Ip> landing_of(SpaceId space, Ip ip, TimeNs when) const;
  /// Returns whether an address is a landing pad.
  [[nodiscard]] bool is_landing(SpaceId space, Ip ip, TimeNs when) const;
  /// Most names that names_at() returns: a hostile file may have millions at one address.
  static constexpr size_t kMostNames = 1024;
  /// Returns every name of the function at an address, as FunctionInfo::name: find()'s first, then the other symbols at its start, each
  /// once, best first. Names may have a version ("cfree@GLIBC_2.2.5"). Empty if find() finds nothing. At most kMostNames; warnings() says
  /// where there are more.
  [[nodiscard]] std::vector<std::string> names_at(SpaceId space, Ip ip, TimeNs when) const;
  /// Returns source lines and inlined functions from DWARF. Reads the debug information at the first look-up of a file.
  [[nodiscard]] SourcePlace source_at(SpaceId space, Ip ip, TimeNs when) const;
  /// Returns the functions inlined at an address, from DWARF, as source_at() reads it.
  [[nodiscard]] InlinedPlace inlined_at(SpaceId space, Ip ip, TimeNs when) const;
  /// Returns the line at an address and the call lines of the functions inlined there, innermost first; empty unless all of them are known.
  [[nodiscard]] std::vector<ProfileFrame> profile_frames_at(SpaceId space, Ip ip, TimeNs when) const;
  /// Visits every statement of the file with this path and build id, unit by unit, until the visitor returns false. Views are valid as long
  /// as the Symbolizer. Returns false if the file has no debug information.
  bool visit_source(std::string_view path, std::string_view build_id, const SourceVisitor& visitor) const;
  /// Returns the file and offset of the code at an address; nothing if it does not come from an ELF file.
  [[nodiscard]] std::optional<FilePlace> file_place(SpaceId space, Ip ip, TimeNs when) const;
  /// Returns the build id, in hex, of the file with this path and build id (FilePlace::path, build_id), as its note has it: also if none is
  /// recorded. Empty if it has none or is not available.
  [[nodiscard]] std::string build_id_of(std::string_view path, std::string_view build_id) const;
  /// Returns the place of FilePlace::address in the file with this path and build id (FilePlace::path, build_id). Nothing if it is outside
  /// the file's segments or, of a kernel module, outside its section .text: create_llvm_prof and generate_propeller_profiles read no other
  /// code of a module ([AutoFDO] "symbol_map.cc", ReadLoadableExecSegmentInfo; [Propeller] "binary_content.cc").
  [[nodiscard]] std::optional<ProfilePlace> profile_place(std::string_view path, std::string_view build_id, uint64_t address) const;
  /// Returns the addresses, in order, of what has the name `name` in the kernel or any section; empty if nothing has it. The name may be
  /// mangled, a C++ name without parameters, "a.c:f" as FunctionInfo::name, and with or without the default version ("f", "f@@V1"). An old
  /// version is meant by "f@V0", and by "f" if the file has no other f.
  [[nodiscard]] std::vector<Ip> addresses_of(std::string_view name) const;
  /// Returns everything that find() may return for one of `ips` (by space value, each list in order) at any time. Of landing pads, those at
  /// `ips`.
  [[nodiscard]] SymbolPick pick(const std::map<uint32_t, std::vector<uint64_t>>& ips) const;
  /// Returns everything that find() may return for any address at any time.
  [[nodiscard]] SymbolPick pick_all() const;
  /// Sets the symbols of sections with this path and build id. Their file is not read.
  void add_fixed_file(FileSymbolPick file);
  /// Returns a sentence for each file whose source lines or names are not all used because they exceed a limit; of the look-ups so far.
  [[nodiscard]] std::vector<std::string> warnings() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace ptd
