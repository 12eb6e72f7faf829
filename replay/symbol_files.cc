// Symbol files for debuggers: see symbol_files.h.
#include "replay/symbol_files.h"

#include <algorithm>
#include <string_view>

#include "image/base/whole_file.h"
#include "replay/text.h"

namespace ptd::replay {

namespace {

constexpr size_t kMostLookups = 4U << 20, kMostNames = 2U << 20;
constexpr uint64_t kJoinedBytes = 1U << 20;  // sections of code closer than this share a section of the file
constexpr size_t kMostRegions = 1000;

struct Name {
  Ip ip;
  uint64_t size_bytes = 0;
  std::string_view text;
};
struct Region {
  uint64_t first = 0, end = 0;
};

/// Finds the names of sections one after the other.
class NameSearch {
 public:
  NameSearch(const Symbolizer& symbolizer, TimeNs when) : symbolizer_(&symbolizer), when_(when) {}

  void add(const Section& section, SpaceId space) {
    constexpr uint64_t kStep = 16;  // compilers align functions so
    const uint64_t first = section.ip.value, end = first + section.size_bytes;
    for (uint64_t at = first; at < end && lookups_ < kMostLookups && names_.size() < kMostNames; ++lookups_) {
      const auto symbol = symbolizer_->find(space, Ip{at}, when_);
      uint64_t next = (at | (kStep - 1)) + 1;
      if (symbol) {
        if (symbol->start.value >= first && (names_.empty() || names_.back().ip != symbol->start))
          names_.push_back({symbol->start, symbol->size_bytes, symbol->name});
        if (symbol->size_bytes < end - first && symbol->start.value + symbol->size_bytes > at) next = symbol->start.value + symbol->size_bytes;
      }
      if (next <= at) break;
      at = next;
    }
    if (names_.size() == named_) return;
    named_ = names_.size();
    const bool joins = !regions_.empty() && first >= regions_.back().first && (first - regions_.back().end < kJoinedBytes || regions_.size() >= kMostRegions);
    if (joins) {
      regions_.back().end = std::max(regions_.back().end, end);
    } else {
      regions_.push_back({first, end});
    }
  }
  [[nodiscard]] const std::vector<Name>& names() const { return names_; }
  [[nodiscard]] const std::vector<Region>& regions() const { return regions_; }

 private:
  const Symbolizer* symbolizer_;
  TimeNs when_;
  size_t lookups_ = 0, named_ = 0;
  std::vector<Name> names_;
  std::vector<Region> regions_;
};

/// An ELF file of class 32 or 64, little-endian: sections without bytes, and symbols in them.
class SymbolElf {
 public:
  SymbolElf(const SymbolRequest& request, const NameSearch& found) : word_(request.is_64bit ? 8 : 4), machine_(request.machine) {
    strings_ = symbols_ = std::string();
    strings_ += '\0';
    add_symbol(0, 0, 0, 0, 0);
    for (const Name& name : found.names()) {
      size_t region = 0;
      while (region < found.regions().size() && !(found.regions()[region].first <= name.ip.value && name.ip.value < found.regions()[region].end)) ++region;
      if (region == found.regions().size()) continue;
      const uint64_t text = strings_.size();
      strings_ += plain(name.text) + '\0';
      constexpr uint64_t kGlobalFunction = 0x12;
      add_symbol(text, name.ip.value, name.size_bytes, kGlobalFunction, region + 1);
    }
    build(found.regions());
  }
  [[nodiscard]] const std::string& bytes() const { return file_; }

 private:
  static void put(std::string& to, uint64_t value, size_t size) {
    for (size_t i = 0; i < size; ++i) to += static_cast<char>(value >> (8 * i));
  }
  void add_symbol(uint64_t name, uint64_t value, uint64_t size, uint64_t info, uint64_t section) {
    put(symbols_, name, 4);
    if (word_ == 8) {
      put(symbols_, info | section << 16, 4);
      put(symbols_, value, 8);
      put(symbols_, size, 8);
    } else {
      put(symbols_, value, 4);
      put(symbols_, size, 4);
      put(symbols_, info | section << 16, 4);
    }
  }
  struct Part {
    uint64_t name = 0, type = 0, flags = 0, address = 0, offset = 0, size = 0, link = 0, info = 0, align = 1, entry = 0;
  };
  void add_header(const Part& part) {
    put(headers_, part.name, 4);
    put(headers_, part.type, 4);
    for (const uint64_t value : {part.flags, part.address, part.offset, part.size}) put(headers_, value, word_);
    put(headers_, part.link, 4);
    put(headers_, part.info, 4);
    put(headers_, part.align, word_);
    put(headers_, part.entry, word_);
  }
  void build(const std::vector<Region>& regions) {
    constexpr std::string_view kNames("\0.text\0.symtab\0.strtab\0.shstrtab\0", 33);
    constexpr uint64_t kSymtab = 2, kStrtab = 3, kNobits = 8, kAllocExec = 6;
    const uint64_t header = word_ == 8 ? 64 : 52, symbol = word_ == 8 ? 24 : 16, count = regions.size() + 4;
    const uint64_t symbols_at = header, strings_at = symbols_at + symbols_.size(), names_at = strings_at + strings_.size();
    const uint64_t headers_at = (names_at + kNames.size() + 7) / 8 * 8;
    add_header({});
    for (const Region& region : regions) add_header({1, kNobits, kAllocExec, region.first, header, region.end - region.first, 0, 0, 16, 0});
    add_header({7, kSymtab, 0, 0, symbols_at, symbols_.size(), count - 2, 1, 8, symbol});
    add_header({15, kStrtab, 0, 0, strings_at, strings_.size(), 0, 0, 1, 0});
    add_header({23, kStrtab, 0, 0, names_at, kNames.size(), 0, 0, 1, 0});
    file_ = std::string("\x7f" "ELF") + static_cast<char>(word_ == 8 ? 2 : 1) + "\x01\x01" + std::string(9, '\0');
    put(file_, 2, 2);  // ET_EXEC
    put(file_, machine_, 2);
    put(file_, 1, 4);
    for (const uint64_t value : {uint64_t{0}, uint64_t{0}, headers_at}) put(file_, value, word_);
    put(file_, 0, 4);
    for (const uint64_t value : {header, uint64_t{0}, uint64_t{0}, uint64_t{word_ == 8 ? 64U : 40U}, count, count - 1}) put(file_, value, 2);
    file_ += symbols_ + strings_;
    file_ += kNames;
    file_.resize(headers_at, '\0');
    file_ += headers_;
  }

  size_t word_;
  uint16_t machine_;
  std::string strings_, symbols_, headers_, file_;
};

/// A recording chooses these names, and a debugger executes the script.
bool is_safe(std::string_view path) {
  constexpr std::string_view kSafe = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-=@,:";
  return !path.empty() && path.find_first_not_of(kSafe) == std::string_view::npos && !path.starts_with('-');
}

Status write_file(const std::string& path, const std::string& text, FileKind kind) {
  Result<std::unique_ptr<WholeFile>> file = WholeFile::open(path, {0666, kind});  // of an earlier call
  if (!file) return file.error();
  (void)(*file)->write(text);  // finish() says what failed
  return (*file)->finish();
}

constexpr std::string_view kCommands =
    "# Moves to a time in seconds: replay-seek 24.3417\n"
    "define replay-seek\n"
    "  monitor seek $arg0\n"
    "  maintenance flush register-cache\n"
    "  maintenance flush dcache\n"
    "  sharedlibrary\n"
    "  frame\n"
    "end\n"
    "# Moves to a share of the recording: replay-percent 40\n"
    "define replay-percent\n"
    "  monitor percent $arg0\n"
    "  maintenance flush register-cache\n"
    "  maintenance flush dcache\n"
    "  sharedlibrary\n"
    "  frame\n"
    "end\n";

}  // namespace

Result<SymbolFiles> write_symbol_files(const Recording& recording, ReplayMemory& memory, const SymbolRequest& request) {
  SymbolFiles made;
  NameSearch names(recording.symbolizer(), request.when);
  const ProcessImage process(memory, request.space, request.when, request.comm);
  std::string script = "# The files of the process at " + seconds(request.when) + " s. GDB loads them itself; other clients need these lines:\n";
  for (const MappedElf& mapped : process.files()) {
    const std::string& path = mapped.elf->path();
    script += "#   " + (is_safe(path) ? "add-symbol-file " + path + " -o " + hex(mapped.bias) : "omitted: " + plain(path)) + "\n";
    ++made.files;
  }
  if (request.space != kNoSpace && request.space != kKernelSpace) {
    for (const Section* section : memory.sections(request.space, request.when)) {
      const bool has_file = std::any_of(process.files().begin(), process.files().end(), [&](const MappedElf& mapped) {
        return mapped.section->path == section->path && mapped.section->build_id == section->build_id;
      });
      if (!has_file) names.add(*section, request.space);
    }
  }
  for (const Section* section : memory.sections(kKernelSpace, request.when)) names.add(*section, kKernelSpace);
  made.names = names.names().size();
  made.script = request.folder + "/symbols.gdb";
  const std::string file = request.folder + "/recorded.sym";
  if (made.names != 0) {
    if (!is_safe(file)) return Error{ErrorCode::bad_option, plain(file) + ": the folder's name has characters that a GDB script cannot hold", 0};
    if (made.files == 0) script += "# Those of an earlier script are of another moment\nsymbol-file\n";
    script += "# Names of code that has no file: of the kernel, of generated code, of a bundle\nadd-symbol-file " + file + "\n";
    if (const Status written = write_file(file, SymbolElf(request, names).bytes(), FileKind::program); !written) return written.error();
  }
  if (const Status written = write_file(made.script, script + std::string(kCommands), FileKind::other); !written) return written.error();
  return made;
}

}  // namespace ptd::replay
