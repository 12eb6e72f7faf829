// Symbol files for debuggers: see symbol_files.h.
#include "replay/symbol_files.h"

#include <algorithm>
#include <string_view>

#include "image/base/whole_file.h"
#include "recording/data/elf_writer.h"
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
        if (symbol->size_bytes < end - first && symbol->start.value + symbol->size_bytes > at)
          next = symbol->start.value + symbol->size_bytes;
      }
      if (next <= at) break;
      at = next;
    }
    if (names_.size() == named_) return;
    named_ = names_.size();
    const bool joins = !regions_.empty() && first >= regions_.back().first &&
                       (first - regions_.back().end < kJoinedBytes || regions_.size() >= kMostRegions);
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

/// An ELF file with these names, and no code.
std::string names_file(const SymbolRequest& request, const NameSearch& found) {
  ElfWriter elf(request.machine, request.is_64bit);
  for (const Region& region : found.regions()) elf.add_region(region.first, region.end - region.first);
  for (const Name& name : found.names()) elf.add_function(name.ip.value, name.size_bytes, plain(name.text));
  return elf.text();
}

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

// GDB does not send the selected thread with a monitor command: see GdbServer::selected().
constexpr std::string_view kGdbCommands =
    "# Monitor commands move the position, too: the breakpoints have to be known here then\n"
    "set breakpoint always-inserted on\n"
    "# Monitor commands are for the selected thread: GDB asks whether it is alive, and so names it\n"
    "define hook-monitor\n"
    "  if $_thread\n"
    "    set $replay_thread = $_thread\n"
    "    thread apply $replay_thread -q echo\n"
    "  end\n"
    "end\n"
    "# The next two: the stepi does not move, and makes GDB select the thread that executes then. Moves to a time in seconds: replay-seek "
    "24.3417\n"
    "define replay-seek\n"
    "  monitor select seek $arg0\n"
    "  maintenance flush register-cache\n"
    "  maintenance flush dcache\n"
    "  sharedlibrary\n"
    "  stepi\n"
    "end\n"
    "# Moves to a share of the recording: replay-percent 40\n"
    "define replay-percent\n"
    "  monitor select percent $arg0\n"
    "  maintenance flush register-cache\n"
    "  maintenance flush dcache\n"
    "  sharedlibrary\n"
    "  stepi\n"
    "end\n";

}  // namespace

Result<SymbolFiles> write_symbol_files(const Recording& recording, ReplayMemory& memory, const SymbolRequest& request) {
  SymbolFiles made;
  NameSearch names(recording.symbolizer(), request.when);
  const ProcessImage process(memory, request.space, request.when, request.comm);
  std::string script =
      "# The files of the process at " + seconds(request.when) + " s. GDB loads them itself; other clients need these lines:\n";
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
    if (!is_safe(file))
      return Error{ErrorCode::bad_option, plain(file) + ": the folder's name has characters that a GDB script cannot hold", 0};
    if (made.files == 0) script += "# Those of an earlier script are of another moment\nsymbol-file\n";
    script += "# Names of code that has no file: of the kernel, of generated code, of a bundle\nadd-symbol-file " + file + "\n";
    if (const Status written = write_file(file, names_file(request, names), FileKind::program); !written) return written.error();
  }
  if (const Status written = write_file(made.script, script + std::string(kGdbCommands) + request.commands, FileKind::other); !written)
    return written.error();
  return made;
}

}  // namespace ptd::replay
