// Builds timeline and symbolizer from mappings and names.
#include "recording/image/image_build.h"

#include <sys/stat.h>

#include <algorithm>

#include "image/base/environment.h"
#include "image/base/interrupt.h"
#include "image/source/build_id.h"
#include "image/source/code_bytes.h"
#include "image/source/elf_damage.h"
#include "recording/data/own_files.h"
#include "recording/image/stashed_code.h"

namespace ptd {
namespace {

CodeSourceOptions source_options(const OpenRequest& options, int64_t recorded_at_ns) {
  CodeSourceOptions result;
  result.symfs = options.symfs;
  result.debug_dirs = options.debug_dirs;
  result.build_id_cache = options.build_id_cache.empty() ? default_build_id_cache() : options.build_id_cache;
  result.recorded_at_ns = recorded_at_ns;
  result.own_folder = own_folder(options.path);
  result.share = options.image_log && options.image_log->share;
  result.saved = StashedCode::open(options.stashes);
  if (options.debuginfod) result.debuginfod = Debuginfod::open();
  return result;
}

/// Whether the mapping's own path still has `code` where the mapping showed it. False if this machine is not the recording's.
bool is_still_there(const CodeSourceOptions& options, const MappedPath& wanted, Bytes code) {
  if (!options.same_host || !options.use_host_files || wanted.roots != nullptr || wanted.path.ends_with(" (deleted)")) return false;
  const auto starts_alike = [code](Bytes now) { return now.size() >= code.size() && std::equal(code.begin(), code.end(), now.begin()); };
  if (wanted.path == "[vdso]") return starts_alike(host_vdso());
  if (!wanted.path.starts_with('/') || is_anonymous(wanted.path)) return false;
  const auto file = MappedFile::open(wanted.path);
  return file.ok() && starts_alike(piece_of(*file, wanted.file_offset_bytes, wanted.size_bytes).bytes);
}

/// The first few paths, and how many more there are.
std::string first_of(const std::set<std::string>& paths) {
  constexpr size_t kNamed = 3;
  std::string names;
  size_t count = 0;
  for (const std::string& path : paths) {
    if (count++ < kNamed) names += (names.empty() ? "" : ", ") + path;
  }
  if (count > kNamed) names += " and " + std::to_string(count - kNamed) + " more";
  return names;
}

}  // namespace

MappedPath wanted_of(const UserMapping& mapping, const std::vector<std::string>* roots) {
  return {mapping.path, mapping.build_id, mapping.file_offset_bytes, mapping.size_bytes, roots,
          mapping.pid,  mapping.ip.value, mapping.from.value,        mapping.file_id,    mapping.shared};
}

int64_t written_at_ns(const std::string& recording) {
  constexpr int64_t kSecond = 1'000'000'000;
  struct stat info {};
  const std::string file = ::stat(recording.c_str(), &info) == 0 && S_ISDIR(info.st_mode) ? recording + "/data" : recording;
  if (::stat(file.c_str(), &info) != 0) return 0;
  return int64_t{info.st_mtim.tv_sec} * kSecond + (info.st_mtim.tv_nsec == 0 ? kSecond - 1 : info.st_mtim.tv_nsec);
}

std::string default_build_id_cache() {
  const std::string home = environment::home();
  return home.empty() ? std::string() : home + "/.debug";
}

ImageBuild::ImageBuild(const OpenRequest& options, int64_t recorded_at_ns)
    : builder(options.image_log), source(source_options(options, recorded_at_ns)) {
  if (options.freeze) builder.freeze_at_first_version();
}

void ImageBuild::add_mapping(const UserMapping& mapping, const std::vector<std::string>* roots, const UserMapping* last) {
  if (mapping.size_bytes == 0) return;
  if (mapping.size_bytes > ~mapping.ip.value) return report_unmappable(mapping);
  Section section;
  section.space = mapping.space;
  section.ip = mapping.ip;
  section.size_bytes = mapping.size_bytes;
  section.live = {mapping.from, kTimeMax};
  section.path = mapping.label.empty() ? mapping.path : mapping.label;
  section.build_id = mapping.build_id;
  section.file_offset_bytes = mapping.file_offset_bytes;
  section.assumed = mapping.assumed;
  const MappedPath wanted = wanted_of(mapping, roots);
  FoundCode found = find_code(mapping, wanted);
  // One report a file and reason, however often it is mapped.
  if (!found.findings.empty() && found_reported_.emplace(mapping.path, mapping.build_id, found.status).second) {
    for (Finding& finding : found.findings) {
      finding.space = mapping.space;
      finding.ip = mapping.ip;
      finding.time = {mapping.from, mapping.from};
      builder.add_finding(std::move(finding));
    }
  }
  if (found.status == CodeStatus::found) {
    section.code = std::move(found.code);
    section.assumed |= found.assumed;
    if (found.doubted) doubted_.insert(mapping.path);
    if (mapping.was_writable) {
      section.assumed = true;
      doubt_written(mapping);
    }
    if (section.build_id.empty()) section.build_id = found.build_id;
    add_symbol_files(section, wanted, found);
    if (found.elf) {
      note_machine(section.path, section.build_id, *found.elf);
      elf_files_[{section.path, section.build_id}] = found.elf;
    }
    if (found.place == FoundAt::kept && !is_still_there(source.options(), wanted, section.code.bytes)) kept_used_.insert(mapping.path);
    note_origin(section.path, section.build_id, found.file_path, found.proof);
    if (found.is_copy) {
      section.assumed = true;  // it may have been written to before it was read
      const CodeBytes first = section.code;
      builder.add_section(std::move(section));
      return add_later_copies(mapping, wanted, first.bytes);
    }
    if (found.elf && source.options().share) return add_executable_part(section, *found.elf);
  } else {
    if (found.status == CodeStatus::replaced) replaced_.insert(mapping.path);
    if (is_replaced(mapping, roots, last, found)) section.path = section.path.str() + " (replaced)";
    add_missing(section.path, mapping.build_id, sentence(found.status));
  }
  builder.add_section(std::move(section));
}

// A file without a build id would give its names to all mappings of its path.
bool ImageBuild::is_replaced(const UserMapping& mapping, const std::vector<std::string>* roots, const UserMapping* last,
                             const FoundCode& found) {
  if (last == nullptr || last == &mapping || !mapping.label.empty()) return false;
  if (found.status != CodeStatus::replaced && found.status != CodeStatus::wrong_build_id) return false;
  const auto [known, is_new] = used_without_id_.try_emplace(mapping.path);
  if (is_new) known->second = last->build_id.empty() && source.find(wanted_of(*last, roots)).status == CodeStatus::found;
  return known->second;
}

// A guest's vdso is not this machine's.
FoundCode ImageBuild::find_code(const UserMapping& mapping, const MappedPath& wanted) {
  if (mapping.label.empty() || !mapping.path.starts_with("[")) return source.find(wanted);
  return {};
}

void ImageBuild::report_unmappable(const UserMapping& mapping) {
  if (!unmappable_.insert(mapping.path).second) return;
  Finding finding;
  finding.kind = FindingKind::bad_record;
  finding.space = mapping.space;
  finding.ip = mapping.ip;
  finding.time = {mapping.from, mapping.from};
  finding.what = (mapping.path.empty() ? std::string("//anon") : mapping.path.str()) + ": a mapping of process " +
                 std::to_string(mapping.pid) + " with " + std::to_string(mapping.size_bytes) +
                 " bytes does not fit into the address space: ignored";
  builder.add_finding(std::move(finding));
}

// The pages of executable segments: a recording could say of a file's data too that it was mapped as code.
void ImageBuild::add_executable_part(const Section& section, const ElfFile& elf) {
  const uint64_t first = section.file_offset_bytes, end = first + std::min(section.size_bytes, ~first);
  const auto add = [&](uint64_t from, uint64_t to, bool bytes) {
    if (from >= to) return;
    Section part = section;
    part.ip = section.ip + (from - first);
    part.size_bytes = to - from;
    part.file_offset_bytes = from;
    const size_t at = std::min<uint64_t>(from - first, section.code.bytes.size());
    part.code.bytes = section.code.bytes.subspan(at, bytes ? std::min<uint64_t>(to - from, section.code.bytes.size() - at) : 0);
    builder.add_section(std::move(part));
  };
  uint64_t at = first;
  for (const auto& [from, to] : elf.executable_pages()) {
    const uint64_t begin = std::clamp(from, at, end), stop = std::clamp(to, begin, end);
    if (begin >= stop) continue;
    add(at, begin, false);
    add(begin, stop, true);
    at = stop;
  }
  add(at, end, false);
}

// What differs between two copies of memory changed at some moment between their readings; the packets may tell when.
void ImageBuild::add_later_copies(const UserMapping& mapping, const MappedPath& wanted, Bytes first) {
  constexpr size_t kJoinBytes = 16;        // two changes as near as this are one: they may be of one instruction
  constexpr size_t kJoinManyBytes = 4096;  // once there are many: what is near is one, whatever it is
  constexpr size_t kManyEdits = 1U << 16, kMostEdits = 2 * kManyEdits;
  constexpr uint64_t kMostEditBytes = 64U << 20;
  size_t edits = 0;
  uint64_t edit_bytes = 0;
  Bytes before = first;
  for (const SavedFiles::Copy& copy : source.options().saved->later_copies(wanted)) {
    check_interrupt();
    const Bytes after = copy.file->bytes();
    const size_t common = std::min(before.size(), after.size());
    for (size_t at = 0; at < common; ++at) {
      if (before[at] == after[at]) continue;
      const size_t join = edits < kManyEdits ? kJoinBytes : kJoinManyBytes;
      size_t last = at;  // that differs
      for (size_t i = at + 1; i < common && i - last <= join; ++i) {
        if (before[i] != after[i]) last = i;
      }
      const size_t size = last + 1 - at;
      edit_bytes += size;
      if (++edits > kMostEdits || edit_bytes > kMostEditBytes) return leave_out(mapping, TimeNs{copy.since_ns});
      Edit edit;
      edit.space = mapping.space;
      edit.ip = mapping.ip + at;
      edit.old_bytes.assign(before.begin() + static_cast<std::ptrdiff_t>(at), before.begin() + static_cast<std::ptrdiff_t>(at + size));
      edit.new_bytes.assign(after.begin() + static_cast<std::ptrdiff_t>(at), after.begin() + static_cast<std::ptrdiff_t>(at + size));
      edit.time = {TimeNs{copy.since_ns}, TimeNs{copy.until_ns}};
      edit.origin = EditOrigin::dated_copy;
      builder.add_edit(std::move(edit));
      at = last;
    }
    before = after;
  }
}

void ImageBuild::doubt_written(const UserMapping& mapping) {
  doubted_.insert(mapping.path);
  if (!written_.insert(mapping.path).second) return;
  Finding finding;
  finding.kind = FindingKind::file_changed;
  finding.space = mapping.space;
  finding.ip = mapping.ip;
  finding.time = {mapping.from, kTimeMax};
  finding.what =
      (mapping.label.empty() ? mapping.path : mapping.label).str() + ": process " + std::to_string(mapping.pid) +
      " could write to its code: a private mapping of it was writable and executable. No record says what was written: the file's code is "
      "used and marked assumed";
  builder.add_finding(std::move(finding));
}

// Memory that changes more often than is followed: from then on it is not known, rather than known as it was.
void ImageBuild::leave_out(const UserMapping& mapping, TimeNs since) {
  builder.remove(mapping.space, mapping.ip, mapping.size_bytes, since);
  Finding finding;
  finding.kind = FindingKind::file_changed;
  finding.space = mapping.space;
  finding.ip = mapping.ip;
  finding.time = {since, kTimeMax};
  finding.what = (mapping.path.empty() ? std::string("//anon") : mapping.path.str()) + " of process " + std::to_string(mapping.pid) +
                 " changed more often than the limit: its code is not used after that";
  builder.add_finding(std::move(finding));
}

// A saved copy is first: it has the tables that say which code is the procedure linkage table. The file may have lost them.
void ImageBuild::add_symbol_files(const Section& section, const MappedPath& wanted, const FoundCode& found) {
  if (has_symbol_file(section.path, section.build_id)) return;
  const std::string copy = source.find_saved_symbols(wanted, found);
  if (!copy.empty()) symbol_files_.push_back({section.path, copy, section.build_id});
  append_symbol_file(section.path, found.file_path, section.build_id);
}

void ImageBuild::add_symbol_file(const std::string& section_path, const std::string& file_path, const std::string& build_id) {
  if (has_symbol_file(section_path, build_id)) return;
  append_symbol_file(section_path, file_path, build_id);
  if (const auto elf = ElfFile::open(file_path); elf.ok()) note_machine(section_path, build_id, **elf);
}

// x32 programs are ELFCLASS32, and 64-bit code.
void ImageBuild::note_machine(const std::string& path, const std::string& build_id, const ElfFile& elf) {
  constexpr uint16_t k386 = 3, kX86_64 = 62;  // e_machine
  if (elf.machine() == k386) note_mode(path, build_id, ExecMode::bits32);
  if (elf.machine() == kX86_64) note_mode(path, build_id, ExecMode::bits64);
}

void ImageBuild::append_symbol_file(const std::string& section_path, const std::string& file_path, const std::string& build_id) {
  symbol_files_.push_back({section_path, file_path, build_id});
  named_.emplace(section_path, build_id);
  note_damage(file_path);
  const FoundDebugFile debug = source.find_debug_file(file_path, section_path);
  damaged_.insert(debug.refused.begin(), debug.refused.end());
  if (debug.path.empty()) return;
  symbol_files_.push_back({section_path, debug.path, build_id});
  note_damage(debug.path);
}

void ImageBuild::note_damage(const std::string& file) {
  const auto identity = file_identity(file);
  if (!identity || !examined_.insert(*identity).second) return;
  const auto elf = ElfFile::open(file);
  if (!elf.ok()) return;
  const ElfDamage damage = find_elf_damage(**elf, false);
  if (!damage.symbols.empty()) damaged_.insert(symbols_sentence(file, damage.symbols));
  if (!damage.debug.empty()) damaged_.insert(debug_sentence(file, damage.debug));
}

void ImageBuild::add_missing(const std::string& path, const std::string& build_id, const std::string& reason) {
  const auto [known, is_new] = missing_.emplace(std::pair(path, build_id), reason);
  // The mappings of one file may be missing for different reasons.
  if (!is_new && known->second.find(reason) == std::string::npos) known->second += "; or " + reason;
}

// Warns of paths whose file is no longer the one that ran, and says which bytes are used instead.
void ImageBuild::tell_of_kept(RecordingData& data) const {
  if (const auto& kept = source.options().saved) {
    for (std::string& trouble : kept->troubles()) data.warnings.push_back(std::move(trouble));
  }
  data.warnings.insert(data.warnings.end(), damaged_.begin(), damaged_.end());
  const auto warn = [&](const std::set<std::string>& paths, const char* before, const char* after) {
    if (!paths.empty()) data.warnings.push_back(before + first_of(paths) + after);
  };
  warn(kept_used_, "changed or removed since they were recorded: ", ": the copies in the stash are used (ptdecode stash ls)");
  warn(replaced_, "replaced or written to since they were recorded: ",
       ": not used; code of which the recording has no copy is missing (--symfs DIR uses the recorded files below DIR)");
  warn(doubted_, "may have changed since they were mapped: ",
       ": used and marked assumed, because nothing proves that their code is the recorded one ('ptdecode check' says why)");
}

void ImageBuild::finish(RecordingData& data) {
  data.timeline = builder.build();
  data.symbolizer = std::make_unique<Symbolizer>(data.timeline);
  data.symbolizer->use_debuginfod(source.options().debuginfod);
  data.symbolizer->use_saved(source.options().saved);
  if (const auto& server = source.options().debuginfod; server && !server->trouble().empty())
    data.warnings.push_back("debuginfod: " + server->trouble() + ": not tried again (--no-debuginfod turns it off)");
  for (NamedRange& range : ranges_) data.symbolizer->add_range(std::move(range));
  ranges_.clear();
  for (std::string& folder : module_folders_) data.symbolizer->add_module_folder(std::move(folder));
  for (const SymbolFile& file : symbol_files_) data.symbolizer->add_debug_file(file.section_path, file.file_path, file.build_id);
  data.elf_files = std::move(elf_files_);
  data.modes = std::move(modes_);
  tell_of_kept(data);
  for (const auto& [key, reason] : missing_) data.missing.push_back({key.first, key.second, reason, 0});
}

}  // namespace ptd
