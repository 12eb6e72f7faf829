// CodeSource: which files may be used for a mapping, and which of them raise doubt.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>

#include "image/source/build_id.h"
#include "image/source/code_source.h"
#include "image/source/jitdump.h"

namespace ptd {
namespace {

/// Returns when the file was created, in nanoseconds since the epoch; 0: unknown.
int64_t created_ns(const MappedFile& file) {
  struct statx info {};
  const bool same = ::statx(AT_FDCWD, file.path().c_str(), AT_SYMLINK_NOFOLLOW, STATX_BTIME | STATX_INO, &info) == 0 &&
                    (info.stx_mask & STATX_BTIME) != 0 &&
                    file.identity() == std::pair<uint64_t, uint64_t>(makedev(info.stx_dev_major, info.stx_dev_minor), info.stx_ino);
  return same ? info.stx_btime.tv_sec * 1'000'000'000 + info.stx_btime.tv_nsec : 0;
}

bool is_device(const FileId& found, const FileId& recorded) {
  return (recorded.maj == 0 && recorded.min == 0) || (found.maj == recorded.maj && found.min == recorded.min);
}

/// Returns whether two files have the same executable bytes in a mapping. `copy` says which these are; without executable segments there,
/// those of all segments; without segments, all bytes. What a page has beside its segments is not loaded, and strip changes it.
bool same_code(const MappedPath& wanted, const FoundCode& copy, const FoundCode& other) {
  constexpr uint64_t kElfHeaderBytes = 64;  // its table of sections may have been stripped
  const Bytes ours = copy.code.bytes, theirs = other.code.bytes;
  const std::vector<ElfSegment> segments = copy.elf ? copy.elf->segments() : std::vector<ElfSegment>();
  for (const bool only_code : {true, false}) {
    bool any = false;
    for (const ElfSegment& segment : segments) {
      if (only_code && !segment.executable) continue;
      const uint64_t begin = std::max({segment.file_offset_bytes, wanted.file_offset_bytes, kElfHeaderBytes}) - wanted.file_offset_bytes;
      const uint64_t end = segment.file_offset_bytes + segment.file_size_bytes;  // within the file
      if (begin >= ours.size() || end <= wanted.file_offset_bytes + begin) continue;
      any = true;
      const uint64_t size = std::min<uint64_t>(end - wanted.file_offset_bytes, ours.size()) - begin;
      if (theirs.size() < begin + size || std::memcmp(ours.data() + begin, theirs.data() + begin, size) != 0) return false;
    }
    if (any) return true;
  }
  return std::equal(ours.begin(), ours.end(), theirs.begin(), theirs.end());
}

/// Returns whether both files have the same executable segments, so that an address means the same in both.
bool same_layout(const ElfFile& a, const ElfFile& b) {
  const auto code_of = [](const ElfFile& file) {
    std::vector<std::array<uint64_t, 3>> code;
    for (const ElfSegment& segment : file.segments()) {
      if (segment.executable) code.push_back({segment.address, segment.file_offset_bytes, segment.file_size_bytes});
    }
    return code;
  };
  return a.machine() == b.machine() && code_of(a) == code_of(b);
}

}  // namespace

void FoundCode::report(FindingKind kind, std::string what) {
  Finding finding;
  finding.kind = kind;
  finding.what = std::move(what);
  findings.push_back(std::move(finding));
}

/// Returns why a file may be used, see CodeSourceOptions; null if it may not.
const char* CodeSource::proof_of(const Place& place, const OpenFile& opened, const MappedPath& wanted) const {
  if (place.kind == FoundAt::kept) return "kept in the stash";
  if (!wanted.build_id.empty()) return "has the recorded build id";
  if (place.kind == FoundAt::root) return "below --symfs";
  if (!own_name(place.path).empty()) return "in the recording's folder";
  const bool is_code = opened.elf != nullptr || is_jitdump(opened.file->bytes());
  const bool same_inode = wanted.file_id.inode != 0;  // otherwise doubt_of() has refused it
  const bool newer = options_.recorded_at_ns != 0 && opened.file->modified_ns() > options_.recorded_at_ns;
  if (is_code && same_inode && !newer) return "has the recorded inode, and is no newer than the recording";
  if (!options_.share && is_code) return "holds code";
  if (!options_.share && same_inode) return "has the recorded inode";
  return nullptr;
}

/// Returns whether a file with the recorded build id was written to after it was mapped. A write sets both times; a modification time in
/// the future was set by hand.
bool CodeSource::is_rewritten(const MappedFile& file, const MappedPath& wanted) const {
  if (is_told_rewritten(wanted)) return true;
  const int64_t recorded_at = options_.recorded_at_ns;
  return recorded_at != 0 && std::min(file.modified_ns(), file.changed_ns()) > times_.latest_wall_ns(wanted.time_ns, recorded_at);
}

/// Returns what the times of a file without a recorded build id say against it.
CodeSource::Doubt CodeSource::doubt_of_age(const OpenFile& opened, const MappedPath& wanted) const {
  const int64_t recorded_at = options_.recorded_at_ns;
  if (is_jitdump(opened.file->bytes())) return {};
  const std::string unchecked = ", and no build id was recorded to check it", written = "was written to after it was mapped" + unchecked;
  if (is_told_rewritten(wanted)) return {written, !wanted.shared, true};
  if (recorded_at == 0) return {};
  if (opened.file->modified_ns() > recorded_at) return {"is newer than the recording" + unchecked, true, false};
  if (opened.file->changed_ns() > recorded_at)
    return {"changed after it was recorded, though its modification time is older" + unchecked, false, true};
  const int64_t mapped_by = times_.latest_wall_ns(wanted.time_ns, recorded_at);
  if (created_ns(*opened.file) > mapped_by)
    return {"was created after the recorded file was mapped: its inode number was used again", true, false};
  if (opened.file->modified_ns() > mapped_by) return {written, !wanted.shared, true};
  if (opened.file->changed_ns() > mapped_by)
    return {"changed after it was mapped, though its modification time is older" + unchecked, false, true};
  return {};
}

/// Returns the numbers of a file, of the two that it may have those that were recorded.
FileId CodeSource::id_of(const OpenFile& opened, const FileId& recorded) {
  const auto [device, inode] = opened.file->identity();
  const FileId found{major(device), minor(device), inode};
  if (recorded.inode == 0 || (inode == recorded.inode && is_device(found, recorded))) return found;
  if (!opened.mapped_id) opened.mapped_id = opened.file->mapped_id();  // any number of records may name another file
  return opened.mapped_id->inode == recorded.inode ? *opened.mapped_id : found;
}

CodeSource::ListedId CodeSource::check_listed_id(const MappedPath& wanted) {
  const FileId& recorded = wanted.file_id;
  const bool here = options_.same_host && options_.use_host_files && wanted.roots == nullptr;
  if (!here || recorded.inode == 0 || !wanted.path.starts_with('/')) return ListedId::unknown;
  const OpenFile& opened = open_file(wanted.path, FoundAt::path);
  if (!opened.elf || !same_build_id(wanted.build_id, opened.elf->build_id())) return ListedId::unknown;
  const int64_t recorded_at = options_.recorded_at_ns, created = created_ns(*opened.file);
  const FileId found = id_of(opened, recorded);
  const bool is_reused = recorded_at != 0 && created > times_.latest_wall_ns(wanted.time_ns, recorded_at);
  if (found.inode == recorded.inode && !is_reused) return ListedId::proven;
  if (recorded_at != 0 && created > recorded_at) return ListedId::unknown;
  const bool was_there = recorded_at != 0 && opened.file->changed_ns() <= recorded_at;
  return was_there && is_device(found, recorded) ? ListedId::other : ListedId::doubtful;
}

/// Returns the reasons to doubt a file at a recorded path without a recorded build id.
CodeSource::Doubt CodeSource::doubt_of(const Place& place, const OpenFile& opened, const MappedPath& wanted) const {
  if (place.kind != FoundAt::path || !wanted.build_id.empty()) return {};
  const FileId& recorded = wanted.file_id;
  const FileId found = id_of(opened, recorded);
  if (recorded.inode != 0 && found.inode != recorded.inode)
    return {"is another file than the recorded one (inode " + std::to_string(found.inode) + ", recorded " + std::to_string(recorded.inode) +
                ")",
            true, false};
  Doubt age = doubt_of_age(opened, wanted);
  if (age.other || recorded.inode == 0) return {std::move(age.reason), age.other, true};
  if (!is_device(found, recorded))
    return {"has the recorded inode number on another device, and no build id was recorded to check it", false, true};
  return age;
}

CodeSource::Lack CodeSource::lack_of(const OpenFile& opened, const MappedPath& wanted) const {
  const uint64_t size = opened.file->bytes().size(), first = wanted.file_offset_bytes;
  const std::string has = std::to_string(size) + " bytes";
  const std::string other = opened.elf ? other_machine(family_, opened.elf->machine()) : std::string();
  if (!other.empty()) return {CodeStatus::other_machine, other};
  if (opened.elf && opened.elf->lacks_code()) return {CodeStatus::debug_only, "is a separate debug file without code"};
  const uint64_t mapped_end = first + std::min(wanted.size_bytes, ~first);
  if (opened.elf && std::min(mapped_end, opened.elf->segments_end_bytes()) > size) {
    return {CodeStatus::cut,
            "is truncated: it has " + has + ", and its program headers name " + std::to_string(opened.elf->segments_end_bytes())};
  }
  if (first >= size) return {CodeStatus::too_short, "ends at " + has + ", before the mapped offset " + std::to_string(first)};
  return {};
}

/// Returns whether the file at `place` is the one that the recorded path names on the recording's machine, also by a hard link. Below a
/// root of a process it may be a copy: if it was created after it was mapped, it is one, and its times say nothing.
bool CodeSource::is_recorded_file(const Place& place, const MappedPath& wanted) {
  if (!options_.same_host) return false;
  if (place.kind == FoundAt::path) return true;
  if (place.kind == FoundAt::root) {
    const auto names_it = [&](const std::string& root) { return place.path == root + wanted.path; };
    if (wanted.roots == nullptr || !std::any_of(wanted.roots->begin(), wanted.roots->end(), names_it)) return false;
    return created_ns(*open_file(place.path, place.kind).file) <= times_.latest_wall_ns(wanted.time_ns, options_.recorded_at_ns);
  }
  std::error_code error;
  return place.kind == FoundAt::build_id_cache && std::filesystem::equivalent(place.path, wanted.path, error);
}

/// Replaces `found` by a saved copy if their code differs. Returns false if there is no copy.
bool CodeSource::check_copy(const MappedPath& wanted, FoundCode copy, FoundCode& found) {
  if (copy.status != CodeStatus::found || copy.is_copy) return false;
  const auto [known, is_new] = same_code_.try_emplace({copy.file_path, found.file_path, wanted.file_offset_bytes, wanted.size_bytes}, true);
  if (is_new) known->second = same_code(wanted, copy, found);
  if (known->second) return true;
  copy.findings = std::move(found.findings);
  copy.report(FindingKind::file_changed, found.file_path +
                                             " has the recorded build id, but was changed: its code differs from the "
                                             "copy in the stash, which is used");
  found = std::move(copy);
  return true;
}

/// Returns whether the file is that of the recorded path on the recording's machine, and was not written to since the recording.
bool CodeSource::is_unchanged(const Place& place, const MappedPath& wanted) {
  std::error_code error;
  const bool same = options_.same_host && (place.kind == FoundAt::path || is_recorded_file(place, wanted) ||
                                           std::filesystem::equivalent(place.path, wanted.path, error));
  return same && options_.recorded_at_ns != 0 && open_file(place.path, place.kind).file->changed_ns() <= options_.recorded_at_ns;
}

std::string CodeSource::find_saved_symbols(const MappedPath& wanted_raw, const FoundCode& found) {
  if (!options_.saved || !found.elf || found.is_copy || found.place == FoundAt::kept) return {};
  const Place place{found.file_path, found.place};
  const int64_t saved_at = wanted_raw.pid >= 0 ? options_.saved->saved_at_ns(wanted_raw) : 0;
  if (is_unchanged(place, wanted_raw) && (saved_at == 0 || found.elf->file()->changed_ns() <= saved_at)) return {};
  const auto is_same = [&](const FoundCode& copy) {
    return copy.status == CodeStatus::found && !copy.is_copy && copy.elf && same_layout(*copy.elf, *found.elf) &&
           same_code(wanted_raw, copy, found);
  };
  FoundCode copy;
  if (try_kept_mapping(wanted_raw, copy)) return is_same(copy) ? copy.file_path : std::string();
  if (wanted_raw.build_id.empty()) return {};
  for (const auto& saved : options_.saved->with_build_id(wanted_raw.build_id)) {
    FoundCode other;
    if (try_place({remember(saved), FoundAt::kept}, wanted_raw, other) && is_same(other)) return other.file_path;
  }
  return {};
}

/// Of a file with the recorded build id: checks it against saved copies, see CodeSourceOptions. Returns whether its content is proven.
bool CodeSource::prefer_saved(const Place& place, const MappedPath& wanted, FoundCode& found) {
  const MappedFile& file = *open_file(place.path, place.kind).file;
  const int64_t recorded_at = options_.recorded_at_ns;
  const bool rewritten = is_rewritten(file, wanted);
  const int64_t saved_at = options_.saved && wanted.pid >= 0 ? options_.saved->saved_at_ns(wanted) : 0;
  if (saved_at != 0) {  // of a file that was not written to after it was mapped
    const bool older = file.changed_ns() <= (recorded_at == 0 ? saved_at : std::min(saved_at, recorded_at));
    if (older && !rewritten && (place.kind == FoundAt::path || is_unchanged(place, wanted))) return true;
    FoundCode copy;
    if (try_kept_mapping(wanted, copy) && check_copy(wanted, std::move(copy), found)) return true;
  }
  if (!rewritten || !is_recorded_file(place, wanted)) return !rewritten && is_unchanged(place, wanted);
  // A copy from before the recording proves nothing if the file was written to since: there may have been copies of both contents.
  const bool later = !is_told_rewritten(wanted) && std::min(file.modified_ns(), file.changed_ns()) > recorded_at;
  std::vector<FoundCode> copies;
  for (const auto& saved :
       options_.saved&& later ? options_.saved->with_build_id(wanted.build_id) : std::vector<std::shared_ptr<const MappedFile>>()) {
    if (FoundCode copy; saved->modified_ns() <= recorded_at && try_place({remember(saved), FoundAt::kept}, wanted, copy))
      copies.push_back(std::move(copy));
  }
  if (copies.size() == 1 && check_copy(wanted, std::move(copies.front()), found)) return true;
  found.assumed = found.doubted = true;
  found.report(FindingKind::file_changed, found.file_path + " was written to after " + (later ? "the recording" : "it was mapped") +
                                              ": it has the recorded build id, but nothing proves that its code is unchanged");
  return true;
}

}  // namespace ptd
