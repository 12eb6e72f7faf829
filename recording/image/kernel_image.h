// KernelImage: kernel text, modules, BPF programs and their names of a perf recording. Private to recording.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "image/source/elf_file.h"
#include "image/source/kernel/cut_names.h"
#include "image/source/kernel/kallsyms.h"
#include "image/source/kernel/kernel_dump.h"
#include "image/source/kernel/module_check.h"
#include "image/source/kernel/text_evidence.h"
#include "perfio/format/records.h"
#include "perfio/perf_reader.h"
#include "recording/image/bpf_code.h"
#include "recording/image/image_build.h"
#include "recording/image/live_ranges.h"
#include "recording/image/name_records.h"

namespace ptd {

/// Not thread-safe. Add records in time order; call add_to() after the last one.
class KernelImage {
 public:
  void on_mmap(const perfio::MmapRecord& map);
  void on_ksymbol(const perfio::KsymbolRecord& symbol, TimeNs time, int32_t cpu);
  /// BPF load events follow the KSYMBOLs of their program on the same cpu and give its id.
  void on_bpf(const perfio::BpfRecord& bpf, int32_t cpu);
  /// Processes a TEXT_POKE that adds code where there was none.
  void on_created(Ip ip, uint64_t size_bytes, TimeNs time) {
    created_[ip.value][time] = size_bytes;
    lives_.end_closed(ip, size_bytes, time);
  }

  /// Processes a TEXT_POKE that changes code: its bytes tell whether copies are of this boot.
  void on_changed(Ip ip, Bytes old_bytes, Bytes new_bytes) {
    evidence_.add_poke(ip, old_bytes, new_bytes);
    if (const auto symbol = lives_.open_at(ip); symbol) code_pokes_.add(*symbol, ip, old_bytes, new_bytes);
  }

  /// Sets the paths of copies of the text.
  struct Copies {
    std::string kcore_dir;                ///< of the recording itself; "" if it has none
    std::vector<std::string> after_dirs;  ///< taken after the recording ended; a path to a file is a dump of the machine's memory
    TimeNs last_record;                   ///< time of the recording's last dated record
    std::string running;                  ///< see OpenOptions::running_kernel; "" if the recording is another machine's
  };
  /// Adds copies or vmlinux, sections of BPF programs, and names. `warnings` gets one sentence for each missing part.
  void add_to(ImageBuild& image, const perfio::Features& features, const Copies& copies, std::vector<std::string>& warnings);
  /// Makes this the kernel of a guest. `suffix` tells it from other guests in names: ".PID", or empty.
  void set_guest(uint32_t machine, std::string suffix);
  /// The files of a guest's kernel; empty: none.
  struct GuestFiles {
    std::string kallsyms, modules, kcore, vmlinux;
  };
  /// As add_to(), for a guest. Returns whether there is any code.
  bool add_guest_to(ImageBuild& image, const GuestFiles& files, std::vector<std::string>& warnings);
  /// Returns the path of sections with the kernel's own code.
  [[nodiscard]] std::string text_path() const;
  /// Returns whether there is a copy of the kernel's memory.
  [[nodiscard]] bool has_copy() const { return has_copy_; }
  /// Returns the entry of #BP, 0 if the names of the kernel are not known.
  [[nodiscard]] Ip breakpoint_entry() const { return breakpoint_entry_; }

 private:
  struct Ksymbol {
    Ip ip;
    uint32_t size_bytes = 0;
    uint16_t type = 0;
    int32_t cpu = -1;
    uint32_t bpf_id = 0;  // 0: unknown
    std::string name;
    size_t live = 0;  // number in lives_
  };
  /// The names of a folder.
  struct Names {
    std::vector<KernelSymbol> symbols;
    bool is_cut = false;
  };
  /// `names` gets the symbols of the folder, none if it is refused.
  bool add_copy(ImageBuild& image, const perfio::Features& features, const std::string& dir, Interval taken, Names& names,
                std::vector<std::string>& warnings);
  [[nodiscard]] const perfio::MmapRecord* kernel_map() const;
  bool is_usable(ImageBuild& image, const std::string& path, std::vector<MemoryRange>& ranges, const std::vector<KernelSymbol>& symbols,
                 const std::vector<KernelModule>& modules, std::vector<std::string>& warnings);
  bool add_dump(ImageBuild& image, const perfio::Features& features, const std::string& path, TimeNs taken,
                std::vector<std::string>& warnings);
  [[nodiscard]] std::string contradiction_of(const KernelDump& dump, const perfio::Features& features) const;
  bool add_running(ImageBuild& image, const perfio::Features& features, const Copies& copies, std::vector<std::string>& warnings);
  bool add_vmlinux(ImageBuild& image, const perfio::Features& features);
  void add_unread_maps(ImageBuild& image, const perfio::Features& features);
  void add_names(ImageBuild& image, const std::string& path, std::vector<std::string>& warnings);
  void add_symbols(ImageBuild& image, std::vector<KernelSymbol> all, bool only_new_modules);
  /// Returns the modules that the recording maps, by address.
  [[nodiscard]] std::vector<KernelModule> mapped_modules() const;
  /// Returns the records of names, after the last of them.
  [[nodiscard]] NameRecords name_records() const;
  /// Returns whether names may be used. `unused`: what else is not used, from " and" on.
  [[nodiscard]] bool are_of_this_boot(ImageBuild& image, const std::string& path, const std::vector<KernelSymbol>& symbols,
                                      std::vector<std::string>& warnings, const std::string& unused = {}) const;
  /// Removes names that a cut list has no end of, adds the ends of modules, and reports a cut. Returns whether the list is cut.
  bool bound_names(ImageBuild& image, const std::string& path, std::vector<KernelSymbol>& symbols, const CutLine& cut,
                   const std::vector<KernelModule>& modules, const std::vector<MemoryRange>& ranges,
                   std::vector<std::string>& warnings) const;
  void report_modules(ImageBuild& image, const std::string& modules_path, const std::string& other_path, const WrongModules& wrong,
                      std::vector<std::string>& warnings) const;
  [[nodiscard]] uint64_t created_bytes(Ip ip, Interval live) const;
  void add_ksymbols_and_removals(ImageBuild& image, const perfio::Features& features);
  void add_ksymbols(ImageBuild& image, const perfio::Features& features);

  void add_copies(ImageBuild& image, std::vector<MemoryRange> ranges, const std::string& source, const std::vector<KernelModule>& modules,
                  const perfio::Features& features, Interval taken) const;
  bool add_guest_vmlinux(ImageBuild& image, const GuestFiles& files, const std::vector<KernelSymbol>& symbols,
                         std::vector<std::string>& warnings);
  /// Returns the name of a module's code, from its name in brackets.
  [[nodiscard]] std::string module_name(const std::string& bracketed) const;
  uint32_t machine_ = 0;  // 0: the host
  std::string suffix_;
  std::vector<perfio::MmapRecord> maps_;
  struct Removal {
    Ip ip;
    uint32_t size_bytes = 0;
    TimeNs when;
  };
  std::vector<Ksymbol> ksymbols_;
  struct NameEnd {
    Ip ip;
    uint64_t size_bytes = 0;
    std::string name;
    TimeNs when;
  };
  std::vector<NameEnd> ends_;                               // of names that no record gave
  std::map<uint64_t, std::map<TimeNs, uint64_t>> created_;  // by address and time: size
  std::vector<Removal> removals_;                           // out-of-line code: a page of slots goes with its name, without a poke
  LiveRanges lives_;
  CodePokes code_pokes_;  // of generated code, by number in lives_
  std::unordered_set<std::string> named_modules_;
  std::map<std::string, std::string> generated_modules_;  // that kallsyms has for generated code, by name
  std::vector<KernelSymbol> dumped_symbols_;              // of the first dump that has names
  Ip breakpoint_entry_;
  bool has_copy_ = false;
  TextEvidence evidence_;
};

}  // namespace ptd
