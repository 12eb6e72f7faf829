// Kernel text, BPF and kernel names of a perf recording.
#include "recording/image/kernel_image.h"

#include <algorithm>
#include <span>

#include "image/base/mapped_file.h"
#include "image/source/build_id.h"
#include "image/source/code_bytes.h"
#include "image/source/kernel/extents.h"
#include "image/symbols/kernel_debug.h"
#include "image/symbols/name_rank.h"
#include "ptdecode/guest.h"

namespace ptd {
namespace {

constexpr uint16_t kKsymbolBpf = 1, kKsymbolOol = 2;
constexpr uint32_t kMaxOolBytes = 1U << 20;  // of one name: a page of slots, a trampoline
// A BPF program is unregistered before the RCU grace period after which its memory is freed: a cpu may be inside it until then, or until a
// record says that the memory holds something else.
constexpr uint64_t kUnregisterGraceNs = 100'000'000;
constexpr uint64_t kMaxSymbolBytes = 1U << 20;
const std::string kKernelName = kKernelTextPath;

bool is_kernel_text(const std::string& path) {
  return path.starts_with(kKernelName) || path.starts_with("[guest.kernel.kallsyms") || path.starts_with("[kernel]") ||
         path == "[kernel.vmlinux]";
}

TimeNs plus(TimeNs t, uint64_t ns) { return t.value > kTimeMax.value - ns ? kTimeMax : TimeNs{t.value + ns}; }

// The modules are in order of their addresses.
std::string module_of(const std::vector<KernelModule>& modules, Ip ip) {
  const auto after = std::upper_bound(modules.begin(), modules.end(), ip.value,
                                      [](uint64_t address, const KernelModule& module) { return address < module.address; });
  if (after == modules.begin()) return kKernelName;
  const KernelModule& module = *std::prev(after);
  return ip.value - module.address < module.size_bytes ? "[" + module.name + "]" : kKernelName;
}

/// The build ids that a recording tells of its modules.
class ModuleIds {
 public:
  ModuleIds(const std::vector<perfio::MmapRecord>& maps, const perfio::Features& features) {
    for (const perfio::BuildIdEntry& entry : features.build_ids) add(entry.path, entry.build_id);
    for (const perfio::MmapRecord& map : maps) add(map.path, map.build_id);
  }
  /// "" if none is recorded; kSeveralBuildIds if a module was replaced by another build of it.
  [[nodiscard]] std::string find(const std::string& section_path) const {
    const auto known = ids_.find(section_path);
    return known == ids_.end() ? std::string() : known->second;
  }

 private:
  void add(const std::string& path, const std::string& raw) {
    const std::string id = normalize_build_id(perfio::build_id_hex(raw)), name = module_section_path(path);
    if (id.empty() || name.empty()) return;
    const auto [known, is_new] = ids_.emplace(name, id);
    if (!is_new && !same_build_id(known->second, id)) known->second = kSeveralBuildIds;
  }
  std::unordered_map<std::string, std::string> ids_;
};

// perf names its reference symbol after the bracket, and its address as the offset of the mapping.
std::string reference_symbol(const perfio::MmapRecord& kernel) {
  const size_t bracket = kernel.path.find(']');
  return bracket == std::string::npos ? std::string() : kernel.path.substr(bracket + 1);
}

std::string kernel_build_id(const perfio::Features& features) {
  for (const perfio::BuildIdEntry& entry : features.build_ids) {
    if (is_kernel_text(entry.path)) return normalize_build_id(perfio::build_id_hex(entry.build_id));
  }
  return {};
}

// Text names only.
std::vector<KernelSymbol> text_of(std::vector<KernelSymbol> symbols, std::vector<uint64_t>& sizes) {
  std::vector<KernelSymbol> text;
  size_t next = 0;  // of the first symbol at another address
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (!symbols[i].is_text() || !is_kernel_half(Ip{symbols[i].address})) continue;
    next = std::max(next, i + 1);
    while (next < symbols.size() && symbols[next].address == symbols[i].address) ++next;
    sizes.push_back(next < symbols.size() ? std::min(symbols[next].address - symbols[i].address, kMaxSymbolBytes) : 4096);
    text.push_back(std::move(symbols[i]));
  }
  return text;
}

NameRank rank(const KernelSymbol& symbol) {
  const bool weak = symbol.type == 'w' || symbol.type == 'W';
  return name_rank({symbol.name, true, true, symbol.type == 'T' || weak, weak});
}

}  // namespace

std::string KernelImage::text_path() const { return machine_ == 0 ? kKernelName : "[guest.kernel.kallsyms" + suffix_ + "]"; }

std::string KernelImage::module_name(const std::string& bracketed) const {
  return machine_ == 0 ? bracketed : "[guest." + bracketed.substr(1, bracketed.size() - 2) + suffix_ + "]";
}

void KernelImage::add_copies(ImageBuild& image, std::vector<MemoryRange> ranges, const std::string& source,
                             const std::vector<KernelModule>& modules, const perfio::Features& features, Interval taken) const {
  std::erase_if(ranges, [](const MemoryRange& range) { return !is_kernel_half(range.ip) || range.code.bytes.size() > ~range.ip.value; });
  if (const Extents contradicted = remove_overlaps(ranges); !contradicted.empty()) {
    Finding finding;
    finding.kind = FindingKind::section_overlap;
    finding.space = kernel_of_machine(machine_);
    finding.ip = Ip{contradicted.front().first};
    finding.what = source + " contains different bytes for the same addresses, first in this page: none of them are used";
    image.builder.add_finding(std::move(finding));
    ranges = without(ranges, contradicted);
  }
  const ModuleIds ids(maps_, features);
  for (const MemoryRange& range : ranges) {
    DatedCopy copy;
    copy.space = kernel_of_machine(machine_);
    copy.ip = range.ip;
    copy.code = range.code;
    copy.taken = taken;
    const std::string name = module_of(modules, range.ip);
    copy.path = name == kKernelName ? text_path() : module_name(name);
    if (name != kKernelName && machine_ == 0) copy.build_id = ids.find(name);
    image.builder.add_copy(std::move(copy));
  }
}

void KernelImage::on_mmap(const perfio::MmapRecord& map) {
  if (map.executable && map.size_bytes > 0 && map.size_bytes <= ~map.addr) maps_.push_back(map);
}

void KernelImage::on_ksymbol(const perfio::KsymbolRecord& symbol, TimeNs time, int32_t cpu) {
  const Ip ip{symbol.addr};
  if (symbol.unregister) {
    const TimeNs last = symbol.type == kKsymbolBpf ? plus(time, kUnregisterGraceNs) : time;
    if (!lives_.close(ip, last)) ends_.push_back({ip, symbol.size_bytes, symbol.name, last});
    const bool out_of_line = symbol.type == kKsymbolOol && symbol.size_bytes <= kMaxOolBytes && is_kernel_half(ip);
    if (out_of_line && time > kTimeMin) removals_.push_back({ip, symbol.size_bytes, time});
    return;
  }
  if (symbol.size_bytes == 0 || symbol.size_bytes > ~symbol.addr) return;
  const bool shares = symbol.type == kKsymbolBpf && shares_page(symbol.name);
  ksymbols_.push_back({ip, symbol.size_bytes, symbol.type, cpu, 0, symbol.name, lives_.open(ip, shares ? 1 : symbol.size_bytes, time)});
}

void KernelImage::on_bpf(const perfio::BpfRecord& bpf, int32_t cpu) {
  constexpr uint16_t kLoad = 1;
  constexpr size_t kMaxFunctions = 1024;  // of one program
  if (bpf.type != kLoad) return;
  size_t looked_at = 0;
  for (auto symbol = ksymbols_.rbegin(); symbol != ksymbols_.rend() && looked_at < kMaxFunctions; ++symbol, ++looked_at) {
    if (symbol->cpu != cpu || symbol->type != kKsymbolBpf) continue;
    if (symbol->bpf_id != 0) break;
    symbol->bpf_id = bpf.id;
  }
}

std::vector<KernelModule> KernelImage::mapped_modules() const {
  std::vector<KernelModule> modules;
  for (const perfio::MmapRecord& map : maps_) {
    const std::string name = module_section_path(map.path);
    if (name.size() > 2) modules.push_back({name.substr(1, name.size() - 2), map.size_bytes, map.addr});
  }
  std::ranges::stable_sort(modules, {}, &KernelModule::address);
  return modules;
}

NameRecords KernelImage::name_records() const {
  NameRecords records;
  for (const Ksymbol& symbol : ksymbols_) records.add(symbol.ip, symbol.name, lives_.live(symbol.live));
  for (const NameEnd& end : ends_) records.add_end(end.ip, end.size_bytes, end.name, end.when);
  return records;
}

// The recording's mapping of the kernel's text; nullptr if it has none.
const perfio::MmapRecord* KernelImage::kernel_map() const {
  const auto map = std::ranges::find_if(maps_, [](const perfio::MmapRecord& each) { return is_kernel_text(each.path); });
  return map == maps_.end() ? nullptr : &*map;
}

// Whether the text is of the recorded boot. Reports a contradiction. Removes from `ranges` the kernel's data that copies before have.
bool KernelImage::is_usable(ImageBuild& image, const std::string& path, std::vector<MemoryRange>& ranges,
                            const std::vector<KernelSymbol>& symbols, const std::vector<KernelModule>& modules,
                            std::vector<std::string>& warnings) {
  const perfio::MmapRecord* kernel = kernel_map();
  KernelTextCopy text = kernel_text_in(path, ranges, symbols, modules, Ip{kernel == nullptr ? 0 : kernel->file_offset_bytes});
  (void)remove_overlaps(text.ranges);
  if (const std::string why = evidence_.contradiction_of(text, image.source.family()); !why.empty()) {
    Finding finding;
    finding.kind = FindingKind::file_changed;
    finding.what = text.path + " is " + why + "; it is not used";
    warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
    return false;
  }
  ranges = without(ranges, evidence_.known_data(text, image.source.family()));
  evidence_.add_copy(std::move(text));
  return true;
}

bool KernelImage::add_copy(ImageBuild& image, const perfio::Features& features, const std::string& dir, Interval taken, Names& names,
                           std::vector<std::string>& warnings) {
  CutLine cut_line;
  std::vector<KernelSymbol> symbols = read_kallsyms(dir + "/kallsyms", &cut_line);
  if (!are_of_this_boot(image, dir + "/kallsyms", symbols, warnings, " and the code beside it are")) return false;
  bool cut = false;
  auto ranges = read_kcore(dir + "/kcore", image.source.family(), &cut);
  if (!ranges.ok() || cut) {
    Finding finding;
    finding.kind = ranges.ok() ? FindingKind::file_changed : FindingKind::file_missing;
    finding.what = ranges.ok() ? dir + "/kcore ends before its segments do: some of the kernel's code is missing" : ranges.error().message;
    warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
  }
  const std::vector<KernelModule> modules = read_modules(dir + "/modules");
  if (ranges.ok() && !is_usable(image, dir + "/kcore", *ranges, symbols, modules, warnings)) return false;
  report_modules(image, dir + "/modules", dir + "/kallsyms", compare_modules(modules, symbols), warnings);
  names.is_cut =
      bound_names(image, dir + "/kallsyms", symbols, cut_line, modules, ranges.ok() ? *ranges : std::vector<MemoryRange>(), warnings);
  names.symbols = std::move(symbols);
  if (!ranges.ok()) return false;
  report_modules(image, dir + "/modules", dir + "/kcore", compare_modules(modules, *ranges), warnings);
  add_copies(image, *ranges, dir + "/kcore", modules, features, taken);
  return true;
}

namespace {

/// Returns the memory around modules, where the kernel puts trampolines and probes that no record maps. `modules` are sorted by address.
std::pair<Ip, uint64_t> surroundings_of(const std::vector<KernelModule>& modules) {
  constexpr uint64_t kMarginBytes = 2U << 20, kMostBytes = 64U << 20;
  const uint64_t first = modules.front().address - std::min(modules.front().address, kMarginBytes);
  return {Ip{first}, std::min(modules.back().address - first + modules.back().size_bytes + kMarginBytes, kMostBytes)};
}

}  // namespace

// Why a dump is not of the recorded boot; "" if nothing says so. Randomised bases of the kernel differ by 64 KiB or more, and _stext is
// less than that after _text.
std::string KernelImage::contradiction_of(const KernelDump& dump, const perfio::Features& features) const {
  constexpr uint64_t kMostHeadBytes = 0x10000;
  const std::string recorded = kernel_build_id(features);
  if (!recorded.empty() && !dump.build_id.empty() && !same_build_id(recorded, dump.build_id))
    return "of the kernel with build id " + dump.build_id + ", and the recording of that with " + recorded;
  const perfio::MmapRecord* kernel = kernel_map();
  if (kernel == nullptr) return {};
  const uint64_t reference = kernel->file_offset_bytes, most = reference_symbol(*kernel) == "_stext" ? 0 : kMostHeadBytes;
  if (reference == 0 || (dump.stext >= reference && dump.stext - reference <= most)) return {};
  return "of another boot: it has _stext at " + address_text(dump.stext) + ", and the recording " + reference_symbol(*kernel) + " at " +
         address_text(reference);
}

bool KernelImage::add_dump(ImageBuild& image, const perfio::Features& features, const std::string& path, TimeNs taken,
                           std::vector<std::string>& warnings) {
  std::vector<std::pair<Ip, uint64_t>> wanted;
  for (const perfio::MmapRecord& map : maps_) wanted.emplace_back(Ip{map.addr}, map.size_bytes);
  const std::vector<KernelModule> modules = mapped_modules();
  if (!modules.empty()) wanted.push_back(surroundings_of(modules));
  Result<KernelDump> dump = read_kernel_dump(path, features.arch, wanted);
  const std::string contradiction = dump.ok() ? contradiction_of(*dump, features) : std::string();
  if (!dump.ok() || !contradiction.empty()) {
    Finding finding;
    finding.kind = dump.ok() ? FindingKind::file_changed : FindingKind::file_missing;
    finding.what = dump.ok() ? path + " is " + contradiction + "; it is not used" : dump.error().message;
    warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
    return false;
  }
  if (!is_usable(image, path, dump->ranges, dump->symbols, modules, warnings)) return false;
  add_copies(image, dump->ranges, path, modules, features, {taken, kTimeMax});
  image.note_origin(kKernelName, {}, path, "a dump of the machine's memory");
  if (dump->has_bad_names) warnings.push_back(path + " has tables of the kernel's names that are malformed; they are not used");
  if (dumped_symbols_.empty()) {
    dumped_symbols_ = std::move(dump->symbols);
    add_module_ends(dumped_symbols_, modules);
  }
  return true;
}

// The text that this machine runs now, if it is the recording's very boot: the same build, and perf's reference symbol at the same
// randomised address. It was read after the recording, and is dated so: what was patched since shows by the records.
bool KernelImage::add_running(ImageBuild& image, const perfio::Features& features, const Copies& copies,
                              std::vector<std::string>& warnings) {
  const perfio::MmapRecord* kernel = kernel_map();
  if (copies.running.empty() || kernel == nullptr) return false;
  const std::string root = copies.running == "/" ? "" : copies.running;
  const std::string notes = read_text_file(root + "/sys/kernel/notes", 1U << 20);
  const std::string recorded = kernel_build_id(features);
  if (recorded.empty() || !same_build_id(recorded, build_id_in_notes(std::as_bytes(std::span(notes.data(), notes.size()))))) return false;
  const std::string reference = reference_symbol(*kernel);
  const std::vector<KernelSymbol> symbols = read_kallsyms(root + "/proc/kallsyms");
  const uint64_t first = address_of(symbols, "_stext"), end = address_of(symbols, "_etext");
  if (reference.empty() || first == 0 || end <= first || address_of(symbols, reference) != kernel->file_offset_bytes) return false;
  std::vector<std::pair<Ip, uint64_t>> wanted{{Ip{first}, end - first}};
  const std::vector<KernelModule> modules = read_modules(root + "/proc/modules");
  for (const KernelModule& module : modules) wanted.emplace_back(Ip{module.address}, module.size_bytes);
  const auto ranges = read_running_kcore(root + "/proc/kcore", image.source.family(), wanted);
  if (!ranges.ok() || ranges->empty()) return false;
  add_copies(image, *ranges, root + "/proc/kcore", modules, features, {copies.last_record, kTimeMax});
  image.note_origin(kKernelName, {}, root + "/proc/kcore", "this machine still runs the recorded boot");
  add_names(image, root + "/proc/kallsyms", warnings);
  warnings.push_back("the recording contains no copy of the kernel's text; it is read from " + root +
                     "/proc/kcore, because this machine has not rebooted since: later changes without a record are not seen");
  return true;
}

bool KernelImage::add_vmlinux(ImageBuild& image, const perfio::Features& features) {
  const perfio::MmapRecord* kernel = kernel_map();
  const std::string build_id = kernel_build_id(features);
  const auto elf = image.source.find_vmlinux(build_id, features.os_release);
  if (kernel == nullptr || !elf) return false;
  const std::string reference = reference_symbol(*kernel);
  const std::vector<ElfSymbol> symbols = elf->read_symbols();
  const auto symbol = std::find_if(symbols.begin(), symbols.end(), [&](const ElfSymbol& s) { return s.name == reference; });
  if (reference.empty() || symbol == symbols.end()) return false;
  const uint64_t delta = kernel->file_offset_bytes - symbol->address;
  for (const ElfSegment& segment : elf->segments()) {
    Section section;
    section.ip = Ip{segment.address + delta};
    section.size_bytes = segment.file_size_bytes;
    if (!segment.executable || section.size_bytes == 0 || !is_kernel_half(section.ip) || section.size_bytes > ~section.ip.value) continue;
    section.code = piece_of(elf->file(), segment.file_offset_bytes, segment.file_size_bytes);
    section.path = elf->path();
    section.build_id = build_id;
    section.file_offset_bytes = segment.file_offset_bytes;
    section.assumed = true;
    image.add_section(std::move(section));
  }
  image.add_symbol_file(elf->path(), elf->path(), build_id);
  for (const ElfSymbol& named : symbols) {
    if (named.name == "asm_exc_int3" || named.name == "int3") breakpoint_entry_ = Ip{named.address + delta};
  }
  return true;
}

// Kernel mappings for which there is no copy: known, without bytes.
void KernelImage::add_unread_maps(ImageBuild& image, const perfio::Features& features) {
  std::unordered_map<std::string, std::string> build_ids;  // by the name that the section gets
  const auto name_of = [](const std::string& path) { return is_kernel_text(path) ? kKernelName : path; };
  for (const perfio::BuildIdEntry& entry : features.build_ids) {
    std::string known = normalize_build_id(perfio::build_id_hex(entry.build_id));
    if (!known.empty()) build_ids.emplace(name_of(entry.path), std::move(known));
  }
  for (const perfio::MmapRecord& map : maps_) {
    Section section;
    section.ip = Ip{map.addr};
    section.size_bytes = map.size_bytes;
    section.path = name_of(map.path);
    std::string build_id = normalize_build_id(perfio::build_id_hex(map.build_id));
    const auto known = build_ids.find(section.path);
    if (build_id.empty() && known != build_ids.end()) build_id = known->second;
    section.build_id = build_id;
    image.add_missing(section.path, build_id, "kernel text without a copy of memory (record with --kcore)");
    image.add_section(std::move(section));
  }
}

/// Whether the reference symbol of the recording's kernel mapping has the recorded address in a kallsyms file. It has in every copy of the
/// same boot; kallsyms of another kernel, or of another boot with other randomised addresses, would give wrong names. Reports a
/// contradiction.
bool KernelImage::are_of_this_boot(ImageBuild& image, const std::string& path, const std::vector<KernelSymbol>& symbols,
                                   std::vector<std::string>& warnings, const std::string& unused) const {
  const bool has_addresses =
      std::any_of(symbols.begin(), symbols.end(), [](const KernelSymbol& s) { return is_kernel_half(Ip{s.address}); });
  if (!has_addresses && is_regular_file(path)) {
    const char* remedy = machine_ == 0 ? "functions of the kernel have no names (record as root"
                                       : "functions of the guest's kernel have no names (copy it as the guest's root";
    warnings.push_back(path + " has no addresses: " + remedy + ", with the sysctl kernel.kptr_restrict 0 or 1)");
  }
  for (const perfio::MmapRecord& map : maps_) {
    const std::string reference = is_kernel_text(map.path) ? reference_symbol(map) : std::string();
    const uint64_t address = reference.empty() ? 0 : address_of(symbols, reference);
    if (address == 0 || map.file_offset_bytes == 0 || address == map.file_offset_bytes) continue;
    Finding finding;
    finding.kind = FindingKind::file_changed;
    finding.ip = Ip{map.file_offset_bytes};
    finding.what = path + " is of another kernel or another boot: it has " + reference + " at " + address_text(address) +
                   ", and the recording at " + address_text(map.file_offset_bytes) + "; its names" + (unused.empty() ? " are" : unused) +
                   " not used";
    warnings.push_back(finding.what);
    image.builder.add_finding(std::move(finding));
    return false;
  }
  return true;
}

void KernelImage::add_names(ImageBuild& image, const std::string& path, std::vector<std::string>& warnings) {
  CutLine cut_line;
  std::vector<KernelSymbol> all = read_kallsyms(path, &cut_line);
  if (!are_of_this_boot(image, path, all, warnings)) return;
  bound_names(image, path, all, cut_line, {}, {}, warnings);
  add_module_ends(all, mapped_modules());
  add_symbols(image, std::move(all), false);
}

bool KernelImage::bound_names(ImageBuild& image, const std::string& path, std::vector<KernelSymbol>& symbols, const CutLine& cut,
                              const std::vector<KernelModule>& modules, const std::vector<MemoryRange>& ranges,
                              std::vector<std::string>& warnings) const {
  const std::string why = remove_cut_names(symbols, cut, modules, ranges);
  add_module_ends(symbols, modules);
  if (why.empty()) return false;
  Finding finding;
  finding.kind = FindingKind::file_changed;
  finding.space = kernel_of_machine(machine_);
  finding.what = path + " is cut: " + why + "; the names at its end are not used";
  warnings.push_back(finding.what);
  image.builder.add_finding(std::move(finding));
  return true;
}

/// Reports modules that the list has at other addresses than what was read with it: their code and their functions may have names of
/// others.
void KernelImage::report_modules(ImageBuild& image, const std::string& modules_path, const std::string& other_path,
                                 const WrongModules& wrong, std::vector<std::string>& warnings) const {
  if (wrong.count == 0) return;
  Finding finding;
  finding.kind = FindingKind::file_changed;
  finding.space = kernel_of_machine(machine_);
  finding.ip = Ip{wrong.first};
  finding.what = modules_path + " contradicts " + other_path + ": " + wrong.what + ": names of modules may be wrong";
  warnings.push_back(finding.what);
  image.builder.add_finding(std::move(finding));
}

void KernelImage::add_symbols(ImageBuild& image, std::vector<KernelSymbol> all, bool only_new_modules) {
  const std::unordered_set<std::string> known = named_modules_;
  const NameRecords records = name_records();
  const uint64_t page_bytes = image.source.family() == CodeFamily::arm ? 65536 : 4096;
  std::vector<uint64_t> sizes;
  const std::vector<KernelSymbol> symbols = text_of(std::move(all), sizes);
  std::vector<size_t> order(symbols.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return symbols[a].address != symbols[b].address ? symbols[a].address < symbols[b].address : rank(symbols[a]) < rank(symbols[b]);
  });
  for (const size_t i : order) {
    const KernelSymbol& symbol = symbols[i];
    if (!only_new_modules && breakpoint_entry_.value == 0 && symbol.module.empty() && symbol.name == "asm_exc_int3") {
      breakpoint_entry_ = Ip{symbol.address};
    }
    const bool seen = known.find(symbol.module) != known.end();
    if (only_new_modules && (symbol.module.empty() || seen)) continue;
    named_modules_.insert(symbol.module);
    const std::string module = symbol.module.empty() ? "[kernel]" : "[" + symbol.module + "]";
    if (NameRecords::is_generated(symbol.module)) generated_modules_.emplace(symbol.name, module);
    for (const NameRecords::Part& part : records.parts_of(symbol, sizes[i], page_bytes)) {
      image.add_range({kernel_of_machine(machine_), Ip{symbol.address}, part.size_bytes, part.live, symbol.name, module_name(module)});
    }
  }
  if (breakpoint_entry_.value == 0) breakpoint_entry_ = Ip{address_of(symbols, "int3")};  // kernels before 5.8
}

/// Returns the size of the code that a record brought to the address while it had its name; 0 if none did.
uint64_t KernelImage::created_bytes(Ip ip, Interval live) const {
  const auto here = created_.find(ip.value);
  if (here == created_.end()) return 0;
  const auto created = here->second.lower_bound(live.first);
  return created != here->second.end() && created->first <= live.last ? created->second : 0;
}

void KernelImage::add_ksymbols(ImageBuild& image, const perfio::Features& features) {
  const BpfFunctions functions(features.bpf_progs);
  BpfStarts starts;
  for (const Ksymbol& symbol : ksymbols_) {
    if (symbol.type == kKsymbolBpf) starts.add(symbol.ip, lives_.live(symbol.live));
  }
  const auto module_of_name = [&](const std::string& name, bool bpf) {
    const auto listed = generated_modules_.find(name);
    return module_name(bpf ? "[bpf]" : listed != generated_modules_.end() ? listed->second : "[kernel]");
  };
  name_records().each_ended([&](Ip ip, const std::string& name, const NameRecords::Part& part) {
    image.add_range({kernel_of_machine(machine_), ip, part.size_bytes, part.live, name, module_of_name(name, name.starts_with("bpf_"))});
  });
  for (const Ksymbol& symbol : ksymbols_) {
    const Interval live = lives_.live(symbol.live);
    const bool bpf = symbol.type == kKsymbolBpf;
    const uint64_t created = bpf ? created_bytes(symbol.ip, live) : 0;
    const bool shares = bpf && created == 0 && shares_page(symbol.name);
    const uint64_t size_bytes = created != 0 ? created : shares ? starts.free_after(symbol.ip, symbol.size_bytes, live) : symbol.size_bytes;
    image.add_range({kernel_of_machine(machine_), symbol.ip, size_bytes, live, symbol.name, module_of_name(symbol.name, bpf)});
    if (!bpf) continue;  // OOL: its bytes are pokes
    Section section;
    section.space = kernel_of_machine(machine_);
    section.ip = symbol.ip;
    section.size_bytes = size_bytes;
    section.live = live;
    section.path = symbol.name;
    Bytes code = functions.find(symbol.bpf_id, symbol.ip, symbol.name);
    if (!code.empty()) {
      section.size_bytes = std::max<uint64_t>(section.size_bytes, code.size());
      section.code = own_bytes(code_pokes_.bytes_before(symbol.live, symbol.ip, code));
    } else if (created == 0) {
      Finding finding;
      finding.kind = FindingKind::bpf_bytes_missing;
      finding.space = kernel_of_machine(machine_);
      finding.ip = symbol.ip;
      finding.time = live;
      finding.what = "the recording contains no bytes of " + symbol.name;
      image.builder.add_finding(std::move(finding));
      image.add_missing(symbol.name, {}, "BPF code without bytes in the recording");
    }
    image.add_section(std::move(section));
  }
}

namespace {

// Lines of source for a copy of memory; code never comes from these files.
void add_debug_files(ImageBuild& image, const perfio::Features& features) {
  const std::string build_id = kernel_build_id(features);
  if (const auto elf = image.source.find_vmlinux(build_id, features.os_release); elf) {
    image.add_symbol_file(kKernelDebugPath, elf->path(), {});
  } else if (build_id.empty()) {
    const std::vector<std::string> paths = image.source.find_vmlinuxes_of_release(features.os_release);
    for (size_t i = 0; i < std::min(paths.size(), kMostKernelFiles); ++i) image.add_symbol_file(kernel_release_path(i), paths[i], {});
  }
  for (std::string& folder : image.source.module_folders(features.os_release)) image.add_module_folder(std::move(folder));
}

}  // namespace

void KernelImage::add_to(ImageBuild& image, const perfio::Features& features, const Copies& copies, std::vector<std::string>& warnings) {
  std::vector<Names> names(1);  // of each folder with a copy
  bool has_text = !copies.kcore_dir.empty() && add_copy(image, features, copies.kcore_dir, {kTimeMin, kTimeMax}, names[0], warnings);
  for (std::string dir : copies.after_dirs) {
    if (is_regular_file(dir)) {
      has_text = add_dump(image, features, dir, copies.last_record, warnings) || has_text;
      continue;
    }
    if (!is_regular_file(dir + "/kcore")) dir += "/kcore_dir";
    if (add_copy(image, features, dir, {copies.last_record, kTimeMax}, names.emplace_back(), warnings)) {
      has_text = true;
    } else {
      names.pop_back();
    }
  }
  has_copy_ = has_text;
  if (!has_text) {
    if (add_running(image, features, copies, warnings)) {
      add_debug_files(image, features);
      add_ksymbols_and_removals(image, features);
      return;
    }
    if (add_vmlinux(image, features)) {
      warnings.push_back(
          "the recording contains no copy of the kernel's text; vmlinux of the same build is used and its code marked assumed, because "
          "the kernel patches itself at boot (record with --kcore)");
    } else {
      add_unread_maps(image, features);
    }
  }
  if (has_text) add_debug_files(image, features);
  const std::string cached = image.source.find_cached_kallsyms(kernel_build_id(features));
  const bool has_names = std::ranges::any_of(names, [](const Names& of_folder) { return !of_folder.symbols.empty(); });
  if (!has_names && !cached.empty()) add_names(image, cached, warnings);
  std::stable_partition(names.begin(), names.end(), [](const Names& of_folder) { return !of_folder.is_cut; });
  for (Names& of_folder : names) add_symbols(image, std::move(of_folder.symbols), named_modules_.contains({}));
  if (!named_modules_.contains({})) add_symbols(image, std::move(dumped_symbols_), false);
  add_ksymbols_and_removals(image, features);
}

void KernelImage::add_ksymbols_and_removals(ImageBuild& image, const perfio::Features& features) {
  add_ksymbols(image, features);
  for (const Removal& removal : removals_) image.builder.remove(kernel_of_machine(machine_), removal.ip, removal.size_bytes, removal.when);
}

}  // namespace ptd
