// CodeSource: finds the bytes of a mapped file by path and build id.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "image/base/mapped_file.h"
#include "image/mapped_kind.h"
#include "image/source/debuginfod.h"
#include "image/source/elf_file.h"
#include "image/source/record_times.h"
#include "image/source/saved_files.h"
#include "ptdecode/finding.h"

namespace ptd {

/// Files are searched in this order: symfs roots (below ROOT the recorded path; with a recorded build id also ROOT/NAME); without a
/// recorded build id the saved files of this recording, which are proven, unlike a path; build-id cache; the path itself; with a build
/// id the saved files of this recording, then of any recording; debuginfod.
///
/// A file with the recorded build id may have been changed in place, which leaves its build id. If its executable bytes differ from those
/// of the copy saved for this recording, the copy is used. Without such a copy, a file at its recorded path on the recording's machine that
/// was written to after it was mapped is used as `assumed`, unless that was after the recording and the only copy with that build id in the
/// stash is older than the recording.
/// Below a symfs root (of a process: if the file was created after it was mapped), and on another machine, the build id is proof enough:
/// copies there are new files. FoundCode::by_id_alone says so if there is
/// no saved copy to compare with.
///
/// A recording may be hostile and name any file of this machine. A file at a recorded path is used only if one of these holds:
///   - it has the recorded build id;
///   - it is not known to be another file (below), is in the recording's own folder, and no link leads outside it;
///   - it is not known to be another file, and contains code (ELF, jitdump) or has the recorded inode. With `share`, both must hold.
/// Without a recorded build id, a file is known to be another one if its inode is not the recorded one, or if it was created or written to
/// after it was mapped (shared mappings show what is written later); a jitdump may grow. It is used as `assumed` if no inode was recorded,
/// or if the device or the time of its last change (ctime) raises doubt. With `share`, it must also be as old as the recording.
/// These rules do not apply below a root that the user gives; the root "/" lifts them for all files. Devices and procfs links are never
/// opened.
struct CodeSourceOptions {
  std::vector<std::string> symfs;
  std::vector<std::string> debug_dirs;
  std::string build_id_cache;              ///< e.g. $HOME/.debug; "" for none
  bool use_host_files = true;              ///< false: never the path itself nor this machine's vdso
  bool same_host = true;                   ///< false: recorded elsewhere, so this machine's files count only with a recorded build id
  std::string own_folder;                  ///< the recording's; "" if it has none
  bool share = false;                      ///< the bytes are for others (a bundle)
  int64_t recorded_at_ns = 0;              ///< when the recording was made, nanoseconds since the epoch; 0: unknown
  std::shared_ptr<SavedFiles> saved;       ///< copies saved at recording time; null: none
  std::shared_ptr<Debuginfod> debuginfod;  ///< queried last, for files with a recorded build id; null: not used
};

/// A mapping, as recorded.
struct MappedPath {
  std::string path;
  std::string build_id;  ///< hex, "" if not recorded
  uint64_t file_offset_bytes = 0;
  uint64_t size_bytes = 0;
  /// Roots of the process's own file system, searched first. If set, a path on this machine proves nothing without a build id.
  const std::vector<std::string>* roots = nullptr;
  int32_t pid = -1;  ///< with address and time: which mapping of the recording it is
  uint64_t address = 0, time_ns = 0;
  FileId file_id{};
  bool shared = false;  ///< MAP_SHARED: writes to the file are visible in the mapping
};

/// Why a mapping has bytes or has none.
enum class CodeStatus : uint8_t {
  found,
  not_found,       ///< no file at any of the searched paths
  wrong_build_id,  ///< a file exists but is another build: refused
  anonymous,       ///< memory without a file: //anon, [heap], [stack], memfd
  deleted,         ///< the file was deleted when it was recorded
  too_short,       ///< the file ends before the mapping starts
  cut,             ///< an ELF file that ends within the mapped part of its segments
  other_machine,   ///< an ELF file for processors of another family
  debug_only,      ///< a separate debug file: its sections of code have no bytes
  unreadable,      ///< a file exists, but the system refuses to open it
  outside,         ///< the path leads out of the recording's folder: not read
  replaced,        ///< another file is at the path, or it was written to since it was recorded: not used
  unproven,        ///< no proof that the file at the path is the mapped one: not read
};
/// Returns a sentence fragment: "file not found", "wrong build id", ...
[[nodiscard]] const char* sentence(CodeStatus status);

/// The place at which a file was found.
enum class FoundAt : uint8_t { root, build_id_cache, path, kept, debuginfod, vdso };
[[nodiscard]] const char* name(FoundAt place);

struct FoundCode {
  CodeStatus status = CodeStatus::not_found;
  FoundAt place = FoundAt::path;       ///< if found
  bool is_copy = false;                ///< a copy of memory, taken some time after the record
  bool assumed = false;                ///< nothing proves that the file is the recorded one, and nothing contradicts it
  bool doubted = false;                ///< assumed, and a finding says what raises the doubt
  bool by_id_alone = false;            ///< nothing but the recorded build id, which a changed file keeps, proves the content
  CodeBytes code;                      ///< bytes of the mapping, possibly fewer than requested
  std::string file_path;               ///< the file used, or the last one refused
  const char* proof = "";              ///< if found: why the file may be used, a sentence fragment
  std::shared_ptr<const ElfFile> elf;  ///< if found in an ELF file
  std::string build_id;                ///< of that file, hex
  std::vector<Finding> findings;       ///< build_id_mismatch, file_changed, file_missing; without space, ip and time
  /// Adds a finding.
  void report(FindingKind kind, std::string what);
};

/// A separate debug file.
struct FoundDebugFile {
  std::string path;                  ///< "": none
  std::vector<std::string> refused;  ///< a sentence for each file that .gnu_debuglink names and that belongs to another program
};

/// Not thread-safe. Files are opened once and shared.
class CodeSource {
 public:
  explicit CodeSource(CodeSourceOptions options);

  /// Declares that the recording is from another machine: see CodeSourceOptions::same_host. Call before the first find().
  void set_same_host(bool same) { options_.same_host = same; }
  /// Sets the processors that were traced: files of others are not used. Call before the first find().
  void set_family(CodeFamily family) { family_ = family; }
  [[nodiscard]] CodeFamily family() const { return family_; }
  /// Sets the times of the records, from which the age of a mapping follows. Without them, each mapping is as old as the recording. An
  /// emulator's clock may run faster than this machine's: its recorder compares the files instead. Call before the first find().
  void set_record_times(const RecordTimes& times) { times_ = times; }
  /// Declares that the file of a mapping (process, address, time) was written to while the recording was made. Call before the first
  /// find().
  void add_rewritten(int32_t pid, uint64_t address, uint64_t time_ns) { rewritten_.emplace(pid, address, time_ns); }
  /// Sets the saved files of this recording. Call before the first find().
  void set_saved(std::shared_ptr<SavedFiles> saved) { options_.saved = std::move(saved); }

  /// Returns the bytes of the mapping. With a recorded build id, only a file with that id is used.
  FoundCode find(const MappedPath& wanted);
  /// How the file that is at a mapping's path now relates to a build id that was read from the path when the recording ended.
  enum class ListedId : uint8_t {
    unknown,   ///< the file says nothing: it has another build id, was made later, or is of another machine
    proven,    ///< it has the build id, and it is the file that was mapped
    doubtful,  ///< it has the build id, and may be another file than the one that was mapped
    other,     ///< it has the build id, was there when the recording ended, and is another file than the one that was mapped
  };
  /// `wanted` has that build id.
  ListedId check_listed_id(const MappedPath& wanted);
  /// Returns whether the mapping is a vdso, but not the one with its build id: the latter cannot be at that address. perf's header has a
  /// build id by path, and the vdsos of all processes have one path.
  [[nodiscard]] bool is_other_vdso(const MappedPath& wanted);
  /// Returns the separate debug file of an ELF file without .symtab or without lines: by build id below the debug directories and in the
  /// cache, then by .gnu_debuglink, also next to `recorded_path`. A file that the link names must have the link's CRC, and the build id if
  /// both have one; a file found by build id needs no CRC.
  FoundDebugFile find_debug_file(const std::string& elf_path, const std::string& recorded_path);
  /// Returns a saved copy of the file that find() gave for a mapping, if that was written to since it was saved or recorded and its code is
  /// still the same: the copy may have symbols and lines that the file has lost (strip). "" if there is none.
  std::string find_saved_symbols(const MappedPath& wanted, const FoundCode& found);
  /// Returns a kernel image with exactly this build id: vmlinux below symfs roots, debug directories and the cache. Null if there is none.
  std::shared_ptr<const ElfFile> find_vmlinux(const std::string& build_id_hex, const std::string& os_release);
  /// Returns kernel images of the release with any build id, best first.
  std::vector<std::string> find_vmlinuxes_of_release(const std::string& os_release);
  /// Returns the folders in which modules of the release may be, best first.
  [[nodiscard]] std::vector<std::string> module_folders(const std::string& os_release) const;
  /// Returns the path of the recorded kernel's kallsyms in the build-id cache, "" if absent.
  std::string find_cached_kallsyms(const std::string& build_id_hex) const;
  [[nodiscard]] const CodeSourceOptions& options() const { return options_; }

 private:
  struct OpenFile;
  std::vector<std::string> linked_files(const std::string& elf_path, const std::string& recorded_path, const ElfFile& elf,
                                        const std::vector<std::string>& dirs) const;
  struct OpenFile {
    std::shared_ptr<const MappedFile> file;
    std::shared_ptr<const ElfFile> elf;            ///< null if it is not an ELF file
    bool outside = false;                          ///< not opened: the path leads out of the recording's folder
    std::string trouble;                           ///< not opened: why the system refused, "" if there is no file
    mutable std::optional<FileId> mapped_id = {};  ///< of `file`, once it was read from this process's memory map
  };
  const OpenFile& open_file(const std::string& path, FoundAt place = FoundAt::root);
  struct Place {
    std::string path;
    FoundAt kind = FoundAt::path;
  };
  [[nodiscard]] std::vector<std::string> kernel_paths(const std::string& os_release) const;
  std::vector<Place> roots(const MappedPath& wanted) const;
  std::vector<Place> places(const MappedPath& wanted) const;
  FoundCode find_vdso(const MappedPath& wanted);
  bool try_host_vdso(const MappedPath& wanted, FoundCode& found) const;
  /// Returns whether the mapped file is at the recorded path: a file's name may end as the path of a deleted file does.
  bool is_at_its_path(const MappedPath& wanted);
  bool find_file(const MappedPath& wanted, FoundCode& found);
  bool try_place(const Place& place, const MappedPath& wanted, FoundCode& found);
  /// Returns the name of a path within the recording's own folder; "" if the path is not below it by name.
  [[nodiscard]] std::string own_name(const std::string& path) const;
  struct Doubt {
    std::string reason;    ///< a sentence fragment; "" for none
    bool other = false;    ///< the file is not the recorded one
    bool assumed = false;  ///< it may be another file
  };
  const char* proof_of(const Place& place, const OpenFile& opened, const MappedPath& wanted) const;
  [[nodiscard]] bool is_told_rewritten(const MappedPath& wanted) const {
    return rewritten_.contains({wanted.pid, wanted.address, wanted.time_ns});
  }
  [[nodiscard]] bool is_rewritten(const MappedFile& file, const MappedPath& wanted) const;
  [[nodiscard]] Doubt doubt_of_age(const OpenFile& opened, const MappedPath& wanted) const;
  struct Lack {
    CodeStatus status = CodeStatus::found;
    std::string reason;  ///< a sentence fragment
  };
  /// Returns what an opened file lacks of the mapping's bytes.
  [[nodiscard]] Lack lack_of(const OpenFile& opened, const MappedPath& wanted) const;
  [[nodiscard]] static FileId id_of(const OpenFile& opened, const FileId& recorded);
  [[nodiscard]] Doubt doubt_of(const Place& place, const OpenFile& opened, const MappedPath& wanted) const;
  bool try_build(const Place& place, const MappedPath& wanted, FoundCode& found);
  bool prefer_saved(const Place& place, const MappedPath& wanted, FoundCode& found);
  bool check_copy(const MappedPath& wanted, FoundCode copy, FoundCode& found);
  [[nodiscard]] bool is_unchanged(const Place& place, const MappedPath& wanted);
  [[nodiscard]] bool is_recorded_file(const Place& place, const MappedPath& wanted);
  bool try_kept_mapping(const MappedPath& wanted, FoundCode& found);
  bool try_kept_build_id(const MappedPath& wanted, FoundCode& found);
  const std::string& remember(const std::shared_ptr<const MappedFile>& file);
  CodeSourceOptions options_;
  CodeFamily family_ = CodeFamily::unknown;
  RecordTimes times_;
  std::set<std::tuple<int32_t, uint64_t, uint64_t>> rewritten_;  ///< mappings: see add_rewritten()
  std::unordered_map<std::string, OpenFile> files_;
  std::unordered_map<std::string, CodeBytes> vdsos_;  // by build id: those that is_other_vdso() looked for
  KnownElfs elfs_;
  std::map<std::tuple<std::string, std::string, uint64_t, uint64_t>, bool> same_code_;  ///< by two files, offset and size
};

/// Returns whether a vdso may be mapped at `address` (0: unknown): only those of 32-bit processes, which are ELF32 files, are below 4 GiB.
[[nodiscard]] bool fits_address(Bytes vdso, uint64_t address);
/// Returns the bytes of this process's vdso, empty if it has none.
[[nodiscard]] Bytes host_vdso();

}  // namespace ptd
