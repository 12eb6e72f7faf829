// CodeSource: finds the file of a mapping.
#include "image/source/code_source.h"

#include <sys/auxv.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "image/base/interrupt.h"
#include "image/source/build_id.h"
#include "image/source/code_bytes.h"

namespace ptd {
namespace {

constexpr std::string_view kDeleted = " (deleted)";
constexpr uint64_t kMaxVdsoBytes = 64U << 10;

bool is_vdso(const std::string& path) { return path == "[vdso]" || path == "[vdso32]" || path == "[vdsox32]"; }

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }
std::string dir_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? std::string(".") : path.substr(0, slash);
}

/// Returns the name of a recorded path below a root. A kernel records no "..", which would lead out of the root.
std::string path_below_root(const std::string& path) {
  const std::string absolute = path.starts_with('/') ? path : "/" + path;
  return absolute.find("/..") == std::string::npos ? absolute : std::filesystem::path(absolute).lexically_normal().string();
}

/// Says where to put a file that is missing; empty for what is no file.
std::string supply_of(const std::string& path) {
  if (path.starts_with('[')) return {};
  return ": supply it as ROOT" + std::string(path.starts_with('/') ? "" : "/") + path + " with --symfs ROOT";
}

}  // namespace

const char* sentence(CodeStatus status) {
  switch (status) {
    case CodeStatus::found:
      return "found";
    case CodeStatus::not_found:
      return "file not found";
    case CodeStatus::wrong_build_id:
      return "wrong build id";
    case CodeStatus::anonymous:
      return "anonymous memory";
    case CodeStatus::deleted:
      return "file was deleted";
    case CodeStatus::too_short:
      return "file is shorter than the mapping";
    case CodeStatus::cut:
      return "file is truncated";
    case CodeStatus::other_machine:
      return "file is for other processors";
    case CodeStatus::debug_only:
      return "file has no code, only debug information";
    case CodeStatus::unreadable:
      return "file cannot be read";
    case CodeStatus::outside:
      return kOutsideReason;
    case CodeStatus::replaced:
      return "the file at this path is not the recorded one, or was written to since (--symfs uses it)";
    case CodeStatus::unproven:
      return "no proof that this file is the one that was mapped (--allow-outside reads it)";
  }
  return "unknown";
}

const char* name(FoundAt place) {
  static constexpr std::array<const char*, 6> kNames = {"root", "build-id cache", "path", "stash", "debuginfod", "vdso"};
  return kNames.at(static_cast<size_t>(place));
}

Bytes host_vdso() {
  const auto* start = reinterpret_cast<const std::byte*>(getauxval(AT_SYSINFO_EHDR));
  if (start == nullptr) return {};
  // The section header table ends the image; without one the last PT_LOAD does. Both are read from the (trusted) kernel.
  std::array<uint8_t, 64> header{};
  std::memcpy(header.data(), start, header.size());
  uint64_t section_offset = 0;
  uint16_t entry_size = 0, entries = 0;
  std::memcpy(&section_offset, &header[40], sizeof section_offset);
  std::memcpy(&entry_size, &header[58], sizeof entry_size);
  std::memcpy(&entries, &header[60], sizeof entries);
  uint64_t size = section_offset + uint64_t{entry_size} * entries;
  size = (size + 4095) & ~uint64_t{4095};
  return size == 0 || size > kMaxVdsoBytes ? Bytes{} : Bytes(start, size);
}

CodeSource::CodeSource(CodeSourceOptions options) : options_(std::move(options)) {}

const CodeSource::OpenFile& CodeSource::open_file(const std::string& path, FoundAt place) {
  const auto known = files_.find(path);
  if (known != files_.end()) return known->second;
  OpenFile opened;
  const bool all = std::find(options_.symfs.begin(), options_.symfs.end(), "/") != options_.symfs.end();
  const std::string own = all ? std::string() : own_name(path);
  const RegularFile regular = !own.empty()             ? open_beneath(options_.own_folder, own)
                              : place == FoundAt::path ? open_recorded(path)
                                                       : open_regular(path);
  opened.outside = regular.outside;
  const bool absent = regular.error == ENOENT || regular.error == ENOTDIR || regular.error == EISDIR || regular.error == EINVAL;
  if (regular.error != 0 && !regular.outside && !absent) opened.trouble = regular.why();
  auto file = MappedFile::open(regular, path);
  if (file.ok()) {
    const KnownElfs::Known& same = elfs_.of(std::move(file).value());
    opened.file = same.file;
    opened.elf = same.elf;
  }
  return files_.emplace(path, std::move(opened)).first->second;
}

std::vector<CodeSource::Place> CodeSource::roots(const MappedPath& wanted) const {
  std::vector<Place> places;
  const std::string below = path_below_root(wanted.path);
  if (wanted.roots != nullptr) {
    for (const std::string& root : *wanted.roots) places.push_back({root + below, FoundAt::root});
  }
  for (const std::string& root : options_.symfs) {
    places.push_back({root + below, FoundAt::root});
    if (!wanted.path.starts_with('[') && !wanted.build_id.empty()) places.push_back({root + "/" + base_name(wanted.path), FoundAt::root});
  }
  return places;
}

std::vector<CodeSource::Place> CodeSource::places(const MappedPath& wanted) const {
  std::vector<Place> places;
  for (std::string& place : cache_paths(options_.build_id_cache, wanted.build_id, "elf"))
    places.push_back({std::move(place), FoundAt::build_id_cache});
  const bool here = options_.same_host && wanted.roots == nullptr;
  const bool host = options_.use_host_files && (here || !wanted.build_id.empty());
  if (host && wanted.path.starts_with('/')) places.push_back({wanted.path, FoundAt::path});
  return places;
}

/// Registers an open file under its own path for later lookups, and returns the path.
const std::string& CodeSource::remember(const std::shared_ptr<const MappedFile>& file) {
  OpenFile& opened = files_[file->path()];
  if (!opened.file) {
    opened.file = file;
    auto elf = ElfFile::open(file);
    if (elf.ok()) opened.elf = std::move(elf).value();
  }
  return file->path();
}

bool CodeSource::try_kept_mapping(const MappedPath& wanted, FoundCode& found) {
  if (!options_.saved || wanted.pid < 0) return false;
  const SavedFiles::OfMapping kept = options_.saved->of_mapping(wanted);
  if (!kept.file) return false;
  const std::string& path = remember(kept.file);
  if (!kept.whole_is_mapping) return try_place({path, FoundAt::kept}, wanted, found);
  found.status = CodeStatus::found;
  found.place = FoundAt::kept;
  found.proof = "kept in the stash";
  found.is_copy = !is_vdso(wanted.path);
  found.code = piece_of(kept.file, 0, wanted.size_bytes);
  found.file_path = path;
  if (const OpenFile& opened = open_file(path); opened.elf) found.build_id = opened.elf->build_id();
  return true;
}

bool CodeSource::try_kept_build_id(const MappedPath& wanted, FoundCode& found) {
  if (!options_.saved || wanted.build_id.empty()) return false;
  for (const std::shared_ptr<const MappedFile>& file : options_.saved->with_build_id(wanted.build_id)) {
    if (try_place({remember(file), FoundAt::kept}, wanted, found)) return true;
  }
  return false;
}

std::string CodeSource::own_name(const std::string& path) const {
  namespace fs = std::filesystem;
  const std::string& folder = options_.own_folder;
  std::error_code error;
  if (folder.empty() || !path.starts_with('/') || !fs::is_directory(folder, error)) return {};
  if (std::string name = name_below(folder, path); !name.empty()) return name;
  // The path may reach the same folder in another way. Its last link is followed only when the file is opened.
  const std::string parent = fs::weakly_canonical(dir_name(path), error).string();
  return error ? std::string() : name_below(fs::canonical(folder, error).string(), parent + "/" + base_name(path));
}

bool CodeSource::try_place(const Place& where, const MappedPath& wanted, FoundCode& found) {
  const std::string& place = where.path;
  const OpenFile& opened = open_file(place, where.kind);
  const auto refuse = [&](CodeStatus status) {
    found.status = status;
    found.file_path = place;
    return false;
  };
  if (opened.outside) (void)refuse(CodeStatus::outside);
  if (!opened.file && !opened.trouble.empty()) {
    found.report(FindingKind::file_missing, place + " cannot be read (" + opened.trouble + "): not used");
    return refuse(CodeStatus::unreadable);
  }
  if (!opened.file) return false;
  const std::string build_id = opened.elf ? opened.elf->build_id() : std::string();
  if (!wanted.build_id.empty() && !same_build_id(wanted.build_id, build_id)) {
    found.build_id = build_id;
    found.report(FindingKind::build_id_mismatch, place + " has build id " + (build_id.empty() ? "(none)" : build_id) + ", but " +
                                                     wanted.path + " was recorded with " + wanted.build_id + ": not used");
    return refuse(CodeStatus::wrong_build_id);
  }
  Doubt doubt = doubt_of(where, opened, wanted);
  if (doubt.other) {
    found.report(FindingKind::file_changed, place + " " + doubt.reason + ": not used");
    return refuse(CodeStatus::replaced);
  }
  const char* proof = proof_of(where, opened, wanted);
  if (proof == nullptr) return refuse(CodeStatus::unproven);
  if (const Lack lack = lack_of(opened, wanted); lack.status != CodeStatus::found) {
    found.report(FindingKind::file_changed, place + " " + lack.reason + ": not used");
    return refuse(lack.status);
  }
  CodeBytes code = piece_of(opened.file, wanted.file_offset_bytes, wanted.size_bytes);
  constexpr uint64_t kPage = 4096;
  const bool short_file = code.bytes.size() + kPage <= wanted.size_bytes;
  if (wanted.build_id.empty() && short_file) doubt.reason = "is shorter than its mapping, and no build id was recorded to check it";
  if (!doubt.reason.empty()) found.report(FindingKind::file_changed, place + " " + doubt.reason);
  found.assumed = doubt.assumed;
  found.doubted = doubt.assumed && !doubt.reason.empty();
  found.status = CodeStatus::found;
  found.place = where.kind;
  found.proof = proof;
  found.elf = opened.elf;
  found.code = std::move(code);
  found.file_path = place;
  found.build_id = build_id;
  return true;
}

bool CodeSource::try_build(const Place& place, const MappedPath& wanted, FoundCode& found) {
  if (!try_place(place, wanted, found)) return false;
  if (!wanted.build_id.empty()) found.by_id_alone = !prefer_saved(place, wanted, found);
  return true;
}

bool fits_address(Bytes vdso, uint64_t address) {
  constexpr size_t kClassAt = 4;  // EI_CLASS
  constexpr std::byte kElf64{2};
  return address == 0 || vdso.size() <= kClassAt || (vdso[kClassAt] == kElf64) == (address > UINT32_MAX);
}

bool CodeSource::try_host_vdso(const MappedPath& wanted, FoundCode& found) const {
  const Bytes own = options_.use_host_files && !wanted.build_id.empty() ? host_vdso() : Bytes{};
  if (!fits_address(own, wanted.address)) return false;
  // Notes of the vdso lie within its first pages; scan the few offsets at which a note header can start.
  for (uint64_t at = 0; at + 16 < own.size(); at += 4) {
    static constexpr std::array<unsigned char, 8> kTypeAndName = {3, 0, 0, 0, 'G', 'N', 'U', 0};
    if (std::memcmp(own.data() + at + 8, kTypeAndName.data(), kTypeAndName.size()) != 0) continue;
    if (!same_build_id(wanted.build_id, build_id_in_notes(own.subspan(at)))) continue;
    found.status = CodeStatus::found;
    found.place = FoundAt::vdso;
    found.proof = "this machine's vdso has the recorded build id";
    found.code = own_bytes(own.subspan(0, std::min<uint64_t>(own.size(), wanted.size_bytes)));
    found.file_path = "[vdso]";
    found.build_id = wanted.build_id;
    return true;
  }
  return false;
}

// perf's header may have one build id for the vdsos of all processes, which have one name: a file with it need not be that of this process.
FoundCode CodeSource::find_vdso(const MappedPath& wanted) {
  FoundCode found;
  std::vector<Place> candidates;
  for (const std::string& root : options_.symfs) {
    for (const char* file : {"/[vdso]", "/vdso.so", "/vdso64.so", "/vdso32.so"}) candidates.push_back({root + file, FoundAt::root});
  }
  if (!wanted.build_id.empty()) {
    const FoundAt cache = FoundAt::build_id_cache;
    for (std::string& place : cache_paths(options_.build_id_cache, wanted.build_id, "vdso"))
      candidates.push_back({std::move(place), cache});
    if (!options_.build_id_cache.empty()) candidates.push_back({options_.build_id_cache + "/[vdso]/" + wanted.build_id + "/vdso", cache});
  }
  for (const Place& place : candidates) {
    if (!is_regular_file(place.path)) continue;
    const OpenFile& opened = open_file(place.path, place.kind);
    if (opened.file && !fits_address(opened.file->bytes(), wanted.address)) continue;
    if (try_place(place, wanted, found)) return found;
  }
  if (try_kept_mapping(wanted, found)) return found;
  if (try_kept_build_id(wanted, found) && fits_address(found.code.bytes, wanted.address)) return found;
  FoundCode own;
  if (try_host_vdso(wanted, own)) return own;
  if (found.status == CodeStatus::found) return {};
  return found;
}

bool CodeSource::is_other_vdso(const MappedPath& wanted) {
  if (!is_vdso(wanted.path) || wanted.build_id.empty()) return false;
  const auto [known, is_new] = vdsos_.try_emplace(wanted.build_id);
  if (is_new) known->second = find_vdso({wanted.path, wanted.build_id, 0, kMaxVdsoBytes}).code;
  return !fits_address(known->second.bytes, wanted.address);
}

bool CodeSource::find_file(const MappedPath& wanted, FoundCode& found) {
  const bool proven = !wanted.build_id.empty();
  for (const Place& place : roots(wanted)) {
    if (try_build(place, wanted, found)) return true;
  }
  if (!proven && try_kept_mapping(wanted, found)) return true;
  for (const Place& place : places(wanted)) {
    if (try_build(place, wanted, found)) return true;
  }
  if (!proven) return false;
  if (try_kept_mapping(wanted, found) || try_kept_build_id(wanted, found)) return true;
  if (!options_.debuginfod) return false;
  const std::string fetched = options_.debuginfod->find(wanted.build_id, false, wanted.file_offset_bytes + wanted.size_bytes);
  return !fetched.empty() && try_place({fetched, FoundAt::debuginfod}, wanted, found);
}

bool CodeSource::is_at_its_path(const MappedPath& wanted) {
  const auto is_it = [&](const Place& place) {
    if (!place.path.ends_with(kDeleted)) return false;  // in a cache
    const OpenFile& opened = open_file(place.path, place.kind);
    if (!opened.file) return false;
    if (!wanted.build_id.empty()) return opened.elf != nullptr && same_build_id(wanted.build_id, opened.elf->build_id());
    return place.kind == FoundAt::root || (wanted.file_id.inode != 0 && !doubt_of(place, opened, wanted).other);
  };
  const std::vector<Place> below = roots(wanted), others = places(wanted);
  return std::any_of(below.begin(), below.end(), is_it) || std::any_of(others.begin(), others.end(), is_it);
}

FoundCode CodeSource::find(const MappedPath& wanted_raw) {
  check_interrupt();
  MappedPath wanted = wanted_raw;
  FoundCode found;
  if (is_vdso(wanted.path)) {
    found = find_vdso(wanted);
  } else if (is_anonymous(wanted.path) && try_kept_mapping(wanted, found)) {
    // Memory that changes is kept as it was.
  } else if (is_anonymous(wanted.path) && wanted.build_id.empty()) {
    found.status = CodeStatus::anonymous;
    return found;
  } else {  // a build id is that of a file, which may be in a memfd
    const bool deleted = wanted.path.ends_with(kDeleted) && !is_at_its_path(wanted);
    if (deleted) wanted.path.resize(wanted.path.size() - kDeleted.size());
    // A deleted file's path may now lead to another file: only a build id or a saved copy proves the bytes.
    if (deleted && wanted.build_id.empty()) {
      if (!try_kept_mapping(wanted_raw, found)) {
        found.status = CodeStatus::deleted;
        return found;
      }
    } else if (!find_file(wanted, found)) {
      if (deleted && found.status == CodeStatus::not_found) found.status = CodeStatus::deleted;
    }
  }
  if (found.status == CodeStatus::found) {
    // Drop the findings about files that were refused before the right one was found.
    std::erase_if(found.findings, [&](const Finding& finding) {
      return finding.kind == FindingKind::build_id_mismatch || finding.what.ends_with(": not used");
    });
  } else if (found.findings.empty()) {
    const std::string what = wanted.path + (wanted.build_id.empty() ? "" : " (build id " + wanted.build_id + ")");
    const bool refused = found.status == CodeStatus::outside || found.status == CodeStatus::unproven;
    found.report(FindingKind::file_missing,
                 what + (refused ? std::string(" is not read: ") + sentence(found.status) : " was not found" + supply_of(wanted.path)));
  }
  return found;
}

std::vector<std::string> CodeSource::linked_files(const std::string& elf_path, const std::string& recorded_path, const ElfFile& elf,
                                                  const std::vector<std::string>& dirs) const {
  const std::string& name = elf.debug_link().name;
  if (name.empty() || name.find('/') != std::string::npos) return {};
  std::vector<std::string> folders{dir_name(elf_path)}, files;
  const bool may_be_here = options_.use_host_files && recorded_path.starts_with('/');
  if (may_be_here && !elf.build_id().empty()) folders.push_back(dir_name(recorded_path));  // a recording may name any folder
  for (const std::string& dir : folders) {
    files.push_back(dir + "/" + name);
    files.push_back(dir + "/.debug/" + name);
    for (const std::string& root : dirs) files.push_back(root + (dir.starts_with('/') ? "" : "/") + dir + "/" + name);
  }
  return files;
}

FoundDebugFile CodeSource::find_debug_file(const std::string& elf_path, const std::string& recorded_path) {
  const std::shared_ptr<const ElfFile> elf = open_file(elf_path).elf;
  if (!elf || (elf->has_symtab() && elf->has_lines())) return {};
  const std::string& build_id = elf->build_id();
  std::vector<std::string> dirs;
  for (const std::string& root : options_.symfs) {
    for (const std::string& dir : options_.debug_dirs) dirs.push_back(root + dir);
  }
  dirs.insert(dirs.end(), options_.debug_dirs.begin(), options_.debug_dirs.end());
  const auto opened = [&](const std::string& path) -> std::shared_ptr<const ElfFile> {
    if (path.empty() || path == elf_path) return nullptr;
    const OpenFile& file = open_file(path);
    return file.elf && (file.elf->has_symtab() || file.elf->has_lines()) ? file.elf : nullptr;
  };
  if (!build_id.empty()) {
    std::vector<std::string> candidates;
    for (const std::string& dir : dirs) candidates.push_back(debug_path(dir, build_id));
    for (std::string& place : cache_paths(options_.build_id_cache, build_id, "debug")) candidates.push_back(std::move(place));
    for (const std::string& candidate : candidates) {
      const auto debug = opened(candidate);
      if (debug && same_build_id(build_id, debug->build_id())) return {candidate, {}};
    }
  }
  FoundDebugFile found;
  for (const std::string& candidate : linked_files(elf_path, recorded_path, *elf, dirs)) {
    const auto debug = opened(candidate);
    if (!debug) continue;
    const bool other_id = !build_id.empty() && !debug->build_id().empty() && !same_build_id(build_id, debug->build_id());
    if (!other_id && crc32_of(debug->file()->bytes()) == elf->debug_link().crc32) return {candidate, std::move(found.refused)};
    std::string why = other_id ? "it has another build id" : "its CRC is not the one in .gnu_debuglink";
    found.refused.push_back(candidate + ": not the debug information of " + elf_path + ", because " + std::move(why) +
                            ": not used. Supply the right file, or install its debug package");
  }
  return found;
}

namespace {

bool is_release(const std::string& text) { return !text.empty() && text.find('/') == std::string::npos && text != "." && text != ".."; }

}  // namespace

std::vector<std::string> CodeSource::kernel_paths(const std::string& os_release) const {
  std::vector<std::string> paths;
  const std::string below_lib = "/lib/modules/" + os_release;
  std::vector<std::string> roots = options_.symfs;
  if (options_.use_host_files) roots.emplace_back();
  for (const std::string& root : roots) {
    paths.push_back(root + "/vmlinux");
    if (!is_release(os_release)) continue;
    paths.push_back(root + "/boot/vmlinux-" + os_release);
    paths.push_back(root + below_lib + "/build/vmlinux");
    paths.push_back(root + below_lib + "/vmlinux");
    for (const std::string& dir : options_.debug_dirs) {
      paths.push_back(root + dir + "/boot/vmlinux-" + os_release);
      paths.push_back(root + dir + below_lib + "/vmlinux");
    }
  }
  return paths;
}

std::shared_ptr<const ElfFile> CodeSource::find_vmlinux(const std::string& build_id_hex, const std::string& os_release) {
  if (build_id_hex.empty()) return nullptr;
  std::vector<std::string> candidates = kernel_paths(os_release);
  for (std::string& place : cache_paths(options_.build_id_cache, build_id_hex, "elf")) candidates.push_back(std::move(place));
  for (const std::string& dir : options_.debug_dirs) candidates.push_back(debug_path(dir, build_id_hex));
  for (const std::string& candidate : candidates) {
    if (candidate.empty()) continue;
    const OpenFile& opened = open_file(candidate);
    const bool is_it = opened.elf && same_build_id(build_id_hex, opened.elf->build_id());
    if (is_it && other_machine(family_, opened.elf->machine()).empty()) return opened.elf;
  }
  return nullptr;
}

std::vector<std::string> CodeSource::find_vmlinuxes_of_release(const std::string& os_release) {
  std::vector<std::string> found;
  for (const std::string& path : kernel_paths(os_release)) {
    if (open_file(path).elf) found.push_back(path);
  }
  return found;
}

std::vector<std::string> CodeSource::module_folders(const std::string& os_release) const {
  std::vector<std::string> folders;
  if (!is_release(os_release)) return folders;
  const std::string below_lib = "/lib/modules/" + os_release;
  std::vector<std::string> roots = options_.symfs;
  if (options_.use_host_files) roots.emplace_back();
  for (const std::string& root : roots) {
    for (const std::string& dir : options_.debug_dirs) folders.push_back(root + dir + below_lib);
  }
  for (const std::string& root : roots) folders.push_back(root + below_lib);
  return folders;
}

std::string CodeSource::find_cached_kallsyms(const std::string& build_id_hex) const {
  for (const std::string& place : cache_paths(options_.build_id_cache, build_id_hex, "kallsyms")) {
    if (is_regular_file(place)) return place;
  }
  return {};
}

}  // namespace ptd
