// Symbolizer: named ranges first, then the symbols of the section's file.
#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "image/base/mapped_file.h"
#include "image/likeliest_section.h"
#include "image/placed_name.h"
#include "image/symbols/file_pick.h"
#include "image/symbols/file_symbols.h"
#include "image/symbols/kernel_debug.h"
#include "image/symbols/module_file.h"
#include "image/symbols/module_names.h"
#include "image/symbols/name_rank.h"
#include "image/symbols/pick_steps.h"
#include "image/symbols/range_index.h"
#include "image/symbols/source_lines.h"
#include "image/symbols/source_warnings.h"
#include "image/timeline_data.h"
#include "ptdecode/guest.h"
#include "ptdecode/symbols.h"

namespace ptd {
namespace {

constexpr size_t kMostAddresses = 1U << 22;  // of one name
constexpr size_t kMostRepeatedSymbols = 1U << 22;
constexpr int kMostGenerations = 64;          // of processes with names of their own, from which one inherits names
constexpr size_t kProvingKernelNames = 1000;  // number of functions with equal offsets that proves that two kernels are the same

std::string file_key(const std::string& path, const std::string& build_id) { return path + '\0' + build_id; }

std::vector<Ip> sorted_once(std::vector<Ip> addresses) {
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

// Returns equal texts for equal lists of files, under whatever paths: a recording can spell one path in many ways.
std::string identity_of(const std::vector<std::string>& paths) {
  std::string identity;
  for (const std::string& path : paths) {
    const auto file = file_identity(path);
    identity += file ? std::to_string(file->first) + ':' + std::to_string(file->second) : path;
    identity += '\0';
  }
  return identity;
}

}  // namespace

struct Symbolizer::State {
  /// A file under one of its paths. `symbols`: null if the file is unknown.
  struct File {
    std::string_view module;
    FileSymbols* symbols = nullptr;
  };
  /// The file at an address at a time. `section`: null if nothing is mapped there; `file`: null if the file is unknown.
  struct Place {
    const Section* section = nullptr;
    FileSymbols* file = nullptr;
    std::string_view module;
    uint64_t offset_bytes = 0;  ///< in the file
    Interval valid;             ///< times at which this is certainly the same
  };
  /// The kernel's own file, whose addresses are lower by `slide` than those of the running kernel. `file`: null if it is not available.
  struct KernelFile {
    FileSymbols* file = nullptr;
    std::string_view path;
    uint64_t slide = 0;
  };
  Timeline timeline;
  std::once_flag sorted, kernel_sought, named;
  std::optional<ModuleNames> module_names;
  // By file_key: of add_fixed_file(), whose recording may have had other files too.
  std::unordered_map<std::string, std::string> fixed_modules;
  KernelFile kernel;
  std::shared_ptr<SourceWarnings> warnings = std::make_shared<SourceWarnings>();
  ModuleFiles modules{warnings};
  std::map<uint32_t, RangeIndex> spaces;
  /// The nearest space with ranges that a space was forked from, and when: the ranges of that time are the child's, where it has none of
  /// its own.
  struct NamedParent {
    SpaceId space = kNoSpace;
    TimeNs forked;
  };
  std::vector<NamedParent> named_parents;                     // by TimelineData::index_of()
  std::map<std::string, std::vector<std::string>> elf_paths;  // file_key -> files
  std::mutex mutex;
  std::shared_ptr<Debuginfod> debuginfod;
  std::shared_ptr<SavedFiles> saved;
  struct KnownFile {
    std::string module;
    std::shared_ptr<FileSymbols> symbols;  // of all paths of the file
  };
  std::unordered_map<std::string, KnownFile> files;             // by file_key
  std::vector<std::atomic<const KnownFile*>> files_by_section;  // null: not sought yet
  const KnownFile unknown_file{};
  std::map<std::string, std::shared_ptr<FileSymbols>, std::less<>> contents;  // by identity_of()

  void sort() {
    std::call_once(sorted, [this] {
      for (auto& [space, index] : spaces) index.prepare(is_kernel_space(SpaceId{space}));
      find_named_parents();
      files_by_section = std::vector<std::atomic<const KnownFile*>>(timeline.section_count());
    });
  }
  void find_named_parents() {
    const TimelineData& data = timeline.data();
    named_parents.resize(data.spaces.size());
    for (uint32_t id = 0; id < data.spaces.size(); ++id) {
      const SpaceData& space = data.spaces[id];
      const uint32_t parent = data.index_of(space.forked_from);
      if (parent >= id) continue;  // none
      named_parents[id] = spaces.contains(space.forked_from.value) ? NamedParent{space.forked_from, space.forked} : named_parents[parent];
    }
  }
  [[nodiscard]] NamedParent named_parent(SpaceId space) const {
    const uint32_t id = timeline.data().index_of(space);
    return id < named_parents.size() ? named_parents[id] : NamedParent{};
  }
  /// A range, its space, and the time in it that stands for the one that was asked for. `range`: null if there is none.
  struct FoundRange {
    const NamedRange* range = nullptr;
    const RangeIndex* index = nullptr;
    TimeNs when;
  };
  /// Returns the range at an address, of the space or of those that it was forked from. Narrows `valid` as RangeIndex::find().
  [[nodiscard]] FoundRange range_at(SpaceId space, Ip ip, TimeNs when, Interval& valid) const {
    size_t steps = RangeIndex::kMaxStepsBack;
    Interval parents;
    for (int i = 0; i <= kMostGenerations; ++i) {
      const auto index = spaces.find(space.value);
      const NamedRange* range = index == spaces.end() ? nullptr : index->second.find(ip, when, i == 0 ? valid : parents, steps);
      if (range != nullptr) return {range, &index->second, when};
      const NamedParent parent = named_parent(space);
      if (parent.space == kNoSpace) break;
      space = parent.space;
      when = parent.forked;
    }
    return {};
  }
  /// Returns `wanted`, with the same addresses in the spaces whose ranges range_at() returns for them.
  [[nodiscard]] std::map<uint32_t, std::vector<uint64_t>> with_parents(const std::map<uint32_t, std::vector<uint64_t>>& wanted) const {
    std::map<uint32_t, std::vector<uint64_t>> all = wanted;
    std::set<uint32_t> grown;
    for (const auto& [space, addresses] : wanted) {
      NamedParent parent = named_parent(SpaceId{space});
      for (int i = 0; i < kMostGenerations && parent.space != kNoSpace; ++i, parent = named_parent(parent.space)) {
        std::vector<uint64_t>& more = all[parent.space.value];
        more.insert(more.end(), addresses.begin(), addresses.end());
        grown.insert(parent.space.value);
      }
    }
    for (const uint32_t space : grown) {
      std::vector<uint64_t>& addresses = all[space];
      std::sort(addresses.begin(), addresses.end());
      addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
    }
    return all;
  }

  const ModuleNames& names() {
    std::call_once(named, [this] { module_names.emplace(timeline); });
    return *module_names;
  }

  // Returns the symbols of a section's file.
  File file_of(SectionId id) {
    std::atomic<const KnownFile*>& known = files_by_section[id];
    const KnownFile* file = known.load(std::memory_order_acquire);
    if (file == nullptr) known.store(file = &known_file(timeline.section(id)), std::memory_order_release);
    return {file->module, file->symbols.get()};
  }
  File file_of(const Section& section) {
    const KnownFile& file = known_file(section);
    return {file.module, file.symbols.get()};
  }
  const KnownFile& known_file(const Section& section) {
    auto paths = elf_paths.find(file_key(section.path, section.build_id));
    if (paths == elf_paths.end()) paths = elf_paths.find(file_key(section.path, {}));
    if (paths == elf_paths.end()) return unknown_file;
    const std::lock_guard lock(mutex);
    KnownFile& file = files[paths->first];
    if (!file.symbols) {
      const std::string_view build_id = paths->first.size() > section.path.str().size() + 1 ? section.build_id : std::string_view();
      file.module = names().of(section.path, build_id);
      std::shared_ptr<FileSymbols>& symbols = contents[identity_of(paths->second)];
      if (!symbols) symbols = std::make_shared<FileSymbols>(file.module, paths->second, warnings, debuginfod, saved);
      file.symbols = symbols;
    }
    return file;
  }
  const KernelFile& kernel_file() {
    std::call_once(kernel_sought, [this] {
      sort();
      find_kernel_file();
    });
    return kernel;
  }
  std::span<const NamedRange> kernel_names() {
    const auto index = spaces.find(kKernelSpace.value);
    return index == spaces.end() ? std::span<const NamedRange>{} : std::span<const NamedRange>(index->second.ranges);
  }
  void find_kernel_file() {
    if (try_kernel_file(kKernelDebugPath, false)) return;
    for (size_t i = 0; i < kMostKernelFiles; ++i) {
      if (try_kernel_file(kernel_release_path(i), true)) return;
    }
  }
  // Uses the file registered under a path if it is the running kernel's. Returns whether it is.
  bool try_kernel_file(const std::string& registered, bool needs_proof) {
    const auto paths = elf_paths.find(file_key(registered, {}));
    if (paths == elf_paths.end()) return false;
    Section section;
    section.path = registered;
    FileSymbols* file = file_of(section).symbols;
    const std::optional<uint64_t> slide = kernel_slide(*file, needs_proof);
    if (slide) kernel = {file, paths->second.front(), *slide};
    return slide.has_value();
  }
  // Returns the offset of the running kernel's addresses from those of its file. Unless the file is known to be the right one, all
  // functions that occur in both must agree on it.
  std::optional<uint64_t> kernel_slide(FileSymbols& file, bool needs_proof) {
    std::unordered_map<std::string_view, uint64_t> running;  // 0: several
    for (const NamedRange& range : kernel_names()) {
      if (range.module != "[kernel]" || range.live.first != kTimeMin) continue;
      const auto [known, is_new] = running.emplace(range.name, range.ip.value);
      if (!is_new) known->second = 0;
    }
    const auto reference = running.find("_stext");
    const std::vector<uint64_t> offsets = file.offsets_of("_stext");
    const auto address = offsets.empty() ? std::nullopt : file.address_of(offsets.front());
    if (reference == running.end() || reference->second == 0 || !address) return std::nullopt;
    const uint64_t slide = reference->second - *address;
    if (!needs_proof) return slide;
    size_t agreeing = 0, others = 0;
    file.visit_functions([&](std::string_view name, uint64_t at) {
      const auto named = running.find(name);
      if (named != running.end() && named->second != 0) ++(named->second - at == slide ? agreeing : others);
    });
    return others == 0 && agreeing >= kProvingKernelNames ? std::optional(slide) : std::nullopt;
  }
  /// Returns a kernel module's own file; null for other sections, and if it is not available.
  ModuleFile* module_file(const Section& section, Ip ip) {
    if (!is_kernel_half(ip) || machine_of(section.space) != 0 || !section.path.starts_with("[") || section.path == kKernelTextPath)
      return nullptr;
    return modules.find(section.path, section.build_id, [&] {
      std::vector<const NamedRange*> loaded;
      for (const NamedRange& range : kernel_names()) {
        if (range.module == section.path) loaded.push_back(&range);
      }
      return loaded;
    });
  }
  /// Returns the place in its own file of an address in the kernel's or a module's text; nothing for other sections, and if the file is not
  /// available.
  std::optional<FilePlace> kernel_place(const Section& section, Ip ip) {
    if (const ModuleFile* module = module_file(section, ip)) {
      const auto address = module->address_of(ip);
      return address ? std::optional(FilePlace{module->path(), section.build_id, *address, *address, true}) : std::nullopt;
    }
    if (section.path != kKernelTextPath || kernel_file().file == nullptr) return std::nullopt;
    const uint64_t address = ip.value - kernel.slide;
    const auto offset = kernel.file->offset_of(address);
    if (!offset) return std::nullopt;
    return FilePlace{kernel.path, {}, address, *offset};
  }
  /// Returns the file with this path and build id, or the kernel module; null if there is none.
  std::pair<FileSymbols*, ModuleFile*> file_at(std::string_view path, std::string_view build_id) {
    Section section;
    section.path = std::string(path);
    section.build_id = std::string(build_id);
    FileSymbols* file = file_of(section).symbols;
    if (file == nullptr && path == kernel_file().path) file = kernel.file;
    return {file, file == nullptr ? modules.found_at(path) : nullptr};
  }
  /// Returns the source lines of the code at `place`, and its address in their file; null if there are none.
  std::pair<SourceLines*, uint64_t> lines_at(const Place& place, Ip ip) {
    if (place.section == nullptr) return {};
    if (place.file != nullptr) {
      const auto address = place.file->address_of(place.offset_bytes);
      return address ? std::pair(place.file->source(), *address) : std::pair<SourceLines*, uint64_t>();
    }
    const auto in_file = kernel_place(*place.section, ip);
    if (!in_file) return {};
    return {in_file->relocatable ? &module_file(*place.section, ip)->lines() : kernel.file->source(), in_file->address};
  }
  /// Returns the generated code at an address whose run-time gives its lines, or null. Sets `named` to the times around `when` at which
  /// this holds.
  const NamedRange* generated_at(SpaceId space, Ip ip, TimeNs when, Interval& named) const {
    const NamedRange* range = range_at(space_at(space, ip), ip, when, named).range;
    return range != nullptr && range->lines != nullptr ? range : nullptr;
  }
  Place place_at(SpaceId space, Ip ip, TimeNs when) {
    const auto [id, valid] = likeliest_section(timeline, space, ip, when);
    if (id == kNoSection) return {nullptr, nullptr, {}, 0, valid};
    const Section& section = timeline.section(id);
    const File file = file_of(id);
    return {&section, file.symbols, file.module, (ip - section.ip) + section.file_offset_bytes, valid};
  }
};

Symbolizer::Symbolizer(Timeline timeline) : state_(std::make_unique<State>()) { state_->timeline = std::move(timeline); }
void Symbolizer::use_debuginfod(std::shared_ptr<Debuginfod> debuginfod) { state_->debuginfod = std::move(debuginfod); }
void Symbolizer::use_saved(std::shared_ptr<SavedFiles> saved) { state_->saved = std::move(saved); }
Symbolizer::~Symbolizer() = default;
Symbolizer::Symbolizer(Symbolizer&&) noexcept = default;
Symbolizer& Symbolizer::operator=(Symbolizer&&) noexcept = default;

void Symbolizer::add_range(NamedRange range) { state_->spaces[range.space.value].ranges.push_back(std::move(range)); }

void Symbolizer::add_debug_file(const std::string& section_path, const std::string& elf_path, const std::string& build_id) {
  auto& paths = state_->elf_paths[file_key(section_path, build_id)];
  if (std::find(paths.begin(), paths.end(), elf_path) == paths.end()) paths.push_back(elf_path);
}

void Symbolizer::add_module_folder(std::string folder) { state_->modules.add_folder(std::move(folder)); }

void Symbolizer::add_fixed_file(FileSymbolPick file) {
  const std::string key = file_key(file.section_path, file.build_id);
  state_->elf_paths[key];
  state_->fixed_modules[key] = file.module;
  auto symbols = std::make_shared<FileSymbols>(std::move(file.symbols), std::move(file.frames), std::move(file.sites));
  state_->files[key] = {std::move(file.module), std::move(symbols)};
}

uint64_t& pick_steps() {
  static thread_local uint64_t steps = 0;
  return steps;
}

// Goes through ranges and sections, and looks for the addresses in each: at one address there may be as many as there are in all.
SymbolPick Symbolizer::pick(const std::map<uint32_t, std::vector<uint64_t>>& wanted) const {
  State& state = *state_;
  state.sort();
  SymbolPick picked;
  for (const auto& [space, addresses] : state.with_parents(wanted)) {
    const auto index = state.spaces.find(space);
    if (index == state.spaces.end()) continue;
    for (const NamedRange& range : index->second.ranges) {
      ++pick_steps();
      const auto ip = std::lower_bound(addresses.begin(), addresses.end(), range.ip.value);
      if (ip != addresses.end() && *ip - range.ip.value < range.size_bytes) picked.ranges.push_back(range);
    }
  }
  FilePick files;
  std::vector<State::File> file_of;
  for (SectionId id = 0; id < state.timeline.section_count(); ++id) file_of.push_back(state.file_of(id));
  const std::vector<SpaceData>& spaces = state.timeline.data().spaces;
  for (uint32_t space = 0; space < spaces.size(); ++space) {
    for (const SectionRect& rect : spaces[space].sections.rects()) {
      ++pick_steps();
      if (rect.section != kNoSection && file_of[rect.section].symbols != nullptr)
        files.add(space, rect, {state.timeline.section(rect.section), file_of[rect.section].module, file_of[rect.section].symbols});
    }
  }
  const auto index_of = [&state](SpaceId space) { return state.timeline.data().index_of(space); };
  for (const auto& [space, addresses] : wanted) {
    uint32_t oldest = index_of(SpaceId{space});
    while (oldest < spaces.size() && spaces[oldest].parent != kNoSpace) oldest = index_of(spaces[oldest].parent);
    if (oldest >= spaces.size() || !spaces[oldest].inherits()) continue;
    for (auto ip = addresses.begin(); ip != addresses.end();) {  // what a snapshot shows at them
      ++pick_steps();
      const MappingSnapshots::Place place = state.timeline.data().snapshots.at(spaces[oldest].start, *ip);
      if (place.section != kNoSection && file_of[place.section].symbols != nullptr)
        files.add(space, {place.first, place.last, {}, place.section},
                  {state.timeline.section(place.section), file_of[place.section].module, file_of[place.section].symbols});
      ip = std::upper_bound(ip, addresses.end(), place.last);
    }
  }
  files.merge_spans();
  for (const auto& [space, addresses] : wanted) {
    for (uint32_t at = index_of(SpaceId{space}); at < spaces.size(); at = index_of(spaces[at].parent)) files.pick(at, addresses);
  }
  files.add_to(picked);
  return picked;
}

SymbolPick Symbolizer::pick_all() const {
  State& state = *state_;
  state.sort();
  SymbolPick picked;
  for (const auto& [space, index] : state.spaces) picked.ranges.insert(picked.ranges.end(), index.ranges.begin(), index.ranges.end());
  std::set<std::pair<std::string, std::string>> known;
  std::set<const FileSymbols*> met;
  size_t repeated = 0;  // symbols of further paths of a file
  for (SectionId id = 0; id < state.timeline.section_count(); ++id) {
    const Section& section = state.timeline.section(id);
    const State::File file = state.file_of(id);
    if (file.symbols == nullptr || !known.emplace(section.path, section.build_id).second) continue;
    FileSymbolPick all{section.path, section.build_id, std::string(file.module), {}, {}, {}};
    if (repeated > kMostRepeatedSymbols) {
      state.warnings->add("files are mapped under so many paths that some paths have no names");
      break;
    }
    file.symbols->pick_all(all);
    if (!met.insert(file.symbols).second) repeated += all.symbols.size() + all.frames.size() + all.sites.size();
    if (!all.symbols.empty() || !all.frames.empty() || !all.sites.empty()) picked.files.push_back(std::move(all));
  }
  return picked;
}

std::vector<std::string> Symbolizer::warnings() const { return state_->warnings->texts(); }

std::optional<Symbol> Symbolizer::find(SpaceId space, Ip ip, TimeNs when, Interval* valid) const {
  State& state = *state_;
  state.sort();
  space = space_at(space, ip);
  Interval same;
  if (valid == nullptr) valid = &same;
  *valid = {};
  const NamedRange* range = state.range_at(space, ip, when, *valid).range;
  if (range != nullptr && !range->name.empty())
    return Symbol{range->name, range->module, ip - range->ip, range->ip, range->size_bytes, *valid, range->place};
  const State::Place place = state.place_at(space, ip, when);
  *valid = intersect(*valid, place.valid);
  if (place.file == nullptr) return std::nullopt;
  uint64_t offset = 0;
  const auto symbol = place.file->find(place.offset_bytes, offset);
  if (!symbol) return std::nullopt;
  return Symbol{symbol->name, place.module, offset, Ip{ip.value - offset}, symbol->size_bytes, *valid, symbol->place};
}

std::string_view Symbolizer::module_of(const Section& section) const {
  if (!state_->fixed_modules.empty()) {
    const auto known = state_->fixed_modules.find(file_key(section.path, section.build_id));
    if (known != state_->fixed_modules.end()) return known->second;
  }
  return state_->names().of(section.path, section.build_id);
}

std::optional<FrameSpan> Symbolizer::frame_at(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  const State::Place place = state_->place_at(space_at(space, ip), ip, when);
  std::optional<FrameSpan> found = place.file == nullptr ? std::nullopt : place.file->frame_at(place.offset_bytes);
  if (found) found->start = ip.value - (place.offset_bytes - found->start);
  return found;
}

std::optional<Ip> Symbolizer::landing_of(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  const State::Place place = is_kernel_half(ip) ? State::Place{} : state_->place_at(space, ip, when);
  const auto found = place.file == nullptr ? std::nullopt : place.file->landing_of(place.offset_bytes);
  return found ? std::optional(ip + (*found - place.offset_bytes)) : std::nullopt;
}

bool Symbolizer::is_landing(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  const State::Place place = is_kernel_half(ip) ? State::Place{} : state_->place_at(space, ip, when);
  return place.file != nullptr && place.file->is_landing(place.offset_bytes);
}

std::vector<std::string> Symbolizer::names_at(SpaceId space, Ip ip, TimeNs when) const {
  State& state = *state_;
  state.sort();
  space = space_at(space, ip);
  Interval valid;
  const State::FoundRange named = state.range_at(space, ip, when, valid);
  if (named.range != nullptr && !named.range->name.empty()) return names_of(*named.index, *named.range, named.when, *state.warnings);
  const State::Place place = state.place_at(space, ip, when);
  return place.file == nullptr ? std::vector<std::string>() : place.file->names_at(place.offset_bytes);
}

SourcePlace Symbolizer::source_at(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  Interval named;
  const NamedRange* range = state_->generated_at(space, ip, when, named);
  if (range != nullptr) {
    SourcePlace source = generated_source(*range, ip);
    source.valid = named;
    return source;
  }
  const State::Place place = state_->place_at(space, ip, when);
  const auto [lines, address] = state_->lines_at(place, ip);
  SourcePlace source = lines == nullptr ? SourcePlace{} : lines->place(address);
  source.valid = intersect(place.valid, named);
  return source;
}

InlinedPlace Symbolizer::inlined_at(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  Interval named;
  if (state_->generated_at(space, ip, when, named) != nullptr) return {{}, 1, named};
  const State::Place place = state_->place_at(space, ip, when);
  const auto [lines, address] = state_->lines_at(place, ip);
  InlinedPlace found = lines == nullptr ? InlinedPlace{} : lines->inlined(address);
  if (place.section == nullptr) found.same_bytes = 1;
  if (place.section != nullptr) found.same_bytes = std::min(found.same_bytes, place.section->size_bytes - (ip - place.section->ip));
  found.valid = intersect(place.valid, named);
  return found;
}

std::vector<ProfileFrame> Symbolizer::profile_frames_at(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  const auto [lines, address] = state_->lines_at(state_->place_at(space, ip, when), ip);
  return lines == nullptr ? std::vector<ProfileFrame>() : lines->profile_frames(address);
}

std::optional<ProfilePlace> Symbolizer::profile_place(std::string_view path, std::string_view build_id, uint64_t address) const {
  const auto [file, module] = state_->file_at(path, build_id);
  if (module != nullptr) return module->text_place(address);
  const auto offset = file == nullptr ? std::nullopt : file->offset_of(address);
  return offset ? std::optional(ProfilePlace{address, *offset}) : std::nullopt;
}

std::string Symbolizer::build_id_of(std::string_view path, std::string_view build_id) const {
  const auto [file, module] = state_->file_at(path, build_id);
  return module != nullptr ? module->build_id() : file != nullptr ? file->build_id() : std::string();
}

bool Symbolizer::visit_source(std::string_view path, std::string_view build_id, const SourceVisitor& visitor) const {
  const auto found = state_->file_at(path, build_id);
  FileSymbols* file = found.first;
  ModuleFile* module = found.second;
  SourceLines* source = module != nullptr ? &module->lines() : file == nullptr ? nullptr : file->source();
  if (file == nullptr) return source != nullptr && source->visit(visitor);
  const auto is_part = [file](const SourceFunction& function) {
    uint64_t from_start = 0;
    const auto offset = function.inlined ? std::nullopt : file->offset_of(function.entry);
    const auto symbol = offset ? file->find(*offset, from_start) : std::nullopt;
    return symbol && from_start == 0 && symbol->name.find(".part.") != std::string_view::npos;
  };
  return source != nullptr && source->visit([&](const SourceUnit& unit) {
    if (std::none_of(unit.functions.begin(), unit.functions.end(), is_part)) return visitor(unit);
    SourceUnit named = unit;
    for (SourceFunction& function : named.functions) function.part = is_part(function);
    return visitor(named);
  });
}

std::optional<FilePlace> Symbolizer::file_place(SpaceId space, Ip ip, TimeNs when) const {
  state_->sort();
  const State::Place place = state_->place_at(space, ip, when);
  if (place.section == nullptr) return std::nullopt;
  if (place.file == nullptr) return state_->kernel_place(*place.section, ip);
  const auto address = place.file->address_of(place.offset_bytes);
  if (!address) return std::nullopt;
  return FilePlace{place.section->path, place.section->build_id, *address, place.offset_bytes};
}

std::vector<Ip> Symbolizer::addresses_of(std::string_view name) const {
  State& state = *state_;
  state.sort();
  std::vector<Ip> addresses;
  for (const auto& [space, index] : state.spaces) {
    for (const NamedRange& range : index.ranges) {
      if (range.name == name || (!range.place.empty() && placed_name(range.place, range.name) == name)) addresses.push_back(range.ip);
    }
  }
  std::map<FileSymbols*, std::vector<uint64_t>> offsets;
  for (SectionId id = 0; id < state.timeline.section_count(); ++id) {
    const Section& section = state.timeline.section(id);
    FileSymbols* file = state.file_of(section).symbols;
    if (file == nullptr) continue;
    const auto [known, is_new] = offsets.try_emplace(file);
    if (is_new) known->second = file->offsets_of(name);
    for (const uint64_t offset : known->second) {
      if (offset < section.file_offset_bytes || offset - section.file_offset_bytes >= section.size_bytes) continue;
      if (addresses.size() == kMostAddresses) {
        state.warnings->add(std::string(name) + ": more than " + std::to_string(kMostAddresses) +
                            " addresses have this name: the others are ignored");
        return sorted_once(std::move(addresses));
      }
      addresses.push_back(section.ip + (offset - section.file_offset_bytes));
    }
  }
  return sorted_once(std::move(addresses));
}

}  // namespace ptd
