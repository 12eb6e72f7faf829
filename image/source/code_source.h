// CodeSource: finds the bytes of a mapped file by path and build id. The only I/O of the image room.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "image/source/debuginfod.h"
#include "image/source/elf_file.h"
#include "image/source/kept_files.h"
#include "image/source/mapped_file.h"
#include "ptdecode/finding.h"

namespace ptd {

/// Where files are looked for, in this order: symfs roots (below ROOT the recorded path; with a recorded build id also ROOT/NAME); without
/// a recorded build id what was kept of this recording, which is proof where a path is none; build-id cache; the path itself; with a build
/// id what was kept of this recording, then of any; debuginfod.
///
/// A recording may be hostile and name any file of this machine. A file at a recorded path is used only if one of these holds:
///   - it has the recorded build id;
///   - it is not known to be another file (below), and lies in the recording's own folder, and no link leads out of it;
///   - it is not known to be another file, and holds code (ELF, jitdump) or has the recorded inode. With `share` it must do both.
/// Without a recorded build id a file is known to be another one if its inode is not the recorded one, or if it was written to since the
/// recording was made; a jitdump may grow. It is used as `assumed` if no inode was recorded, or the device or the time of its last change
/// (ctime) raises doubt. With `share` it must also be as old as the recording.
/// A root that the user gives lifts this for what is below it: the root "/" for all. Devices and links of procfs are never opened.
struct CodeSourceOptions {
  std::vector<std::string> symfs;
  std::vector<std::string> debug_dirs;
  std::string build_id_cache;              ///< e.g. $HOME/.debug; "" for none
  bool use_host_files = true;              ///< false: never the path itself nor this machine's vdso
  bool same_host = true;                   ///< false: recorded elsewhere, so this machine's files count only with a recorded build id
  std::string own_folder;                  ///< the recording's; "" if it has none
  bool share = false;                      ///< the bytes are for others (a bundle)
  int64_t recorded_at_ns = 0;              ///< when the recording was made, nanoseconds since the epoch; 0: unknown
  std::shared_ptr<KeptFiles> kept;         ///< copies kept since the recording; null: none
  std::shared_ptr<Debuginfod> debuginfod;  ///< asked last, for files with a recorded build id; null: nobody is
};

/// What a record says about a mapping.
struct MappedPath {
  std::string path;
  std::string build_id;  ///< hex, "" if not recorded
  uint64_t file_offset_bytes = 0;
  uint64_t size_bytes = 0;
  /// Roots of the process's own file system, looked below before all else; then a path of this machine proves nothing without a build id.
  const std::vector<std::string>* roots = nullptr;
  int32_t pid = -1;  ///< with address and time: which mapping of the recording it is
  uint64_t address = 0, time_ns = 0;
  FileId file_id;
};

/// Why a mapping has bytes, or none.
enum class CodeStatus : uint8_t {
  found,
  not_found,       ///< no file at any of the places
  wrong_build_id,  ///< a file is there, but it is another build: refused
  anonymous,       ///< memory without a file: //anon, [heap], [stack], memfd
  deleted,         ///< the file was deleted when it was recorded
  too_short,       ///< the file ends before the mapping starts
  outside,         ///< the path leads out of the recording's folder: not read
  replaced,        ///< another file is at the path, or it was written to since it was recorded: not used
  unproven,        ///< nothing proves that the file at the path is what was mapped: not read
};
/// One sentence fragment for people: "file not found", "wrong build id", ...
[[nodiscard]] const char* sentence(CodeStatus status);

/// Which of the places a file was found at.
enum class FoundAt : uint8_t { root, build_id_cache, path, kept, debuginfod, vdso };
[[nodiscard]] const char* name(FoundAt place);

struct FoundCode {
  CodeStatus status = CodeStatus::not_found;
  FoundAt place = FoundAt::path;  ///< if found
  bool is_copy = false;           ///< of memory, as it was at some moment behind the record
  bool assumed = false;           ///< nothing proves that the file is the recorded one, and nothing speaks against it
  CodeBytes code;                 ///< bytes of the mapping, maybe shorter than asked
  std::string file_path;          ///< the file used, or the last one refused
  const char* proof = "";         ///< if found: why the file may be used, a sentence fragment
  std::shared_ptr<const ElfFile> elf;  ///< if found in an ELF file
  std::string build_id;           ///< of that file, hex
  std::vector<Finding> findings;  ///< build_id_mismatch, file_changed, file_missing; without space, ip and time
};

/// Not thread-safe. Files are opened once and shared.
class CodeSource {
 public:
  explicit CodeSource(CodeSourceOptions options);

  /// The recording turned out to be another machine's: see CodeSourceOptions::same_host. Before the first find().
  void set_same_host(bool same) { options_.same_host = same; }
  /// What was kept of this recording. Before the first find().
  void set_kept(std::shared_ptr<KeptFiles> kept) { options_.kept = std::move(kept); }

  /// The bytes that the mapping showed. With a recorded build id only a file with that id is used.
  FoundCode find(const MappedPath& wanted);
  /// The separate debug file of an ELF file that has no .symtab of its own: by build id below the debug directories and in the cache, then
  /// by .gnu_debuglink. "" if none is found or needed.
  std::string find_debug_file(const std::string& elf_path);
  /// A kernel image with exactly this build id: vmlinux below symfs roots, debug directories and the cache. Null if none.
  std::shared_ptr<const ElfFile> find_vmlinux(const std::string& build_id_hex, const std::string& os_release);
  /// Kernel images of the release, whatever their build ids, best first.
  std::vector<std::string> find_vmlinuxes_of_release(const std::string& os_release);
  /// Where modules of the release may be, best first.
  [[nodiscard]] std::vector<std::string> module_folders(const std::string& os_release) const;
  /// The recorded kernel's kallsyms in the build-id cache, "" if absent.
  std::string find_cached_kallsyms(const std::string& build_id_hex) const;
  [[nodiscard]] const CodeSourceOptions& options() const { return options_; }

 private:
  struct OpenFile {
    std::shared_ptr<const MappedFile> file;
    std::shared_ptr<const ElfFile> elf;  ///< null if it is no ELF file
    bool outside = false;                ///< not opened: it leads out of the recording's folder
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
  bool find_file(const MappedPath& wanted, FoundCode& found);
  bool try_place(const Place& place, const MappedPath& wanted, FoundCode& found);
  /// The name of a path within the recording's own folder; "" if it is not in it by name.
  [[nodiscard]] std::string own_name(const std::string& path) const;
  struct Doubt {
    std::string reason;     ///< a sentence fragment; "" for none
    bool other = false;     ///< the file is not the recorded one
    bool assumed = false;   ///< it may be another one
  };
  const char* proof_of(const Place& place, const OpenFile& opened, const MappedPath& wanted) const;
  [[nodiscard]] Doubt doubt_of(const Place& place, const OpenFile& opened, const MappedPath& wanted) const;
  bool try_kept_mapping(const MappedPath& wanted, FoundCode& found);
  bool try_kept_build_id(const MappedPath& wanted, FoundCode& found);
  const std::string& remember(const std::shared_ptr<const MappedFile>& file);
  CodeSourceOptions options_;
  std::unordered_map<std::string, OpenFile> files_;
  std::map<std::pair<uint64_t, uint64_t>, OpenFile> files_by_identity_;  ///< a path spelled in many ways is mapped once
};

/// True for mappings that have no file behind them: "//anon", "[heap]", "[stack]", "anon_inode:...", "/memfd:...", "/dev/zero", "/SYSV...".
[[nodiscard]] bool is_anonymous(const std::string& path);

/// The bytes of this process's vdso, empty if it has none.
[[nodiscard]] Bytes host_vdso();

}  // namespace ptd
