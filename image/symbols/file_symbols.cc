// Symbols of ELF files.
#include "image/symbols/file_symbols.h"

#include <algorithm>
#include <functional>
#include <map>
#include <unordered_map>
#include <unordered_set>

#include "image/placed_name.h"
#include "image/source/build_id.h"
#include "image/source/elf_damage.h"
#include "image/symbols/name_rank.h"
#include "image/symbols/source_lines.h"
#include "image/symbols/source_warnings.h"
#include "ptdecode/symbols.h"

namespace ptd {
namespace {

constexpr size_t kMaxStepsBack = 64;  // over smaller symbols that start within a larger one

NameRank rank(const ElfSymbol& symbol) {
  return name_rank({symbol.name, symbol.function, symbol.size_bytes != 0, symbol.global, symbol.weak});
}

// Compares the symbols of files of one build. One may have lost some symbols, or with `strip --strip-debug` the names of the source files.
std::pair<size_t, size_t> completeness(const std::vector<ElfSymbol>& symbols) {
  const auto has_file = [](const ElfSymbol& symbol) { return !symbol.place.empty() && is_file_name(symbol.place); };
  return {symbols.size(), static_cast<size_t>(std::count_if(symbols.begin(), symbols.end(), has_file))};
}

// Returns a key that names of the Itanium scheme have in common if their readable forms are equal: Rust's legacy names differ in their
// hashes, C++'s in which of several constructors or destructors it is. Others may share a key by chance.
size_t itanium_key(std::string_view name) {
  constexpr size_t kHashBytes = 20;  // "17h", 16 digits and 'E'
  std::string key;
  const size_t hash = name.rfind("17h");
  const bool has_hash = hash != std::string_view::npos && name.size() - hash >= kHashBytes && name[hash + kHashBytes - 1] == 'E';
  for (const char c : has_hash ? name.substr(0, hash) : name) {
    const bool is_kind = c >= '0' && c <= '5' && !key.empty() && (key.back() == 'C' || key.back() == 'D');
    if (!is_kind) key += c;
  }
  return std::hash<std::string>()(key);
}

// Functions of one readable name.
struct Namesakes {
  std::map<std::string_view, uint64_t> addresses;  // by mangled name
  std::optional<uint64_t> plain;                   // of the one that keeps the plain name
};

// Returns the address of the complete constructor or destructor of a class, which keeps the plain name. The deleting destructor, or the
// base object's where that has other code, gets a place. `named`: mangled names of one readable name. Nothing for other functions.
std::optional<uint64_t> complete_object(const std::map<std::string_view, uint64_t>& named) {
  const std::string_view first = named.begin()->first, last = named.rbegin()->first;
  if (!first.starts_with("_Z")) return std::nullopt;
  const auto at = static_cast<size_t>(std::mismatch(first.begin(), first.end(), last.begin(), last.end()).first - first.begin());
  if (at == 0 || at >= first.size() || (first[at - 1] != 'C' && first[at - 1] != 'D')) return std::nullopt;
  for (const char kind : {'1', '2'}) {
    for (const auto& [name, address] : named) {
      if (at < name.size() && name[at] == kind) return address;
    }
  }
  return std::nullopt;
}

// Moves labels to the end: symbols without a size that lie within one with a size, after its start. Such a label does not end the symbol
// that contains it, as in gdb's lookup_minimal_symbol_by_pc(). `symbols`: by address. Returns the number of the others.
size_t set_labels_apart(std::vector<ElfSymbol>& symbols) {
  uint64_t start = 0, end = 0;  // of the symbol that reaches furthest
  const auto is_outer = [&](const ElfSymbol& symbol) {
    if (symbol.size_bytes == 0) return symbol.address >= end || symbol.address == start;
    const uint64_t reach = std::min(symbol.size_bytes, ~symbol.address);
    if (symbol.address + reach > end) start = symbol.address, end = symbol.address + reach;
    return true;
  };
  std::vector<ElfSymbol> labels;
  size_t outer = 0;
  for (ElfSymbol& symbol : symbols) {
    if (!is_outer(symbol)) {
      labels.push_back(std::move(symbol));
    } else if (&symbols[outer++] != &symbol) {
      symbols[outer - 1] = std::move(symbol);
    }
  }
  std::move(labels.begin(), labels.end(), symbols.begin() + static_cast<ptrdiff_t>(outer));
  return outer;
}

}  // namespace

FileSymbols::FileSymbols(std::string module, std::vector<std::string> elf_paths, std::shared_ptr<SourceWarnings> warnings,
                         std::shared_ptr<Debuginfod> debuginfod, std::shared_ptr<SavedFiles> saved)
    : module_(std::move(module)),
      elf_paths_(std::move(elf_paths)),
      warnings_(std::move(warnings)),
      debuginfod_(std::move(debuginfod)),
      saved_(std::move(saved)) {}
FileSymbols::~FileSymbols() = default;

std::optional<uint64_t> FileSymbols::address_of(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  uint64_t address = 0;
  if (!mapped_ || !mapped_->address_of_offset(file_offset_bytes, address)) return std::nullopt;
  return address;
}

void FileSymbols::visit_functions(const std::function<void(std::string_view, uint64_t)>& visitor) {
  const std::lock_guard lock(mutex_);
  load();
  std::unordered_map<std::string_view, size_t> times;
  for (const ElfSymbol& symbol : symbols_) ++times[symbol.name];
  for (const ElfSymbol& symbol : symbols_) {
    if (symbol.function && times[symbol.name] == 1) visitor(symbol.name, symbol.address);
  }
}

std::optional<uint64_t> FileSymbols::offset_of(uint64_t address) {
  const std::lock_guard lock(mutex_);
  load();
  return offset_of_address(address);
}

std::string FileSymbols::build_id() {
  const std::lock_guard lock(mutex_);
  load();
  return mapped_ ? mapped_->build_id() : std::string();
}

SourceLines* FileSymbols::source() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(source_sought_, true)) return source_.get();
  // Separate debug files come after their file in the list and are preferred.
  load();
  const auto starts = [this](uint64_t address) { return begins_function(address); };
  for (size_t i = elf_paths_.size(); i-- > 0 && !source_;) source_ = SourceLines::open(elf_paths_[i], warnings_, starts);
  const size_t known = elf_paths_.size();
  if (!source_) fetch_debug_file();
  if (elf_paths_.size() > known) source_ = SourceLines::open(elf_paths_.back(), warnings_, starts);
  return source_.get();
}

// What the lines of the file ask, after source() has returned them.
bool FileSymbols::begins_function(uint64_t address) {
  const std::lock_guard lock(mutex_);
  const auto end = symbols_.begin() + static_cast<ptrdiff_t>(outer_count_);
  const auto first =
      std::lower_bound(symbols_.begin(), end, address, [](const ElfSymbol& symbol, uint64_t value) { return symbol.address < value; });
  return first != end && first->address == address && first->function && whole_function(first->name).size() == first->name.size();
}

// Downloads the separate debug information of the file, once. The caller holds the lock.
void FileSymbols::fetch_debug_file() {
  const std::shared_ptr<Debuginfod> server = std::exchange(debuginfod_, nullptr);
  if (!server || !mapped_) return;
  std::string path = server->find(mapped_->build_id(), true, mapped_->file()->bytes().size());
  auto elf = path.empty() ? Result<std::shared_ptr<const ElfFile>>(Error{ErrorCode::not_found, {}, 0}) : ElfFile::open(path);
  if (elf.ok() && same_build_id((*elf)->build_id(), mapped_->build_id())) elf_paths_.push_back(std::move(path));
}

// What the headers show was reported when the recording was opened. Returns what matters unless another file has a symbol table.
std::string FileSymbols::note_damage(const ElfFile& elf) {
  const ElfDamage all = find_elf_damage(elf, true);
  if (!all.symbols.empty() && find_elf_damage(elf, false).symbols.empty()) warnings_->add(symbols_sentence(elf.path(), all.symbols));
  return all.mini.empty() ? std::string() : mini_sentence(elf.path(), all.mini);
}

void FileSymbols::load() {
  if (loaded_) return;
  loaded_ = true;
  bool has_symtab = false;
  std::string without_symtab;  // a warning
  for (size_t i = 0; i < elf_paths_.size(); ++i) {
    auto elf = ElfFile::open(elf_paths_[i]);
    if (!elf.ok()) continue;
    if (!mapped_) mapped_ = *elf;
    if (symbols_.empty() || (*elf)->has_symtab()) {
      std::vector<ElfSymbol> more = saved_ ? saved_->symbols_of(**elf) : (*elf)->read_symbols();
      if (!has_symtab || completeness(more) > completeness(symbols_)) symbols_ = std::move(more);
    }
    if (std::string damage = warnings_ ? note_damage(**elf) : std::string(); !damage.empty()) without_symtab = std::move(damage);
    has_symtab = has_symtab || (*elf)->has_symtab();
    if (i + 1 == elf_paths_.size() && !has_symtab) fetch_debug_file();
  }
  if (!has_symtab && !without_symtab.empty()) warnings_->add(without_symtab);
  const auto before = [](const ElfSymbol& a, const ElfSymbol& b) {
    return a.address != b.address ? a.address < b.address : rank(a) < rank(b);
  };
  std::stable_sort(symbols_.begin(), symbols_.end(), before);
  if (mapped_) {
    std::vector<ElfSymbol> entries = mapped_->read_plt(symbols_);
    std::stable_sort(entries.begin(), entries.end(), before);
    const auto middle = symbols_.insert(symbols_.end(), std::make_move_iterator(entries.begin()), std::make_move_iterator(entries.end()));
    std::inplace_merge(symbols_.begin(), middle, symbols_.end(), before);
  }
  outer_count_ = set_labels_apart(symbols_);
  readable_.assign(symbols_.size(), nullptr);
  set_places();
}

// Sets the place of functions whose readable name another function has too, although their mangled names differ: the address. A cold part
// has that of its function.
void FileSymbols::set_places() {
  std::vector<std::pair<size_t, size_t>> keys;  // of equal readable names, and index
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const std::string_view name = symbols_[i].name;
    if (name.starts_with("_R")) keys.emplace_back(std::hash<std::string_view>()(whole_function(readable(i))), i);  // without crates
    if (name.starts_with("_Z")) keys.emplace_back(itanium_key(whole_function(name)), i);
  }
  std::sort(keys.begin(), keys.end());
  for (size_t first = 0, end = 0; first < keys.size(); first = end) {
    for (end = first + 1; end < keys.size() && keys[end].first == keys[first].first;) ++end;
    if (end - first == 1) continue;
    std::map<std::string_view, Namesakes> functions;  // by readable name
    for (size_t i = first; i < end; ++i) {
      const ElfSymbol& symbol = symbols_[keys[i].second];
      if (whole_function(symbol.name).size() == symbol.name.size())
        functions[readable(keys[i].second)].addresses.try_emplace(symbol.name, symbol.address);
    }
    std::erase_if(functions, [](const auto& each) {
      const std::map<std::string_view, uint64_t>& named = each.second.addresses;
      return std::none_of(named.begin(), named.end(), [&](const auto& name) { return name.second != named.begin()->second; });
    });
    for (auto& [name, named] : functions) named.plain = complete_object(named.addresses);
    for (size_t i = first; i < end && !functions.empty(); ++i) {
      ElfSymbol& symbol = symbols_[keys[i].second];
      const auto named = functions.find(whole_function(readable(keys[i].second)));
      if (!symbol.place.empty() || named == functions.end()) continue;
      const auto& [addresses, plain] = named->second;
      const auto owner = addresses.find(whole_function(symbol.name));
      const uint64_t address = owner == addresses.end() ? symbol.address : owner->second;
      if (address != plain) symbol.place = hex_text(address);
    }
  }
}

std::string_view FileSymbols::readable(size_t index) {
  if (readable_[index] == nullptr) {
    const std::string& name = symbols_[index].name;
    const size_t suffix_at = std::min(name.find('@', 1), name.size());  // of "@plt", "@resolver", or a version
    names_.push_back(demangle(name.substr(0, suffix_at)) + name.substr(suffix_at));
    readable_[index] = &names_.back();
  }
  return *readable_[index];
}

FileSymbols::FileSymbols(std::vector<FixedSymbol> fixed, std::vector<FrameSpan> frames, std::vector<CallSite> sites)
    : loaded_(true), is_fixed_(true), fixed_(std::move(fixed)), frames_(std::move(frames)), pads_(std::move(sites)) {
  std::stable_sort(fixed_.begin(), fixed_.end(),
                   [](const FixedSymbol& a, const FixedSymbol& b) { return a.file_offset_bytes < b.file_offset_bytes; });
}

// How far a symbol without a size reaches: up to the next symbol, or to the function that .eh_frame has next. The latter may have no
// symbol.
uint64_t FileSymbols::guessed_size(uint64_t address, std::optional<uint64_t> next_symbol) {
  uint64_t size = std::min(next_symbol ? *next_symbol - address : kMaxGuessedBytes, kMaxGuessedBytes);
  // _init without a size does not reach into the procedure linkage table, which is a section of its own, nor do labels of data.
  if (const auto end = mapped_->code_section_end(address)) size = std::min(size, *end - address);
  if (const auto function = frames().next_function(address)) size = std::min(size, *function - address);
  return size;
}

std::optional<FileSymbols::Place> FileSymbols::locate(uint64_t file_offset_bytes) {
  uint64_t address = 0;
  if (!mapped_ || !mapped_->address_of_offset(file_offset_bytes, address)) return std::nullopt;
  const auto end_of_outer = symbols_.begin() + static_cast<ptrdiff_t>(outer_count_);
  auto at = std::upper_bound(symbols_.begin(), end_of_outer, address,
                             [](uint64_t value, const ElfSymbol& symbol) { return value < symbol.address; });
  const auto next = at;
  for (size_t steps = 0; at != symbols_.begin() && steps < kMaxStepsBack; ++steps) {
    --at;
    uint64_t size = at->size_bytes;
    if (size == 0) {
      const auto later =
          std::upper_bound(at, next, at->address, [](uint64_t value, const ElfSymbol& symbol) { return value < symbol.address; });
      size = guessed_size(at->address, later == end_of_outer ? std::nullopt : std::optional(later->address));
    }
    if (address - at->address >= size) continue;
    // Move to the best name at this address.
    at =
        std::lower_bound(symbols_.begin(), at, at->address, [](const ElfSymbol& symbol, uint64_t value) { return symbol.address < value; });
    return Place{static_cast<size_t>(at - symbols_.begin()), address - at->address, size};
  }
  return std::nullopt;
}

const FixedSymbol* FileSymbols::find_fixed(uint64_t file_offset_bytes) const {
  auto at = std::upper_bound(fixed_.begin(), fixed_.end(), file_offset_bytes,
                             [](uint64_t value, const FixedSymbol& symbol) { return value < symbol.file_offset_bytes; });
  for (size_t steps = 0; at != fixed_.begin() && steps < kMaxStepsBack; ++steps) {
    --at;
    if (file_offset_bytes - at->file_offset_bytes < at->reach_bytes) return &*at;
  }
  return nullptr;
}

std::optional<FileSymbol> FileSymbols::find(uint64_t file_offset_bytes, uint64_t& offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  if (is_fixed_) {
    const FixedSymbol* symbol = find_fixed(file_offset_bytes);
    if (symbol == nullptr) return std::nullopt;
    offset_bytes = file_offset_bytes - symbol->file_offset_bytes;
    return FileSymbol{symbol->name, symbol->file_offset_bytes, symbol->size_bytes, symbol->place};
  }
  const auto place = locate(file_offset_bytes);
  if (!place) return std::nullopt;
  offset_bytes = place->offset_bytes;
  const ElfSymbol& symbol = symbols_[place->index];
  return FileSymbol{readable(place->index), symbol.address, symbol.size_bytes, symbol.place};
}

std::optional<FixedSymbol> FileSymbols::pick(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  if (is_fixed_) {
    const FixedSymbol* symbol = find_fixed(file_offset_bytes);
    return symbol == nullptr ? std::nullopt : std::optional(*symbol);
  }
  const auto place = locate(file_offset_bytes);
  if (!place) return std::nullopt;
  return FixedSymbol{file_offset_bytes - place->offset_bytes, place->reach_bytes, symbols_[place->index].size_bytes,
                     std::string(readable(place->index)), symbols_[place->index].place};
}

// How far locate() finds the symbols [first, end), which have one address.
uint64_t FileSymbols::reach_of(size_t first, size_t end) {
  const uint64_t address = symbols_[first].address;
  uint64_t reach = 0;
  for (size_t i = first; i < end; ++i) {
    const uint64_t size = symbols_[i].size_bytes;
    reach = std::max(reach,
                     size != 0 ? size : guessed_size(address, end == outer_count_ ? std::nullopt : std::optional(symbols_[end].address)));
  }
  for (const ElfSegment& segment : mapped_->segments()) {
    if (address >= segment.address && address - segment.address < segment.file_size_bytes)
      return std::min(reach, segment.file_size_bytes - (address - segment.address));
  }
  return 0;
}

void FileSymbols::pick_all(FileSymbolPick& out) {
  const std::lock_guard lock(mutex_);
  load();
  if (is_fixed_) {
    out.symbols.insert(out.symbols.end(), fixed_.begin(), fixed_.end());
    out.frames.insert(out.frames.end(), frames_->all().begin(), frames_->all().end());
    out.sites.insert(out.sites.end(), pads_->all().begin(), pads_->all().end());
    return;
  }
  if (!mapped_) return;
  for (size_t first = 0, end = 0; first < outer_count_; first = end) {
    for (end = first + 1; end < outer_count_ && symbols_[end].address == symbols_[first].address;) ++end;
    const auto offset = offset_of_address(symbols_[first].address);
    const uint64_t reach = offset ? reach_of(first, end) : 0;
    if (reach == 0) continue;
    FixedSymbol& symbol = out.symbols.emplace_back(
        FixedSymbol{*offset, reach, symbols_[first].size_bytes, std::string(readable(first)), std::string(symbols_[first].place), {}});
    std::vector<std::string> names = names_from(first);
    if (names.size() > 1) symbol.aliases.assign(std::make_move_iterator(names.begin() + 1), std::make_move_iterator(names.end()));
  }
  for (FrameSpan frame : frames().all()) {
    const auto offset = offset_of_address(frame.start);
    if (!offset) continue;
    frame.start = *offset;
    out.frames.push_back(frame);
  }
  for (CallSite site : pads().all()) {
    const auto start = offset_of_address(site.start), landing = offset_of_address(site.landing);
    if (start && landing) out.sites.push_back({*start, site.size_bytes, *landing});
  }
}

// The names of the symbols at the address of `first`, which is the best of them.
std::vector<std::string> FileSymbols::names_from(size_t first) {
  std::vector<std::string> names;
  std::unordered_set<std::string> known;
  size_t index = first;
  for (; index < outer_count_ && symbols_[index].address == symbols_[first].address; ++index) {
    if (index - first == Symbolizer::kMostNames) {
      if (warnings_) warnings_->add(names_sentence(module_, symbols_[first].address));
      break;
    }
    std::string name = placed_name(symbols_[index].place, readable(index));
    if (known.insert(name).second) names.push_back(std::move(name));
  }
  return names;
}

std::optional<FrameSpan> FileSymbols::frame_at(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  if (is_fixed_) return frames_->find(file_offset_bytes);
  uint64_t address = 0;
  if (!mapped_ || !mapped_->address_of_offset(file_offset_bytes, address)) return std::nullopt;
  std::optional<FrameSpan> found = frames().find(address);
  if (found && address - found->start > file_offset_bytes) return std::nullopt;
  if (found) found->start = file_offset_bytes - (address - found->start);
  return found;
}

const FrameExtents& FileSymbols::frames() { return frames_ ? *frames_ : frames_.emplace(*mapped_); }

const LandingPads& FileSymbols::pads() {
  if (!pads_) pads_ = has_landing_pads(*mapped_) ? LandingPads(*mapped_, frames().tables()) : LandingPads();
  return *pads_;
}

std::optional<uint64_t> FileSymbols::landing_of(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  uint64_t address = file_offset_bytes;
  if (!is_fixed_ && (!mapped_ || !mapped_->address_of_offset(file_offset_bytes, address))) return std::nullopt;
  const CallSite* site = pads().find(address);
  if (site == nullptr) return std::nullopt;
  return is_fixed_ ? site->landing : offset_of_address(site->landing);
}

bool FileSymbols::is_landing(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  uint64_t address = file_offset_bytes;
  if (!is_fixed_ && (!mapped_ || !mapped_->address_of_offset(file_offset_bytes, address))) return false;
  return pads().is_landing(address);
}

std::vector<CallSite> FileSymbols::sites_of(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  uint64_t address = file_offset_bytes;
  std::vector<CallSite> sites;
  if (!is_fixed_ && (!mapped_ || !mapped_->address_of_offset(file_offset_bytes, address))) return sites;
  pads().visit_sites_of(address, [&](CallSite site) {
    const auto start = is_fixed_ ? std::optional(site.start) : offset_of_address(site.start);
    if (start) sites.push_back({*start, site.size_bytes, file_offset_bytes});
  });
  return sites;
}

std::vector<std::string> FileSymbols::names_at(uint64_t file_offset_bytes) {
  const std::lock_guard lock(mutex_);
  load();
  if (is_fixed_) {
    const FixedSymbol* symbol = find_fixed(file_offset_bytes);
    if (symbol == nullptr) return {};
    std::vector<std::string> names{placed_name(symbol->place, symbol->name)};
    names.insert(names.end(), symbol->aliases.begin(), symbol->aliases.end());
    return names;
  }
  const auto place = locate(file_offset_bytes);
  return place ? names_from(place->index) : std::vector<std::string>();
}

std::optional<uint64_t> FileSymbols::offset_of_address(uint64_t address) const {
  if (!mapped_) return std::nullopt;
  for (const ElfSegment& segment : mapped_->segments()) {
    if (address >= segment.address && address - segment.address < segment.file_size_bytes) {
      return segment.file_offset_bytes + (address - segment.address);
    }
  }
  return std::nullopt;
}

// Compares a symbol's name, mangled or not, with one that a user wrote.
FileSymbols::NameIs FileSymbols::compare_names(std::string_view own, std::string_view name) {
  if (own == name) return NameIs::same;
  const NameIs found = is_old_version(own) ? NameIs::old_version : NameIs::same;
  const size_t length = unversioned_length(own);
  if (length != own.size() && own.substr(0, length) == name) return found;
  if (const size_t wanted = unversioned_length(name); wanted != name.size())
    return length == own.size() && !is_old_version(name) && own == name.substr(0, wanted) ? NameIs::same : NameIs::other;
  const bool has_parameters = own.size() > name.size() && own[name.size()] == '(' && own.starts_with(name);
  return has_parameters && !is_stub_or_resolver(own) ? found : NameIs::other;
}

FileSymbols::NameIs FileSymbols::compare(size_t index, std::string_view name) {
  const ElfSymbol& symbol = symbols_[index];
  if (const NameIs found = compare_names(symbol.name, name); found != NameIs::other) return found;
  if (!symbol.place.empty() && placed_name(symbol.place, readable(index)) == name) return NameIs::same;
  return symbol.name.starts_with("_Z") || symbol.name.starts_with("_R") ? compare_names(readable(index), name) : NameIs::other;
}

std::vector<uint64_t> FileSymbols::offsets_of(std::string_view name) {
  const std::lock_guard lock(mutex_);
  load();
  std::vector<uint64_t> offsets, old_versions;
  for (const FixedSymbol& symbol : fixed_) {
    NameIs found = placed_name(symbol.place, symbol.name) == name ? NameIs::same : compare_names(symbol.name, name);
    for (const std::string& alias : symbol.aliases) found = std::max(found, compare_names(alias, name));
    if (found != NameIs::other) (found == NameIs::same ? offsets : old_versions).push_back(symbol.file_offset_bytes);
  }
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const NameIs found = compare(i, name);
    if (found == NameIs::other) continue;
    if (const auto offset = offset_of_address(symbols_[i].address)) (found == NameIs::same ? offsets : old_versions).push_back(*offset);
  }
  return offsets.empty() ? old_versions : offsets;
}

}  // namespace ptd
